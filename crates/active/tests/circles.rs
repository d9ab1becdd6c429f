//! Handlers that wait for each other, or for space in each other's log: they end with an error after a bound, and the logs go on.

mod other;

use other::on_each_path;
use pagewire::{Failure, Node, Region, RemoteRegion, Rights};
use pagewire_active::{AccessLog, AttributesOf, LogOptions, Logs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Owner {
    node: Arc<Node>,
    table: Region<u64>,
    log: AccessLog,
}

const PATIENCE: Duration = Duration::from_millis(300);

fn owner(bytes: usize) -> Owner {
    let node = Arc::new(Node::alone().unwrap());
    let table = node.zeroed::<u64>(512).unwrap();
    let log = node.access_log_with(&LogOptions { patience: PATIENCE, ..LogOptions::new(bytes) }).unwrap();
    table.attributes(..).redirect_puts().to(&log).unwrap();
    Owner { node, table, log }
}

fn open(node: &Node, other: &Owner) -> RemoteRegion {
    node.open(&other.table.export(Rights::WRITE | Rights::READ).unwrap()).unwrap()
}

fn is_given_up(error: &Failure) -> bool {
    matches!(error, Failure::PeerLost { .. })
}

/// Each record of one owner makes two in the log of the other one: soon all rings and backlogs are full.
#[test]
fn full_logs_of_handlers_that_put_to_each_other_end_in_errors() {
    on_each_path("full_logs_of_handlers_that_put_to_each_other_end_in_errors", || {
        let owners = [owner(2048), owner(2048)];
        let errors = Arc::new(AtomicU64::new(0));
        let ends = Arc::new(AtomicBool::new(false));
        let servings = [0, 1].map(|index| {
            let remote = open(&owners[index].node, &owners[1 - index]);
            let (errors, ends) = (errors.clone(), ends.clone());
            let handler = move |_: pagewire_active::Access<'_>| {
                for _ in 0..2 {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    if let Err(error) = remote.put(0, vec![1u64; 16]).wait() {
                        assert!(is_given_up(&error.failure), "{error}");
                        errors.fetch_add(1, Ordering::Relaxed);
                    }
                }
            };
            owners[index].log.serve(handler).unwrap()
        });
        let caller = Node::alone().unwrap();
        open(&caller, &owners[0]).put(0, vec![1u64; 16]).wait().unwrap();
        let start = Instant::now();
        while errors.load(Ordering::Relaxed) == 0 {
            assert!(start.elapsed() < Duration::from_secs(60), "it hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        ends.store(true, Ordering::Relaxed);
        for serving in servings {
            let summary = serving.end();
            assert_eq!(summary.panicked, 0);
        }
        assert!(start.elapsed() < Duration::from_secs(100));
    });
}

#[test]
fn flushes_that_wait_for_each_other_end_in_errors() {
    on_each_path("flushes_that_wait_for_each_other_end_in_errors", || {
        let owners = [owner(1 << 16), owner(1 << 16)];
        let (errors, done) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let servings = [0, 1].map(|index| {
            let remote = open(&owners[index].node, &owners[1 - index]);
            let (errors, done) = (errors.clone(), done.clone());
            let handler = move |access: pagewire_active::Access<'_>| {
                if access.value::<u64>() == Some(1) {
                    // Handled only when this handler's own record is: the other one does the same.
                    let put = remote.put_value(0, 2u64).wait().map(|_| ());
                    let flushed = remote.flush_handled(None).wait().map(|_| ());
                    let failed = put.is_err() || flushed.is_err_and(|error| is_given_up(&error.failure));
                    errors.fetch_add(u64::from(failed), Ordering::Relaxed);
                }
                done.fetch_add(1, Ordering::Relaxed);
            };
            owners[index].log.serve(handler).unwrap()
        });
        let caller = Node::alone().unwrap();
        let start = Instant::now();
        let puts = owners.each_ref().map(|owner| open(&caller, owner).put_value(0, 1u64));
        puts.into_iter().for_each(|put| drop(put.wait().unwrap()));
        while done.load(Ordering::Relaxed) < 3 {
            assert!(start.elapsed() < Duration::from_secs(60), "it hangs");
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(start.elapsed() < Duration::from_secs(60));
        drop(servings);
    });
}

/// A handler that forwards more than the other log has space for needs its own log to be read meanwhile, and no error comes of it.
#[test]
fn a_handler_that_waits_goes_on_reading_its_log() {
    on_each_path("a_handler_that_waits_goes_on_reading_its_log", || {
        const RECORDS: u64 = 300;
        let [first, second] = [owner(4096), owner(4096)];
        let back = open(&second.node, &first);
        let forth = open(&first.node, &second);
        let seen = Arc::new(AtomicU64::new(0));
        let counted = seen.clone();
        // What comes back is counted; what comes from the caller is forwarded.
        let serving_first = first.log.serve(move |access| match access.value::<u64>() {
            Some(0) => drop(forth.put_value(0, 1u64).wait().unwrap()),
            _ => {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let serving_second = second.log.serve(move |_| drop(back.put_value(0, 1u64).wait().unwrap()));
        let (serving_first, serving_second) = (serving_first.unwrap(), serving_second.unwrap());
        let caller = Node::alone().unwrap();
        let remote = open(&caller, &first);
        for _ in 0..RECORDS {
            remote.put_value(0, 0u64).wait().unwrap();
        }
        let start = Instant::now();
        while seen.load(Ordering::Relaxed) < RECORDS {
            assert!(start.elapsed() < Duration::from_secs(60), "{} came back", seen.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(serving_first.end().panicked + serving_second.end().panicked, 0);
    });
}

/// A node that flushes its own handler: what the handler starts does not wait behind the flush.
#[test]
fn a_handler_accesses_the_peer_whose_flush_waits_for_it() {
    on_each_path("a_handler_accesses_the_peer_whose_flush_waits_for_it", || {
        let Owner { node, table, log } = owner(1 << 16);
        let plain = node.zeroed::<u64>(512).unwrap();
        let remote = node.open(&table.export(Rights::WRITE | Rights::READ).unwrap()).unwrap();
        let open_plain = || node.open(&plain.export(Rights::all()).unwrap()).unwrap();
        let (handled, puts) = (open_plain(), open_plain());
        let go = Arc::new(AtomicBool::new(false));
        let flushes = go.clone();
        let handler = move |access: pagewire_active::Access<'_>| {
            let value = access.value::<u64>().unwrap();
            // In order with what follows, though nobody waits for it and a flush may come between.
            drop(handled.put_value(0, value));
            while !flushes.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(handled.get::<u64>(0, 1).unwrap().wait().unwrap(), [value]);
            drop(handled.put_value(0, 10 * value));
            handled
                .put_batch([(8, vec![value]), (16, vec![value])])
                .into_iter()
                .for_each(|put| drop(put.wait()));
            assert_eq!(handled.fetch_add(0, 1).wait().unwrap(), 10 * value);
            handled.flush().unwrap();
        };
        let serving = log.serve(handler).unwrap();
        for value in 1..=3u64 {
            go.store(false, Ordering::Relaxed);
            remote.put_value(0, value).wait().unwrap();
            let flush = remote.flush_handled(None);
            // It is in order behind the flush, as it was started there.
            let behind = puts.put_value(24, value);
            go.store(true, Ordering::Relaxed);
            flush.wait().unwrap();
            behind.wait().unwrap();
            assert_eq!(plain.get(0).unwrap(), 10 * value + 1);
            assert_eq!([1, 2, 3].map(|index| plain.get(index).unwrap()), [value; 3]);
        }
        assert_eq!(serving.end().panicked, 0);
        node.flush().unwrap();
    });
}

/// Each owner flushes the other one. The handler of one puts and flushes, the other one's puts back, before they return.
#[test]
fn handlers_of_two_owners_that_flush_each_other_make_progress() {
    on_each_path("handlers_of_two_owners_that_flush_each_other_make_progress", || {
        let owners = [owner(1 << 16), owner(1 << 16)];
        let answers: Vec<_> = owners.iter().map(|owner| owner.node.zeroed::<u64>(512).unwrap()).collect();
        let servings = [0, 1].map(|index| {
            let there = answers[1 - index].export(Rights::all()).unwrap();
            let remote = owners[index].node.open(&there).unwrap();
            owners[index].log.serve(move |access| {
                let value = access.value::<u64>().unwrap();
                remote.put_value(0, value).wait().unwrap();
                assert_eq!(remote.get::<u64>(0, 1).unwrap().wait().unwrap(), [value]);
                remote.flush().unwrap();
            })
        });
        std::thread::scope(|scope| {
            for index in [0, 1] {
                let remote = open(&owners[index].node, &owners[1 - index]);
                let answer = &answers[index];
                scope.spawn(move || {
                    for value in 1..=200u64 {
                        remote.put_value(0, value).wait().unwrap();
                        remote.flush_handled(None).wait().unwrap();
                        assert_eq!(answer.get(0).unwrap(), value);
                    }
                });
            }
        });
        servings.into_iter().for_each(|serving| assert_eq!(serving.unwrap().end().panicked, 0));
    });
}
