//! Built-in handlers over each path: chains run whole, and what they refuse is an error at the caller.

mod other;

use other::on_each_path;
use pagewire::{Node, Rights};
use pagewire_active::built_in::{BuiltIns, Chain, Outcome, Place, RemoteBuiltIns, begin_area};
use pagewire_active::{AttributesOf, Logs};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn chains_run_at_their_owner() {
    on_each_path("chains_run_at_their_owner", || {
        let (owner, caller) = (Arc::new(Node::alone().unwrap()), Arc::new(Node::alone().unwrap()));
        let memory = Arc::new(owner.words(1 << 14).unwrap());
        begin_area(memory.words(), 64, 4096..16_384).unwrap();
        let served = BuiltIns::serve(&owner, &memory).unwrap();
        let address = served.address();
        for wrong in [&address[1..], &address[..address.len() - 1], &[], &[&address[..], &[0]].concat()] {
            assert!(RemoteBuiltIns::open(&caller, wrong).is_err());
        }
        let remote = RemoteBuiltIns::open(&caller, &address).unwrap();
        // A log that nobody reads holds no caller back.
        let unread = owner.access_log(1 << 14).unwrap();
        let page = owner.zeroed::<u64>(512).unwrap();
        page.attributes(..).redirect_puts().to(&unread).unwrap();
        caller.open(&page.export(Rights::WRITE).unwrap()).unwrap().put_value(0, 1u64).wait().unwrap();
        for count in 0..100 {
            assert_eq!(remote.run(&Chain::new().fetch_add(0, 1)).unwrap(), [Outcome::Word(count)]);
        }
        // Wide: always by the owner's handler.
        let wide = Chain::new().compare_swap(128, &[0; 32], &[9; 32]).if_swapped().append(64, b"won");
        assert_eq!(remote.run(&wide).unwrap()[1], Outcome::Word(4096));
        assert_eq!(remote.run(&wide).unwrap()[1], Outcome::NotRun);
        let read = Chain::new().read(Place::At(4096), 3).xor(4096, b"AAA");
        assert_eq!(remote.run(&read).unwrap()[0], Outcome::Bytes(b"won".to_vec()));
        let long: Vec<u8> = (0..20_000).map(|index| index as u8).collect();
        remote.run(&Chain::new().write(20_000, &long)).unwrap();
        assert_eq!(remote.run(&Chain::new().read(20_000, 20_000)).unwrap(), [Outcome::Bytes(long)]);
        let beyond = remote.run(&Chain::new().write(8 << 14, b"x")).unwrap_err();
        assert!(beyond.to_string().contains("not inside"), "{beyond}");
        let crooked = remote.run(&Chain::new().fetch_add(3, 1)).unwrap_err();
        assert!(crooked.to_string().contains("multiple of 8"), "{crooked}");
        assert!(remote.run(&Chain::new().compare_swap(0, &[0; 33], &[0; 33])).is_err());
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 100);
        // The owner's own node may run what its handler has to.
        let own = RemoteBuiltIns::open(&owner, &served.address()).unwrap();
        assert!(matches!(&own.run(&wide).unwrap()[0], Outcome::Swap { swapped: false, .. }));
        drop(served);
        assert!(remote.run(&Chain::new().fetch_add(0, 1)).is_err(), "nobody serves it any more");
    });
}

/// Callers that count, append and compare-swap at once: nothing is lost, and each wide swap is whole.
#[test]
fn concurrent_chains_lose_nothing() {
    on_each_path("concurrent_chains_lose_nothing", || {
        const ROUNDS: u64 = 150;
        let owner = Arc::new(Node::alone().unwrap());
        let memory = Arc::new(owner.words(1 << 13).unwrap());
        begin_area(memory.words(), 64, 4096..65_536).unwrap();
        let served = BuiltIns::serve(&owner, &memory).unwrap();
        let swaps: u64 = std::thread::scope(|scope| {
            let callers = (0..3u8).map(|number| {
                let address = served.address();
                scope.spawn(move || {
                    let node = Arc::new(Node::alone().unwrap());
                    let remote = RemoteBuiltIns::open(&node, &address).unwrap();
                    let mut swaps = 0;
                    let mut known = vec![0; 24];
                    for _ in 0..ROUNDS {
                        remote.run(&Chain::new().fetch_add(0, 1).append(64, &[number; 8])).unwrap();
                        let outcome =
                            remote.run(&Chain::new().compare_swap(200, &known, &[number + 1; 24])).unwrap();
                        let Outcome::Swap { found, swapped } = &outcome[0] else { panic!("{outcome:?}") };
                        assert!(found.iter().all(|byte| *byte == found[0]), "it was torn: {found:?}");
                        swaps += u64::from(*swapped);
                        known = if *swapped { vec![number + 1; 24] } else { found.clone() };
                    }
                    swaps
                })
            });
            callers.collect::<Vec<_>>().into_iter().map(|caller| caller.join().unwrap()).sum()
        });
        assert!(swaps > 0);
        assert_eq!(memory.words()[0].load(Ordering::Relaxed), 3 * ROUNDS);
        assert_eq!(memory.words()[8].load(Ordering::Relaxed), 4096 + 3 * ROUNDS * 8);
        let appended: Vec<u64> = memory.words()[512..512 + 3 * ROUNDS as usize]
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        for number in 0..3u8 {
            let whole = u64::from_le_bytes([number; 8]);
            assert_eq!(appended.iter().filter(|word| **word == whole).count() as u64, ROUNDS);
        }
    });
}
