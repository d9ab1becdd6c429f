//! What a forked child finds. PAGEWIRE_HEAP_FORKS sets how many forks happen while other threads allocate.

use pagewire_heap::{Heap, HeapError, HeapOptions};
use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

fn heap(range: usize, fork_copies: bool) -> Heap {
    Heap::new(HeapOptions { range, fork_copies, ..HeapOptions::default() }).unwrap()
}

/// Forks; the child runs `check` and ends by _exit(2). The parent learns whether it was true.
fn in_child(check: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child uses the heap, whose handlers made it usable, and ends by _exit(2).
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).unwrap_or(false);
        // SAFETY: _exit(2) has no preconditions.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let status = status_of(child);
    if status != 0 {
        eprintln!("the child's status is {status:#x}");
    }
    status == 0
}

fn status_of(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: waitpid(2) of our own child, with a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
}

/// An object filled with a byte.
fn filled(heap: &Heap, size: usize, byte: u8) -> NonNull<u8> {
    let object = heap.allocate(layout(size)).unwrap();
    // SAFETY: the object has so many bytes.
    unsafe { object.write_bytes(byte, size) };
    object
}

fn is_filled(object: NonNull<u8>, size: usize, byte: u8) -> bool {
    // SAFETY: the object has so many bytes, all written.
    let bytes = unsafe { std::slice::from_raw_parts(object.as_ptr(), size) };
    bytes.chunks(4096).all(|bytes| *bytes == [byte; 4096][..bytes.len()])
}

fn is_mapped(address: usize) -> bool {
    let mut state = [0u8];
    // SAFETY: mincore(2) writes one byte to `state`.
    unsafe { libc::mincore((address / 4096 * 4096) as *mut _, 4096, state.as_mut_ptr()) == 0 }
}

#[test]
fn a_child_finds_the_heap_unmapped_and_its_calls_fail() {
    let heap = heap(1 << 30, false);
    let (small, large) = (filled(&heap, 100, 1), filled(&heap, 10 << 20, 2));
    assert!(in_child(|| {
        let refused = [
            heap.allocate(layout(100)).map(|_| ()),
            heap.allocate(layout(10 << 20)).map(|_| ()),
            heap.file().map(|_| ()),
            heap.statistics().map(|_| ()),
            heap.purge(),
            heap.purge_expired(),
            heap.mark_exported(heap.range().start, 8, 1),
        ];
        // SAFETY: the objects are the parent's; a child's free does nothing.
        unsafe { heap.deallocate(small, layout(100)) };
        // SAFETY: the object is the parent's; a child's free does nothing.
        unsafe { heap.deallocate(large, layout(10 << 20)) };
        refused.iter().all(|result| matches!(result, Err(HeapError::Forked)))
            && !is_mapped(small.as_ptr() as usize)
            && !is_mapped(large.as_ptr() as usize)
            && heap.contains(small.as_ptr())
    }));
    assert!(is_filled(small, 100, 1) && is_filled(large, 10 << 20, 2));
}

#[test]
fn a_child_without_the_heap_can_make_its_own() {
    let parents = heap(1 << 30, false);
    let object = filled(&parents, 100, 1);
    assert!(in_child(|| {
        let own = heap(1 << 30, false);
        let objects: Vec<_> = (0..1000).map(|number| filled(&own, 1000, number as u8)).collect();
        let good = objects.iter().enumerate().all(|(number, object)| is_filled(*object, 1000, number as u8));
        // A child of the child.
        let nested = in_child(|| matches!(own.allocate(layout(8)), Err(HeapError::Forked)));
        drop(own);
        drop(parents);
        good && nested
    }));
    assert!(is_filled(object, 100, 1));
}

#[test]
fn a_child_without_the_heap_can_exit_and_end_its_thread() {
    for by_exit in [true, false] {
        let heap = heap(1 << 30, false);
        let objects: Vec<_> = (0..2000).map(|_| filled(&heap, 500, 1)).collect();
        let objects = objects.iter().map(|object| object.as_ptr() as usize).collect::<Vec<_>>();
        let heap = std::mem::ManuallyDrop::new(heap);
        // The thread has objects and freed ones, so that mimalloc has much to look at when it ends.
        let child = std::thread::spawn(move || {
            let own: Vec<_> = (0..2000).map(|_| filled(&heap, 500, 1)).collect();
            for (number, object) in own.iter().enumerate() {
                if number % 2 == 0 {
                    // SAFETY: the object has this layout and is used no more.
                    unsafe { heap.deallocate(*object, layout(500)) };
                }
            }
            // SAFETY: the child ends its only thread, or the process.
            let child = unsafe { libc::fork() };
            if child == 0 && by_exit {
                // SAFETY: exit(3) in the only thread.
                unsafe { libc::exit(0) };
            }
            child
        })
        .join()
        .unwrap();
        // In the child the thread was the last one: the process has ended with it, and comes not here.
        assert_eq!(status_of(child), 0, "by exit: {by_exit}");
        assert!(objects.iter().all(|object| is_filled(NonNull::new(*object as *mut u8).unwrap(), 500, 1)));
    }
}

#[test]
fn a_child_gets_a_copy_of_its_own() {
    let heap = heap(1 << 40, true);
    let (small, large) = (filled(&heap, 100, 1), filled(&heap, 10 << 20, 2));
    let many: Vec<_> = (0..3000).map(|number| filled(&heap, 1000, number as u8)).collect();
    assert!(in_child(|| {
        let unchanged = is_filled(small, 100, 1) && is_filled(large, 10 << 20, 2);
        // SAFETY: the child's own copy.
        unsafe { small.write_bytes(9, 100) };
        for (number, object) in many.iter().enumerate() {
            assert!(is_filled(*object, 1000, number as u8));
            // SAFETY: the object has this layout and is used no more.
            unsafe { heap.deallocate(*object, layout(1000)) };
        }
        let more: Vec<_> = (0..5000).map(|number| filled(&heap, 3000, number as u8)).collect();
        assert!(more.iter().enumerate().all(|(number, object)| is_filled(*object, 3000, number as u8)));
        let zeroed = heap.allocate_zeroed(layout(20 << 20)).unwrap();
        assert!(is_filled(zeroed, 20 << 20, 0));
        // SAFETY: the object has this layout and is used no more.
        unsafe { heap.deallocate(large, layout(10 << 20)) };
        heap.purge().unwrap();
        let resident = heap.statistics().unwrap().resident;
        assert!(resident > 15_000_000 + (20 << 20) && resident < 70 << 20, "{resident}");
        assert!(
            in_child(|| is_filled(zeroed, 20 << 20, 0) && heap.allocate(layout(64)).is_ok()),
            "a child of the child"
        );
        assert!(matches!(heap.file(), Err(HeapError::Private)));
        unchanged
    }));
    assert!(is_filled(small, 100, 1) && is_filled(large, 10 << 20, 2));
    assert!(many.iter().enumerate().all(|(number, object)| is_filled(*object, 1000, number as u8)));
}

#[test]
fn a_copy_may_be_dropped_and_its_process_exit() {
    let heap = heap(1 << 30, true);
    let _object = filled(&heap, 100, 1);
    // SAFETY: the child drops its copy and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(heap);
        // SAFETY: exit(3) in the only thread.
        unsafe { libc::exit(0) };
    }
    assert_eq!(status_of(child), 0);
}

#[test]
fn forks_while_other_threads_allocate() {
    let forks = std::env::var("PAGEWIRE_HEAP_FORKS").map_or(200, |count| count.parse().unwrap());
    // Nothing is retained: a thread of the heap itself is at work meanwhile, too.
    let purge_delay = Duration::from_millis(10);
    let options =
        HeapOptions { range: 4 << 30, fork_copies: true, retain: 0, purge_delay, ..HeapOptions::default() };
    let heap = Heap::new(options).unwrap();
    let (stop, operations) = (AtomicBool::new(false), AtomicU64::new(0));
    let kept: Vec<_> = (0..200).map(|number| filled(&heap, 50 * number, number as u8)).collect();
    let kept_are_whole =
        || kept.iter().enumerate().all(|(number, object)| is_filled(*object, 50 * number, number as u8));
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (heap, stop, operations) = (&heap, &stop, &operations);
            scope.spawn(move || {
                churn(heap, seed, || {
                    operations.fetch_add(1, Ordering::Relaxed) != u64::MAX && !stop.load(Ordering::Relaxed)
                })
            });
        }
        for number in 0..forks {
            heap.fork_copies(number % 2 == 0);
            let before = operations.load(Ordering::Relaxed);
            let good = in_child(|| {
                if number % 2 == 0 {
                    churn(&heap, number, counted(300));
                    kept_are_whole()
                } else {
                    matches!(heap.allocate(layout(8)), Err(HeapError::Forked))
                }
            });
            assert!(good, "fork {number}");
            while operations.load(Ordering::Relaxed) == before {
                std::thread::yield_now();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(kept_are_whole());
}

fn counted(mut left: u32) -> impl FnMut() -> bool {
    move || {
        left -= 1;
        left > 0
    }
}

/// Allocates and frees objects with patterns while it may.
fn churn(heap: &Heap, seed: u64, mut goes_on: impl FnMut() -> bool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut objects = Vec::new();
    while goes_on() {
        let size = if random.u32(0..200) == 0 { 5 << 20 } else { random.usize(1..3000) };
        let byte = random.u8(..);
        let object = heap.allocate(layout(size)).unwrap();
        // SAFETY: the object has so many bytes.
        unsafe { object.write_bytes(byte, size.min(3000)) };
        objects.push((object, size, byte));
        if objects.len() > 100 {
            let (object, size, byte) = objects.swap_remove(random.usize(0..100));
            assert!(is_filled(object, size.min(3000), byte));
            // SAFETY: the object has this layout and is used no more.
            unsafe { heap.deallocate(object, layout(size)) };
        }
    }
    for (object, size, _) in objects {
        // SAFETY: the object has this layout and is used no more.
        unsafe { heap.deallocate(object, layout(size)) };
    }
}

/// The thread that gives pages back is the parent's. A child begins its own.
#[test]
fn idle_forked_heap_purges_pages() {
    let purge_delay = Duration::from_millis(50);
    let options =
        HeapOptions { range: 1 << 30, fork_copies: true, retain: 0, purge_delay, ..HeapOptions::default() };
    let heap = Heap::new(options).unwrap();
    let goes_back = || {
        let object = filled(&heap, 64 << 20, 1);
        // SAFETY: the object has this layout and is used no more.
        unsafe { heap.deallocate(object, layout(64 << 20)) };
        let resident = || heap.statistics().unwrap().resident;
        let mut looks = 0;
        while resident() > 8 << 20 && looks < 600 {
            looks += 1;
            std::thread::sleep(Duration::from_millis(50));
        }
        resident() <= 8 << 20
    };
    assert!(goes_back());
    assert!(in_child(goes_back));
    assert!(goes_back());
}

#[test]
fn posix_spawn_and_exec_copy_nothing() {
    let heap = heap(1 << 30, true);
    let object = filled(&heap, 256 << 20, 1);
    // A copy is made by a handler of fork, and Command uses posix_spawn(3), which runs none.
    thread_local!(static FORKS: Cell<u32> = const { Cell::new(0) });
    extern "C" fn count_fork() {
        FORKS.set(FORKS.get() + 1);
    }
    // SAFETY: the handler is a function of no arguments, which stays, and unwinds nowhere.
    assert_eq!(unsafe { libc::pthread_atfork(Some(count_fork), None, None) }, 0);
    assert!(std::process::Command::new("true").status().unwrap().success());
    assert_eq!(FORKS.get(), 0);
    assert!(in_child(|| true) && FORKS.get() == 1, "fork(2) runs them");
    assert!(is_filled(object, 256 << 20, 1));
}
