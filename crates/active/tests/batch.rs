//! Batches over each path: each put arrives once, whole and in order, whatever its owner does with it and whoever sends what is no batch.

mod other;

use other::on_each_path;
use pagewire::{Error, Node, Rights, Token};
use pagewire_active::{Batch, Batches, MAX_BATCHED};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Numbers without a pattern.
fn numbers(mut state: u64) -> impl FnMut(u64) -> u64 {
    move |below| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

#[test]
fn puts_of_batches_reach_memory() {
    on_each_path("puts_of_batches_reach_memory", || {
        const BYTES: u64 = 100_001;
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = Arc::new(owner.zeroed::<u8>(BYTES as usize).unwrap());
        let words = Arc::new(owner.words(BYTES as usize / 8).unwrap());
        let served =
            [Batches::to_memory(&owner, &table).unwrap(), Batches::to_memory(&owner, &words).unwrap()];
        let lengths = [BYTES, BYTES / 8 * 8];
        for (served, length) in served.iter().zip(lengths) {
            let mut batch = Batch::open(&caller, &served.address()).unwrap();
            assert_eq!(batch.length(), length);
            let (mut model, mut number) = (vec![0u8; length as usize], numbers(7));
            for count in 0..3000u64 {
                let bytes = vec![
                    count as u8;
                    number(if count % 100 == 0 { MAX_BATCHED as u64 } else { 60 }) as usize + 1
                ];
                let offset = number(length - bytes.len() as u64 + 1);
                batch.put(offset, &bytes).unwrap();
                model[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            }
            batch.put(length, &[]).unwrap();
            batch.flush_handled().unwrap();
            let mut there = vec![0; length as usize];
            match length == BYTES {
                true => table.read_bytes(0, &mut there).unwrap(),
                false => words.read_bytes(0, &mut there).unwrap(),
            }
            assert!(there == model, "a put is missing, or was made in another order");
            let counts = served.counts();
            assert_eq!((counts.puts, counts.malformed), (3000, 0));
            assert!(counts.messages < 100, "{counts:?}");
        }
    });
}

#[test]
fn a_handler_sees_batches_and_single_puts_in_order() {
    on_each_path("a_handler_sees_batches_and_single_puts_in_order", || {
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = Arc::new(owner.zeroed::<u64>(1024).unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = seen.clone();
        let served = Batches::redirect(&owner, &table, move |put| {
            let value = put.value::<u64>().unwrap();
            assert_eq!((put.offset(), put.bytes().len()), (8 * (value % 1024), 8));
            sees.lock().unwrap().push((put.source(), value));
            if value % 2 == 0 {
                put.write().unwrap();
            }
            assert!(value % 1000 != 7, "the handler fails");
        })
        .unwrap();
        let mut batch = Batch::open(&caller, &served.address()).unwrap();
        let remote = caller.open(&table.export(Rights::WRITE).unwrap()).unwrap();
        for value in 0..5000u64 {
            if value % 500 == 499 {
                batch.send().unwrap();
                remote.put_value(8 * (value % 1024), value).wait().unwrap();
            } else {
                batch.put_value(8 * (value % 1024), value).unwrap();
            }
        }
        batch.flush_handled().unwrap();
        let seen = std::mem::take(&mut *seen.lock().unwrap());
        assert!(seen.iter().map(|(_, value)| *value).eq(0..5000), "{} puts", seen.len());
        assert!(seen.iter().all(|(source, _)| *source == seen[0].0), "one caller is one source");
        let there = |value: u64| table.get(value as usize % 1024).unwrap();
        assert_eq!((there(4998), there(4999), there(3)), (4998, 0, 0));
        let counts = served.counts();
        assert_eq!((counts.puts, counts.failed), (4990, 5), "7, 1007, ...");
        drop(served);
        // Its pages are ordinary ones again, and nobody serves batches.
        remote.put_value(8, 5u64).wait().unwrap();
        assert_eq!(table.get(1).unwrap(), 5);
        batch.put_value(0, 1u64).unwrap();
        assert!(batch.wait().is_err());
    });
}

/// The owner does not read: its caller stops when its space is used up, another one goes on, and nothing is lost.
#[test]
fn a_full_log_stops_its_caller_alone() {
    on_each_path("a_full_log_stops_its_caller_alone", || {
        const PUTS: u64 = 200_000;
        let owner = Node::alone().unwrap();
        let table = Arc::new(owner.zeroed::<u64>(1).unwrap());
        let (opens, sum) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (waits, adds) = (opens.clone(), sum.clone());
        let served = Batches::redirect(&owner, &table, move |put| {
            while !waits.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
            let before = adds.load(Ordering::Acquire);
            let value = put.value::<u64>().unwrap();
            // Of the long caller: in order. The short one puts zeros.
            assert!(value == 0 || value == before + 1, "{value} behind {before}");
            adds.store(before.max(value), Ordering::Release);
        })
        .unwrap();
        let (ended, ends) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let done = ended.clone();
            let address = served.address();
            scope.spawn(move || {
                let node = Node::alone().unwrap();
                let mut batch = Batch::open(&node, &address).unwrap();
                (1..=PUTS).for_each(|value| batch.put_value(0, value).unwrap());
                batch.flush_handled().unwrap();
                done.store(true, Ordering::Release);
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(!ended.load(Ordering::Acquire), "it has put more than there is space for");
            let node = Node::alone().unwrap();
            let mut short = Batch::open(&node, &served.address()).unwrap();
            short.put_value(0, 0u64).unwrap();
            short.wait().unwrap();
            ends.store(true, Ordering::Release);
            opens.store(true, Ordering::Release);
        });
        assert!(ended.load(Ordering::Acquire) && ends.load(Ordering::Acquire));
        assert_eq!((sum.load(Ordering::Acquire), served.counts().puts), (PUTS, PUTS + 1));
    });
}

#[test]
fn what_is_no_batch_is_refused_whole() {
    on_each_path("what_is_no_batch_is_refused_whole", || {
        let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
        let table = Arc::new(owner.zeroed::<u64>(512).unwrap());
        let served = Batches::to_memory(&owner, &table).unwrap();
        let address = served.address();
        let mut batch = Batch::open(&caller, &address).unwrap();
        assert!(matches!(
            batch.put(4095, &[0; 2]),
            Err(Error::Range { offset: 4095, count: 2, length: 4096 })
        ));
        assert!(matches!(batch.put(u64::MAX, &[0]), Err(Error::Range { .. })));
        assert!(matches!(
            batch.put(0, &vec![0; MAX_BATCHED + 1]),
            Err(Error::Range { .. } | Error::Limit { .. })
        ));
        for wrong in [&address[..address.len() - 1], &[], &[&address[..], &[0]].concat()] {
            assert!(Batch::open(&caller, wrong).is_err());
        }
        // A caller that writes to the mailbox what it likes.
        let mailbox = caller.open(&Token::from_bytes(&address[..Token::LEN]).unwrap()).unwrap();
        let head = |count: u64| 5 << 32 | count;
        let forged = [
            vec![head(2), 0, 8, 7],             // two, and one is there
            vec![head(2), 0, 8, 7, 4096, 8, 7], // the second lies outside
            vec![head(1), u64::MAX, 8, 7],
            vec![head(1), 0, u64::MAX, 7],
            vec![head(u64::from(u32::MAX)), 0, 0],
            vec![4 << 32 | 1, 0, 8, 7], // what a hash table takes
            vec![1],
        ];
        for message in &forged {
            mailbox.put(0, message.clone()).wait().unwrap();
        }
        let mut number = numbers(11);
        for _ in 0..500 {
            let length = 1 + number(300) as usize;
            let message: Vec<u64> = (0..length).map(|_| number(1 << 40)).collect();
            mailbox.put(8 * number(100), message).wait().unwrap();
        }
        assert!(mailbox.put(0, vec![0u64; 8192]).wait().is_err(), "more than a message");
        batch.put_value(8, 9u64).unwrap();
        batch.flush_handled().unwrap();
        let words: Vec<u64> = (0..512).map(|index| table.get(index).unwrap()).collect();
        assert!(words[1] == 9 && words.iter().sum::<u64>() == 9, "a forged put was made");
        let counts = served.counts();
        assert_eq!((counts.messages, counts.puts), (1, 1));
        assert_eq!(counts.malformed, forged.len() as u64 + 500);
    });
}
