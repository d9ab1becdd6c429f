//! What a child of fork(2) finds before any handler of the heap runs in it: the C library touches there what the program has allocated.
//! A handler that was there before the heap stands for the C library.

use pagewire_heap::{Heap, HeapOptions, around_fork};
use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// What the early handler of a child touches; NULL: nothing.
static TOUCHED: AtomicPtr<u8> = AtomicPtr::new(null_mut());
/// The heap in which it frees and resizes instead of touching.
static FREES: AtomicPtr<Heap> = AtomicPtr::new(null_mut());
/// What it read.
static SEEN: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Tests of this file share these.
static ALONE: Mutex<()> = Mutex::new(());

unsafe extern "C" fn early_in_child() {
    let object = TOUCHED.load(Ordering::Relaxed);
    let Some(object) = NonNull::new(object) else { return };
    // SAFETY: NULL, or a heap that lives until the end of its test.
    if let Some(heap) = unsafe { FREES.load(Ordering::Relaxed).as_ref() } {
        // SAFETY: an object of `heap` of this layout, which the child uses no more after it is freed.
        unsafe {
            let Ok(moved) = heap.reallocate(object, layout(64), layout(1 << 20), false) else { return };
            SEEN.store(usize::from(moved.read()), Ordering::Relaxed);
            heap.deallocate(moved, layout(1 << 20));
        }
        return;
    }
    // SAFETY: an object of the heap, of which the child has a copy.
    unsafe {
        SEEN.store(usize::from(object.read_volatile()), Ordering::Relaxed);
        object.write_volatile(99);
    }
}

/// A heap with copies, made after the early handler.
fn heap() -> (MutexGuard<'static, ()>, Heap) {
    static EARLY: Once = Once::new();
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    EARLY.call_once(|| {
        // SAFETY: a function of this program.
        let failed = unsafe { libc::pthread_atfork(None, None, Some(early_in_child)) };
        assert_eq!(failed, 0);
    });
    TOUCHED.store(null_mut(), Ordering::Relaxed);
    FREES.store(null_mut(), Ordering::Relaxed);
    SEEN.store(usize::MAX, Ordering::Relaxed);
    let options = HeapOptions { range: 1 << 30, fork_copies: true, ..HeapOptions::default() };
    (alone, Heap::new(options).unwrap())
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// An object whose first byte the child touches early.
fn touched(heap: &Heap) -> NonNull<u8> {
    let object = heap.allocate_zeroed(layout(64)).unwrap();
    // SAFETY: the object's first byte.
    unsafe { object.write(7) };
    TOUCHED.store(object.as_ptr(), Ordering::Relaxed);
    object
}

fn byte(object: NonNull<u8>) -> u8 {
    // SAFETY: the first byte of an object that lives.
    unsafe { object.read_volatile() }
}

/// Whether a child of fork(2) ends with `body` true.
fn in_child(body: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child ends by _exit(2).
    let child = unsafe { libc::fork() };
    ends_well(child, body)
}

fn ends_well(child: libc::pid_t, body: impl FnOnce() -> bool) -> bool {
    assert!(child >= 0);
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
        // SAFETY: _exit(2) has no preconditions.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = -1;
    // SAFETY: a place for the status of this thread's child.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

#[test]
fn early_touch_finds_the_copy() {
    let (_alone, heap) = heap();
    let object = touched(&heap);
    for _ in 0..20 {
        assert!(in_child(|| SEEN.load(Ordering::Relaxed) == 7
            && byte(object) == 99
            && heap.allocate(layout(100)).is_ok()));
        assert_eq!(byte(object), 7, "the child's write is its own");
    }
    assert!(in_child(|| in_child(|| SEEN.load(Ordering::Relaxed) == 99)), "a child of the child");
}

#[test]
fn early_free_and_resize_work() {
    let (_alone, heap) = heap();
    let object = touched(&heap);
    FREES.store(std::ptr::from_ref(&heap).cast_mut(), Ordering::Relaxed);
    assert!(in_child(|| SEEN.load(Ordering::Relaxed) == 7 && heap.allocate(layout(100)).is_ok()));
    assert_eq!(byte(object), 7);
}

#[test]
fn early_touch_with_signals_blocked_finds_the_copy() {
    let (_alone, heap) = heap();
    let object = touched(&heap);
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset fills the set that is blocked; `before` is filled by the kernel.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let is_blocked = |signal| {
        let mut now = MaybeUninit::uninit();
        // SAFETY: with no new mask pthread_sigmask(3) only fills `now`.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), now.as_mut_ptr());
            libc::sigismember(now.as_ptr(), signal) == 1
        }
    };
    let signals = [libc::SIGSEGV, libc::SIGBUS, libc::SIGTERM];
    assert!(in_child(|| SEEN.load(Ordering::Relaxed) == 7 && signals.into_iter().all(is_blocked)));
    assert!(signals.into_iter().all(is_blocked));
    // SAFETY: the mask that this thread had.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut()) };
    assert_eq!(byte(object), 7);
}

/// A stack for signals in the heap is missing in the child until the copy is there.
#[test]
fn early_touch_with_a_signal_stack_in_the_heap_finds_the_copy() {
    const LENGTH: usize = 256 << 10;
    let (_alone, heap) = heap();
    let _object = touched(&heap);
    let stack = heap.allocate(layout(LENGTH)).unwrap();
    let new = libc::stack_t { ss_sp: stack.as_ptr().cast(), ss_flags: 0, ss_size: LENGTH };
    let mut before = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: the stack lives until the one before is set again.
    assert_eq!(unsafe { libc::sigaltstack(&new, before.as_mut_ptr()) }, 0);
    let is_kept = || {
        let mut now = MaybeUninit::<libc::stack_t>::uninit();
        // SAFETY: with no new stack sigaltstack(2) only fills `now`.
        unsafe {
            libc::sigaltstack(std::ptr::null(), now.as_mut_ptr());
            now.assume_init().ss_sp == new.ss_sp
        }
    };
    assert!(in_child(|| SEEN.load(Ordering::Relaxed) == 7 && is_kept()));
    assert!(is_kept());
    // SAFETY: the stack that this thread had.
    unsafe { libc::sigaltstack(before.as_ptr(), null_mut()) };
}

#[test]
fn a_fork_without_handlers_finds_the_copy() {
    unsafe extern "C" {
        fn _Fork() -> libc::pid_t;
    }
    let (_alone, heap) = heap();
    let object = touched(&heap);
    // SAFETY: _Fork(3) forks; the child ends by _exit(2).
    let child = unsafe { around_fork(|| _Fork()) };
    assert!(ends_well(child, || byte(object) == 7 && heap.allocate(layout(100)).is_ok()));
}

#[test]
fn many_threads_fork_at_once() {
    let (_alone, heap) = heap();
    let object = touched(&heap);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    // SAFETY: the object's first byte, in the child's copy.
                    let now = || unsafe { TOUCHED.load(Ordering::Relaxed).read_volatile() };
                    assert!(in_child(|| SEEN.load(Ordering::Relaxed) == 7 && now() == 99));
                }
            });
        }
    });
    assert_eq!(byte(object), 7);
}

static FORKS_BY_SIGNAL: AtomicUsize = AtomicUsize::new(0);
static BAD_CHILDREN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn fork_in_handler(_: i32) {
    // SAFETY: the child ends by _exit(2).
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(if SEEN.load(Ordering::Relaxed) == 7 { 0 } else { 1 });
        }
        let mut status = -1;
        if libc::waitpid(child, &raw mut status, 0) != child || status != 0 {
            BAD_CHILDREN.fetch_add(1, Ordering::Relaxed);
        }
    }
    FORKS_BY_SIGNAL.fetch_add(1, Ordering::Relaxed);
}

/// The handler interrupts its thread inside operations of the heap, too.
#[test]
fn fork_in_a_signal_handler_finds_the_copy() {
    let (_alone, heap) = heap();
    let object = touched(&heap);
    let handler: extern "C" fn(i32) = fork_in_handler;
    // SAFETY: a handler of this program for a signal that nobody else uses.
    unsafe { libc::signal(libc::SIGUSR1, handler as usize) };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // SAFETY: the number of this thread.
        let forker = unsafe { libc::pthread_self() };
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                // SAFETY: the thread lives until this one has ended.
                unsafe { libc::pthread_kill(forker, libc::SIGUSR1) };
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        while FORKS_BY_SIGNAL.load(Ordering::Relaxed) < 100 {
            let objects: [_; 30] = std::array::from_fn(|number| heap.allocate(layout(50 * number + 1)));
            for (number, object) in objects.into_iter().enumerate() {
                // SAFETY: the object has this layout and is used no more.
                unsafe { heap.deallocate(object.unwrap(), layout(50 * number + 1)) };
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(BAD_CHILDREN.load(Ordering::Relaxed), 0);
    assert_eq!(byte(object), 7);
}
