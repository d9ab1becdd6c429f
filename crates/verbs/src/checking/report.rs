//! What the process tells at its exit.

use super::places::CallPlace;
use super::{CHECKER, CheckSettings};
use crate::abi::{ibv_cq, ibv_qp};
use crate::calls;
use crate::completion::completion_queue::CompletionQueueObject;
use crate::limits::EXIT_PATIENCE_MILLISECONDS;
use crate::objects::object::Object;
use crate::objects::queue_pair::QueuePairObject;
use crate::runtime::messages::say;
use pagewire_checker::report::{ProcessFindings, ReportedCall, ReportedFinding};
use pagewire_checker::{Checker, Finding, Use};
use pagewire_failures::Verb;
use pagewire_memory::Uncancelled;
use pagewire_watching::program;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::MutexGuard;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Called when the library is finished (`c/loading.c`): after the functions that the program has for its exit, and after its destructors and
/// those of libraries that use verbs, all of which may still end objects.
#[unsafe(no_mangle)]
pub extern "C" fn pagewire_write_findings() {
    // A process that nobody observes, or that has called no verb, made nothing.
    if !calls::are_decided() || !calls::has_observers() {
        return;
    }
    let Some(settings) = CheckSettings::of_process() else { return };
    let _uncancelled = Uncancelled::begin();
    match catch_unwind(AssertUnwindSafe(|| write(settings))) {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            say(format_args!("the findings could not be written to {}: {error}", settings.file.display()));
        }
        Err(_) => say(format_args!("the findings were not written: this is a defect of Pagewire")),
    }
}

fn write(settings: &CheckSettings) -> io::Result<()> {
    let Some(mut checker) = lock() else {
        return Err(io::Error::other("a thread was in a verb when the process ended"));
    };
    if !checker.has_seen_calls() {
        return Ok(());
    }
    overruns(&mut checker);
    checker.leave(&unpolled);
    let report = ProcessFindings {
        pid: std::process::id(),
        program: program(),
        findings: checker.findings().iter().map(reported).collect(),
        left_out: checker.left_out(),
    };
    let mut line = serde_json::to_vec(&report)?;
    line.push(b'\n');
    // One write of a file opened for appending: lines of several processes do not mix.
    OpenOptions::new().create(true).append(true).open(&settings.file)?.write_all(&line)
}

/// The checker, if no thread keeps it: this one may have been in a verb, below a signal handler.
fn lock() -> Option<MutexGuard<'static, Checker<CallPlace>>> {
    let begun = Instant::now();
    loop {
        if let Some(checker) = CHECKER.try_lock() {
            return Some(checker);
        }
        if begun.elapsed() >= Duration::from_millis(EXIT_PATIENCE_MILLISECONDS) {
            return None;
        }
        sleep(Duration::from_millis(1));
    }
}

/// Completions in the completion queue at an address that the checker knows as one that has not ended.
fn unpolled(address: usize) -> usize {
    // SAFETY: the checker knows a completion queue there that no call has begun to end; such a call waits for the checker's lock, which this thread has.
    match unsafe { CompletionQueueObject::of(address as *const ibv_cq) } {
        Ok(object) => object.queue().waiting(),
        Err(_) => 0,
    }
}

/// Queue pairs that are there, and whose completion queue was overrun.
fn overruns(checker: &mut Checker<CallPlace>) {
    for (address, made) in checker.queue_pairs() {
        // SAFETY: the checker knows a queue pair there that no call has begun to end; such a call waits for the checker's lock, which this thread has.
        let is_overrun = unsafe { is_overrun(address) };
        if is_overrun {
            let call = Use { verb: Verb::CreateQp.name(), address };
            checker.overrun(call, &|| made.clone());
        }
    }
}

/// Whether the completion queue of a queue pair was overrun.
///
/// # Safety
/// The address is 0 or that of a queue pair that does not end meanwhile.
pub unsafe fn is_overrun(address: usize) -> bool {
    // SAFETY: the caller promises that the address is NULL or that of a queue pair that does not end meanwhile.
    let object = unsafe { QueuePairObject::of(address as *const ibv_qp) };
    object.is_ok_and(|object| object.queue_pair().report().state_reason.is_some())
}

fn reported(finding: &Finding<CallPlace>) -> ReportedFinding {
    let related = finding.related.iter().map(|related| ReportedCall {
        what: related.what.to_owned(),
        verb: related.verb.to_owned(),
        place: related.place.frames(),
    });
    ReportedFinding {
        rule: finding.rule.name().to_owned(),
        verb: finding.verb.to_owned(),
        detail: finding.detail.clone(),
        count: finding.count,
        place: finding.place.frames(),
        related: related.collect(),
    }
}
