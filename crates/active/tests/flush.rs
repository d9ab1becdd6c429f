//! What a flush of handlers covers: all records of its node, by whichever connection they came.

mod other;

use other::on_each_path;
use pagewire::{Failure, Node, Region, RemoteRegion, Rights, Rule};
use pagewire_active::{Access, AccessLog, AttributesOf, Events, Logs};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// How long nothing happens that is not to happen.
const SOON: Duration = Duration::from_millis(200);

/// What is to happen happens by then.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    table: Region<u64>,
    remote: RemoteRegion,
    log: AccessLog,
    caller: Node,
    _owner: Node,
}

/// The first page redirects puts, the second one refuses them.
fn world() -> World {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(4 * PAGE as usize / 8).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    let log = owner.access_log(1 << 16).unwrap();
    table.attributes(..PAGE).redirect_puts().to(&log).unwrap();
    table.attributes(PAGE..2 * PAGE).refuse_puts().set().unwrap();
    World { table, remote, log, caller, _owner: owner }
}

/// A refused put ends the queue pair, and the next operation connects anew.
fn connect_anew(remote: &RemoteRegion) {
    assert!(remote.put_value(PAGE, 1u64).wait().is_err());
    assert_eq!(remote.get::<u64>(2 * PAGE, 1).unwrap().wait().unwrap(), [0]);
}

#[test]
fn a_flush_covers_former_connections() {
    on_each_path("a_flush_covers_former_connections", || {
        let world = world();
        let World { table, remote, log, .. } = &world;
        for former in 1..=3u64 {
            remote.put_value(0, former).wait().unwrap();
            connect_anew(remote);
        }
        let domain = Some(log.user_domain());
        let flushes = [remote.flush_handled(None), remote.flush_handled(domain)];
        let start = Instant::now();
        while start.elapsed() < SOON {
            assert!(!flushes.iter().any(|flush| flush.is_done()), "nobody has read the log");
        }
        let mut seen = Vec::new();
        assert_eq!(log.poll(|access| seen.push(access.value::<u64>())), 3);
        assert_eq!(seen, [Some(1), Some(2), Some(3)]);
        flushes.into_iter().for_each(|flush| drop(flush.wait().unwrap()));
        assert_eq!(table.get(0).unwrap(), 0);
    });
}

/// The caller's node has left, or the owner's: nobody would ever hand over an answer.
#[test]
fn a_flush_without_a_peer_ends() {
    on_each_path("a_flush_without_a_peer_ends", || {
        for leaves in ["caller", "owner"] {
            let World { table, remote, log, caller, _owner: owner } = world();
            remote.put_value(2 * PAGE, 1u64).wait().unwrap();
            remote.flush_handled(None).wait().unwrap();
            match leaves {
                "caller" => drop(caller),
                _ => drop((table, log, owner)),
            }
            for domain in [None, Some(0)] {
                let flush = remote.flush_handled(domain);
                assert!(flush.ends_within(PATIENCE), "{leaves}");
                let error = flush.wait().unwrap_err();
                assert!(matches!(error.failure, Failure::PeerLost { .. }), "{leaves}: {error:?}");
            }
        }
    });
}

/// PAPERS AA-6: a flush begins the handling, whatever count or time a thread that serves the log sleeps for.
#[test]
fn a_flush_wakes_a_thread_that_waits_for_more() {
    on_each_path("a_flush_wakes_a_thread_that_waits_for_more", || {
        let World { remote, log, caller: _caller, .. } = &world();
        let events = Events { threshold: 1000, interval: Duration::from_secs(3600) };
        let handled = Arc::new(AtomicU64::new(0));
        let counted = handled.clone();
        let count = move |_: Access<'_>| _ = counted.fetch_add(1, Ordering::AcqRel);
        let serving = log.serve_events(&events, count).unwrap();
        for round in 1..=20u64 {
            let start = Instant::now();
            while round % 2 == 0 && !serving.is_asleep() {
                assert!(start.elapsed() < PATIENCE, "it does not sleep");
                std::thread::sleep(Duration::from_millis(1));
            }
            remote.put_value(0, round).wait().unwrap();
            assert!(remote.flush_handled(None).ends_within(PATIENCE), "round {round}");
            assert_eq!(handled.load(Ordering::Acquire), round);
        }
    });
}

#[test]
fn a_get_behind_a_flush_does_not_wait_for_handlers() {
    on_each_path("a_get_behind_a_flush_does_not_wait_for_handlers", || {
        let World { remote, log, .. } = &world();
        // More flushes than there are connections for them, from before the put has ended.
        let put = remote.put_value(0, 1u64);
        let flushes: Vec<_> = (0..7).map(|_| remote.flush_handled(None)).collect();
        for value in 1..=100u64 {
            remote.put_value(2 * PAGE, value).wait().unwrap();
            assert_eq!(remote.get::<u64>(2 * PAGE, 1).unwrap().wait().unwrap(), [value]);
        }
        put.wait().unwrap();
        assert!(!flushes.iter().any(|flush| flush.is_done()), "nobody has read the log");
        assert_eq!(log.poll(|_| ()), 1);
        flushes.into_iter().for_each(|flush| drop(flush.wait().unwrap()));
    });
}

/// The records of another node hold nothing back.
#[test]
fn a_flush_does_not_cover_other_nodes() {
    on_each_path("a_flush_does_not_cover_other_nodes", || {
        let World { table, remote, log, caller, _owner } = world();
        remote.put_value(0, 1u64).wait().unwrap();
        connect_anew(&remote);
        let other = Node::alone().unwrap();
        let others = other.open(&table.export(Rights::all()).unwrap()).unwrap();
        others.flush_handled(None).wait().unwrap();
        drop((remote, caller));
        others.put_value(0, 2u64).wait().unwrap();
        assert_eq!(log.poll(|_| ()), 2);
        others.flush_handled(None).wait().unwrap();
    });
}

/// Writes over the first record of the first ring of the only log of this process, as a hostile source may.
fn damage_first_ring() {
    const ROW: u64 = 128;
    let is_log = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| target.to_string_lossy().contains("pagewire-access-log"))
    };
    let files: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().filter(is_log).collect();
    assert!(!files.is_empty());
    let file = std::fs::OpenOptions::new().write(true).open(files[0].path()).unwrap();
    file.write_all_at(&[0xFF; 8], ROW + 256 * ROW).unwrap();
}

fn is_lost(failure: &Failure) -> bool {
    matches!(failure, Failure::Refused { rule: Rule::DamagedLog, .. })
}

/// A ring whose words make no sense is read no more. Whoever waits for it learns that.
#[test]
fn a_damaged_ring_ends_flushes_and_puts_with_an_error() {
    on_each_path("a_damaged_ring_ends_flushes_and_puts_with_an_error", || {
        // By a flush first.
        let world = world();
        let World { table, remote, log, .. } = &world;
        remote.put_value(0, 1u64).wait().unwrap();
        let flush = remote.flush_handled(None);
        damage_first_ring();
        assert_eq!(log.poll(|_| ()), 0);
        let error = flush.wait().unwrap_err();
        assert!(is_lost(&error.failure), "{error}");
        assert!(error.to_string().contains("put it again"), "{error}");
        // The next connection has a ring of its own, and it is said once.
        remote.put_value(0, 2u64).wait().unwrap();
        assert_eq!(log.poll(|access| assert_eq!(access.value::<u64>(), Some(2))), 1);
        remote.flush_handled(None).wait().unwrap();
        assert_eq!(table.get(0).unwrap(), 0);
    });
}

#[test]
fn a_damaged_ring_takes_no_puts() {
    on_each_path("a_damaged_ring_takes_no_puts", || {
        let world = world();
        let World { table, remote, log, .. } = &world;
        remote.put_value(0, 1u64).wait().unwrap();
        damage_first_ring();
        assert_eq!(log.poll(|_| ()), 0);
        let error = remote.put_value(0, 2u64).wait().unwrap_err();
        assert!(matches!(error.failure, Failure::Refused { rule: Rule::Memory, .. }), "{error}");
        assert!(error.to_string().contains("log"), "{error}");
        // What was lost with the former connection is said by a flush, once.
        let error = remote.flush_handled(Some(log.user_domain())).wait().unwrap_err();
        assert!(is_lost(&error.failure), "{error}");
        remote.flush_handled(None).wait().unwrap();
        remote.put_value(0, 3u64).wait().unwrap();
        assert_eq!(log.poll(|access| assert_eq!(access.value::<u64>(), Some(3))), 1);
        remote.flush_handled(None).wait().unwrap();
        assert_eq!(table.get(0).unwrap(), 0);
    });
}
