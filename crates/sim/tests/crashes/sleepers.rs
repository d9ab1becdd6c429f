//! A process whose NIC thread sleeps, a peer that wakes it, and the end of either in between.

use crate::support::connect;
use pagewire_iommu::words::Site;
use pagewire_nic::attributes::{Capabilities, QueuePairType};
use pagewire_nic::{
    CompletionChannel, CompletionQueue, Data, Nic, Notifier, Options, PathChoice, QueuePair, QueuePairInit,
    ReceiveRequest, Rights, SendOperation, SendRequest, Status, Unwatched,
};
use pagewire_sim::{CrashPoint, Faults, MEMORY, Process, ProcessId, SimFabric, World};
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
    let sites = [Site("mailbox.attention"), Site("fabric.wake")];
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

struct Side {
    process: Arc<Process>,
    id: ProcessId,
    nic: Arc<Nic<SimFabric>>,
    channel: Arc<CompletionChannel>,
    cq: Arc<CompletionQueue<SimFabric>>,
    queue_pair: Arc<QueuePair<SimFabric>>,
    notices: Arc<AtomicU32>,
}

fn side(world: &World, host: pagewire_sim::HostId) -> Side {
    let (id, fabric) = world.process(host);
    world.map(id, MEMORY, 1 << 16);
    let process = world.get(id);
    let nic = Nic::new(fabric, Options { path: PathChoice::Local });
    let context = nic.open(world.device(id), Arc::new(Unwatched));
    let notices = Arc::new(AtomicU32::new(0));
    let channel = context.create_channel(Arc::new(Notices(notices.clone())));
    let cq = context.create_cq(64, Some(channel.clone())).unwrap();
    let domain = context.alloc_pd().unwrap();
    let capabilities = Capabilities {
        max_send_wr: 8,
        max_recv_wr: 16,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 64,
    };
    let init = QueuePairInit {
        kind: QueuePairType::Rc,
        send_cq: cq.clone(),
        recv_cq: cq.clone(),
        srq: None,
        capabilities,
        signal_all: true,
    };
    let queue_pair = domain.create_qp(init).unwrap();
    Side { process, id, nic, channel, cq, queue_pair, notices }
}

impl Side {
    /// Posts an empty SEND.
    fn send(&self) {
        let request = SendRequest {
            wr_id: 1,
            data: Data::Segments(&[]),
            operation: SendOperation::Send,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        self.queue_pair.post_send(&request).unwrap();
        self.queue_pair.doorbell();
    }

    fn receive(&self) {
        self.queue_pair.post_receive(&ReceiveRequest { wr_id: 2, segments: &[] }).unwrap();
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
            self.cq.poll(8, &mut |completion| {
                if completion.wr_id == 1 && completion.status != Status::Success {
                    status = Some(completion.status);
                }
            });
            let next = self.nic.progress();
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
    let world = World::new(1, Faults::NONE);
    let host = world.host();
    let (sleeper, waker) = (Arc::new(side(&world, host)), Arc::new(side(&world, host)));
    connect(&world, (sleeper.id, &sleeper.queue_pair), (waker.id, &waker.queue_pair), Rights::empty());
    (0..MESSAGES).for_each(|_| sleeper.receive());
    sleeper.cq.arm(false);
    if let Some((which, point)) = crash {
        [&sleeper, &waker][which].process.crash_at(point);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let play = Arc::new(Mutex::new(Play::default()));
    let (asleep, awake, ends, shared, time) =
        (sleeper.clone(), waker.clone(), stop.clone(), play.clone(), world.clone());
    sleeper.nic.fabric().while_asleep(move || {
        let mut play = shared.lock().unwrap();
        play.sleeps += 1;
        let over = play.received == MESSAGES || play.sleeps > SLEEPS;
        if over || !asleep.process.is_alive() || !awake.process.is_alive() {
            ends.store(true, Ordering::Release);
            return;
        }
        awake.cq.poll(8, &mut |completion| {
            assert_eq!(completion.status, Status::Success);
            play.under_way = false;
        });
        awake.nic.progress();
        if !play.under_way && play.sent < MESSAGES {
            (play.under_way, play.sent) = (true, play.sent + 1);
            awake.send();
        }
        if asleep.notices.swap(0, Ordering::Relaxed) > 0 {
            while asleep.channel.next_event().is_some() {
                asleep.cq.completion_events().acknowledge(1);
            }
            asleep.cq.poll(64, &mut |completion| {
                assert_eq!(completion.status, Status::Success);
                play.received += 1;
            });
            asleep.cq.arm(false);
        }
        time.advance(Some(time.now() + STEP));
    });
    sleeper.nic.run(&stop);
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
        assert!(waker.nic.fabric().wakes() > 0, "nobody was woken");
    }
    (received, sleeper.process.ended_by().or(waker.process.ended_by()))
}
