//! Copies against a plain model, and against memory that goes away.

use pagewire_memory::{
    ApplicationMemory, Arena, AtomicOperation, HostMemory, HostProcess, MemoryError, Residency, Segment,
};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

const PAGE: usize = 4096;

/// Another test's memory may come to lie where a test has unmapped some.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(|failed| failed.into_inner())
}

/// `direct_copies` includes this file: there copies are made directly.
fn memory() -> HostMemory {
    if module_path!() != "copies" {
        pagewire_memory::guard::changes_are_seen();
    }
    HostMemory::new()
}

fn segment(bytes: &[u8]) -> Segment {
    Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 }
}

/// Pages of the application, which a test may unmap and protect.
struct Pages {
    start: *mut libc::c_void,
    length: usize,
}

// SAFETY: the tests touch the pages by address only.
unsafe impl Sync for Pages {}

impl Pages {
    /// At addresses that the kernel, which fills the address space from its top, gives to nobody else: what a test has
    /// unmapped stays unmapped, whatever the harness's own threads map meanwhile.
    fn new(length: usize) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(1 << 36);
        let place =
            NEXT.fetch_add(length.next_multiple_of(PAGE) + PAGE, Ordering::Relaxed) as *mut libc::c_void;
        // SAFETY: a new mapping, refused where there is one.
        let start = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(place, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_eq!(start, place);
        Pages { start, length }
    }

    fn all(&self) -> Segment {
        Segment { address: self.start as u64, length: self.length as u64 }
    }

    fn part(&self, at: usize, length: usize) -> Segment {
        Segment { address: self.start as u64 + at as u64, length: length as u64 }
    }

    fn protect(&self, at: usize, length: usize, protection: i32) {
        // SAFETY: part of our own mapping, to which there are no references.
        assert_eq!(unsafe { libc::mprotect(self.start.byte_add(at), length, protection) }, 0);
    }

    /// Takes the pages away, or puts new ones there.
    fn replace(&self, at: usize, length: usize, present: bool) {
        // SAFETY: part of our own mapping, to which there are no references.
        unsafe {
            let at = self.start.byte_add(at);
            if present {
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                assert_eq!(libc::mmap(at, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0), at);
            } else {
                assert_eq!(libc::munmap(at, length), 0);
            }
        }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: our own mapping, or what is left of it.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Cuts of a buffer: lengths of pieces and of gaps between them.
fn cuts() -> impl Strategy<Value = Vec<(usize, usize)>> {
    proptest::collection::vec((0usize..3000, 0usize..50), 0..100)
}

fn pieces_of(bytes: &mut [u8], cuts: &[(usize, usize)]) -> (Vec<Segment>, Vec<usize>) {
    let (mut segments, mut places, mut at) = (Vec::new(), Vec::new(), 0);
    for (length, gap) in cuts {
        segments.push(Segment { address: bytes.as_mut_ptr() as u64 + at as u64, length: *length as u64 });
        places.extend(at..at + length);
        at += length + gap;
    }
    (segments, places)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every way of copying moves exactly the bytes that it should, whatever the cuts.
    #[test]
    fn copies_are_exact(from in cuts(), to in cuts(), tail_last in any::<bool>(), arena in any::<bool>()) {
        let _alone = alone();
        let memory = memory();
        let size = |cuts: &[(usize, usize)]| cuts.iter().map(|(length, gap)| length + gap).sum::<usize>() + 1;
        let mut source: Vec<u8> = (0..size(&from)).map(|index| (index * 31 % 251) as u8 + 1).collect();
        let mut target = vec![0u8; size(&to)];
        let (from, from_places) = pieces_of(&mut source, &from);
        let (to, to_places) = pieces_of(&mut target, &to);
        let length = from_places.len().min(to_places.len());
        let mut expected = target.clone();
        for (from, to) in from_places.iter().zip(&to_places) {
            expected[*to] = source[*from];
        }
        let gathered: Vec<u8> = from_places.iter().map(|at| source[*at]).collect();

        // By way of an engine buffer.
        let mut own_arena = Arena::new(1 << 20).unwrap();
        let mut heap = vec![0; from_places.len()];
        let buffer = if arena { &mut own_arena.bytes_mut()[..from_places.len()] } else { &mut heap[..] };
        prop_assert_eq!(memory.read(&from, buffer), Ok(()));
        prop_assert!(buffer == gathered);
        prop_assert_eq!(memory.write(buffer, &to, tail_last), Ok(()));
        prop_assert!(std::hint::black_box(&target) == &expected);

        // Between processes, of which both are this one.
        for push in [true, false] {
            std::hint::black_box(&mut target).fill(0);
            let own = HostProcess::current();
            let done = if push { memory.push(&own, &from, &to, tail_last) } else { memory.pull(&own, &from, &to, tail_last) };
            prop_assert_eq!(done, Ok(()));
            prop_assert!(std::hint::black_box(&target) == &expected, "{} bytes", length);
        }
    }
}

#[test]
fn big_copies() {
    let _alone = alone();
    let memory = memory();
    let source: Vec<u8> = (0..9 << 20).map(|index: usize| (index / 7 % 253) as u8).collect();
    let mut target = vec![0u8; source.len()];
    memory.write(&source, &[segment(&target)], true).unwrap();
    assert!(std::hint::black_box(&mut target) == &source);
    target.fill(0);
    memory.read(&[segment(&source)], &mut target).unwrap();
    assert!(target == source);
}

/// Copies in a row are what each is; the one that meets a hole is refused, and those behind it are made.
#[test]
fn rows_of_copies_are_what_each_is() {
    let _alone = alone();
    let memory = memory();
    let pages = Pages::new(4 * PAGE);
    pages.replace(2 * PAGE, PAGE, false);
    let places = [0, 1000, PAGE - 500, 2 * PAGE - 500, 2 * PAGE + 7, 3 * PAGE + 8, 4 * PAGE - 1000];
    let hit = |at: usize| at + 1000 > 2 * PAGE && at < 3 * PAGE;
    let write = memory.writes();
    for (index, at) in places.into_iter().enumerate() {
        assert_eq!(write(&[index as u8 + 1; 1000], pages.part(at, 1000)), !hit(at), "{at}");
    }
    let read = memory.reads();
    for (index, at) in places.into_iter().enumerate() {
        let mut bytes = [0; 1000];
        assert_eq!(read(pages.part(at, 1000), &mut bytes), !hit(at), "{at}");
        assert!(hit(at) || bytes == [index as u8 + 1; 1000], "{at}");
    }
    // Of different lengths the shorter counts.
    assert!(write(&[7; 16], pages.part(0, 8)) && write(&[8; 8], pages.part(8, 16)));
    let mut bytes = [9; 32];
    assert!(read(pages.part(0, 16), &mut bytes));
    assert_eq!(bytes, *[[7u8; 8], [8; 8], [9; 8], [9; 8]].concat());
}

/// Copies of every length are made by the instructions that are best for it.
#[test]
fn every_length_is_exact_and_ends_where_the_memory_does() {
    let _alone = alone();
    let memory = memory();
    let pages = Pages::new(4 * PAGE);
    pages.replace(2 * PAGE, PAGE, false);
    let source: Vec<u8> = (0..2 * PAGE).map(|index| (index * 31 % 251) as u8 + 1).collect();
    for length in (0..300).chain((300..4200).step_by(37)).chain(4094..4100) {
        let from = &source[length % 64..][..length];
        // Up to the hole, from where no cache line begins.
        let at = 2 * PAGE - length;
        memory.write(&vec![0; length + 5], &[pages.part(at - 5, length + 5)], false).unwrap();
        memory.write(from, &[pages.part(at, length)], false).unwrap();
        let mut back = vec![0xFF; length + 7];
        memory.read(&[pages.part(at, length)], &mut back[..length]).unwrap();
        assert!(back[..length] == *from && back[length..] == [0xFF; 7], "{length}");
        let mut before = [1; 5];
        memory.read(&[pages.part(at - 5, 5)], &mut before).unwrap();
        assert_eq!(before, [0; 5], "{length}");
        // Into it, by more than that.
        for beyond in [1, 33, 128].into_iter().filter(|beyond| *beyond <= length) {
            let over = [pages.part(at + beyond, length)];
            assert_eq!(memory.write(from, &over, false), Err(MemoryError::NotMapped), "{length} {beyond}");
            assert_eq!(memory.read(&over, &mut back), Err(MemoryError::NotMapped), "{length} {beyond}");
            assert!(back[length..] == [0xFF; 7], "{length} {beyond}");
        }
    }
}

#[test]
fn what_is_not_mapped_is_an_error() {
    let _alone = alone();
    let memory = memory();
    let pages = Pages::new(64 * PAGE);
    let own = HostProcess::current();
    let mut big = vec![1u8; 64 * PAGE];
    let mut arena = Arena::new(64 * PAGE).unwrap();
    let mut scratch = [1u8; 64];
    pages.replace(32 * PAGE, PAGE, false);
    for at in [32 * PAGE, 32 * PAGE - 30] {
        let hole = [pages.part(at, 64)];
        assert_eq!(memory.read(&hole, &mut scratch), Err(MemoryError::NotMapped));
        assert_eq!(memory.write(&scratch, &hole, true), Err(MemoryError::NotMapped));
        assert_eq!(memory.write(&arena.bytes()[..64], &hole, true), Err(MemoryError::NotMapped));
        assert_eq!(memory.read(&hole, &mut arena.bytes_mut()[..64]), Err(MemoryError::NotMapped));
    }
    assert_eq!(memory.write(&big, &[pages.all()], true), Err(MemoryError::NotMapped));
    assert_eq!(memory.read(&[pages.all()], &mut big), Err(MemoryError::NotMapped));
    assert_eq!(memory.write(arena.bytes(), &[pages.all()], false), Err(MemoryError::NotMapped));
    assert_eq!(memory.push(&own, &[segment(&big)], &[pages.all()], true), Err(MemoryError::NotMapped));
    // Whose page it is, a pull tells.
    assert_eq!(memory.pull(&own, &[pages.all()], &[segment(&big)], true), Err(MemoryError::PeerNotMapped));
    assert_eq!(memory.pull(&own, &[segment(&big)], &[pages.all()], true), Err(MemoryError::NotMapped));
    // Read-only pages can be read.
    pages.replace(32 * PAGE, PAGE, true);
    pages.protect(0, 64 * PAGE, libc::PROT_READ);
    assert_eq!(memory.write(&scratch, &[pages.all()], false), Err(MemoryError::NotMapped));
    assert_eq!(memory.write(&big, &[pages.all()], false), Err(MemoryError::NotMapped));
    memory.read(&[pages.all()], &mut big).unwrap();
    // Addresses that no process has.
    for address in [0, 8, 1 << 62, u64::MAX - 8, 0xFFFF_8000_0000_0000] {
        let nowhere = [Segment { address, length: 8 }];
        assert_eq!(memory.read(&nowhere, &mut scratch), Err(MemoryError::NotMapped));
        assert_eq!(memory.write(&big, &nowhere, true), Err(MemoryError::NotMapped));
        assert_eq!(
            memory.atomic(address & !7, AtomicOperation::FetchAdd { add: 1 }),
            Err(MemoryError::NotMapped)
        );
        assert_eq!(memory.residency(&nowhere), Residency::NotMapped);
    }
}

#[test]
fn a_file_that_was_cut_off() {
    let _alone = alone();
    let memory = memory();
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, 2 * PAGE as u64).unwrap();
    // SAFETY: a new mapping, touched by address only.
    let start = unsafe {
        use std::os::fd::AsRawFd;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(std::ptr::null_mut(), 2 * PAGE, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
    };
    let word = [Segment { address: start as u64 + PAGE as u64, length: 8 }];
    memory.write(&[7; 8], &word, true).unwrap();
    let add = AtomicOperation::FetchAdd { add: 1 };
    assert_eq!(memory.atomic(word[0].address, add), Ok(u64::from_ne_bytes([7; 8])));
    // An access of the program itself would be SIGBUS now.
    rustix::fs::ftruncate(&file, PAGE as u64).unwrap();
    assert_eq!(memory.atomic(word[0].address, add), Err(MemoryError::NotMapped));
    assert_eq!(memory.write(&[7; 8], &word, true), Err(MemoryError::NotMapped));
    assert_eq!(memory.read(&word, &mut [0; 8]), Err(MemoryError::NotMapped));
    // SAFETY: the mapping made above.
    unsafe { libc::munmap(start, 2 * PAGE) };
}

#[test]
fn atomics() {
    let _alone = alone();
    let memory = memory();
    let word = AtomicU64::new(5);
    let address = word.as_ptr() as u64;
    assert_eq!(memory.atomic(address, AtomicOperation::FetchAdd { add: u64::MAX }), Ok(5));
    assert_eq!(word.load(Ordering::SeqCst), 4);
    assert_eq!(memory.atomic(address, AtomicOperation::CompareSwap { compare: 3, swap: 9 }), Ok(4));
    assert_eq!(memory.atomic(address, AtomicOperation::CompareSwap { compare: 4, swap: 9 }), Ok(4));
    assert_eq!(word.load(Ordering::SeqCst), 9);
    assert_eq!(memory.atomic(address + 4, AtomicOperation::FetchAdd { add: 1 }), Err(MemoryError::NotMapped));
    let pages = Pages::new(PAGE);
    pages.protect(0, PAGE, libc::PROT_READ);
    let start = pages.all().address;
    assert_eq!(memory.atomic(start, AtomicOperation::FetchAdd { add: 1 }), Err(MemoryError::NotMapped));
    pages.protect(0, PAGE, libc::PROT_READ | libc::PROT_WRITE);
    assert_eq!(memory.atomic(start, AtomicOperation::FetchAdd { add: 1 }), Ok(0));
}

#[test]
fn atomics_of_many_threads_with_the_programs_own() {
    let _alone = alone();
    const ROUNDS: u64 = 10_000;
    let word = AtomicU64::new(0);
    let address = word.as_ptr() as u64;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let memory = memory();
                for _ in 0..ROUNDS {
                    memory.atomic(address, AtomicOperation::FetchAdd { add: 1 }).unwrap();
                }
            });
        }
        for _ in 0..ROUNDS {
            word.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(word.load(Ordering::SeqCst), 4 * ROUNDS);
}

#[test]
fn a_thread_that_blocks_all_signals() {
    let _alone = alone();
    std::thread::spawn(|| {
        let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        let mut after = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the sets are filled by sigfillset and pthread_sigmask before they are used.
        unsafe {
            libc::sigfillset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
        }
        let memory = memory();
        let pages = Pages::new(PAGE);
        pages.replace(0, PAGE, false);
        let add = AtomicOperation::FetchAdd { add: 1 };
        assert_eq!(memory.atomic(pages.all().address, add), Err(MemoryError::NotMapped));
        assert_eq!(memory.read(&[pages.all()], &mut [0; 99]), Err(MemoryError::NotMapped));
        // The mask is as it was.
        // SAFETY: pthread_sigmask fills `after` before it is read.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), after.as_mut_ptr());
            assert_eq!(libc::sigismember(after.as_ptr(), libc::SIGSEGV), 1);
            assert_eq!(libc::sigismember(after.as_ptr(), libc::SIGBUS), 1);
        }
    })
    .join()
    .unwrap();
}

#[test]
fn pages_that_come_and_go() {
    let _alone = alone();
    let pages = Pages::new(4 * PAGE);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for kind in 0..3 {
            let (pages, stop) = (&pages, &stop);
            scope.spawn(move || {
                let memory = memory();
                let mut arena = Arena::new(4 * PAGE).unwrap();
                let mut heap = vec![1u8; 4 * PAGE];
                let (mut done, mut refused) = (0, 0);
                loop {
                    let all = [pages.all()];
                    let outcome = match kind {
                        0 => memory.atomic(all[0].address, AtomicOperation::FetchAdd { add: 1 }).map(|_| ()),
                        1 => {
                            memory.write(arena.bytes(), &all, true).and(memory.read(&all, arena.bytes_mut()))
                        }
                        _ => memory.write(&heap, &all, true).and(memory.read(&all, &mut heap)),
                    };
                    memory.residency(&all);
                    match outcome {
                        Ok(()) => done += 1,
                        Err(MemoryError::NotMapped) => refused += 1,
                        Err(other) => panic!("{other:?}, though only this process takes part"),
                    }
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
                assert!(done + refused > 0);
            });
        }
        for round in 0..3000 {
            pages.protect(0, 4 * PAGE, if round % 3 == 0 { libc::PROT_NONE } else { libc::PROT_READ });
            pages.replace(0, 4 * PAGE, true);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn residency() {
    let _alone = alone();
    let memory = memory();
    let pages = Pages::new(8192 * PAGE);
    assert_eq!(memory.residency(&[]), Residency::Resident);
    assert_eq!(memory.residency(&[pages.all()]), Residency::Absent);
    assert_eq!(memory.residency(&[pages.part(PAGE, 8)]), Residency::Absent);
    memory.bring_in(&pages.part(PAGE, 8), true).unwrap();
    assert_eq!(memory.residency(&[pages.part(PAGE, PAGE)]), Residency::Resident);
    assert_eq!(memory.residency(&[pages.part(PAGE, PAGE + 1)]), Residency::Absent);
    memory.bring_in(&pages.all(), true).unwrap();
    assert_eq!(memory.residency(&[pages.all()]), Residency::Resident);
    pages.replace(8191 * PAGE, PAGE, false);
    // It may be remembered for a tick of the kernel's clock, of 10 ms at most.
    std::thread::sleep(Duration::from_millis(30));
    assert_eq!(memory.residency(&[pages.all()]), Residency::NotMapped);
    // What is behind it does not matter.
    assert_eq!(memory.residency(&[pages.part(8190 * PAGE, 8)]), Residency::Resident);
    assert_eq!(memory.residency(&[pages.part(8190 * PAGE, PAGE + 1)]), Residency::NotMapped);
    assert_eq!(memory.bring_in(&pages.all(), true), Err(MemoryError::NotMapped));
    assert_eq!(memory.bring_in(&pages.all(), false), Err(MemoryError::NotMapped));
    let nowhere = Segment { address: u64::MAX - 5, length: 100 };
    assert_eq!(memory.residency(&[nowhere]), Residency::NotMapped);
}

#[test]
fn what_is_resident_is_copied_at_once() {
    let _alone = alone();
    let memory = memory();
    let pages = Pages::new(6 * PAGE);
    let mut back = [0; 24];
    // Across two pages, of which none is there, one, both.
    let across = pages.part(2 * PAGE - 12, 24);
    assert!(!memory.write_resident(&[7; 24], across));
    memory.bring_in(&pages.part(PAGE, 8), true).unwrap();
    assert!(!memory.write_resident(&[7; 24], across) && !memory.read_resident(across, &mut back));
    memory.bring_in(&pages.part(2 * PAGE, 8), true).unwrap();
    memory.read(&[across], &mut back).unwrap();
    assert_eq!(back, [0; 24], "nothing was written");
    for round in 1..=200 {
        for length in [1, 7, 8, 9, 24] {
            let (part, bytes) = (Segment { length: length as u64, ..across }, [round; 24]);
            assert!(memory.write_resident(&bytes[..length], part));
            assert!(memory.read_resident(part, &mut back[..length]));
            assert_eq!(back[..length], bytes[..length]);
        }
    }
    // What is remembered does not protect from what has happened since.
    pages.protect(2 * PAGE, PAGE, libc::PROT_READ);
    assert!(!memory.write_resident(&[8; 8], pages.part(2 * PAGE, 8)));
    assert!(memory.read_resident(pages.part(2 * PAGE, 8), &mut back[..8]));
    pages.replace(2 * PAGE, PAGE, false);
    assert!(!memory.read_resident(across, &mut back));
    let nowhere = Segment { address: u64::MAX - 5, length: 24 };
    assert!(!memory.read_resident(nowhere, &mut back) && !memory.write_resident(&back, nowhere));
}

#[test]
fn a_process_that_ends() {
    let _alone = alone();
    let memory = memory();
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let process = HostProcess::open(child.id() as i32).unwrap();
    assert!(process.is_alive());
    child.kill().unwrap();
    child.wait().unwrap();
    let bytes = [0u8; 8];
    assert_eq!(
        memory.push(&process, &[segment(&bytes)], &[segment(&bytes)], true),
        Err(MemoryError::PeerGone)
    );
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(!process.is_alive());
    assert!(HostProcess::open(child.id() as i32).is_err());
}

#[test]
fn the_tail_is_seen_last() {
    let _alone = alone();
    const LENGTH: usize = 8192;
    const ROUNDS: u64 = 2000;
    // A reader that sees the tail of a round must see all of its body.
    let target: Vec<AtomicU64> = (0..LENGTH / 8).map(|_| AtomicU64::new(0)).collect();
    let to = [Segment { address: target.as_ptr() as u64, length: LENGTH as u64 }];
    let read = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                while target[LENGTH / 8 - 1].load(Ordering::Acquire) < round {
                    std::hint::spin_loop();
                }
                for word in &target {
                    assert_eq!(word.load(Ordering::Relaxed), round);
                }
                read.store(round, Ordering::Release);
            }
        });
        let memory = memory();
        let own = HostProcess::current();
        let mut arena = Arena::new(LENGTH).unwrap();
        for round in 1..=ROUNDS {
            let body: Vec<u8> = round.to_ne_bytes().repeat(LENGTH / 8);
            match round % 5 {
                0 => memory.write(&body, &to, true),
                3 => memory.write_resident(&body, to[0]).then_some(()).ok_or(MemoryError::NotMapped),
                1 => memory.push(&own, &[segment(&body)], &to, true),
                2 => memory.pull(&own, &[segment(&body)], &to, true),
                _ => {
                    arena.bytes_mut().copy_from_slice(&body);
                    memory.write(arena.bytes(), &to, true)
                }
            }
            .unwrap();
            while read.load(Ordering::Acquire) < round {
                std::hint::spin_loop();
            }
        }
    });
}

/// What the program stores and loads with one instruction, because it is aligned, it does not see half of.
#[test]
fn small_aligned_words_are_written_and_read_at_once() {
    let _alone = alone();
    const LOOKS: u32 = 200_000;
    let memory = memory();
    // What is shorter than 8 bytes the kernel copies byte by byte on some processors (rep_movs_alternative, where there is no FSRM).
    let by_kernel = module_path!() == "copies";
    for length in [2, 4, 8].into_iter().filter(|length| !by_kernel || *length == 8) {
        let word = AtomicU64::new(0);
        let at = [Segment { address: word.as_ptr() as u64, length }];
        let ones = u64::MAX >> (64 - 8 * length);
        // All bytes change together: half of a change is another value.
        let assert_whole = |value: u64| assert!([0, ones].contains(&(value & ones)), "{length}: {value:x}");
        std::thread::scope(|scope| {
            let reader =
                scope.spawn(|| (0..200 * LOOKS).for_each(|_| assert_whole(word.load(Ordering::Relaxed))));
            let mut byte = 0;
            while !reader.is_finished() {
                byte ^= 0xFF;
                memory.write(&[byte; 8], &at, true).unwrap();
            }
        });
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..LOOKS {
                    let mut bytes = [0; 8];
                    memory.read(&at, &mut bytes).unwrap();
                    assert_whole(u64::from_ne_bytes(bytes));
                }
            });
            while !reader.is_finished() {
                word.fetch_xor(ones, Ordering::Relaxed);
            }
        });
    }
}
