use super::reader::MOST_IN_A_ROW;
use super::*;
use crate::ProcessWords;
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::{Arc, Mutex};

fn log(sources: usize, ring: usize) -> AccessLog<ProcessWords> {
    let words = AccessLog::<ProcessWords>::words_for(sources, ring).unwrap();
    AccessLog::new(ProcessWords::new(words), sources, ring).unwrap()
}

fn header(sequence: u32) -> RecordHeader {
    RecordHeader {
        operation: LoggedOperation::Write,
        flags: RecordFlags::FIRST | RecordFlags::LAST,
        user_domain: 1023,
        source: 77,
        key: 0xABCD_1234,
        sequence,
        address: 0x7FFF_0000_1000,
        length: 8,
        stamp: 0,
    }
}

fn read(reader: &mut LogReader<ProcessWords>, data: &mut Vec<u8>) -> Option<RecordHeader> {
    match reader.next(0, data) {
        Next::Record(header, receipt) => {
            reader.handled(receipt);
            Some(header)
        }
        Next::Empty => None,
        other => panic!("{other:?}"),
    }
}

/// It reads one ring for a while, and never so long that another one waits for ever.
#[test]
fn an_unordered_reader_comes_to_each_ring() {
    let log = log(3, 64);
    let mut reader = LogReader::new(log.clone(), false);
    let (mut busy, mut other) = (log.claim_source(0).unwrap(), log.claim_source(1).unwrap());
    let busy_header = RecordHeader { source: 0, ..header(0) };
    other.reserve(&RecordHeader { source: 1, ..header(0) }, &[], || 1).unwrap().publish().unwrap();
    let seen: Vec<u64> = (0..200)
        .map(|stamp| {
            busy.reserve(&busy_header, &[], || stamp + 2).unwrap().publish().unwrap();
            read(&mut reader, &mut Vec::new()).unwrap().source
        })
        .collect();
    let at = seen.iter().position(|source| *source == 1).unwrap();
    assert!(
        at <= MOST_IN_A_ROW as usize && seen.iter().filter(|source| **source == 1).count() == 1,
        "{seen:?}"
    );
}

/// Whoever reads up to an instant is not kept by what is published behind it.
#[test]
fn what_was_published_before_is_read_at_some_time() {
    let log = log(2, 640);
    let mut reader = LogReader::new(log.clone(), false);
    let mut sources = [log.claim_source(0).unwrap(), log.claim_source(1).unwrap()];
    let mut stamp = 0;
    let mut publish = |source: usize| {
        stamp += 1;
        sources[source].reserve(&header(0), &[], || stamp).unwrap().publish().unwrap();
    };
    assert!(reader.has_read(&reader.published()));
    (0..20).for_each(|number| publish(number % 2));
    let published = reader.published();
    let mut read_records = 0;
    while !reader.has_read(&published) {
        publish(read_records % 2);
        assert!(read(&mut reader, &mut Vec::new()).is_some());
        read_records += 1;
    }
    assert!((20..=20 + MOST_IN_A_ROW as usize).contains(&read_records), "{read_records}");
    assert!(!reader.has_read(&reader.published()));
}

#[test]
fn logs_that_cannot_be_have_no_words() {
    let words = AccessLog::<ProcessWords>::words_for;
    assert_eq!(words(1, 6), Some(FIRST_ROW + ROW_WORDS + 6));
    for (sources, ring) in
        [(0, 64), (MAX_LOG_SOURCES + 1, 64), (1, 5), (1, 1 << 32), (1, usize::MAX), (4096, usize::MAX / 8)]
    {
        assert_eq!(words(sources, ring), None, "{sources} {ring}");
    }
}

#[test]
fn records_come_whole_and_flush_knows_when_they_were_handled() {
    let log = log(2, 16);
    let mut reader = LogReader::new(log.clone(), true);
    let mut source = log.claim_source(5).unwrap();
    let mut data = Vec::new();
    for round in 0..50u32 {
        let bytes: Vec<u8> = (0..round as usize % 80).map(|byte| byte as u8 ^ round as u8).collect();
        let reserved = source.reserve(&header(round), &bytes, || u64::from(round) + 1).unwrap();
        assert_eq!(reader.next(0, &mut data), Next::InFlight, "nothing is seen before it is published");
        reserved.publish().unwrap();
        assert!(!source.is_handled());
        let seen = read(&mut reader, &mut data).unwrap();
        assert_eq!(seen, RecordHeader { stamp: u64::from(round) + 1, ..header(round) });
        assert_eq!(data, bytes);
        assert!(source.is_handled());
    }
    source.reserve(&header(50), &[], || 60).unwrap().publish().unwrap();
    assert!(!source.is_handled());
    log.close();
    assert!(source.is_handled(), "nobody will handle it");
}

/// PAPERS AA-8: a full ring stops its own source, and loses nothing.
#[test]
fn a_full_ring_refuses_and_another_source_goes_on() {
    let log = log(2, 14);
    let mut reader = LogReader::new(log.clone(), true);
    let (mut full, mut other) = (log.claim_source(1).unwrap(), log.claim_source(2).unwrap());
    assert!(log.claim_source(3).is_none());
    for stamp in 1..3 {
        full.reserve(&header(0), &[1; 8], || stamp).unwrap().publish().unwrap();
    }
    assert_eq!(full.reserve(&header(0), &[1; 8], || 3).err(), Some(LogFull));
    other.reserve(&header(9), &[2; 8], || 4).unwrap().publish().unwrap();
    let mut data = Vec::new();
    assert_eq!(read(&mut reader, &mut data).map(|header| header.sequence), Some(0));
    full.reserve(&header(3), &[1; 8], || 5).unwrap().publish().unwrap();
    let rest: Vec<_> = std::iter::from_fn(|| read(&mut reader, &mut data)).map(|h| h.sequence).collect();
    assert_eq!(rest, [0, 9, 3]);
}

/// A reservation of an earlier stamp holds back what is ready, for a bounded time. Then it "may have written", and its publication fails.
#[test]
fn a_reservation_that_lasts_is_taken() {
    let log = log(2, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let (mut slow, mut quick) = (log.claim_source(1).unwrap(), log.claim_source(2).unwrap());
    let reserved = slow.reserve(&header(1), &[1; 8], || 10).unwrap();
    quick.reserve(&header(2), &[2; 8], || 20).unwrap().publish().unwrap();
    let mut data = Vec::new();
    assert_eq!(reader.next(1000, &mut data), Next::InFlight);
    assert_eq!(reader.next(1000 + RESERVATION_BOUND, &mut data), Next::InFlight);
    match reader.next(1001 + RESERVATION_BOUND, &mut data) {
        Next::Record(header, receipt) => {
            assert_eq!(header.sequence, 1);
            assert!(header.flags.contains(RecordFlags::MAY_HAVE_WRITTEN));
            reader.handled(receipt);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&mut reader, &mut data).map(|header| header.sequence), Some(2));
    assert_eq!(reserved.publish(), Err(RecordTaken));
    // The source goes on.
    slow.reserve(&header(3), &[3; 8], || 30).unwrap().publish().unwrap();
    assert_eq!(read(&mut reader, &mut data).map(|header| header.sequence), Some(3));
}

/// A source that stops while it publishes: its record is whole, and comes once.
#[test]
fn a_record_that_is_being_published_for_long_comes_once() {
    let log = log(1, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let mut source = log.claim_source(1).unwrap();
    let reserved = source.reserve(&header(1), &[1; 8], || 10).unwrap();
    let word = log.row(0) + RESERVED;
    log.words.compare_exchange(PUBLISH, word, 10, 10 | PUBLISHING).unwrap();
    let mut data = Vec::new();
    assert_eq!(reader.next(1, &mut data), Next::InFlight);
    match reader.next(2 + RESERVATION_BOUND, &mut data) {
        Next::Record(header, receipt) => {
            assert!(header.flags == RecordFlags::FIRST | RecordFlags::LAST && data == [1; 8]);
            reader.handled(receipt);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&mut reader, &mut data), None);
    log.words.store(PUBLISH, word, 10);
    reserved.publish().unwrap();
    assert_eq!(read(&mut reader, &mut data), None);
    source.reserve(&header(2), &[2; 8], || 11).unwrap().publish().unwrap();
    assert_eq!(read(&mut reader, &mut data).map(|header| header.sequence), Some(2));
}

/// A source that stops before it has its stamp holds nobody back for ever, and takes a later stamp when it goes on.
#[test]
fn a_source_that_was_passed_over_takes_another_stamp() {
    let log = log(2, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let (mut slow, mut quick) = (log.claim_source(1).unwrap(), log.claim_source(2).unwrap());
    quick.reserve(&header(2), &[2; 8], || 20).unwrap().publish().unwrap();
    let (calls, mut data) = (Cell::new(0u64), Vec::new());
    let reader = std::cell::RefCell::new((&mut reader, &mut data));
    let stamp = || {
        calls.set(calls.get() + 1);
        if calls.get() == 1 {
            let (reader, data) = &mut *reader.borrow_mut();
            assert_eq!(reader.next(1, data), Next::InFlight);
            assert_eq!(reader.next(2 + RESERVATION_BOUND, data), Next::InFlight);
            assert_eq!(read(reader, data).map(|header| header.sequence), Some(2));
        }
        20 + calls.get()
    };
    slow.reserve(&header(1), &[1; 8], stamp).unwrap().publish().unwrap();
    assert_eq!(calls.get(), 2);
    let (reader, data) = reader.into_inner();
    assert_eq!(read(reader, data).map(|header| (header.sequence, header.stamp)), Some((1, 22)));
}

#[test]
fn what_was_not_published_is_taken_back() {
    let log = log(1, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let mut source = log.claim_source(1).unwrap();
    drop(source.reserve(&header(1), &[1; 8], || 10).unwrap());
    assert_eq!(read(&mut reader, &mut Vec::new()), None);
    source.reserve(&header(2), &[2; 8], || 11).unwrap().publish().unwrap();
    assert_eq!(read(&mut reader, &mut Vec::new()).map(|header| header.sequence), Some(2));
}

#[test]
fn the_place_of_a_source_that_left_is_used_again_when_all_was_handled() {
    let log = log(1, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let mut source = log.claim_source(1).unwrap();
    source.reserve(&header(1), &[], || 1).unwrap().publish().unwrap();
    drop(source);
    reader.free_places();
    assert!(log.claim_source(2).is_none(), "its record was not read");
    let mut data = Vec::new();
    assert!(read(&mut reader, &mut data).is_some());
    let mut next = log.claim_source(2).unwrap();
    next.reserve(&header(2), &[], || 2).unwrap().publish().unwrap();
    assert!(read(&mut reader, &mut data).is_some());
    assert_eq!(read(&mut reader, &mut data), None);
}

/// The owner ends a source, whose writing end a peer drops later.
#[test]
fn a_source_that_was_ended_does_not_end_the_next_one_at_its_place() {
    let log = log(1, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let ended = log.claim_source(1).unwrap();
    log.end_source(1);
    assert_eq!(reader.next(0, &mut Vec::new()), Next::Empty, "a reader that polls makes place, too");
    let _next = log.claim_source(2).unwrap();
    drop(ended);
    reader.free_places();
    assert!(log.claim_source(3).is_none());
}

/// A source dies between any two stores of its publication. Its record comes once, and its place is used again.
#[test]
fn a_source_that_dies_while_it_publishes_leaves_its_place() {
    for has_said_tail in [false, true] {
        let log = log(1, 64);
        let mut reader = LogReader::new(log.clone(), true);
        let mut source = log.claim_source(1).unwrap();
        // What lies behind the record is an older one.
        for stamp in 1..=9 {
            source.reserve(&header(0), &[0; 8], || stamp).unwrap().publish().unwrap();
            assert!(read(&mut reader, &mut Vec::new()).is_some());
        }
        let tail = source.tail + record_words(8);
        std::mem::forget(source.reserve(&header(1), &[1; 8], || 10).unwrap());
        std::mem::forget(source);
        log.words.store(PUBLISH, log.row(0) + RESERVED, 10 | PUBLISHING);
        if has_said_tail {
            log.words.store(PUBLISH, log.row(0) + TAIL, tail);
        }
        log.end_source(1);
        reader.free_places();
        assert!(log.claim_source(2).is_none(), "its record was not read");
        let mut records = 0;
        for now in 1..5 {
            if let Next::Record(header, receipt) = reader.next(now * 2 * RESERVATION_BOUND, &mut Vec::new()) {
                assert_eq!(header.sequence, 1);
                reader.handled(receipt);
                records += 1;
            }
        }
        assert_eq!(records, 1);
        let mut next = log.claim_source(2).unwrap();
        next.reserve(&header(2), &[2; 8], || 11).unwrap().publish().unwrap();
        log.words.store(READ, WAKE_AFTER_WORD, 1);
        assert!(log.is_worth_waking(0), "its records are counted from the beginning");
        assert_eq!(read(&mut reader, &mut Vec::new()).map(|header| header.sequence), Some(2));
    }
}

/// The words of the log are those of a peer, which may say what it likes.
#[test]
fn a_source_goes_on_whatever_its_row_says() {
    for (tail, head) in [(u64::MAX, u64::MAX), (u64::MAX - 3, u64::MAX), (u64::MAX - 3, 0), (0, u64::MAX)] {
        let log = log(1, 64);
        log.words.store(SOURCE, log.row(0) + TAIL, tail);
        log.words.store(SOURCE, log.row(0) + HEAD, head);
        log.words.store(SOURCE, log.row(0) + PUBLISHED, u64::MAX);
        let mut source = log.claim_source(1).unwrap();
        for stamp in 1..20 {
            let fits = source.has_space_for(200);
            let reserved = source.reserve(&header(1), &[1; 200], || stamp);
            assert_eq!(reserved.is_ok(), fits);
            reserved.map_or(Ok(()), |reserved| reserved.publish()).unwrap();
            source.announce();
        }
    }
}

#[test]
fn a_source_without_space_wakes_the_reader_and_a_closed_ring_does_not() {
    let log = log(1, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let mut source = log.claim_source(1).unwrap();
    log.words.store(READ, WAKE_AFTER_WORD, 100);
    log.words.store(READ, SLEEPS_WORD, 1);
    source.reserve(&header(1), &[1; 8], || 1).unwrap().publish().unwrap();
    source.announce();
    assert_eq!(log.words.load(SLEEPS_WORD), 1, "it is too few");
    assert_eq!(source.reserve(&header(1), &[1; 448], || 1).err(), Some(LogFull));
    assert_eq!(log.words.load(SLEEPS_WORD), 0);
    log.words.store(READ, SLEEPS_WORD, 1);
    assert!(log.claim_source(2).is_none());
    assert_eq!(log.words.load(SLEEPS_WORD), 0, "a place may be free once the reader looks");

    log.words.store(READ, WAKE_AFTER_WORD, 1);
    log.words.store(PUBLISH, log.row(0) + TAIL, 1 << 40);
    assert!(log.is_worth_waking(0));
    assert_eq!(reader.next(1, &mut Vec::new()), Next::Corrupt(1));
    assert!(!log.is_worth_waking(0));
}

/// "A hostile source harms nobody's log but its own ring."
#[test]
fn an_inconsistent_ring_is_closed_and_the_others_go_on() {
    for (word, value) in [(TAIL, 3), (TAIL, 1 << 40), (TAIL, u64::MAX), (RESERVED, RESERVING)] {
        let log = log(2, 64);
        let mut reader = LogReader::new(log.clone(), true);
        let (_hostile, mut honest) = (log.claim_source(1).unwrap(), log.claim_source(2).unwrap());
        log.words.store(SOURCE, log.row(0) + word, value);
        honest.reserve(&header(5), &[5; 8], || 5).unwrap().publish().unwrap();
        let mut data = Vec::new();
        let (mut now, mut closed) = (1, false);
        let seen = loop {
            match reader.next(now, &mut data) {
                Next::Record(header, receipt) => {
                    reader.handled(receipt);
                    break header.sequence;
                }
                Next::Corrupt(owner) => {
                    assert_eq!(owner, 1);
                    closed = true;
                }
                Next::InFlight => now += RESERVATION_BOUND,
                Next::Empty => panic!("the honest record is lost"),
            }
        };
        // What reserves for ever is passed over, and harms only itself.
        assert!(seen == 5 && closed == (word == TAIL), "{word} {value:#x}");
    }
}

/// A hostile source that reserves anew and anew, with stamps of its own making, holds back no other for ever.
#[test]
fn reservations_with_forged_stamps_hold_a_record_back_for_a_bounded_time() {
    let log = log(2, 64);
    let mut reader = LogReader::new(log.clone(), true);
    let (_hostile, mut honest) = (log.claim_source(1).unwrap(), log.claim_source(2).unwrap());
    honest.reserve(&header(5), &[5; 8], || 1 << 40).unwrap().publish().unwrap();
    let (word, mut data) = (log.row(0) + RESERVED, Vec::new());
    let step = RESERVATION_BOUND / 4;
    let seen = (1..100).find(|round| {
        log.words.store(RECORD, word, *round);
        match reader.next(round * step, &mut data) {
            Next::Record(header, receipt) => {
                reader.handled(receipt);
                header.sequence == 5
            }
            _ => false,
        }
    });
    assert!(seen.is_some_and(|round| round <= 12), "{seen:?}");
}

/// What happens before one of the loads.
type LoadHook = Box<dyn FnOnce() + Send>;

/// Words of whose loads one has something happen before it.
#[derive(Clone)]
struct InterruptedWords {
    words: ProcessWords,
    /// Loads until then.
    next: Arc<Mutex<Option<(usize, LoadHook)>>>,
}

impl SharedWords for InterruptedWords {
    fn len(&self) -> usize {
        self.words.len()
    }

    fn load(&self, index: usize) -> u64 {
        let mut next = self.next.lock().unwrap();
        let interruption = match &mut *next {
            Some((loads @ 1.., _)) => {
                *loads -= 1;
                None
            }
            _ => next.take(),
        };
        drop(next);
        if let Some((_, happens)) = interruption {
            happens();
        }
        self.words.load(index)
    }

    fn store(&self, site: Site, index: usize, value: u64) {
        self.words.store(site, index, value);
    }

    fn compare_exchange(&self, site: Site, index: usize, current: u64, value: u64) -> Result<u64, u64> {
        self.words.compare_exchange(site, index, current, value)
    }

    fn fence(&self) {
        self.words.fence();
    }

    fn write_bytes(&self, site: Site, index: usize, bytes: &[u8]) {
        self.words.write_bytes(site, index, bytes);
    }

    fn read_bytes(&self, index: usize, bytes: &mut [u8]) {
        self.words.read_bytes(index, bytes);
    }
}

/// A puts, tells B, and B puts, while the reader is anywhere within its looks at rings that have records of both: it has A's before B's.
#[test]
fn what_ends_before_is_read_before_wherever_the_reader_is() {
    for (loads, known) in (0..200).flat_map(|loads| [[0, 1], [1, 1], [1, 0]].map(|known| (loads, known))) {
        let words = AccessLog::<InterruptedWords>::words_for(2, 64).unwrap();
        let next: Arc<Mutex<Option<(usize, LoadHook)>>> = Arc::default();
        let words = InterruptedWords { words: ProcessWords::new(words), next: next.clone() };
        let log = AccessLog::new(words, 2, 64).unwrap();
        let mut reader = LogReader::new(log.clone(), true);
        let mut sources = [log.claim_source(1).unwrap(), log.claim_source(2).unwrap()];
        let mut clock = 0;
        let mut put = move |source: usize| {
            clock += 1;
            sources[source].reserve(&header(clock as u32), &[], || clock).unwrap().publish().unwrap();
        };
        for (source, known) in known.into_iter().enumerate() {
            (0..known).for_each(|_| put(source));
        }
        let before = known[0] + known[1];
        *next.lock().unwrap() = Some((loads, Box::new(move || [0, 1, 0].into_iter().for_each(&mut put))));
        let (mut seen, mut data) = (Vec::new(), Vec::new());
        let mut looks = 0;
        // Each look loads something.
        while next.lock().unwrap().is_some() || looks < loads + 8 {
            looks += 1;
            if let Next::Record(header, receipt) = reader.next(0, &mut data) {
                seen.push(header.sequence);
                reader.handled(receipt);
            }
        }
        let expected: Vec<u32> = (1..=before + 3).collect();
        assert_eq!(seen, expected, "at load {loads}, with {known:?} records before");
    }
}

proptest! {
    /// Several sources, random interleavings: each record comes once, those of a source in order, and stamps never go back.
    #[test]
    fn records_come_once_and_in_order(steps in prop::collection::vec((0usize..3, 0usize..40, any::<bool>()), 1..200)) {
        let log = log(3, 40);
        let mut reader = LogReader::new(log.clone(), true);
        let mut sources: Vec<_> = (0..3).map(|source| log.claim_source(source).unwrap()).collect();
        let clock = Cell::new(0);
        let tick = || { clock.set(clock.get() + 1); clock.get() };
        let (mut written, mut last, mut data) = ([0u32; 3], 0, Vec::new());
        let mut counts = [0u32; 3];
        let mut check = |header: RecordHeader, data: &[u8]| {
            let source = header.source as usize;
            assert_eq!(header.sequence, counts[source]);
            assert!(header.stamp > last && data.iter().all(|byte| *byte == header.sequence as u8));
            (counts[source], last) = (counts[source] + 1, header.stamp);
        };
        for (source, length, reads) in steps {
            let record = RecordHeader { source: source as u64, ..header(written[source]) };
            let bytes = vec![written[source] as u8; length];
            if let Ok(reserved) = sources[source].reserve(&record, &bytes, tick) {
                reserved.publish().unwrap();
                written[source] += 1;
            }
            if reads && let Some(header) = read(&mut reader, &mut data) {
                check(header, &data);
            }
        }
        while let Some(header) = read(&mut reader, &mut data) {
            check(header, &data);
        }
        prop_assert_eq!(counts, written);
    }

    /// Whatever is in the words, the reader neither panics nor reads what is not there.
    #[test]
    fn garbage_is_no_record(words in prop::collection::vec((0usize..200, any::<u64>()), 0..40)) {
        let log = log(2, 64);
        let mut reader = LogReader::new(log.clone(), true);
        for (word, value) in words {
            let at = FIRST_ROW + word % (log.words.len() - FIRST_ROW);
            log.words.store(SOURCE, at, value);
        }
        let mut data = Vec::new();
        for round in 0..20 {
            if let Next::Record(_, receipt) = reader.next(round * RESERVATION_BOUND, &mut data) {
                prop_assert!(data.len() <= log.max_data());
                reader.handled(receipt);
            }
        }
    }
}
