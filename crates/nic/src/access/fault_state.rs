//! How often pages were brought in for an access that still finds them absent.
//!
//! A packet that comes again while its page is on the way is looked at again, as often as the peer repeats it. Such looks do not
//! count: an access that was tried often enough is simply made, and whoever makes it waits for the page itself.

use crate::types::limits::{MOST_PAGE_LOOK, PAGE_LOOK, PEER_PAGE_PATIENCE, STRETCHES, WAIT_BITS};
use crate::types::qp_role::QpRole;
use arrayvec::ArrayVec;
use pagewire_memory::Absence;
use pagewire_paging::{Ahead, Stretch, Tenant};
use std::ops::Range;
use std::sync::Arc;

/// What a queue pair touches memory for. Each waits for its own pages, and for nobody else's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Purpose {
    /// The requester sends a request, or executes it in the peer's memory.
    #[default]
    Request,
    /// It places what a response brings.
    PlaceResponse,
    /// The responder executes a request.
    Execute,
    /// It sends a response.
    Respond,
}

impl Purpose {
    const ALL: [Purpose; 4] = [Purpose::Request, Purpose::PlaceResponse, Purpose::Execute, Purpose::Respond];

    const fn half(self) -> QpRole {
        match self {
            Purpose::Request | Purpose::PlaceResponse => QpRole::Requester,
            Purpose::Execute | Purpose::Respond => QpRole::Responder,
        }
    }
}

/// What is counted for each purpose.
pub struct PageWaits([Count; Purpose::ALL.len()]);

/// How what an access misses comes in.
#[derive(Debug, Clone)]
pub struct Missing {
    pub absence: Absence,
    /// What comes in with its last segment.
    pub whole: Range<u64>,
}

/// Pages of this process that an access waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RequestedPages {
    /// The place of the region of its last segment.
    region: u32,
    /// That segment.
    last: Range<u64>,
    /// What was asked for of its region ends here.
    until: u64,
}

/// The accesses of one purpose that find pages absent: how often in a row, and what the last one waits for.
#[derive(Default)]
pub struct FaultState {
    purpose: Purpose,
    /// Whoever finds the page absent and asks for it adds one, whoever finds it clears this.
    pub times: u32,
    /// How often in a row pages of a peer were asked for.
    pub peer_times: u32,
    /// When the access that waits found its pages absent.
    since: Option<u64>,
    /// What it waits for are pages of a peer.
    for_peer: bool,
    /// An access said that it waits, since [`next_look`](PageWaits::next_look) was last asked.
    waits_on: bool,
    /// Counts the waits: what was brought in for an earlier one may be told late.
    wait: u8,
    /// What is brought in beyond what is accessed.
    pub ahead: Ahead,
    /// Bytes that follow what is accessed in the same transfer, where that is known.
    pub to_come: u64,
    /// Many pages of what is accessed next come while it is moved: threads may help.
    pub many_absent: bool,
    /// The last absent pages that were met were cheap.
    pub last_was_cheap: bool,
    /// What was brought in for them ended here.
    pub cheap_until: u64,
    /// How what a burst of packets misses comes in, which was not at once: the packet that it begins with is looked at next, by itself.
    burst: Option<(u64, Missing)>,
    /// What the access that waits has asked for.
    requested: Option<RequestedPages>,
    /// These come from somebody in user space, or nobody knows from whom.
    pub from_user_space: bool,
    /// What helpers bring in, the last ones of it.
    stretches: ArrayVec<Arc<Stretch>, STRETCHES>,
    /// A word for the peer.
    peer: u64,
}

impl FaultState {
    /// An access waits for pages of this process, since `now` if none has waited before.
    pub fn begin_wait(&mut self, now: u64) {
        self.times += 1;
        self.for_peer = false;
        self.is_first(now);
    }

    /// An access waits for pages of a peer, and asks for them once more. True: it has not waited before.
    pub fn begin_peer_wait(&mut self, now: u64) -> bool {
        self.peer_times += 1;
        (self.for_peer, self.requested) = (true, None);
        self.is_first(now)
    }

    fn is_first(&mut self, now: u64) -> bool {
        self.waits_on = true;
        let first = self.since.is_none();
        if first {
            (self.since, self.wait) = (Some(now), self.wait.wrapping_add(1));
        }
        first
    }

    /// An access asks for pages up to `until`, of which its last segment lies in the region at this place.
    pub fn request_pages(&mut self, region: u32, last: Range<u64>, until: u64) {
        self.requested = Some(RequestedPages { region, last, until });
    }

    /// Up to where the same access has asked for pages before.
    pub fn requested_until(&self, region: u32, last: &Range<u64>) -> Option<u64> {
        let state = self.requested.as_ref()?;
        (state.region == region && state.last == *last).then_some(state.until)
    }

    /// Whether an access waits.
    #[inline]
    pub fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Whether the access has waited for a peer's pages for longer than [`PEER_PAGE_PATIENCE`].
    pub fn is_peer_late(&self, now: u64) -> bool {
        self.for_peer && self.since.is_some_and(|since| now.saturating_sub(since) > PEER_PAGE_PATIENCE)
    }

    /// Pages that came in for an access that still waits were gone again when it was tried.
    pub fn is_in_vain(&self) -> bool {
        self.times > 1
    }

    /// The access that waited is made, or will never be; for how long it waited, if it did.
    pub fn end_wait(&mut self, now: u64) -> Option<u64> {
        (self.peer_times, self.for_peer) = (0, false);
        self.end_own_wait(now)
    }

    /// The pages of this process are there. What waits for those of a peer waits on.
    pub fn end_own_wait(&mut self, now: u64) -> Option<u64> {
        (self.times, self.requested, self.from_user_space) = (0, None, false);
        let since = if self.for_peer { None } else { self.since.take() };
        since.map(|since| now.saturating_sub(since))
    }

    /// For whom pages are asked for: the queue pairs of one peer share the threads that one tenant may have. What somebody in user space
    /// may not give at all is asked for by another one, about each region by itself.
    pub fn tenant(&self) -> Tenant {
        let who = self.peer << 2 | (self.purpose.half() as u64) << 1 | u64::from(self.from_user_space);
        let region = self.region().filter(|_| self.from_user_space);
        Tenant { who, matter: region.map_or(0, |region| u64::from(region) + 1) }
    }

    /// The place of the region whose pages the access waits for.
    fn region(&self) -> Option<u32> {
        self.requested.as_ref().map(|state| state.region)
    }

    /// A burst that begins at this address misses pages that do not come in at once.
    pub fn note_burst(&mut self, start: u64, missing: Missing) {
        self.burst = Some((start, missing));
    }

    /// What was noted last, if that is of a burst that begins there. Told once: nobody says when it has become untrue.
    pub fn take_burst(&mut self, start: u64) -> Option<Missing> {
        self.burst.take().filter(|(noted, _)| *noted == start).map(|(_, missing)| missing)
    }

    /// Helpers bring this in from now on.
    pub fn add_stretch(&mut self, stretch: Arc<Stretch>) {
        if self.stretches.is_full() {
            self.stretches.remove(0);
        }
        self.stretches.push(stretch);
    }

    /// This comes in without helpers.
    pub fn reach(&mut self, own: &Range<u64>) {
        self.stretches.retain(|stretch| stretch.reach(own));
    }

    /// Where the transfer ends of which an access ends here, if that is known.
    pub fn known_end(&self, end: u64) -> Option<u64> {
        (self.to_come > 0).then(|| end.saturating_add(self.to_come))
    }

    /// The word for pages that are asked for on behalf of a queue pair with this number.
    pub fn token(&self, number: u32) -> u64 {
        u64::from(number) | u64::from(self.place()) << 32
    }

    /// The purpose and the wait: which of the bits that tell of them.
    fn place(&self) -> u32 {
        self.purpose as u32 * WAIT_BITS + u32::from(self.wait) % WAIT_BITS
    }
}

/// For whom pages with this [word](FaultState::token) were brought in: a bit for the wait, and the number of the queue pair.
pub fn waiter_of(token: u64) -> (u64, u32) {
    (1 << ((token >> 32) % 64), token as u32)
}

/// Whether there are any of one purpose among such bits.
pub fn tells_of(waits: u64, purpose: Purpose) -> bool {
    waits >> (purpose as u32 * WAIT_BITS) & ((1 << WAIT_BITS) - 1) != 0
}

#[derive(Default)]
struct Count {
    /// What [`begin_access`](PageWaits::begin_access) gives.
    state: FaultState,
    /// How many of these had an answer before the page was asked for again.
    completed: u32,
    /// How many requests for a peer's pages had an answer before the page was asked for again.
    peer_completed: u32,
    /// Pages came in since `state` was last given.
    pages_came: bool,
    /// There was an access since [`next_look`](PageWaits::next_look) was last asked.
    tried: bool,
    /// Since when nothing new was heard of what the access waits for, as far as `next_look` knows.
    unchanged_since: Option<u64>,
}

impl Count {
    /// Of what was asked for, only what had an answer counts from now on.
    #[cold]
    fn count_completed(&mut self) {
        if self.state.times == 0 || self.pages_came {
            self.completed = self.state.times;
        }
        if self.state.peer_times == 0 || self.pages_came {
            self.peer_completed = self.state.peer_times;
        }
        (self.state.times, self.state.peer_times) = (self.completed, self.peer_completed);
    }
}

impl Default for PageWaits {
    fn default() -> Self {
        let count =
            |purpose| Count { state: FaultState { purpose, ..FaultState::default() }, ..Count::default() };
        PageWaits(Purpose::ALL.map(count))
    }
}

impl PageWaits {
    /// An access begins: what its predecessors of this purpose asked for, and what came of it.
    pub fn begin_access(&mut self, purpose: Purpose) -> &mut FaultState {
        let count = &mut self.0[purpose as usize];
        if count.state.times | count.state.peer_times == 0 {
            (count.completed, count.peer_completed) = (0, 0);
        } else {
            count.count_completed();
        }
        (count.pages_came, count.tried) = (false, true);
        (count.state.to_come, count.state.many_absent) = (0, false);
        &mut count.state
    }

    /// The region of this process whose pages an access of this purpose waits for, by its place.
    pub fn region(&self, purpose: Purpose) -> Option<u32> {
        self.0[purpose as usize].state.region()
    }

    /// The queue pair begins anew: nothing waits, and what is still told of earlier waits is for none of the new ones.
    pub fn reset(&mut self) {
        let before = std::mem::take(self);
        for (count, before) in self.0.iter_mut().zip(before.0) {
            (count.state.wait, count.state.peer) = (before.state.wait, before.state.peer);
        }
    }

    /// For whom pages are brought in from now on.
    pub fn set_peer(&mut self, peer: u64) {
        for count in &mut self.0 {
            count.state.peer = peer;
        }
    }

    /// When an access that waits for a page, and was tried since the last call, is to be tried again, whatever is heard of the page:
    /// more seldom the longer nothing is. `u64::MAX`: there is none.
    pub fn next_look(&mut self, now: u64) -> u64 {
        let mut next = u64::MAX;
        for count in &mut self.0 {
            let waits_on = std::mem::take(&mut count.state.waits_on);
            if !std::mem::take(&mut count.tried) {
                continue;
            }
            if !waits_on {
                count.unchanged_since = None;
                continue;
            }
            let waited = now.saturating_sub(*count.unchanged_since.get_or_insert(now));
            next = next.min(now + (waited / 4).clamp(PAGE_LOOK, MOST_PAGE_LOOK));
        }
        next
    }

    /// Pages came in for some waits (a bit for each, see [`tenant`]), or turned out not to be mapped.
    pub fn note_pages_in(&mut self, waits: u64) {
        for count in &mut self.0 {
            if waits & 1 << count.state.place() != 0 {
                (count.pages_came, count.unchanged_since) = (true, None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An access that finds its page absent, and asks for it.
    fn ask(waits: &mut PageWaits, purpose: Purpose) -> u32 {
        let state = waits.begin_access(purpose);
        state.begin_wait(7);
        state.times
    }

    /// What it asked for came in.
    fn answer(waits: &mut PageWaits, purpose: Purpose) {
        let waiting = tell(waits, purpose);
        waits.note_pages_in(waiting);
    }

    /// What tells of the page that is asked for now.
    fn tell(waits: &mut PageWaits, purpose: Purpose) -> u64 {
        let (waiting, number) = waiter_of(waits.0[purpose as usize].state.token(77));
        assert_eq!(number, 77);
        assert_eq!(
            Purpose::ALL.map(|which| tells_of(waiting, which)),
            Purpose::ALL.map(|which| which == purpose)
        );
        waiting
    }

    #[test]
    fn only_what_had_an_answer_counts() {
        let mut waits = PageWaits::default();
        assert_eq!([(); 20].map(|()| ask(&mut waits, Purpose::Execute)), [1; 20]);
        answer(&mut waits, Purpose::Execute);
        assert_eq!([(); 20].map(|()| ask(&mut waits, Purpose::Execute)), [2; 20]);
        for count in 3..10 {
            answer(&mut waits, Purpose::Request);
            assert_eq!(ask(&mut waits, Purpose::Execute), count - 1, "nothing came for this one");
            answer(&mut waits, Purpose::Execute);
            assert_eq!(ask(&mut waits, Purpose::Execute), count);
        }
        assert_eq!(ask(&mut waits, Purpose::Request), 1, "another one's are its own");
    }

    #[test]
    fn pages_of_a_peer_are_late_after_a_while_and_own_ones_never() {
        let mut state = FaultState::default();
        state.begin_peer_wait(7);
        assert!(!state.is_peer_late(7 + PEER_PAGE_PATIENCE));
        state.begin_peer_wait(8 + PEER_PAGE_PATIENCE);
        assert!(state.is_peer_late(8 + PEER_PAGE_PATIENCE), "since it was first tried");
        state.end_wait(9 + PEER_PAGE_PATIENCE);
        assert!(!state.is_peer_late(u64::MAX), "the owner brings it in");
        state.begin_wait(7);
        assert!(!state.is_peer_late(u64::MAX));
    }

    #[test]
    fn whoever_tries_no_more_does_not_wait() {
        let mut waits = PageWaits::default();
        assert_eq!(waits.next_look(0), u64::MAX);
        ask(&mut waits, Purpose::Execute);
        assert_eq!([(); 2].map(|()| waits.next_look(7)), [7 + PAGE_LOOK, u64::MAX]);
        waits.begin_access(Purpose::Execute).end_wait(8);
        assert_eq!(waits.next_look(8), u64::MAX);
    }

    #[test]
    fn long_page_wait_backs_off() {
        const HOUR: u64 = 3_600_000_000_000;
        let looks = |waits: &mut PageWaits, from: u64, to: u64| {
            let (mut now, mut looks) = (from, 0);
            while now < to {
                ask(waits, Purpose::Execute);
                now = waits.next_look(now);
                looks += 1;
            }
            looks
        };
        let mut waits = PageWaits::default();
        let at_first = looks(&mut waits, 0, 10 * PAGE_LOOK);
        assert!((7..=10).contains(&at_first), "{at_first} looks at first");
        let seldom = HOUR / MOST_PAGE_LOOK;
        let later = looks(&mut waits, 10 * PAGE_LOOK, HOUR);
        assert!((seldom..seldom + 30).contains(&later), "{later} looks in an hour");
        answer(&mut waits, Purpose::Execute);
        assert_eq!(looks(&mut waits, HOUR, HOUR + 10 * PAGE_LOOK), at_first, "as at first");
    }

    #[test]
    fn an_access_that_was_made_begins_anew() {
        let mut waits = PageWaits::default();
        ask(&mut waits, Purpose::Request);
        answer(&mut waits, Purpose::Request);
        ask(&mut waits, Purpose::Request);
        waits.begin_access(Purpose::Request).end_wait(8);
        // The word of what had been asked for besides.
        answer(&mut waits, Purpose::Request);
        assert_eq!(ask(&mut waits, Purpose::Request), 1);
        assert_eq!(ask(&mut waits, Purpose::Request), 1);
    }

    #[test]
    fn late_page_in_ends_no_later_wait() {
        for purpose in Purpose::ALL {
            let mut waits = PageWaits::default();
            ask(&mut waits, purpose);
            let late = tell(&mut waits, purpose);
            // Somebody else brought its page in.
            waits.begin_access(purpose).end_wait(8);
            ask(&mut waits, purpose);
            waits.note_pages_in(late);
            assert_eq!(ask(&mut waits, purpose), 1, "its page did not come in vain");
            let (own, both) = (tell(&mut waits, purpose), late | tell(&mut waits, purpose));
            assert_ne!(own, late);
            waits.note_pages_in(both);
            assert_eq!(ask(&mut waits, purpose), 2);
        }
    }

    #[test]
    fn what_is_made_for_another_purpose_ends_no_wait() {
        let mut waits = PageWaits::default();
        ask(&mut waits, Purpose::Execute);
        assert_eq!(waits.begin_access(Purpose::Respond).end_wait(8), None);
        assert_eq!(waits.next_look(8), 8 + PAGE_LOOK);
        // Nor does what is made for the same one behind it keep it from being looked at.
        ask(&mut waits, Purpose::Execute);
        waits.begin_access(Purpose::Execute).end_wait(9);
        assert_ne!(waits.next_look(9), u64::MAX);
    }

    #[test]
    fn who_waits_for_a_peers_page_waits_on_where_the_own_ones_are_there() {
        let mut waits = PageWaits::default();
        let state = waits.begin_access(Purpose::Execute);
        assert!(state.begin_peer_wait(7));
        for now in 8..20 {
            let state = waits.begin_access(Purpose::Execute);
            assert_eq!(state.end_own_wait(now), None);
            assert!(!state.begin_peer_wait(now), "it is the same wait");
        }
        let state = waits.begin_access(Purpose::Execute);
        assert_eq!((state.end_wait(20), state.peer_times), (Some(13), 0));
    }

    #[test]
    fn page_request_matches_own_access() {
        let mut waits = PageWaits::default();
        let high = waits.begin_access(Purpose::Respond);
        high.begin_wait(7);
        high.request_pages(3, 0x9000..0x9008, 0xa000);
        assert_eq!(high.requested_until(3, &(0x9000..0x9008)), Some(0xa000));
        assert_eq!(waits.region(Purpose::Respond), Some(3));
        let low = waits.begin_access(Purpose::Respond);
        assert_eq!(low.requested_until(3, &(0x1000..0x1008)), None, "another place");
        assert_eq!(low.requested_until(4, &(0x9000..0x9008)), None, "another region");
        low.begin_peer_wait(8);
        assert_eq!(low.requested_until(3, &(0x9000..0x9008)), None, "a peer's pages since then");
        assert_eq!(waits.region(Purpose::Respond), None);
    }

    #[test]
    fn user_pager_regions_are_separate_tenants() {
        let mut waits = PageWaits::default();
        waits.set_peer(9);
        let mut tenant = |region, from_user_space| {
            let state = waits.begin_access(Purpose::Execute);
            state.begin_wait(1);
            state.from_user_space = from_user_space;
            state.request_pages(region, 0..8, 8);
            state.tenant()
        };
        let [one, other, kernel] = [tenant(1, true), tenant(2, true), tenant(1, false)];
        assert!(one.who == other.who && one.matter != other.matter);
        assert!(kernel.who != one.who && kernel == tenant(2, false));
    }

    #[test]
    fn page_in_before_reset_is_ignored() {
        let mut waits = PageWaits::default();
        ask(&mut waits, Purpose::Execute);
        let late = tell(&mut waits, Purpose::Execute);
        waits.reset();
        assert!(!waits.begin_access(Purpose::Execute).is_waiting());
        ask(&mut waits, Purpose::Execute);
        waits.note_pages_in(late);
        assert_eq!(ask(&mut waits, Purpose::Execute), 1);
    }
}
