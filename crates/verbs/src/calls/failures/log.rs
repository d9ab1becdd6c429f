//! The log of what fired (`--fail-log`).
//!
//! Rules fire below locks of the engine, where nothing may wait for a file. So lines are collected there, in their order, and written where no
//! such lock is held: when a call begins or ends, by a thread of their own, and when the process ends. A process that a rule kills or stops
//! writes them before.

use crate::calls::failures::{OnceInProcess, active};
use crate::calls::is_in_verb;
use crate::objects::held::{HeldOverForks, LockOrder};
use crate::runtime::messages::say;
use pagewire_failures::{Note, Point, Record};
use pagewire_memory::Uncancelled;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// Lines that wait to be written, at most. Further ones are counted.
const MAX_WAITING: usize = 1 << 16;

/// How long the end of a process waits for a thread that writes.
const PATIENCE: Duration = Duration::from_secs(1);

struct WaitingLines {
    lines: Vec<String>,
    /// Notes are also said on standard error.
    notes: Vec<String>,
    /// Lines that were too many.
    missing: u64,
    /// The thread that writes what threads outside of verbs collect.
    writer: Option<Thread>,
}

/// What waits to be written. Taken below locks of the engine.
static WAITING: HeldOverForks<WaitingLines> = HeldOverForks::new(
    LockOrder::FailureLines,
    WaitingLines { lines: Vec::new(), notes: Vec::new(), missing: 0, writer: None },
    |waiting| {
        // The parent writes its lines itself, and has the thread.
        let of_parent = WaitingLines { lines: Vec::new(), notes: Vec::new(), missing: 0, writer: None };
        std::mem::forget(std::mem::replace(waiting, of_parent));
        HAS_LINES.store(false, Ordering::Relaxed);
    },
);

/// Whoever writes. No lock of the engine is taken below it.
static WRITER: HeldOverForks<()> = HeldOverForks::new(LockOrder::FailureLog, (), |()| {});

static HAS_LINES: AtomicBool = AtomicBool::new(false);

/// Collects a line. The lock of the counters is held, so that lines are in the order of decisions.
pub fn add(record: &Record) {
    let has_log = active().is_some_and(|settings| settings.has_log());
    if has_log {
        collect(|waiting| waiting.lines.push(record.line(std::process::id())));
    }
}

/// Collects a note: what did not happen, and why.
pub fn add_note(text: String) {
    let Some(settings) = active() else { return };
    let line = Note { role: settings.rules.role(), text: &text }.line(std::process::id());
    collect(|waiting| {
        waiting.lines.push(line);
        waiting.notes.push(text);
    });
}

fn collect(add: impl FnOnce(&mut WaitingLines)) {
    let mut waiting = WAITING.lock();
    if waiting.lines.len() < MAX_WAITING {
        add(&mut waiting);
    } else {
        waiting.missing += 1;
    }
    HAS_LINES.store(true, Ordering::Release);
    // A thread in a verb writes when that ends.
    if let Some(writer) = waiting.writer.as_ref().filter(|_| !is_in_verb()) {
        writer.unpark();
    }
}

/// Writes what waits, if there is anything. No lock of the engine is held.
pub fn write() {
    if HAS_LINES.load(Ordering::Acquire) {
        write_all();
    }
}

/// Writes what waits, also what another thread has begun to write. For a process that is about to be killed or stopped, whatever locks are held:
/// the thread that writes waits for none of them.
pub fn write_all() {
    let _uncancelled = Uncancelled::begin();
    let _writer = WRITER.lock();
    write_waiting();
}

fn write_waiting() {
    let Some(settings) = active() else { return };
    let (lines, notes, missing) = {
        let mut waiting = WAITING.lock();
        HAS_LINES.store(false, Ordering::Relaxed);
        let missing = std::mem::take(&mut waiting.missing);
        (std::mem::take(&mut waiting.lines), std::mem::take(&mut waiting.notes), missing)
    };
    settings.append(&lines.concat());
    for note in notes {
        say(format_args!("{note}"));
    }
    if missing > 0 {
        say(format_args!(
            "the log of failures lacks {missing} lines: they came faster than they could be written"
        ));
    }
}

extern "C" fn at_exit() {
    let _uncancelled = Uncancelled::begin();
    // A signal handler that exits may run on the thread that writes.
    let writer = WRITER.lock_within(PATIENCE);
    if writer.is_some() && HAS_LINES.load(Ordering::Acquire) {
        write_waiting();
    }
}

/// Has the log written when the process exits.
pub fn write_at_exit() {
    // SAFETY: `at_exit` is an `extern "C"` function of no arguments that unwinds nowhere.
    if unsafe { libc::atexit(at_exit) } != 0 {
        ::log::warn!(
            "the C library takes no more functions for the exit: the log of failures may lack its last lines"
        );
    }
}

/// Starts the thread that writes what the engine's threads collect, if there are rules that fire there: once for a process.
pub fn start_writer() {
    static STARTED: OnceInProcess = OnceInProcess::new();
    let concerns_engine = active().is_some_and(|settings| {
        settings.rules.concern(|point| matches!(point, Point::Completion | Point::Packet | Point::Message))
    });
    if !concerns_engine || !STARTED.is_first() {
        return;
    }
    let write_always = || {
        loop {
            write();
            std::thread::park();
        }
    };
    match pagewire_fabric::spawn("pagewire-fail", write_always) {
        Ok(thread) => WAITING.lock().writer = Some(thread.thread().clone()),
        Err(error) => ::log::warn!("no thread writes the log of failures: calls and the exit do: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_collected_while_others_are_written() {
        let writer = WRITER.lock();
        // Whoever collects may hold locks of the engine.
        let collecting = std::thread::spawn(|| collect(|waiting| waiting.lines.push("a line".into())));
        collecting.join().unwrap();
        assert!(HAS_LINES.load(Ordering::Acquire));
        drop(writer);
        assert_eq!(std::mem::take(&mut WAITING.lock().lines), ["a line"]);
    }
}
