//! The features `tokio` and `async-io`, and futures that need neither.

use pagewire::*;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Two nodes, and a table of the first one opened by the second.
fn pair(count: usize) -> (Node, Node, Region<u64>, RemoteRegion) {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(count).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    (owner, caller, table, remote)
}

fn is_pending(future: &mut (impl Future + Unpin)) -> bool {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Joins two futures of one task, so that each is polled while the other one waits.
async fn both<A: Future, B: Future>(first: A, second: B) -> (A::Output, B::Output) {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut a, mut b) = (None, None);
    std::future::poll_fn(move |context| {
        if a.is_none() {
            if let Poll::Ready(output) = first.as_mut().poll(context) {
                a = Some(output);
            }
        }
        if b.is_none() {
            if let Poll::Ready(output) = second.as_mut().poll(context) {
                b = Some(output);
            }
        }
        match (a.take(), b.take()) {
            (Some(first), Some(second)) => Poll::Ready((first, second)),
            (first, second) => {
                (a, b) = (first, second);
                Poll::Pending
            }
        }
    })
    .await
}

macro_rules! of_runtime {
    ($runtime:ident, $block_on:path, $sleep:path) => {
        mod $runtime {
            use super::*;
            use pagewire::$runtime::Ready;
            use pagewire::{signal_reaches_all, signal_reaches_any};

            #[test]
            fn the_descriptor_is_ready_while_a_result_was_not_taken() {
                let (_owner, caller, _table, remote) = pair(1 << 12);
                $block_on(async {
                    let ready = Ready::of(&caller).unwrap();
                    for round in 0..50u64 {
                        assert!(is_pending(&mut pin!(ready.wait())), "nothing is ready in round {round}");
                        let (one, other) = (remote.fetch_add(0, 1), remote.put(8, vec![round; 4000]));
                        ready.wait().await.unwrap();
                        // Dropped in between, it takes nothing.
                        assert!(!is_pending(&mut pin!(ready.wait())));
                        assert_eq!(one.await.unwrap(), round);
                        ready.wait().await.unwrap();
                        other.await.unwrap();
                    }
                    assert!(is_pending(&mut pin!(ready.wait())));
                });
            }

            #[test]
            fn tasks_wait_for_signals() {
                let (_owner, _caller, table, remote) = pair(8);
                let signals: Vec<_> = [8, 16].map(|offset| table.signal(offset).unwrap()).into();
                $block_on(async {
                    assert!(is_pending(&mut pin!(signals[0].reaches(|value| value == 1))));
                    let late = async {
                        $sleep(Duration::from_millis(10)).await;
                        remote.put_signal(0, vec![5u64], remote.signal(16).set(1)).await.unwrap();
                    };
                    let (found, ()) = both(signal_reaches_any(&signals, |_, value| value == 1), late).await;
                    assert_eq!((found.unwrap(), table.get(0).unwrap()), (Some((1, 1)), 5));
                    let late = async {
                        $sleep(Duration::from_millis(10)).await;
                        remote.signal_only(remote.signal(8).add(1)).await.unwrap();
                    };
                    both(signal_reaches_all(&signals, |_, value| value == 1), late).await.0.unwrap();
                    assert_eq!(signals[0].reaches(|value| value == 1).await.unwrap(), 1);
                    assert_eq!(signal_reaches_any(&[], |_, _| true).await.unwrap(), None);
                    signal_reaches_all(&[], |_, _| false).await.unwrap();
                });
            }

            #[test]
            fn tasks_wait_for_what_peers_open() {
                let (writer, receiver) = (Node::alone().unwrap(), Node::alone().unwrap());
                let table = receiver.zeroed::<u64>(4).unwrap();
                let token = table.export(Rights::WRITE).unwrap();
                $block_on(async {
                    // A task that has given up takes nothing.
                    assert!(is_pending(&mut pin!(receiver.conditional_request())));
                    let late = async {
                        $sleep(Duration::from_millis(10)).await;
                        writer.conditional_write(receiver.identity(), 7, vec![3u64]).unwrap().await
                    };
                    let receives = async {
                        let opened = receiver.conditional_request().await.unwrap();
                        assert_eq!((opened.tag(), opened.peer()), (7, writer.identity()));
                        opened.accept(&token).unwrap().await.unwrap()
                    };
                    let (bytes, outcome) = both(receives, late).await;
                    assert_eq!((bytes, outcome), (8, WriteOutcome::Written(vec![3])));
                });
                assert_eq!(table.get(0).unwrap(), 3);
            }
        }
    };
}

fn tokio_block_on<F: Future>(future: F) -> F::Output {
    ::tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn async_io_sleep(time: Duration) {
    ::async_io::Timer::after(time).await;
}

of_runtime!(tokio, tokio_block_on, ::tokio::time::sleep);
of_runtime!(async_io, ::async_io::block_on, async_io_sleep);

#[test]
fn a_flush_is_a_future_of_all_that_was_started_before() {
    let (owner, caller, table, remote) = pair(1 << 17);
    ::async_io::block_on(async {
        for round in 1..=20u64 {
            drop(remote.put(0, vec![round; 1 << 16]));
            std::mem::forget(remote.put(8 << 16, vec![round; 1 << 16]));
            // One that is dropped changes nothing.
            drop(remote.start_flush());
            remote.start_flush().await.unwrap();
            assert_eq!([0, 1 << 16].map(|index| table.get(index).unwrap()), [round; 2]);
            assert!(remote.start_flush().is_done(), "nothing is under way");
        }
        let stale = table.export(Rights::WRITE).unwrap();
        let gone = caller.open(&stale).unwrap();
        owner.unexport(&stale).unwrap();
        drop(gone.put(0, vec![1u64]));
        let failure = caller.start_flush().await.unwrap_err();
        assert!(matches!(failure, Failure::Refused { side: Side::Target, rule: Rule::Key, .. }), "{failure}");
        caller.start_flush().await.unwrap();
    });
}
