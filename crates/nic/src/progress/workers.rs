//! Who runs the rounds: the NIC thread while nobody polls, else the polling threads of the program themselves.

use crate::progress::engine::{Nic, RoundInput};
use crate::services::ready::Occasion;
use crate::services::wake_request;
use pagewire_fabric::lock::heavy_barrier;
use pagewire_fabric::{Fabric, PageInThreads, TimerSlack};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long the NIC thread leaves the work to a polling program before it looks again: doubles from the first to the second while the
/// program goes on polling, and grows by a sixteenth each time from there to the third: a look costs the program what two changes
/// of threads do. The first is short: a program that polled until its own WRITE was complete may look only at its memory from
/// then on, and what is to come there waits for as long.
const POLLER_GRACE: (u64, u64, u64) = (10_000, 500_000, 2_000_000);
/// The longest while a queue pair needs the network: peers repeat what nobody takes
/// ([`MIN_PROBE`](pagewire_transport::limits::MIN_PROBE)).
const NETWORK_GRACE: u64 = 800_000;
/// The longest while a completion queue is armed: a program that polls another one may cease to, and sleep until the armed one fires,
/// without a word to the engine.
const ARMED_GRACE: u64 = 500_000;
/// A rest of so many nanoseconds or more may be longer by the second: it ends with a tick of the kernel's clock then, so
/// that there are fewer looks, none with an interrupt of its own. That a peer may have to repeat something is the price: once, where a
/// program that has polled without a pause for so long does something else. The next rest is short again.
const LONG_REST: (u64, NonZeroU64) = (NETWORK_GRACE, NonZeroU64::new(4_000_000).unwrap());
/// Nanoseconds behind its time after which the NIC thread sends a packet that the fabric held back, and that the program has not sent.
const HELD_GRACE: u64 = 100_000;
/// A program polls continuously if so many nanoseconds at most lie between a poll and the next one, on average. Where the network
/// is in use more is asked of it, see [`PollWatch::look`].
const POLL_INTERVAL: u64 = 2_000;
/// Nanoseconds of rest that say something of a program, however few its polls.
const REST_THAT_COUNTS: u64 = 50_000;
/// Fewer polls than this say nothing.
const POLLS_THAT_COUNT: u64 = 4;
/// Polls of empty queues after which the processor is offered to others: from the first, where somebody wanted it the last time, to
/// the second. Those that leave the round out count less.
const POLLS_BETWEEN_OFFERS: (u64, u64) = (64, 1024);
/// A polling program looks at the network only once in so many polls while no queue pair needs it.
const QUIET_NETWORK_POLLS: u64 = 1024;
/// A program that polls without a pause, and whose rounds come upon nothing but what a look would have found, runs one in each of so
/// many polls at most; in the others it looks only where its completions came from last.
const POLLS_PER_ROUND: u64 = 32;
/// So many polls that leave the round out take as long as one that does not, about.
const LOOKS_PER_ROUND: u64 = 3;
/// Nanoseconds for which the NIC thread looks again after something came in, before it sleeps. Waking it takes as long.
const STAY_AWAKE: u64 = 50_000;
/// Rounds that come upon something of which the last is followed by an offer of the processor to others.
const ROUNDS_PER_OFFER: u32 = 4;
/// An offer of the processor that takes so many nanoseconds was taken up by somebody.
const OFFER: u64 = 10_000;
/// Nanoseconds for which the NIC thread then goes to sleep at once: from the first to the second, the longer the more offers are
/// taken up. Now and then the kernel or the hypervisor takes one, and nobody else wants the processor.
const WANTED: (u64, u64) = (1_000_000, 100_000_000);

/// What the NIC thread and the threads that poll know of each other.
#[derive(Default)]
pub(crate) struct Workers {
    polls: AtomicU64,
    /// The last poll found nothing: the program waits for a completion. One thread may take back what another says.
    awaits: AtomicBool,
    /// Polls until the processor is offered to others.
    polls_to_offer: AtomicU64,
    /// Polls from the last offer of the processor to the next one.
    offer_interval: AtomicU64,
    /// Polls until one runs a round, and from the last round to the next one.
    polls_to_round: AtomicU64,
    round_interval: AtomicU64,
    /// A poll whose turn it was has left its round out, as it had found what it looked for.
    round_owed: AtomicBool,
}

impl Workers {
    /// A program's thread polls, or has so many polls' worth of completions; gives the number of the poll.
    #[inline]
    fn count_polls(&self, count: u64) -> u64 {
        // Lost counts of two threads at once do no harm.
        let polls = self.polls.load(Ordering::Relaxed).wrapping_add(count);
        self.polls.store(polls, Ordering::Relaxed);
        polls
    }
}

impl<F: Fabric> Nic<F> {
    /// Says whether the NIC thread leaves the work to the program for now, where there is no such thread: for a simulator.
    pub fn leave_work_to_polls(&self, leaves: bool) {
        self.services.arming.parked.store(leaves, Ordering::SeqCst);
    }

    /// A poll has ended.
    #[inline]
    pub(crate) fn note_poll(&self, found: usize) {
        self.workers.awaits.store(found == 0, Ordering::Relaxed);
    }

    /// Whether a poll that has looked where its completions come from, and found nothing, may leave it at that: it is one of many.
    pub(crate) fn may_skip_round(&self) -> bool {
        // Lost counts of two threads at once do no harm.
        let left = self.workers.polls_to_round.load(Ordering::Relaxed);
        if left == 0 || self.services.ready.urgency().is_some() || self.has_due_packet() {
            return false;
        }
        self.recheck_sleepers();
        self.workers.polls_to_round.store(left - 1, Ordering::Relaxed);
        self.workers.count_polls(1);
        true
    }

    /// Whether the fabric is to send a packet that it held back on purpose.
    fn has_due_packet(&self) -> bool {
        let until = self.fabric().held_until();
        until != u64::MAX && until <= self.fabric().now()
    }

    /// A poll has found what it looked for where it looked first, so many completions: it runs no round. Where that goes on, or
    /// something waits for one, the next poll does.
    #[inline]
    pub(crate) fn record_hint_hit(&self, completions: u64) {
        // Lost counts of two threads at once do no harm.
        let left = self.workers.polls_to_round.load(Ordering::Relaxed);
        if left < completions || self.services.ready.urgency().is_some() {
            self.workers.round_owed.store(true, Ordering::Relaxed);
        }
        self.workers.polls_to_round.store(left.saturating_sub(completions), Ordering::Relaxed);
        self.workers.count_polls(completions);
    }

    /// Whether a poll is to run a round without a look before it.
    #[inline]
    pub(crate) fn owes_round(&self) -> bool {
        self.workers.round_owed.load(Ordering::Relaxed)
    }

    /// A round by a program's thread that polls an empty completion queue. Gives the interval of rounds that is right if it came upon
    /// nothing but what polls find without one; see [`set_round_interval`](Self::set_round_interval).
    pub(crate) fn progress_by_poller(&self) -> u64 {
        let services = &*self.services;
        let polls = self.workers.count_polls(1);
        self.workers.round_owed.store(false, Ordering::Relaxed);
        let interval = self.workers.round_interval.load(Ordering::Relaxed);
        let left_out = interval.saturating_sub(1 + self.workers.polls_to_round.load(Ordering::Relaxed));
        // The poll whose turn it was may have left its round out.
        let quiet_turn = polls % QUIET_NETWORK_POLLS <= left_out;
        let network = services.network_users.load(Ordering::Relaxed) > 0 || quiet_turn;
        let taken = self.round(network, Occasion::Polled);
        let fewer = (interval * 2).clamp(1, POLLS_PER_ROUND);
        self.set_round_interval(if taken == RoundInput::Nothing { fewer } else { 1 });
        // Lost counts of two threads at once do no harm.
        match self.workers.polls_to_offer.load(Ordering::Relaxed) {
            0 => self.offer(),
            // What is waited for may be done by a thread that has no processor.
            _ if taken == RoundInput::Nothing && services.fabric.page_in().brings_in() => {
                std::thread::yield_now()
            }
            left => {
                let left = left.saturating_sub(1 + left_out / LOOKS_PER_ROUND);
                self.workers.polls_to_offer.store(left, Ordering::Relaxed);
            }
        }
        fewer
    }

    /// One in so many polls runs a round from now on.
    #[inline]
    pub(crate) fn set_round_interval(&self, interval: u64) {
        self.workers.round_interval.store(interval, Ordering::Relaxed);
        self.workers.polls_to_round.store(interval - 1, Ordering::Relaxed);
    }

    /// Offers the processor to others: the one that is waited for may need this very one. An offer costs as much as several
    /// polls, so they are rarer where nobody takes them.
    fn offer(&self) {
        let before = self.fabric().now();
        std::thread::yield_now();
        let wanted = self.fabric().now().saturating_sub(before) > OFFER;
        let (least, most) = POLLS_BETWEEN_OFFERS;
        let longer = (self.workers.offer_interval.load(Ordering::Relaxed) * 2).clamp(least, most);
        let interval = if wanted { least } else { longer };
        self.workers.offer_interval.store(interval, Ordering::Relaxed);
        self.workers.polls_to_offer.store(interval, Ordering::Relaxed);
    }

    fn polls_done(&self, at: u64) -> Polls {
        Polls { count: self.workers.polls.load(Ordering::Relaxed), at }
    }

    /// How long the NIC thread may leave the work to the program, by what was noted since it last asked.
    fn grace(&self, watch: &mut PollWatch) -> Option<Duration> {
        if self.services.arming.armed_anew.swap(false, Ordering::SeqCst) {
            watch.begin_anew();
            return None;
        }
        let networked = self.services.network_users.load(Ordering::Relaxed) > 0;
        let doing = Doing {
            within_verb: self.services.arming.within_verb.load(Ordering::Relaxed),
            // Inside the host hardly anything that comes to a program's memory needs this thread, and to be woken costs the peer.
            polls: !networked || self.workers.awaits.load(Ordering::Relaxed),
        };
        let longest = if networked { NETWORK_GRACE } else { POLLER_GRACE.2 };
        let any_armed = self.services.arming.armed.load(Ordering::Relaxed) > 0;
        watch.look(if any_armed { longest.min(ARMED_GRACE) } else { longest }, doing)
    }

    /// For how long the NIC thread may leave packets that the fabric holds back to the program, which sends them when it polls or posts.
    fn rest_before_held(&self) -> Duration {
        match self.fabric().held_until() {
            // One may be held at any time.
            u64::MAX if self.fabric().timer_slack().is_some() => Duration::from_nanos(HELD_GRACE),
            u64::MAX => Duration::MAX,
            until => Duration::from_nanos(until.saturating_sub(self.fabric().now()) + HELD_GRACE),
        }
    }

    /// The body of the NIC thread: works while nobody polls, sleeps in the kernel when there is nothing to do, and
    /// leaves the work to the program while that polls.
    pub fn run(&self, stop: &AtomicBool) {
        pagewire_memory::open_all_keys();
        *self.services.arming.thread.lock() = Some(std::thread::current());
        self.fabric().begin_thread();
        let mailbox = self.fabric().mailbox().clone();
        let mut watch = PollWatch::new();
        let mut idle = Idle::default();
        let mut slack = TimerSlack::default();
        let punctual = self.fabric().timer_slack();
        while !stop.load(Ordering::Acquire) {
            if let Some(grace) = self.grace(&mut watch) {
                self.services.arming.parked.store(true, Ordering::SeqCst);
                // Asked twice: one of those who go to sleep and this thread sees the other.
                let leave = !self.services.arming.armed_anew.load(Ordering::SeqCst);
                if leave {
                    let before = self.polls_done(self.fabric().now());
                    let grace = grace.min(self.rest_before_held());
                    let (long, by) = LONG_REST;
                    slack.set(punctual.or((grace >= Duration::from_nanos(long)).then_some(by)));
                    std::thread::park_timeout(grace);
                    watch.note(&before, &self.polls_done(self.fabric().now()));
                }
                self.services.arming.parked.store(false, Ordering::SeqCst);
                heavy_barrier();
                if leave {
                    continue;
                }
            }
            slack.set(punctual);
            let round = self.round(true, Occasion::Round);
            let now = self.fabric().now();
            if self.due_after(round).is_some_and(|at| at <= now) {
                continue;
            }
            if idle.stays_awake(round != RoundInput::Nothing, now) {
                if !idle.offers(round != RoundInput::Nothing) {
                    continue;
                }
                let before = self.polls_done(now);
                std::thread::yield_now();
                let after = self.polls_done(self.fabric().now());
                idle.look(before.at, after.at);
                watch.note(&before, &after);
                continue;
            }
            wake_request::request(&mailbox);
            if self.paths.channels.read().iter().any(|channel| channel.has_unread()) {
                wake_request::withdraw(&mailbox);
                continue;
            }
            // Looked at once more: what came up after the round found nobody to wake.
            let before = self.polls_done(now);
            self.fabric().wait(self.next_due(now));
            wake_request::withdraw(&mailbox);
            watch.note(&before, &self.polls_done(self.fabric().now()));
        }
        self.fabric().end_thread();
        *self.services.arming.thread.lock() = None;
    }
}

/// Whether the NIC thread looks again before it sleeps: what comes in next is served sooner, where nobody else wants the
/// processor.
#[derive(Default)]
struct Idle {
    /// Stays awake until then.
    until: u64,
    /// Does not stay awake before then: the processor was wanted.
    wanted_until: u64,
    /// For how long the last time.
    wanted: u64,
    /// Rounds that came upon something since the processor was last offered to others.
    served: u32,
}

impl Idle {
    fn stays_awake(&mut self, served: bool, now: u64) -> bool {
        if served && now >= self.wanted_until {
            self.until = now + STAY_AWAKE;
        }
        now < self.until
    }

    /// Whether the processor is to be offered to others: after a round that came upon nothing, and now and then between others.
    fn offers(&mut self, served: bool) -> bool {
        self.served += u32::from(served);
        if served && self.served < ROUNDS_PER_OFFER {
            return false;
        }
        self.served = 0;
        true
    }

    /// The processor was offered to others from `before` to `now`.
    fn look(&mut self, before: u64, now: u64) {
        if now - before <= OFFER {
            self.wanted /= 2;
            return;
        }
        self.wanted = (self.wanted * 2).clamp(WANTED.0, WANTED.1);
        (self.until, self.wanted_until) = (0, now + self.wanted);
    }
}

/// Polls of the program until a time.
#[derive(Debug, Clone, Copy, Default)]
struct Polls {
    count: u64,
    at: u64,
}

/// What the program does when the NIC thread comes back.
#[derive(Debug, Clone, Copy)]
struct Doing {
    /// A thread of it is within a verb.
    within_verb: bool,
    /// One is about to poll again, if it has polled often.
    polls: bool,
}

/// Tells whether the program polls continuously, by what it does while the NIC thread rests, and when that comes back: where both
/// share a processor it can do nothing else meanwhile.
struct PollWatch {
    /// Polls that were seen since it was last told, and the nanoseconds that passed.
    seen: Polls,
    grace: u64,
}

impl PollWatch {
    fn new() -> Self {
        PollWatch { seen: Polls::default(), grace: POLLER_GRACE.0 }
    }

    /// The NIC thread has rested.
    fn note(&mut self, before: &Polls, after: &Polls) {
        // Where two threads count at once, one may take back what the other has counted.
        self.seen.count += after.count.saturating_sub(before.count);
        self.seen.at += after.at.saturating_sub(before.at);
    }

    /// How long the work may be left to the program, `longest` at most; `None`: not at all, or not yet known.
    ///
    /// To a program that is within a verb at this moment, where polls were seen since the last rest began: it is not stuck in one. And
    /// to one that has polled often and is about to do so again. Not to one that has polled until its own request was complete, and may
    /// look at its memory from now on: what is to come there needs this thread. Rests may be too short for more than a few polls, as
    /// packets wake the thread: then several count.
    fn look(&mut self, longest: u64, doing: Doing) -> Option<Duration> {
        let Polls { count, at: passed } = self.seen;
        let within_verb = doing.within_verb && count > 0;
        // Nothing, if it has not rested since.
        if !within_verb && count < POLLS_THAT_COUNT && passed < REST_THAT_COUNTS {
            return None;
        }
        self.seen = Polls::default();
        let polls_often = count >= POLLS_THAT_COUNT && count.saturating_mul(POLL_INTERVAL) >= passed;
        let goes_on = within_verb || doing.polls && polls_often;
        if !goes_on {
            self.grace = (self.grace / 4).max(POLLER_GRACE.0);
            return None;
        }
        let grace = self.grace.min(longest);
        let longer =
            if grace < POLLER_GRACE.1 { (grace * 2).min(POLLER_GRACE.1) } else { grace + grace / 16 };
        self.grace = longer.min(longest);
        Some(Duration::from_nanos(grace))
    }

    /// The program may do something else than to poll from now on, whatever was seen before.
    fn begin_anew(&mut self) {
        *self = PollWatch::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QueuePairInit;
    use crate::path::Path;
    use crate::path::tests::route_to_this_host;
    use crate::services::device::devices;
    use crate::services::event::Unwatched;
    use crate::types::attributes::{QpCapabilities, QpState, QueuePairType};
    use crate::types::options::Options;
    use crate::types::path_choice::PathChoice;
    use pagewire_fabric::HostFabric;
    use std::sync::Arc;
    use std::time::Instant;

    /// An engine without a thread, and without queue pairs.
    fn idle() -> Arc<Nic<HostFabric>> {
        Nic::new(HostFabric::new().unwrap(), Options { path: PathChoice::Local, ..Options::default() })
    }

    /// However long polls go on finding what they look for, the network and the timers have their turn.
    #[test]
    fn polls_that_always_find_something_run_rounds_too() {
        let nic = idle();
        let polls_until_one_is_owed = || {
            (1..=100_u64).find(|_| {
                nic.record_hint_hit(1);
                nic.owes_round()
            })
        };
        assert_eq!(polls_until_one_is_owed(), Some(1));
        for _ in 0..10 {
            nic.progress_by_poller();
            assert!(!nic.owes_round());
        }
        assert_eq!(polls_until_one_is_owed(), Some(POLLS_PER_ROUND));
    }

    /// For how long the work is left to a program that has polled so often while so many nanoseconds passed.
    fn leaves(
        watch: &mut PollWatch,
        (count, passed): (u64, u64),
        within_verb: bool,
        polls: bool,
    ) -> Option<u64> {
        watch.note(&Polls::default(), &Polls { count, at: passed });
        let grace = watch.look(POLLER_GRACE.1, Doing { within_verb, polls });
        grace.map(|grace| grace.as_nanos() as u64)
    }

    #[test]
    fn the_work_is_left_to_a_program_that_is_at_it_when_the_nic_thread_comes_back() {
        let (first, short, _) = POLLER_GRACE;
        let mut watch = PollWatch::new();
        // Longer and longer, from the first poll on.
        for expected in [first, first * 2, first * 4] {
            assert_eq!(leaves(&mut watch, (1, 10_000), true, false), Some(expected));
        }
        (0..10).for_each(|_| assert!(leaves(&mut watch, (1, 500_000), true, false).is_some()));
        assert_eq!(leaves(&mut watch, (1, 500_000), true, false), Some(short));
        // In the same verb since the last rest began: who knows what it waits for.
        assert_eq!(leaves(&mut watch, (0, 500_000), true, false), None);
        // Elsewhere, however often it has polled: it may look at its memory from now on.
        assert_eq!(leaves(&mut watch, (1000, 500_000), false, false), None);
        // Asked again without a rest in between.
        (0..10).for_each(|_| assert_eq!(watch.look(short, Doing { within_verb: false, polls: false }), None));
        assert_eq!(leaves(&mut watch, (1, 500_000), true, false), Some(short / 16));
        // One that is there each other time is not left alone for long.
        for _ in 0..20 {
            leaves(&mut watch, (10, 20_000), false, false);
            leaves(&mut watch, (10, 20_000), true, false);
        }
        assert_eq!(leaves(&mut watch, (10, 20_000), false, false), None);
        assert_eq!(leaves(&mut watch, (10, 20_000), true, false), Some(first));
    }

    #[test]
    fn it_is_left_to_one_that_polls_often_too() {
        let (first, short, _) = POLLER_GRACE;
        let mut watch = PollWatch::new();
        for expected in [first, first * 2, first * 4] {
            assert_eq!(leaves(&mut watch, (1000, 100_000), false, true), Some(expected));
        }
        (0..10).for_each(|_| assert!(leaves(&mut watch, (1_000_000, 2_000_000), false, true).is_some()));
        assert_eq!(leaves(&mut watch, (1_000_000, 2_000_000), false, true), Some(short));
        // Too few polls for the time that has passed.
        assert_eq!(leaves(&mut watch, (249, 500_000), false, true), None);
        assert!(leaves(&mut watch, (250, 500_000), false, true).is_some());
        assert_eq!(leaves(&mut watch, (POLLS_THAT_COUNT - 1, REST_THAT_COUNTS), false, true), None);
    }

    #[test]
    fn rests_double_first_and_then_grow_by_a_sixteenth() {
        let (first, doubles_to, longest) = POLLER_GRACE;
        let mut watch = PollWatch::new();
        let mut rest = || {
            watch.note(&Polls::default(), &Polls { count: 1000, at: longest });
            watch
                .look(longest, Doing { within_verb: true, polls: true })
                .map_or(0, |rest| rest.as_nanos() as u64)
        };
        let rests: Vec<u64> = (0..60).map(|_| rest()).collect();
        for pair in rests.windows(2) {
            let expected = match pair[0] < doubles_to {
                true => (pair[0] * 2).min(doubles_to),
                false => (pair[0] + pair[0] / 16).min(longest),
            };
            assert_eq!(pair[1], expected);
        }
        assert_eq!((rests[0], rests[59]), (first, longest));
    }

    /// A program that arms a queue may sleep; where it goes on polling the work is left to it again, and for longer and longer.
    #[test]
    fn work_is_left_to_a_program_that_goes_on_polling_beside_an_armed_queue() {
        let nic = idle();
        let mut watch = PollWatch::new();
        let mut rest = |polls: u64| {
            watch.note(&Polls::default(), &Polls { count: polls, at: 10_000 });
            nic.grace(&mut watch).map(|rest| rest.as_nanos() as u64)
        };
        let first = POLLER_GRACE.0;
        assert_eq!([rest(100), rest(100)], [Some(first), Some(2 * first)]);
        for is_armed in [false, true] {
            nic.services.arming.note_arming(is_armed);
            // Polls from before the arming say nothing.
            assert_eq!([rest(100), rest(0)], [None, None]);
            assert_eq!([rest(100), rest(100)], [Some(first), Some(2 * first)]);
        }
        (0..100).for_each(|_| assert!(rest(1_000_000).is_some_and(|rest| rest <= ARMED_GRACE)));
        nic.services.arming.note_disarming();
        (0..100).for_each(|_| assert!(rest(1_000_000).is_some()));
        assert_eq!(rest(1_000_000), Some(POLLER_GRACE.2));
    }

    /// UCX arms its UD queue as soon as it opens, and polls all of its queues from then on.
    #[test]
    fn the_nic_thread_rests_while_a_program_polls_beside_an_armed_queue() {
        let nic = idle();
        let device = devices().unwrap().into_iter().next().unwrap();
        let context = crate::Context::open(&nic, device, Arc::new(Unwatched));
        let channel = context.create_channel(Arc::new(Unwatched));
        let armed = context.create_cq(16, Some(channel)).unwrap();
        let polled = context.create_cq(16, None).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| nic.run(&stop));
            armed.arm(true);
            let limit = Instant::now() + Duration::from_secs(60);
            while !nic.services.arming.leaves_work_to_polls() && Instant::now() < limit {
                // A thread that sleeps in the kernel learns of polls when it is woken, as by a peer.
                nic.fabric().kick();
                (0..1000).for_each(|_| {
                    polled.poll(1, &mut |_| unreachable!("nothing was posted"));
                });
            }
            let rests = nic.services.arming.leaves_work_to_polls();
            stop.store(true, Ordering::Release);
            nic.fabric().kick();
            thread.thread().unpark();
            assert!(rests, "the NIC thread works on for a queue that polls deliver to");
        });
        armed.destroy().unwrap();
        assert_eq!(nic.services.arming.armed.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_thread_that_is_woken_again_and_again_sees_that_the_program_polls() {
        let mut watch = PollWatch::new();
        let mut look = |count: u64| leaves(&mut watch, (count, POLL_INTERVAL), false, true).is_some();
        let told: Vec<bool> = (0..8).map(|_| look(1)).collect();
        assert_eq!(told, [false, false, false, true, false, false, false, true]);
        // One that does not is not taken for one that does, however often the thread rests.
        assert!((0..1000).all(|rest| !look(u64::from(rest % 10 == 0))));
    }

    #[test]
    fn counts_that_a_late_store_took_back_are_no_polls() {
        // Two threads count at once, and the one that was displaced in between writes what it had read before.
        for within_verb in [true, false] {
            let mut watch = PollWatch::new();
            watch.note(&Polls { count: 103, at: 0 }, &Polls { count: 50, at: 1_000_000 });
            assert_eq!(watch.look(POLLER_GRACE.2, Doing { within_verb, polls: true }), None);
            // What is seen from then on counts as ever.
            assert!(leaves(&mut watch, (POLLS_THAT_COUNT, POLL_INTERVAL), false, true).is_some());
        }
    }

    /// What the NIC thread asks when it comes back: of verbs, of polls, of the network, and of threads that sleep.
    #[test]
    fn the_nic_thread_leaves_the_work_by_what_the_program_does() {
        let nic = idle();
        let grace = |count: u64| {
            let mut watch = PollWatch { grace: POLLER_GRACE.2, ..PollWatch::new() };
            watch.note(&Polls::default(), &Polls { count, at: 10_000 });
            nic.grace(&mut watch).map(|grace| grace.as_nanos() as u64)
        };
        for (users, longest) in [(0, POLLER_GRACE.2), (1, NETWORK_GRACE)] {
            nic.services.network_users.store(users, Ordering::Relaxed);
            nic.note_poll(1);
            assert_eq!(grace(1), None);
            // Often, and its last poll has found what it polled for.
            assert_eq!(grace(10), Some(longest).filter(|_| users == 0));
            nic.note_poll(0);
            assert_eq!(grace(10), Some(longest));
            let verb = nic.services.arming.begin_verb();
            assert_eq!(grace(1), Some(longest));
            assert_eq!(grace(0), None);
            nic.services.arming.note_arming(false);
            assert_eq!(grace(10), None);
            nic.services.arming.note_disarming();
            drop(verb);
            assert_eq!(grace(1), None);
        }
    }

    /// Says that the program is within `verb` while another thread keeps that from going on, and not behind it.
    fn expect_within<G>(nic: &Nic<HostFabric>, obstacle: G, verb: impl FnOnce() + Send) {
        let is_within = || nic.services.arming.within_verb.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(verb);
            let limit = Instant::now() + Duration::from_secs(60);
            while !is_within() {
                assert!(Instant::now() < limit, "nobody sees the program within the verb");
                std::thread::yield_now();
            }
            drop(obstacle);
        });
        assert!(!is_within());
    }

    #[test]
    fn the_program_is_seen_within_its_polls_and_not_behind_them() {
        let nic = idle();
        let device = devices().unwrap().into_iter().next().unwrap();
        let context = crate::Context::open(&nic, device, Arc::new(Unwatched));
        let queue = context.create_cq(16, None).unwrap();
        // A round looks at all channels.
        expect_within(&nic, nic.paths.channels.write(), || {
            _ = queue.poll(1, &mut |_| unreachable!("nothing was posted"))
        });
        assert!(nic.workers.awaits.load(Ordering::Relaxed), "the last one found nothing");
        let capabilities = QpCapabilities {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QueuePairInit {
            kind: QueuePairType::Rc,
            send_cq: queue.clone(),
            recv_cq: queue.clone(),
            srq: None,
            capabilities,
            signal_all: true,
            xrc: None,
        };
        let queue_pair = crate::QueuePair::create(&context.alloc_pd().unwrap(), init).unwrap();
        {
            let mut qpc = queue_pair.state.qpc.try_lock().unwrap();
            qpc.attributes.state = QpState::ReadyToReceive;
            let route = route_to_this_host();
            qpc.set_path(&queue_pair.state, Path::Connecting { route, peer: 0 });
        }
        // Its path is chosen by what is known of the peer's process.
        expect_within(&nic, nic.paths.blocks.lock(), || queue_pair.doorbell());
    }

    #[test]
    fn polls_that_leave_rounds_out_still_look_at_the_network() {
        for before in [0, 1, 5, 31, 33] {
            let nic = idle();
            nic.workers.polls.store(before, Ordering::Relaxed);
            let (mut left_out, heard) = (0, nic.fabric().rx_watermark());
            for _ in 0..2 * QUIET_NETWORK_POLLS {
                match nic.may_skip_round() {
                    true => left_out += 1,
                    false => _ = nic.progress_by_poller(),
                }
            }
            assert!(left_out > QUIET_NETWORK_POLLS, "most rounds are left out");
            assert!(nic.fabric().rx_watermark() > heard, "after {before} polls");
        }
    }

    #[test]
    fn only_polls_that_left_rounds_out_bring_an_offer_nearer_by_more_than_one() {
        let nic = idle();
        let polls_to_offer = &nic.workers.polls_to_offer;
        let polls = 3 * POLLS_PER_ROUND;
        polls_to_offer.store(1000, Ordering::Relaxed);
        (0..polls).for_each(|_| _ = nic.progress_by_poller());
        assert_eq!(polls_to_offer.load(Ordering::Relaxed), 1000 - polls);
        while nic.may_skip_round() {}
        nic.progress_by_poller();
        let after = 1000 - polls - 1 - (POLLS_PER_ROUND - 1) / LOOKS_PER_ROUND;
        assert_eq!(polls_to_offer.load(Ordering::Relaxed), after);
    }

    /// For how long the NIC thread sleeps at once after each of ten offers that are taken up, `left` others before each of them.
    fn sleeps(left: u32) -> Vec<u64> {
        let (mut idle, mut now) = (Idle::default(), 0);
        let sleeps = (0..10).map(|_| {
            assert!(idle.stays_awake(true, now));
            for _ in 0..left {
                idle.look(now, now + OFFER);
                assert!(idle.stays_awake(false, now), "nobody took the offer");
            }
            let taken = now + OFFER + 1;
            idle.look(now, taken);
            now = taken;
            while !idle.stays_awake(true, now) {
                now += WANTED.0 / 2;
            }
            now - taken
        });
        sleeps.collect()
    }

    #[test]
    fn the_processor_is_offered_where_nothing_came_and_after_some_rounds_in_which_something_did() {
        let mut idle = Idle::default();
        let rounds = [true, true, false, true, true, true, true, true, false, false];
        let offers = rounds.map(|served| idle.offers(served));
        assert_eq!(offers, [false, false, true, false, false, false, true, false, true, true]);
    }

    #[test]
    fn the_nic_thread_sleeps_the_longer_the_more_its_processor_is_wanted() {
        let wanted = sleeps(0);
        assert!(wanted.is_sorted());
        assert_eq!((wanted[0], wanted[9]), WANTED);
        assert_eq!(sleeps(2), [WANTED.0; 10]);
    }
}
