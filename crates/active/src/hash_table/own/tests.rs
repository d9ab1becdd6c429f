//! What other processes may put to the mailbox of a volume, and what a stopped one holds.

use super::super::member::Member;
use super::super::{Scheme, messages};
use super::*;
use crate::{Events, TableOptions};
use std::path::Path;
use zerocopy::IntoBytes;

/// A small volume of a node of its own, in a folder.
fn durable(folder: &Path) -> Arc<OwnVolume> {
    let node = Arc::new(Node::alone().unwrap());
    let durability = Durability { syncs: false, ..Durability::new(folder) };
    let kept = Kept { durability: &durability, rank: 0, size: 1 };
    let service = Service::Events(Events::default());
    OwnVolume::begin(&node, TableOptions::new(10).shape(), service, 1, Some(kept)).unwrap()
}

/// A volume as another node sees it.
fn member(own: &OwnVolume, scheme: Scheme) -> Member {
    let node = Arc::new(Node::alone().unwrap());
    Member::open(&node, own.ticket(), own.files_of(0), scheme).unwrap()
}

#[test]
fn messages_of_no_element_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let own = durable(folder.path());
    own.insert(1, b"one").unwrap();
    for message in [messages::delete(0), messages::value(0, b"none"), messages::keys([1, 0].into_iter())] {
        own.served.obey(message.as_bytes());
    }
    let statistics = own.statistics().unwrap();
    assert_eq!((statistics.elements, statistics.malformed), (1, 3));
    assert!(is_element((1, &[])) && !is_element((1, &vec![0; MAX_VALUE + 1])));
    drop(own);
    assert_eq!(durable(folder.path()).lookup(1).unwrap().unwrap(), b"one");
}

/// A peer that is stopped within an access may have logged what it has not made yet: no generation begins before it has left.
#[test]
fn a_peer_within_an_access_holds_checkpoints_and_growth_back() {
    let folder = tempfile::tempdir().unwrap();
    let own = durable(folder.path());
    let peer = Node::alone().unwrap();
    let remote = peer.open(&own.served.volume.read().token).unwrap();
    Shape::of(&remote, remote.length()).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let within = remote.with_words(|_| {
                begin.send(()).unwrap();
                stopped.recv().unwrap();
            });
            within.expect("the volume is mapped");
        });
        begun.recv().unwrap();
        let generation = || *own.served.durable.as_ref().unwrap().generation.lock();
        let before = generation();
        let outcomes = [own.checkpoint(), own.resize(10)];
        // An assertion that fails would wait for the thread.
        stop.send(()).unwrap();
        assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
        assert_eq!(generation(), before);
    });
    own.checkpoint().unwrap();
    own.resize(10).unwrap();
    assert!(own.served.volume.read().unrevoked.is_empty());
}

/// Growth within a generation begins no log anew: else the logs would take more bytes than they may.
#[test]
fn a_caller_goes_on_with_its_log_behind_a_growth() {
    let folder = tempfile::tempdir().unwrap();
    let own = durable(folder.path());
    let member = member(&own, Scheme::Nearest);
    assert!(member.is_mapped());
    for key in 1..=300 {
        member.insert(key, &[7; 100], &own).unwrap();
    }
    assert!(own.statistics().unwrap().resizes > 2);
    let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    assert_eq!(logs.count(), 2, "one of the caller, and one of the owner");
}

/// A caller reports what had no space since it has the volume. A failed checkpoint is no element.
#[test]
fn refused_elements_are_counted_from_the_beginning_of_a_member() {
    let folder = tempfile::tempdir().unwrap();
    let own = durable(folder.path());
    let words = own.served.pointer.words();
    words[REFUSED].store(5, Ordering::Release);
    let member = member(&own, Scheme::Handler);
    member.flush(&own).unwrap();
    words[REFUSED].store(7, Ordering::Release);
    assert!(member.flush(&own).unwrap_err().to_string().contains("2 elements"));
    member.flush(&own).unwrap();
    let generation = *own.served.durable.as_ref().unwrap().generation.lock();
    folder.close().unwrap();
    own.served.obey(messages::checkpoint(generation).as_bytes());
    assert_eq!(words[FAILED_CHECKPOINTS].load(Ordering::Acquire), 1);
    member.flush(&own).unwrap();
    own.failure().unwrap();
}

/// Each message behind the last whole flush counts as not flushed, whichever call has failed.
#[test]
fn messages_that_were_lost_are_not_flushed() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [caller, own] = [0, 1].map(|index: usize| durable(folders[index].path()));
    let member = member(&own, Scheme::Handler);
    member.insert(1, b"one", &caller).unwrap();
    member.flush(&caller).unwrap();
    drop(own);
    let failed = (2..=100).filter(|key| member.insert(*key, b"lost", &caller).is_err()).count();
    let flushed = member.flush(&caller);
    assert!(failed > 0 || flushed.is_err());
    let own = durable(folders[1].path());
    let (member, unflushed) = member.reopen_as(own.ticket(), own.files_of(0)).unwrap();
    assert_eq!(unflushed, 99);
    member.flush(&caller).unwrap();
    assert_eq!(own.lookup(1).unwrap().unwrap(), b"one");
}

/// A checkpoint that the disk has no space for harms nobody: the files of before stay, and the next one is written once there is space.
#[test]
fn a_table_on_a_full_disk_is_read_and_then_written() {
    let folder = tempfile::tempdir().unwrap();
    let fill = || std::os::unix::fs::symlink("/dev/full", folder.path().join("volume-0.new")).unwrap();
    let all_are_there = |own: &OwnVolume| {
        (1..=300).for_each(|key| assert_eq!(own.lookup(key).unwrap().unwrap(), [key as u8; 100], "{key}"));
    };
    let own = durable(folder.path());
    (1..=300).for_each(|key| own.insert(key, &[key as u8; 100]).unwrap());
    fill();
    let error = own.checkpoint().unwrap_err().to_string();
    assert!(error.contains("volume-0.new") && error.contains("the disk is full"), "{error}");
    assert!(!folder.path().join("volume-0.new").is_symlink(), "what could not be written takes no space");
    all_are_there(&own);
    fill();
    assert!(own.clear().unwrap_err().to_string().contains("the disk is full"));
    all_are_there(&own);
    drop(own);

    fill();
    let own = durable(folder.path());
    all_are_there(&own);
    assert_eq!(own.statistics().unwrap().checkpoints, 0);
    drop(own);
    fill();
    let own = durable(folder.path());
    own.insert(301, b"behind").unwrap();
    assert_eq!(own.statistics().unwrap().checkpoints, 1, "the one that was overdue");
    own.delete(301).unwrap();
    drop(own);
    let own = durable(folder.path());
    all_are_there(&own);
    assert_eq!(own.lookup(301).unwrap(), None);
    own.clear().unwrap();
    drop(own);
    assert_eq!(durable(folder.path()).statistics().unwrap().elements, 0);
}

/// Swaps by the owner, by who has the volume mapped and by messages are in the logs, with their outcomes.
#[test]
fn swaps_outlive_their_processes() {
    let folder = tempfile::tempdir().unwrap();
    let own = durable(folder.path());
    let [mapped, asking] = [Scheme::Nearest, Scheme::Handler].map(|scheme| member(&own, scheme));
    let swap = |by: usize, key: u64, expected: Option<&[u8]>, new: Option<&[u8]>| {
        let swap = Swap { key, expected, new };
        match by {
            0 => own.compare_and_set(&swap).unwrap(),
            1 => mapped.compare_and_set(0, &swap, &own).unwrap(),
            _ => asking.compare_and_set(0, &swap, &own).unwrap(),
        }
    };
    let long = [7; 200];
    for by in 0..3 {
        for key in (1 + 100 * by as u64..).take(60) {
            assert!(swap(by, key, None, Some(b"first")), "{by} {key}");
            assert!(!swap((by + 1) % 3, key, None, Some(b"second")));
            assert!(swap((by + 1) % 3, key, Some(b"first"), Some(&long)));
            assert!(!swap((by + 2) % 3, key, Some(b"first"), None));
            if key % 2 == 0 {
                assert!(swap((by + 2) % 3, key, Some(&long), None));
            }
        }
    }
    let stranger = Reply { rank: 1, number: 1 };
    own.served.obey(messages::clear(stranger).as_bytes());
    let statistics = own.statistics().unwrap();
    assert_eq!((statistics.elements, statistics.malformed), (90, 1), "one that has no place for an answer");
    drop((mapped, asking, own));
    let own = durable(folder.path());
    for key in [0, 100, 200].into_iter().flat_map(|by| 1 + by..61 + by) {
        let expected = (key % 2 == 1).then(|| long.to_vec());
        assert_eq!(own.lookup(key).unwrap(), expected, "{key}");
    }
}
