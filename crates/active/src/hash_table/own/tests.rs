//! What other processes may put to the mailbox of a volume, and what a stopped one holds.

use super::super::messages;
use super::*;
use crate::TableOptions;
use zerocopy::IntoBytes;

/// A volume of a node of its own, in a folder.
fn durable(folder: &std::path::Path) -> Arc<OwnVolume> {
    let node = Arc::new(Node::alone().unwrap());
    let durability = Durability { syncs: false, ..Durability::new(folder) };
    let kept = Kept { durability: &durability, rank: 0, size: 1 };
    OwnVolume::begin(&node, TableOptions::new(100).shape(), Service::Owner, Some(kept)).unwrap()
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
