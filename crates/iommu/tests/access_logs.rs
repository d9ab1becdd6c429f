//! Access logs in every order that the memory model permits (PAPERS AA-7, and "order between sources").

use loom::sync::atomic::{AtomicU64, Ordering};
use loom::thread;
use pagewire_iommu::ModelWords;
use pagewire_iommu::access_log::{
    AccessLog, HEADER_WORDS, LogReader, LogSource, LoggedOperation, Next, RecordFlags, RecordHeader,
    record_words,
};
use std::sync::Arc;

const SOURCES: usize = 2;
const RING: usize = HEADER_WORDS as usize + 1;

fn bounded(preemptions: usize) -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder
}

fn log() -> AccessLog<ModelWords> {
    let words = AccessLog::<ModelWords>::words_for(SOURCES, RING).unwrap();
    AccessLog::new(ModelWords::new(0..words), SOURCES, RING).unwrap()
}

fn append(source: &mut LogSource<ModelWords>, sequence: u32, clock: &AtomicU64) -> bool {
    let header = RecordHeader {
        operation: LoggedOperation::Write,
        flags: RecordFlags::FIRST | RecordFlags::LAST,
        user_domain: 0,
        source: u64::from(sequence),
        key: 1,
        sequence,
        address: 0x1000,
        length: 8,
        stamp: 0,
    };
    let data = u64::from(sequence).to_ne_bytes();
    match source.reserve(&header, &data, || clock.fetch_add(1, Ordering::SeqCst) + 1) {
        Ok(reserved) => reserved.publish().is_ok(),
        Err(_) => false,
    }
}

/// What the reader finds within a few looks.
fn read(reader: &mut LogReader<ModelWords>, looks: usize) -> Vec<u32> {
    let (mut seen, mut data) = (Vec::new(), Vec::new());
    for _ in 0..looks {
        match reader.next(0, &mut data) {
            Next::Record(header, receipt) => {
                assert_eq!(data, u64::from(header.sequence).to_ne_bytes(), "a record is whole");
                seen.push(header.sequence);
                reader.handled(receipt);
            }
            Next::Empty | Next::InFlight => thread::yield_now(),
            Next::Corrupt(_) => panic!("nobody is hostile"),
        }
    }
    seen
}

/// A ring with space for one record: the source goes on when the reader has read, and each record is whole.
#[test]
fn a_record_is_never_seen_in_part() {
    bounded(2).check(|| {
        assert_eq!(record_words(8), RING as u64);
        let log = log();
        let clock = Arc::new(AtomicU64::new(0));
        let mut reader = LogReader::new(log.clone(), true);
        let mut source = log.claim_source(1).unwrap();
        let writer = thread::spawn(move || {
            let first = append(&mut source, 1, &clock);
            assert!(first);
            let second = append(&mut source, 2, &clock);
            (second, source)
        });
        let mut seen = read(&mut reader, 2);
        let (second, _source) = writer.join().unwrap();
        seen.extend(read(&mut reader, 3));
        let expected: &[u32] = if second { &[1, 2] } else { &[1] };
        assert_eq!(seen, expected);
    });
}

/// A puts, and tells B, and B puts: the reader never has B's record before A's.
#[test]
fn what_ended_before_is_read_before() {
    // Three threads: with two preemptions there are too many orders.
    bounded(1).check(|| {
        let log = log();
        let clock = Arc::new(AtomicU64::new(0));
        let told = Arc::new(AtomicU64::new(0));
        let mut reader = LogReader::new(log.clone(), true);
        let (mut first, mut second) = (log.claim_source(1).unwrap(), log.claim_source(2).unwrap());
        let (its_clock, its_told) = (clock.clone(), told.clone());
        let a = thread::spawn(move || {
            assert!(append(&mut first, 1, &its_clock));
            its_told.store(1, Ordering::Release);
            first
        });
        let b = thread::spawn(move || {
            if told.load(Ordering::Acquire) == 1 {
                assert!(append(&mut second, 2, &clock));
            }
            second
        });
        let mut seen = read(&mut reader, 2);
        let _sources = (a.join().unwrap(), b.join().unwrap());
        seen.extend(read(&mut reader, 3));
        assert!(seen == [1] || seen == [1, 2], "{seen:?}");
    });
}
