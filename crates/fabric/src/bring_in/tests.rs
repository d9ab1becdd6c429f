//! Tests of the threads that wait for pages.

use super::*;
use crate::limits::TABLE_WORDS;
use crate::words::FileAccess;
use pagewire_iommu::{AccessScope, RegionTable, RegisteredRegion, Rights};
use pagewire_memory::{ApplicationMemory, Residency};
use rustix::thread::CpuSet;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

fn table() -> (RegionTable<MappedWords>, MappedWords) {
    let (words, _) = MappedWords::create("test", TABLE_WORDS, FileAccess::Read).unwrap();
    (RegionTable::new(words.clone(), 7), words)
}

/// All memory as another region: its key, and what tasks know of it.
fn register(table: &RegionTable<MappedWords>) -> (u32, RegionLife) {
    let (rights, length) = (Rights::LOCAL_WRITE, 1 << 47);
    let region = RegisteredRegion { domain: 1, address: 0, length, iova: 0, rights };
    let key = table.register(&region, 0).unwrap();
    (key, table.view().window(key, rights, AccessScope::of_domain(1)).unwrap().life())
}

/// Pages that were never touched, and what they lie in.
fn fresh(pages: u64) -> (Vec<u8>, Segment) {
    let bytes = Vec::with_capacity((pages * PAGE) as usize + (32 << 20));
    let address = (bytes.as_ptr() as u64).next_multiple_of(PAGE);
    (bytes, Segment { address, length: pages * PAGE })
}

fn tenant(who: u64) -> Tenant {
    Tenant { who, matter: 0 }
}

#[test]
fn page_in_completes_every_waiter() {
    let (told, hears) = channel();
    let done = Box::new(move |token| told.send(token).unwrap());
    let (table, words) = table();
    let (_, region) = register(&table);
    let pages = Pages::new(Arc::new(HostMemory::new()), words, Arc::default(), done);
    let bytes = vec![1u8; 3 * PAGE as usize];
    let at = (bytes.as_ptr() as u64).next_multiple_of(PAGE);
    // One page, another part of it, and that part for another tenant.
    for (who, offset, token) in [(1, 0, 10), (1, 8, 11), (1, 8, 11), (2, 0, 12)] {
        let segment = Segment { address: at + offset, length: 8 };
        pages.bring_in(tenant(who), &[RegionPart { region, segment }], true, token);
    }
    let mut heard = BTreeSet::new();
    while heard.len() < 3 {
        heard.insert(hears.recv_timeout(LONG).unwrap());
    }
    assert_eq!(heard, BTreeSet::from([10, 11, 12]));
    pages.stop();
}

#[test]
fn dereg_ends_pending_page_in() {
    let (told, hears) = channel();
    let memory = Arc::new(HostMemory::new());
    let (table, words) = table();
    let pages =
        Pages::new(memory.clone(), words, Arc::default(), Box::new(move |token| told.send(token).unwrap()));
    let ((open_bytes, open_memory), (ended_bytes, ended_memory)) = (fresh(64), fresh(64));
    let ((_, open), (key, ended)) = (register(&table), register(&table));
    table.revoke(key).unwrap();
    pages.end_bring_in(ended.index());
    // One that needs both ends where the other begins.
    let part = |region, segment| RegionPart { region, segment };
    let both = [part(open, open_memory), part(ended, ended_memory)];
    pages.bring_in(tenant(1), &both, true, 5);
    assert_eq!(hears.recv_timeout(LONG), Ok(5));
    pages.bring_in_ahead(
        tenant(1),
        ended,
        &Stretch::new(ended_memory.address..ended_memory.address + PAGE, PieceOrder::Back),
        true,
        1,
    );
    // These pages in a region that is there.
    pages.bring_in(tenant(2), &[part(ended, ended_memory)], true, 6);
    assert_eq!(hears.recv_timeout(LONG), Ok(6));
    let here = HostProcess::current();
    pages.bring_in_peer(&here, table.view(), part(ended, ended_memory), 7);
    assert_eq!(hears.recv_timeout(LONG), Ok(7));
    assert_eq!(memory.residency(&[open_memory]), Residency::Resident);
    let first = Segment { length: PAGE, ..ended_memory };
    assert_eq!(memory.residency(&[first]), Residency::Absent);
    pages.bring_in(tenant(2), &[part(open, ended_memory)], true, 8);
    assert_eq!(hears.recv_timeout(LONG), Ok(8));
    assert_eq!(memory.residency(&[ended_memory]), Residency::Resident);
    pages.stop();
    drop((open_bytes, ended_bytes));
}

/// Loses, or delays, the pages of as many tasks as there are fates.
struct Fates(Mutex<Vec<PageFate>>);

impl PageRules for Fates {
    fn fate(&self) -> Option<PageFate> {
        self.0.lock().pop()
    }
}

#[test]
fn lost_pages_end_with_their_region_and_take_no_thread() {
    // More than one tenant has threads.
    let lost = 4 * THREADS_OF_ONE as u64;
    let (told, hears) = channel();
    let memory = Arc::new(HostMemory::new());
    let (table, words) = table();
    let done = Box::new(move |token| told.send(token).unwrap());
    let rules = Arc::new(Fates(Mutex::new(vec![PageFate::Lost; lost as usize])));
    let pages = Pages::with_rules(memory.clone(), words, Arc::default(), done, Some(rules));
    let (_bytes, segment) = fresh(lost + 1);
    let page = |n: u64| Segment { address: segment.address + n * PAGE, length: PAGE };
    let ((key, region), (_, other)) = (register(&table), register(&table));
    for n in 0..lost {
        pages.bring_in(tenant(1), &[RegionPart { region, segment: page(n) }], true, n);
    }
    let limit = Instant::now() + LONG;
    while !(0..lost).all(|n| pages.hands.holds_any(&page(n), &region)) {
        assert!(Instant::now() < limit, "the threads wait");
        std::thread::yield_now();
    }
    // The tenant's other pages come, and no thread brings a lost one in with its neighbour.
    pages.bring_in(tenant(1), &[RegionPart { region: other, segment: page(lost) }], true, 1000);
    assert_eq!(hears.recv_timeout(LONG), Ok(1000));
    // Whoever asks again, or asks for more, waits, too.
    let two = Segment { length: 2 * PAGE, ..page(0) };
    pages.bring_in(tenant(2), &[RegionPart { region, segment: two }], true, 2000);
    assert_eq!(hears.try_recv().ok(), None);
    table.revoke(key).unwrap();
    pages.end_bring_in(region.index());
    let heard: BTreeSet<u64> = (0..=lost).map(|_| hears.recv_timeout(LONG).unwrap()).collect();
    assert_eq!(heard, (0..lost).chain([2000]).collect());
    assert_eq!(memory.residency(&[page(0)]), Residency::Absent);
    pages.stop();
}

/// A rule that loses one page decides once about it, whoever else asks meanwhile.
#[test]
fn a_page_that_two_ask_for_at_once_is_lost_for_both() {
    let count = 32;
    let (told, hears) = channel();
    let memory = Arc::new(HostMemory::new());
    let (table, words) = table();
    let done = Box::new(move |token| told.send(token).unwrap());
    let rules = Arc::new(Fates(Mutex::new(vec![PageFate::Lost; count])));
    let pages = Pages::with_rules(memory.clone(), words, Arc::default(), done, Some(rules.clone()));
    let (_bytes, segment) = fresh(count as u64);
    let (key, region) = register(&table);
    for n in 0..count as u64 {
        let page = Segment { address: segment.address + n * PAGE, length: PAGE };
        for who in 1..=4 {
            pages.bring_in(tenant(who), &[RegionPart { region, segment: page }], true, 4 * n + who);
        }
    }
    let limit = Instant::now() + LONG;
    while !rules.0.lock().is_empty() {
        assert!(Instant::now() < limit, "the threads wait");
        std::thread::yield_now();
    }
    table.revoke(key).unwrap();
    pages.end_bring_in(region.index());
    for _ in 0..4 * count {
        hears.recv_timeout(LONG).unwrap();
    }
    for n in 0..count as u64 {
        let page = Segment { address: segment.address + n * PAGE, length: PAGE };
        assert_eq!(memory.residency(&[page]), Residency::Absent, "page {n}");
    }
    pages.stop();
}

/// Where a process is its own peer, either end may ask for a page: what a rule has decided holds for both.
#[test]
fn held_page_is_held_from_both_ends() {
    for fate in [PageFate::Lost, PageFate::Late(10 * LONG)] {
        let (told, hears) = channel();
        let memory = Arc::new(HostMemory::new());
        let (table, words) = table();
        let done = Box::new(move |token| told.send(token).unwrap());
        let rules = Arc::new(Fates(Mutex::new(vec![fate])));
        let pages = Pages::with_rules(memory.clone(), words, Arc::default(), done, Some(rules.clone()));
        let (_bytes, segment) = fresh(1);
        let (key, region) = register(&table);
        pages.bring_in_peer(&HostProcess::current(), table.view(), RegionPart { region, segment }, 1);
        let limit = Instant::now() + LONG;
        while !rules.0.lock().is_empty() {
            assert!(Instant::now() < limit, "nobody asked the rule");
            std::thread::yield_now();
        }
        pages.bring_in(tenant(1), &[RegionPart { region, segment }], true, 2);
        assert_eq!(hears.recv_timeout(Duration::from_millis(100)).ok(), None, "{fate:?}");
        table.revoke(key).unwrap();
        pages.end_bring_in(region.index());
        let heard: BTreeSet<u64> = (0..2).map(|_| hears.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(heard, BTreeSet::from([1, 2]), "{fate:?}");
        assert_eq!(memory.residency(&[segment]), Residency::Absent, "{fate:?}");
        pages.stop();
    }
}

#[test]
fn late_page_ends_with_its_region() {
    let (told, hears) = channel();
    let (table, words) = table();
    let done = Box::new(move |token| told.send(token).unwrap());
    let rules = Arc::new(Fates(Mutex::new(vec![PageFate::Late(10 * LONG)])));
    let pages =
        Pages::with_rules(Arc::new(HostMemory::new()), words, Arc::default(), done, Some(rules.clone()));
    let (_bytes, segment) = fresh(1);
    let (key, region) = register(&table);
    pages.bring_in(tenant(1), &[RegionPart { region, segment }], true, 1);
    table.revoke(key).unwrap();
    pages.end_bring_in(region.index());
    assert_eq!(hears.recv_timeout(LONG), Ok(1));
    pages.stop();
}

#[test]
fn lost_page_ends_with_the_threads() {
    let (told, hears) = channel();
    let (table, words) = table();
    let done = Box::new(move |token| told.send(token).unwrap());
    let rules = Arc::new(Fates(Mutex::new(vec![PageFate::Lost])));
    let pages =
        Pages::with_rules(Arc::new(HostMemory::new()), words, Arc::default(), done, Some(rules.clone()));
    let (_bytes, segment) = fresh(1);
    let (_, region) = register(&table);
    pages.bring_in(tenant(1), &[RegionPart { region, segment }], true, 1);
    while !rules.0.lock().is_empty() {
        std::thread::yield_now();
    }
    pages.stop();
    assert_eq!(hears.recv_timeout(LONG), Ok(1));
}

/// `ibv_advise_mr(3)`.
#[test]
fn a_prefetch_that_is_waited_for_says_what_became_of_it() {
    // Kept: memory at an address that was used a moment ago is remembered to be resident.
    let mut kept = Vec::new();
    let memory = Arc::new(HostMemory::new());
    let (table, words) = table();
    let (_, region) = register(&table);
    let pages =
        Pages::new(memory.clone(), words, Arc::default(), Box::new(|_| unreachable!("no queue pair waits")));
    let part = |segment| RegionPart { region, segment };
    // Short ones, and one that helpers share.
    for length in [1, 3, 4 * SHARED_PAGE_IN / PAGE] {
        for write in [false, true] {
            let (bytes, segment) = fresh(length);
            kept.push(bytes);
            assert_eq!(memory.residency(&[segment]), Residency::Absent);
            assert_eq!(pages.prefetch(&[part(segment)], write, true), Ok(()));
            assert_eq!(memory.residency(&[segment]), Residency::Resident, "{length} pages");
        }
    }
    let unmapped = Segment { address: PAGE, length: 4 * SHARED_PAGE_IN };
    for segment in [unmapped, Segment { length: 8, ..unmapped }] {
        let there = fresh(1);
        let parts = [part(there.1), part(segment)];
        assert_eq!(pages.prefetch(&parts, false, true), Err(PrefetchError::NotMapped));
        assert_eq!(pages.prefetch(&parts[1..], true, true), Err(PrefetchError::NotMapped));
        assert_eq!(pages.prefetch(&parts, false, false), Ok(()), "nobody waits for the outcome");
    }
    pages.stop();
}

#[test]
fn a_prefetch_that_is_not_waited_for_comes_in_later() {
    let memory = Arc::new(HostMemory::new());
    let (table, words) = table();
    let (_, region) = register(&table);
    let pages =
        Pages::new(memory.clone(), words, Arc::default(), Box::new(|_| unreachable!("no queue pair waits")));
    let (_bytes, segment) = fresh(40);
    let part = RegionPart { region, segment };
    assert_eq!(pages.prefetch(&[part], true, false), Ok(()));
    let limit = Instant::now() + LONG;
    while memory.residency(&[segment]) != Residency::Resident {
        assert!(Instant::now() < limit, "it does not come");
        std::thread::yield_now();
    }
    pages.stop();
}

#[test]
fn same_pages_make_one_task() {
    let (table, _) = table();
    let of = |region| {
        let segments = vec![Segment { address: PAGE, length: PAGE }];
        PageTaskKind::Local { write: true, segments, regions: vec![region], stretch: None }
    };
    let [(_, one), (_, other)] = [(); 2].map(|()| register(&table));
    assert!(one != other && of(one) == of(other));
    let hasher = RandomState::new();
    assert_eq!(hasher.hash_one(of(one)), hasher.hash_one(of(other)));
}

#[test]
fn threads_are_not_kept_where_whoever_needs_the_first_one_is() {
    let (told, hears) = channel();
    let done = Box::new(move |_| told.send(sched_getaffinity(None).unwrap()).unwrap());
    let (table, words) = table();
    let (_, region) = register(&table);
    let pages = Pages::new(Arc::new(HostMemory::new()), words, Arc::default(), done);
    let before = sched_getaffinity(None).unwrap();
    let mut here = CpuSet::new();
    here.set((0..CpuSet::MAX_CPU).find(|processor| before.is_set(*processor)).unwrap());
    sched_setaffinity(None, &here).unwrap();
    let (_memory, segment) = fresh(1);
    pages.bring_in(tenant(1), &[RegionPart { region, segment }], true, 10);
    sched_setaffinity(None, &before).unwrap();
    assert_eq!(hears.recv_timeout(LONG).unwrap().count(), before.count());
    pages.stop();
}

#[test]
fn accesses_within_a_page_need_the_same_page() {
    let of = |address, length| whole_pages(&Segment { address, length });
    assert_eq!(of(PAGE + 5, 8), Segment { address: PAGE, length: PAGE });
    assert_eq!(of(PAGE - 1, 2), Segment { address: 0, length: 2 * PAGE });
    assert_eq!(of(u64::MAX - 3, 3), Segment { address: u64::MAX - 3, length: 3 });
}
