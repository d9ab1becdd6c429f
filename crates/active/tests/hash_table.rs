//! The hash table between processes, on each path and by each scheme: nothing is lost, whoever writes at the same time, grows or dies.

#[path = "hash_table/durable.rs"]
mod durable;
mod other;

use other::{Job, role, say};
use pagewire::Node;
use pagewire_active::hash_table::Scheme;
use pagewire_active::{HashTable, TableOptions};
use std::sync::Arc;

/// Keys that a member writes alone, where it is one of two, and keys that all write.
const OWN: u64 = 3000;
const SHARED: u64 = 500;

/// Keys that each of so many members writes alone: as many together.
fn own_keys(members: usize) -> u64 {
    OWN * 2 / members as u64 / 4 * 4
}

fn own_key(rank: usize, index: u64) -> u64 {
    1 + rank as u64 * 1_000_000 + index
}

fn shared_key(index: u64) -> u64 {
    500_000_000 + index
}

/// Values of no bytes, of a few, of many, and now and then of more than one record of a log has.
fn value_of(key: u64) -> Vec<u8> {
    let length = match key % 10 {
        0..=5 => key % 8,
        6..=8 => key % 200,
        _ if key % 500 == 9 => 100_000,
        _ => 3000,
    };
    (0..length).map(|index| (key * 31 + index) as u8).collect()
}

/// Operations of a member: `make test-active` asks for more.
fn rounds() -> u64 {
    std::env::var("PAGEWIRE_TABLE_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap())
}

/// A role's last word: its scheme.
fn scheme_of(role: &str) -> Scheme {
    match role {
        "nearest" => Scheme::Nearest,
        "handler" => Scheme::Handler,
        "operations" => Scheme::Operations,
        _ => panic!("{role}"),
    }
}

/// Small at first, so that it grows while all write to it.
fn works(node: &Arc<Node>, scheme: Scheme) {
    let options = TableOptions { scheme, value_bytes: 10_000, ..TableOptions::new(300) };
    let table = HashTable::join(node, &options).unwrap();
    let own = own_keys(node.size());
    for _ in 0..rounds() {
        let rank = node.rank();
        for index in 0..own {
            let key = own_key(rank, index);
            table.insert(key, &value_of(key)).unwrap();
            let key = shared_key(index % SHARED);
            table.insert(key, &value_of(key)).unwrap();
        }
        table.flush().unwrap();
        node.barrier().unwrap();
        for other in 0..node.size() {
            for index in 0..own {
                let key = own_key(other, index);
                assert_eq!(table.lookup(key).unwrap(), Some(value_of(key)), "{key}");
            }
        }
        let expected = node.size() * own as usize + SHARED as usize;
        assert_eq!(elements(node, &table), expected);
        // Everyone deletes half of what another one has written, and writes some of that again.
        let other = (rank + 1) % node.size();
        for index in 0..own / 2 {
            table.delete(own_key(other, index)).unwrap();
        }
        let again: Vec<u64> = (0..own / 4).map(|index| own_key(other, index)).collect();
        table.insert_batch(again.iter().map(|key| (*key, &b"again"[..]))).unwrap();
        table.flush().unwrap();
        node.barrier().unwrap();
        for index in 0..own {
            let key = own_key(rank, index);
            let expected = match index {
                index if index < own / 4 => Some(b"again".to_vec()),
                index if index < own / 2 => None,
                _ => Some(value_of(key)),
            };
            assert_eq!(table.lookup(key).unwrap(), expected, "{index}");
        }
        let gone = (own / 2 - own / 4) as usize * node.size();
        assert_eq!(elements(node, &table), expected - gone);
        node.barrier().unwrap();
        table.resize(2000).unwrap();
        node.barrier().unwrap();
        assert_eq!(elements(node, &table), expected - gone, "behind a resize");
        assert_eq!(table.lookup(shared_key(7)).unwrap(), Some(value_of(shared_key(7))));
        let keys: Vec<u64> = (0..6 * own).map(|index| own_key(rank, 100_000 + index)).collect();
        table.insert_batch(keys.iter().map(|key| (*key, &[][..]))).unwrap();
        table.flush().unwrap();
        node.barrier().unwrap();
        assert_eq!(elements(node, &table), expected - gone + 6 * own as usize * node.size());
        for key in keys {
            table.delete(key).unwrap();
        }
        table.flush().unwrap();
        node.barrier().unwrap();
    }
    let statistics = table.statistics().unwrap();
    assert!(statistics.resizes > 1 && statistics.malformed == 0, "{statistics:?}");
    node.barrier().unwrap();
    say("has worked");
}

/// Of all volumes.
fn elements(node: &Node, table: &HashTable) -> usize {
    let own = table.statistics().unwrap().elements as u64;
    let all = node.all_gather_bytes(&own.to_le_bytes()).unwrap();
    all.iter().map(|bytes| u64::from_le_bytes(bytes[..].try_into().unwrap()) as usize).sum()
}

/// Rank 1 dies behind its flush: rank 0 has everything that it had flushed.
fn dies(node: &Arc<Node>, scheme: Scheme) {
    let table = HashTable::join(node, &TableOptions { scheme, ..TableOptions::new(1000) }).unwrap();
    if node.rank() == 1 {
        let keys: Vec<u64> = (0..OWN).map(|index| own_key(1, index)).collect();
        for key in &keys {
            table.insert(*key, b"stays").unwrap();
        }
        table.flush().unwrap();
        node.barrier().unwrap();
        // Whatever it writes from now on, it dies in the midst of.
        let killer = std::thread::spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::process::abort();
        });
        for key in 1_000_000_000.. {
            table.insert(key, b"may stay").unwrap();
        }
        killer.join().unwrap();
    }
    node.barrier().unwrap();
    let found = (0..OWN).filter(|index| {
        let key = own_key(1, *index);
        // What the dead member had itself is gone with it.
        table.lookup(key).is_ok_and(|value| value.as_deref() == Some(b"stays"))
    });
    let found = found.count();
    // It had about half of its keys itself.
    assert!(found > OWN as usize / 3, "{found}");
    let start = std::time::Instant::now();
    // Elements of this volume are written and found as before, behind whatever the dead one left.
    let mut written = 0;
    for key in 1..1000u64 {
        if table.insert(key, b"own").is_ok()
            && table.lookup(key).is_ok_and(|value| value.as_deref() == Some(b"own"))
        {
            written += 1;
        }
    }
    assert!(written > 300 && start.elapsed().as_secs() < 60, "{written}");
    say("survived");
    // The other process is gone: there is nobody to leave with.
    std::process::exit(0);
}

fn all_work(test: &str, path: &str, scheme: &str, size: usize) {
    if let Some(role) = role() {
        return works(&Arc::new(Node::from_env().unwrap()), scheme_of(&role));
    }
    let mut job = Job::start_as(test, scheme, size, path);
    for member in &mut job.members {
        member.expect("has worked");
        assert!(member.wait().success());
    }
}

#[test]
fn members_of_one_host_write_where_it_lies() {
    all_work("members_of_one_host_write_where_it_lies", "local", "nearest", 3);
}

#[test]
fn eight_members_write_where_it_lies() {
    all_work("eight_members_write_where_it_lies", "local", "nearest", 8);
}

#[test]
fn eight_members_ask_handlers() {
    all_work("eight_members_ask_handlers", "local", "handler", 8);
}

#[test]
fn handlers_write_for_members_of_one_host() {
    all_work("handlers_write_for_members_of_one_host", "local", "handler", 2);
}

#[test]
fn operations_write_within_one_host() {
    all_work("operations_write_within_one_host", "local", "operations", 2);
}

#[test]
fn handlers_write_over_udp() {
    all_work("handlers_write_over_udp", "udp", "nearest", 2);
}

#[test]
fn what_a_dead_member_had_flushed_stays() {
    const TEST: &str = "what_a_dead_member_had_flushed_stays";
    if let Some(role) = role() {
        return dies(&Arc::new(Node::from_env().unwrap()), scheme_of(&role));
    }
    for (path, scheme) in [("local", "nearest"), ("local", "handler"), ("udp", "nearest")] {
        let mut job = Job::start_as(TEST, scheme, 2, path);
        assert!(!job.members[1].wait().success());
        job.members[0].expect("survived");
        assert!(job.members[0].wait().success(), "{path} {scheme}");
    }
}

/// A table that is made small, or is overwritten again and again, takes no more memory than its elements need.
#[test]
fn what_nothing_names_takes_no_memory() {
    let node = Arc::new(Node::alone().unwrap());
    let table = HashTable::join(&node, &TableOptions::new(100)).unwrap();
    for key in 1..20_000 {
        table.insert(key, b"8 bytes.").unwrap();
    }
    for cells in [10, 0, 10] {
        table.resize(cells).unwrap();
    }
    let statistics = table.statistics().unwrap();
    assert_eq!((statistics.elements, statistics.cells), (19_999, 10));
    table.clear().unwrap();
    assert_eq!((table.statistics().unwrap().elements, table.elements().count()), (0, 0));
    table.resize(100).unwrap();
    for round in 0..20_000u64 {
        table.insert(1 + round % 50, &[round as u8; 100]).unwrap();
    }
    let statistics = table.statistics().unwrap();
    assert!(statistics.elements == 50 && statistics.cells < 1000, "{statistics:?}");
    assert!(table.resize(usize::MAX).is_err() && table.lookup(1).unwrap().is_some());
}

/// In a heap that has no space for a second volume, the space of deleted elements and of overwritten values is used again, by elements of other keys and lengths.
#[test]
fn deleted_space_is_used_again_without_a_second_volume() {
    const CHILD: &str = "PAGEWIRE_TABLE_IS_FULL";
    if std::env::var_os(CHILD).is_none() {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "deleted_space_is_used_again_without_a_second_volume", "--nocapture"]);
        let output =
            command.env(CHILD, "1").env("PAGEWIRE_HEAP_RANGE", (384 << 20).to_string()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let node = Arc::new(Node::alone().unwrap());
    let table = HashTable::join(&node, &TableOptions::new(100)).unwrap();
    let value = |key: u64, length: u64| vec![key as u8; length as usize];
    let full = (1..).find(|key| table.insert(*key, &value(*key, 2000)).is_err()).unwrap();
    table.flush().unwrap_or_else(|error| panic!("the caller was told: {error}"));
    assert!(full > 1000, "{full}");
    let mut there = (1..full).map(|key| (key, 2000)).collect::<std::collections::BTreeMap<_, _>>();
    let mut next = full;
    for (round, length) in [(0, 2000), (1, 1000), (2, 3000), (3, 500)] {
        // Half of the elements go, and others take nine tenths of their space.
        let gone: Vec<u64> = there.keys().copied().filter(|key| key % 2 == round % 2).collect();
        let bytes: u64 = gone.iter().map(|key| there.remove(key).unwrap()).sum();
        gone.iter().for_each(|key| table.delete(*key).unwrap());
        for _ in 0..bytes * 9 / 10 / length {
            table
                .insert(next, &value(next, length))
                .unwrap_or_else(|error| panic!("{round} {next}: {error}"));
            there.insert(next, length);
            next += 1;
        }
        for (key, length) in &there {
            assert!(
                table.lookup(*key).unwrap().is_some_and(|found| found == value(*key, *length)),
                "{round} {key}"
            );
        }
        assert_eq!(table.statistics().unwrap().elements, there.len());
    }
}
