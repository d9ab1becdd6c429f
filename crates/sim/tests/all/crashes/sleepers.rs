//! A process whose NIC thread sleeps, a peer that wakes it, and the end of either in between.

use crate::support::{Side, connect, side_with};
use pagewire_iommu::words::Site;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{Notifier, PathChoice, ReceiveRequest, Rights, SendOperation, Status};
use pagewire_sim::{CrashPoint, HostId, LinkFaults, VirtualProcess, World};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Messages of one run.
const MESSAGES: u32 = 12;
/// Times that the sleeper's sleep is looked after at most.
const SLEEPS: u32 = 20_000;
const STEP: u64 = 5_000;

/// Ends either process at its first few stores at the sites that only sleepers and their wakers come to.
pub fn sweep(seen: &mut BTreeMap<Site, u64>) {
    let sites = [Site("mailbox.wake_request"), Site("fabric.wake")];
    assert_eq!(run(None).0, MESSAGES, "the sleeper was not woken");
    for victim in 0..2 {
        for site in sites {
            for number in 1..=4 {
                let (_, ended) = run(Some((victim, CrashPoint::At(site, number))));
                if let Some(ended) = ended {
                    *seen.entry(ended).or_default() += 1;
                }
            }
        }
    }
}

/// Counts what the program would be woken for.
struct Notices(Arc<AtomicU32>);

impl Notifier for Notices {
    fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn withdraw(&self) {
        unreachable!("no completion queue is destroyed here");
    }
}

/// One of the two processes.
struct Player {
    side: Side,
    process: Arc<VirtualProcess>,
    notices: Arc<AtomicU32>,
}

impl Player {
    fn new(world: &World, host: HostId) -> Self {
        let notices = Arc::new(AtomicU32::new(0));
        let side = side_with(
            world,
            host,
            PathChoice::Local,
            &[QueuePairType::Rc],
            Arc::new(Notices(notices.clone())),
        );
        Player { process: world.get(side.process), side, notices }
    }

    /// Posts an empty SEND.
    fn send(&self) {
        self.side.post(SendOperation::Send, 0);
    }

    fn receive(&self) {
        let request = ReceiveRequest { wr_id: 2, segments: &[] };
        self.side.queue_pairs[0].post_receive(&request).unwrap();
    }

    /// A SEND to a process that has ended fails in bounded time.
    fn must_notice(&self, world: &World, under_way: bool) {
        if !under_way {
            self.send();
        }
        let begun = world.now();
        let mut status = None;
        while status.is_none() {
            assert!(world.now() < begun + 10_000_000_000, "the survivor was never told");
            self.side.cq.poll(8, &mut |completion| {
                if completion.wr_id == 1 && completion.status != Status::Success {
                    status = Some(completion.status);
                }
            });
            let next = self.side.nic.progress();
            world.advance(Some(next.unwrap_or(u64::MAX).min(world.now() + 1_000_000)));
        }
        assert_eq!(status, Some(Status::RetryExceeded));
    }
}

/// What the second process does while the first sleeps.
#[derive(Default)]
struct Play {
    sent: u32,
    received: u32,
    under_way: bool,
    sleeps: u32,
}

/// Sends messages to a process that sleeps between them. Gives how many it took, and where a process ended.
fn run(crash: Option<(usize, CrashPoint)>) -> (u32, Option<Site>) {
    let world = World::new(1, LinkFaults::NONE);
    let host = world.host();
    let (sleeper, waker) = (Arc::new(Player::new(&world, host)), Arc::new(Player::new(&world, host)));
    let [one, two] = [&sleeper, &waker].map(|player| (player.side.process, &player.side.queue_pairs[0]));
    connect(&world, one, two, Rights::empty());
    (0..MESSAGES).for_each(|_| sleeper.receive());
    sleeper.side.cq.arm(false);
    if let Some((which, point)) = crash {
        [&sleeper, &waker][which].process.crash_at(point);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let play = Arc::new(Mutex::new(Play::default()));
    let (asleep, awake, ends, shared, time) =
        (sleeper.clone(), waker.clone(), stop.clone(), play.clone(), world.clone());
    sleeper.side.nic.fabric().while_asleep(move || {
        let mut play = shared.lock().unwrap();
        play.sleeps += 1;
        let over = play.received == MESSAGES || play.sleeps > SLEEPS;
        if over || !asleep.process.is_alive() || !awake.process.is_alive() {
            ends.store(true, Ordering::Release);
            return;
        }
        awake.side.cq.poll(8, &mut |completion| {
            assert_eq!(completion.status, Status::Success);
            play.under_way = false;
        });
        awake.side.nic.progress();
        if !play.under_way && play.sent < MESSAGES {
            (play.under_way, play.sent) = (true, play.sent + 1);
            awake.send();
        }
        if asleep.notices.swap(0, Ordering::Relaxed) > 0 {
            while asleep.side.channel.next_event().is_some() {
                asleep.side.cq.completion_events().acknowledge(1);
            }
            asleep.side.cq.poll(64, &mut |completion| {
                assert_eq!(completion.status, Status::Success);
                play.received += 1;
            });
            asleep.side.cq.arm(false);
        }
        time.advance(Some(time.now() + STEP));
    });
    sleeper.side.nic.run(&stop);
    let (received, under_way) = {
        let play = play.lock().unwrap();
        assert!(play.sleeps <= SLEEPS, "the sleeper slept on: {} of {} received", play.received, play.sent);
        (play.received, play.under_way)
    };
    if !sleeper.process.is_alive() {
        waker.must_notice(&world, under_way);
    } else if !waker.process.is_alive() {
        sleeper.must_notice(&world, false);
    } else if crash.is_none() {
        assert!(waker.side.nic.fabric().wakes() > 0, "nobody was woken");
    }
    (received, sleeper.process.ended_by().or(waker.process.ended_by()))
}
