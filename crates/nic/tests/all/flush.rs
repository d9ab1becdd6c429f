//! What a queue pair flushes comes in the order in which it was posted, whoever posts meanwhile.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::*;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// For what must come.
const LONG: Duration = Duration::from_secs(60);
/// Queue pairs that fail while a thread posts.
const ROUNDS: u32 = 20;
/// Requests that wait when they do, at least.
const WAITING: u64 = 64;
/// All requests of a round; they do not fit into the queue together, so that most are posted later.
const ALL: u64 = 1024;

/// `post` posts the request of a number at a; `queue` gets the completions, which come in the order of the posts
/// (InfiniBand specification, volume 1, chapter 10: those of one queue complete in order).
fn is_flushed_in_order(
    post: impl Fn(&Pair, u64) -> Result<()> + Sync,
    queue: impl Fn(&Side) -> &CompletionQueue<pagewire_fabric::HostFabric>,
) {
    let side = || Side::without_thread(PathChoice::Local);
    let mut pair = Pair::connect(side(), side(), QueuePairType::Rc, all_rights());
    for round in 0..ROUNDS {
        let posted = AtomicU64::new(0);
        let mut flushed = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let limit = Instant::now() + LONG;
                while posted.load(Ordering::Relaxed) < ALL && Instant::now() < limit {
                    // While the queue is full the same one again.
                    match post(&pair, posted.load(Ordering::Relaxed)) {
                        Ok(()) => posted.fetch_add(1, Ordering::Release),
                        Err(error) => {
                            assert!(matches!(error, Error::NoMemory(_)), "{error}");
                            std::thread::yield_now();
                            continue;
                        }
                    };
                }
            });
            while posted.load(Ordering::Acquire) < WAITING {
                std::thread::yield_now();
            }
            pair.qa.modify(&QueuePairChange { state: Some(QpState::Error), ..Default::default() }).unwrap();
            // What is not polled holds its slot.
            let limit = Instant::now() + LONG;
            while flushed.len() < ALL as usize && Instant::now() < limit {
                let found = queue(&pair.a)
                    .poll(64, &mut |completion| flushed.push((completion.wr_id, completion.status)));
                if found == 0 {
                    std::thread::yield_now();
                }
            }
        });
        let expected: Vec<_> = (0..ALL).map(|id| (id, Status::Flushed)).collect();
        assert!(flushed == expected, "round {round}: {flushed:?}");
        let old = std::mem::replace(&mut pair.qa, pair.a.queue_pair(QueuePairType::Rc, all_rights()));
        old.destroy().unwrap();
        to_rtr(&pair.a, &pair.qa, pair.qb.number());
        to_rts(&pair.qa, TIMERS);
    }
}

#[test]
fn sends() {
    if !own_network::is_here() {
        return;
    }
    let send = |pair: &Pair, wr_id| {
        let request = SendRequest {
            wr_id,
            data: Data::Segments(&[]),
            operation: SendOperation::Send,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        // Without a doorbell it waits.
        pair.qa.post_send(&request).map(drop)
    };
    is_flushed_in_order(send, |side| &side.send_cq);
}

#[test]
fn receives() {
    if !own_network::is_here() {
        return;
    }
    let receive = |pair: &Pair, wr_id| pair.qa.post_receive(&ReceiveRequest { wr_id, segments: &[] });
    is_flushed_in_order(receive, |side| &side.recv_cq);
}
