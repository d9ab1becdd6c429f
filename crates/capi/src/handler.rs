//! Handlers of accesses: functions of C, and how they say that they have failed.

use crate::boundary::{Result, call};
use crate::error::{Refusal, pw_error};
use pagewire::access_log::{LoggedOperation, RecordFlags, RecordHeader};
use pagewire_active::{Access, Reported};
use pagewire_memory::Uncancelled;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::io::Write;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};

/// It writes: a put, or a part of one.
pub const PW_ACCESS_PUT: u32 = 1;
/// It reads.
pub const PW_ACCESS_GET: u32 = 2;
/// It adds to a word. Its data are what it adds.
pub const PW_ACCESS_FETCH_ADD: u32 = 3;
/// It changes a word that is as expected. Its data are two words: what it expects, and the new one.
pub const PW_ACCESS_COMPARE_SWAP: u32 = 4;

/// The message begins with this record.
pub const PW_FIRST: u32 = 1;
/// The message ends with this record.
pub const PW_LAST: u32 = 2;
/// The caller got an error, and nothing moved.
pub const PW_REFUSED: u32 = 4;
/// Its bytes are in the record, and not in memory.
pub const PW_REDIRECTED: u32 = 8;
/// Nobody knows whether it was made: its source has died in its midst, or takes too long.
pub const PW_MAY_HAVE_WRITTEN: u32 = 16;
/// A get that was logged before: its answer was lost or late, so it was executed once more.
pub const PW_REPEATED: u32 = 32;

const _: () = assert!(
    PW_ACCESS_PUT == LoggedOperation::Write as u32
        && PW_ACCESS_GET == LoggedOperation::Read as u32
        && PW_ACCESS_FETCH_ADD == LoggedOperation::FetchAdd as u32
        && PW_ACCESS_COMPARE_SWAP == LoggedOperation::CompareSwap as u32
);

/// An access of a peer, or a part of one: a long access is several records with the same message.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_access {
    /// What was written or returned, or the operands of an atomic, 8 bytes each. NULL: data are not logged, or there are none.
    pub data: *const c_void,
    /// Of the data, in bytes.
    pub data_length: usize,
    /// First byte, in this process.
    pub address: *mut c_void,
    /// Bytes that were accessed.
    pub length: u64,
    /// Who accesses: a number that no other source of the log has at the same time. pw_source_find() names the peer.
    pub source: u64,
    /// When it began, in nanoseconds of the clock CLOCK_MONOTONIC.
    pub stamp: u64,
    /// PW_ACCESS_PUT, PW_ACCESS_GET, PW_ACCESS_FETCH_ADD or PW_ACCESS_COMPARE_SWAP.
    pub operation: u32,
    /// PW_FIRST, PW_LAST, PW_REFUSED, PW_REDIRECTED, PW_MAY_HAVE_WRITTEN, PW_REPEATED, by OR.
    pub flags: u32,
    /// All records of one message have this number, and the next message of the source has another one.
    pub message: u32,
    /// The key of the token by which it was made.
    pub key: u32,
    /// The user domain of the pages.
    pub domain: u32,
}

/// A function that handles accesses. context is what was given along with it. The access is valid until it returns.
///
/// It may call the library: put, get, flush, atomics. While it waits, its log goes on being read, as far as four times its bytes. Two owners whose handlers
/// wait for each other get PW_PEER_LOST after 10 seconds. Operations of one node to one peer are in order, but for pw_flush_handled(): nothing that is
/// started later waits behind it. An exception of C++, longjmp(3) and pthread_exit(3) must not leave it, as they would end the process;
/// pagewire.hpp catches exceptions.
pub type pw_handler = Option<unsafe extern "C" fn(context: *mut c_void, access: *const pw_access)>;

/// What a handler has said of its failure.
enum Failed {
    Because(String),
    /// It has told the user itself.
    Reported,
}

/// The innermost handler of this thread.
#[derive(Default)]
struct Running {
    depth: usize,
    failed: Option<Failed>,
}

thread_local! {
    static RUNNING: RefCell<Running> = const { RefCell::new(Running { depth: 0, failed: None }) };
}

/// A function of C, with its context.
#[derive(Clone, Copy)]
pub(crate) struct Handler {
    function: unsafe extern "C" fn(*mut c_void, *const pw_access),
    context: *mut c_void,
}

// SAFETY: an address; who gave it has promised that the function takes it in any thread (pagewire.h).
unsafe impl Send for Handler {}

impl Handler {
    pub fn new(function: pw_handler, context: *mut c_void) -> Result<Handler> {
        let function = function.ok_or_else(|| Refusal::argument("'handler' is NULL"))?;
        Ok(Handler { function, context })
    }

    /// Handles an access. False: the handler says that it has failed, which is reported.
    ///
    /// # Safety
    /// The function takes the context in this thread.
    pub unsafe fn call(&self, access: &Access<'_>) -> bool {
        let of_c = of(access);
        // SAFETY: the caller's promise; the access lives until the function has returned.
        run(access.source(), || unsafe { (self.function)(self.context, &raw const of_c) })
    }

    /// [`call`](Self::call) for one who serves the log: a failure, which is reported, goes on as a panic, and is counted there.
    ///
    /// # Safety
    /// The function takes the context in this thread.
    pub unsafe fn call_or_unwind(&self, access: &Access<'_>) {
        // SAFETY: the thread is the one in which this function's `# Safety` lets the handler take `self.context`.
        if !unsafe { self.call(access) } {
            unwind();
        }
    }
}

/// Runs a handler's function for what a source did. False: it says that it has failed, which is reported.
pub(crate) fn run(source: u64, function: impl FnOnce()) -> bool {
    // A handler may poll another log, whose handler runs within it.
    let outer = RUNNING.with_borrow_mut(|running| {
        running.depth += 1;
        running.failed.take()
    });
    function();
    let failed = RUNNING.with_borrow_mut(|running| {
        running.depth -= 1;
        std::mem::replace(&mut running.failed, outer)
    });
    if let Some(Failed::Because(why)) = &failed {
        report(source, why);
    }
    failed.is_none()
}

/// Has who serves count a failure that is reported.
pub(crate) fn unwind() {
    // No panic of ours: nobody is to see a backtrace.
    resume_unwind(Box::new(Reported));
}

/// Failures of a process that are reported each. Of later ones some are: they may be as many as the accesses.
const REPORTED_EACH: u64 = 20;

/// Whether the failure of this number is reported.
fn is_reported(number: u64) -> bool {
    number <= REPORTED_EACH || number.is_power_of_two()
}

/// As a panic in Rust is told, whatever is to be seen of the log.
fn report(source: u64, why: &str) {
    static FAILURES: AtomicU64 = AtomicU64::new(0);
    let number = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
    if !is_reported(number) {
        return;
    }
    let count = if number > REPORTED_EACH { format!(" ({number} failures so far)") } else { String::new() };
    // write(2) is a cancellation point.
    let _uncancelled = Uncancelled::begin();
    // Where the standard error output cannot be written to, there is nobody to tell.
    let _ = writeln!(
        std::io::stderr(),
        "pagewire: a handler failed at an access of source {source}: {why}{count}"
    );
}

fn of(access: &Access<'_>) -> pw_access {
    let flags = [
        (PW_FIRST, access.is_first()),
        (PW_LAST, access.is_last()),
        (PW_REFUSED, access.was_refused()),
        (PW_REDIRECTED, access.was_redirected()),
        (PW_MAY_HAVE_WRITTEN, access.may_have_written()),
        (PW_REPEATED, access.was_repeated()),
    ];
    let bytes = access.bytes();
    pw_access {
        data: if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr().cast() },
        data_length: bytes.len(),
        address: std::ptr::with_exposed_provenance_mut(access.address() as usize),
        length: access.length() as u64,
        source: access.source(),
        stamp: access.stamp(),
        operation: access.operation() as u32,
        flags: flags.iter().filter(|(_, is_set)| *is_set).map(|(flag, _)| flag).sum(),
        message: access.message(),
        key: access.key(),
        domain: access.user_domain().into(),
    }
}

/// An access of the fault log.
pub(crate) fn fault_access(record: &RecordHeader) -> Access<'static> {
    Access::of_record(*record, &[])
}

const _: () = assert!(
    PW_FIRST == RecordFlags::FIRST.bits() as u32
        && PW_LAST == RecordFlags::LAST.bits() as u32
        && PW_REFUSED == RecordFlags::REFUSED.bits() as u32
        && PW_REDIRECTED == RecordFlags::REDIRECTED.bits() as u32
        && PW_MAY_HAVE_WRITTEN == RecordFlags::MAY_HAVE_WRITTEN.bits() as u32
        && PW_REPEATED == RecordFlags::REPEATED.bits() as u32
);

/// Says within a handler that it has failed: the access counts as handled and as failed, and the log goes on. why: a sentence, which is reported on the
/// standard error output: the first 20 failures of a process each, and of the others some, with their number. NULL: the handler has told it itself.
///
/// PW_ARGUMENT: no handler of this thread is running.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_handler_failed(why: *const c_char) -> pw_error {
    call(|| {
        let failed = if why.is_null() {
            Failed::Reported
        } else {
            // SAFETY: a string ends with a NUL (pagewire.h).
            Failed::Because(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned())
        };
        RUNNING.with_borrow_mut(|running| {
            if running.depth == 0 {
                return Err(Refusal::argument("pw_handler_failed: no handler of this thread is running"));
            }
            running.failed = Some(failed);
            Ok(())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_reported_ever_more_seldom() {
        let reported: Vec<u64> = (1..=1000).filter(|number| is_reported(*number)).collect();
        assert_eq!(reported[..20], (1..=20).collect::<Vec<u64>>());
        assert_eq!(reported[20..], [32, 64, 128, 256, 512]);
    }
}
