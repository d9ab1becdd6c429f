//! SIGSEGV that somebody sends is no fault, wherever it interrupts the engine. In a process of its own, since handlers
//! belong to the whole process.

use pagewire_memory::{ApplicationMemory, HostMemory, Segment, guard};
use std::os::unix::thread::JoinHandleExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SIGNALS: usize = 200;
const BYTES: usize = 1 << 20;

static SEEN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn of_the_program(_signal: i32) {
    SEEN.fetch_add(1, Ordering::SeqCst);
}

#[test]
fn a_signal_that_was_sent_fails_no_copy_and_reaches_the_program() {
    // SAFETY: zero is a valid sigaction; the handler only counts.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = of_the_program as extern "C" fn(i32) as usize;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
    guard::changes_are_seen();
    static STOP: AtomicBool = AtomicBool::new(false);
    static COPIES: AtomicUsize = AtomicUsize::new(0);
    let copying = std::thread::spawn(|| {
        let memory = HostMemory::new();
        let (source, mut copy) = (vec![7u8; BYTES], vec![0u8; BYTES]);
        let source = [Segment { address: source.as_ptr() as u64, length: BYTES as u64 }];
        while !STOP.load(Ordering::SeqCst) {
            memory.read(&source, &mut copy).expect("all of it is mapped");
            COPIES.fetch_add(1, Ordering::SeqCst);
        }
    });
    let end = Instant::now() + Duration::from_secs(60);
    let wait = |done: &dyn Fn() -> bool, what: &str| {
        while !done() && !copying.is_finished() {
            assert!(Instant::now() < end, "{what}");
            std::thread::yield_now();
        }
    };
    for signal in 1..=SIGNALS {
        // Most arrive in the midst of a copy.
        let before = COPIES.load(Ordering::SeqCst);
        wait(&|| COPIES.load(Ordering::SeqCst) > before, "no copies are made");
        // SAFETY: the thread has not been joined.
        unsafe { libc::pthread_kill(copying.as_pthread_t(), libc::SIGSEGV) };
        wait(&|| SEEN.load(Ordering::SeqCst) == signal, "the program was not given its signal");
    }
    STOP.store(true, Ordering::SeqCst);
    copying.join().expect("a copy failed");
    assert_eq!(SEEN.load(Ordering::SeqCst), SIGNALS);
}
