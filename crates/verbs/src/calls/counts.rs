//! Counts the calls of verbs by call stack, and the work requests by opcode, into the file that `PAGEWIRE_CALLS` names: `pagewire fail-each` reads
//! which calls a program makes before it has them fail.
//!
//! The file gets JSON lines, each a [`CallCount`] with all that one place has counted so far. The count of a place is that of the thread, and
//! for requests of the queue, that called most often: rules count threads and queues by themselves. A thread or queue beyond the bound
//! ([`MAX_COUNT_SCOPES`]) is not counted: the places keep the counts that they have.
//!
//! Calls that poll are not counted: how often a program polls depends on the time. A child that is forked after the first call counts nothing.

use crate::abi::*;
use crate::boundary::Result;
use crate::calls::stack::{self, CallStack};
use crate::calls::{Call, CallObserver, failures};
use crate::limits::{CALLS_WRITTEN_EACH, MAX_COUNT_SCOPES, MAX_COUNTED_PLACES};
use crate::runtime::messages::say;
use pagewire_checker::call_count::{CallCount, CallKind, FILE_VARIABLE};
use pagewire_failures::{EventOpcode, Verb};
use pagewire_memory::Uncancelled;
use pagewire_memory::fork::Owned;
use pagewire_nic::Status;
use pagewire_nic::attributes::QueuePairType;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};
use std::thread::ThreadId;

/// The counts of this process, if the environment asks for them.
static COUNTS: OnceLock<Option<Owned<Mutex<CallCounts>>>> = OnceLock::new();

/// The observer, if the environment asks for it.
pub fn from_environment() -> Option<Box<dyn CallObserver>> {
    let make = || {
        let file = std::env::var_os(FILE_VARIABLE).filter(|file| !file.is_empty())?;
        // SAFETY: `at_exit` is an `extern "C"` function of no arguments that unwinds nowhere.
        if unsafe { libc::atexit(at_exit) } != 0 {
            log::warn!(
                "{FILE_VARIABLE}: the C library takes no more functions for the exit: the last counts may be missing"
            );
        }
        Some(Owned::new(Mutex::new(CallCounts::new(file.into()))))
    };
    COUNTS.get_or_init(make).is_some().then(|| Box::new(CallCounter) as Box<dyn CallObserver>)
}

fn counts() -> Option<&'static Mutex<CallCounts>> {
    COUNTS.get()?.as_ref()?.get()
}

extern "C" fn at_exit() {
    let _uncancelled = Uncancelled::begin();
    // A thread that holds the lock writes what it counts; one that holds it below a signal handler is this one.
    if let Some(mut counts) = counts().and_then(Mutex::try_lock) {
        counts.write_rest();
    }
}

/// Observes the calls of this process.
struct CallCounter;

impl CallObserver for CallCounter {
    fn begin(&self, call: Call) -> Result<()> {
        if call.verb.can_fail() && !call.verb.polls() {
            if let Some(counts) = counts() {
                let stack = stack::capture();
                counts.lock().called(call, std::thread::current().id(), &stack);
            }
        }
        Ok(())
    }

    fn send_request(
        &self,
        call: Call,
        request: &ibv_send_wr,
        kind: QueuePairType,
    ) -> std::result::Result<(), Status> {
        if let (Some(opcode), Some(counts)) = (failures::opcode_of(request.opcode), counts()) {
            let request = RequestKind { opcode: opcode.into(), is_reliable: kind.is_reliable() };
            counts.lock().posted(request, call, std::thread::current().id());
        }
        Ok(())
    }

    fn receive_request(&self, call: Call, _: &ibv_recv_wr) -> std::result::Result<(), Status> {
        if let Some(counts) = counts() {
            let request = RequestKind { opcode: EventOpcode::Recv.into(), is_reliable: true };
            counts.lock().posted(request, call, std::thread::current().id());
        }
        Ok(())
    }
}

/// What requests are counted by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct RequestKind {
    opcode: &'static str,
    /// Whether the peer answers: more may go wrong. Of receives nothing depends on it.
    is_reliable: bool,
}

/// What a process has called, and what it got.
struct CallCounts {
    file: PathBuf,
    places: Vec<PlaceCount>,
    calls: HashMap<(Verb, u64), usize>,
    /// Of a place: how often a thread called from there, on one queue where the verb is of a queue. Rules count so, too.
    scopes: HashMap<(usize, ThreadId, usize), u64>,
    requests: HashMap<RequestKind, usize>,
}

/// A place of the program, or an opcode.
struct PlaceCount {
    line: CallCount,
    written: u64,
}

impl CallCounts {
    fn new(file: PathBuf) -> CallCounts {
        CallCounts {
            file,
            places: Vec::new(),
            calls: HashMap::new(),
            scopes: HashMap::new(),
            requests: HashMap::new(),
        }
    }

    fn called(&mut self, call: Call, thread: ThreadId, stack: &CallStack) {
        let verb = call.verb;
        let hash = stack.hash();
        let known = self.calls.get(&(verb, hash)).copied();
        let place = known.or_else(|| {
            let place = self.add(CallCount {
                kind: CallKind::Call,
                name: verb.name().to_owned(),
                stack: format!("{hash:x}"),
                frames: stack.with_files(),
                is_reliable: true,
                count: 0,
            })?;
            self.calls.insert((verb, hash), place);
            Some(place)
        });
        self.count(place, thread, if verb.queue().is_some() { call.object } else { 0 });
    }

    fn posted(&mut self, request: RequestKind, call: Call, thread: ThreadId) {
        let known = self.requests.get(&request).copied();
        let place = known.or_else(|| {
            let place = self.add(CallCount {
                kind: CallKind::Request,
                name: request.opcode.to_owned(),
                stack: String::new(),
                frames: Vec::new(),
                is_reliable: request.is_reliable,
                count: 0,
            })?;
            self.requests.insert(request, place);
            Some(place)
        });
        self.count(place, thread, call.object);
    }

    fn add(&mut self, line: CallCount) -> Option<usize> {
        if self.places.len() == MAX_COUNTED_PLACES {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                say(format_args!(
                    "{FILE_VARIABLE}: calls of more than {MAX_COUNTED_PLACES} places are not counted"
                ));
            });
            return None;
        }
        self.places.push(PlaceCount { line, written: 0 });
        Some(self.places.len() - 1)
    }

    /// How often this thread called from a place on this queue, with this call. `None`: more threads and queues have called than are counted.
    fn count_scope(&mut self, scope: (usize, ThreadId, usize)) -> Option<u64> {
        if self.scopes.len() == MAX_COUNT_SCOPES && !self.scopes.contains_key(&scope) {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                say(format_args!(
                    "{FILE_VARIABLE}: more than {MAX_COUNT_SCOPES} threads and queues of all places are not counted"
                ));
            });
            return None;
        }
        let count = self.scopes.entry(scope).or_default();
        *count += 1;
        Some(*count)
    }

    /// Counts one more of a place, by this thread and on this queue.
    fn count(&mut self, place: Option<usize>, thread: ThreadId, queue: usize) {
        let Some(index) = place else { return };
        let Some(count) = self.count_scope((index, thread, queue)) else { return };
        let place = &mut self.places[index];
        if count <= place.line.count {
            return;
        }
        place.line.count = count;
        // A process that is killed has written each of its first calls, and half of its other ones at least.
        if count <= CALLS_WRITTEN_EACH || count.is_power_of_two() {
            place.write(&self.file);
        }
    }

    fn write_rest(&mut self) {
        for place in self.places.iter_mut().filter(|place| place.line.count != place.written) {
            place.write(&self.file);
        }
    }
}

impl PlaceCount {
    fn write(&mut self, file: &Path) {
        if let Err(error) = self.append(file) {
            static SAID: Once = Once::new();
            SAID.call_once(|| say(format_args!("{FILE_VARIABLE}: {}: {error}", file.display())));
        }
    }

    fn append(&mut self, file: &Path) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(&self.line)?;
        line.push(b'\n');
        // Opened anew: a program may close descriptors that it does not know.
        std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(&line)?;
        self.written = self.line.count;
        // The first line of a place has them.
        self.line.frames = Vec::new();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_checker::report::StackFrame;

    fn stack(offset: u64) -> CallStack {
        CallStack { frames: vec![StackFrame { module: "/p".into(), offset }] }
    }

    fn lines(counts: &CallCounts) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&counts.file).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn own() -> ThreadId {
        std::thread::current().id()
    }

    fn send(queue: usize) -> Call {
        Call { object: queue, ..Verb::PostSend.into() }
    }

    #[test]
    fn places_are_counted_and_the_last_count_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let mut counts = CallCounts::new(folder.path().join("calls"));
        for _ in 0..CALLS_WRITTEN_EACH + 3 {
            counts.called(send(1), own(), &stack(0x10));
        }
        counts.called(send(1), own(), &stack(0x20));
        let send_kind = RequestKind { opcode: "SEND", is_reliable: true };
        counts.posted(send_kind, send(1), own());
        let before = lines(&counts);
        counts.write_rest();
        let after = lines(&counts);
        assert_eq!(after.len(), before.len() + 1, "what is written is not written again");
        assert_eq!(before[0]["frames"][0]["offset"], 0x10);
        assert!(before[1].get("frames").is_none() && before[1]["stack"] == before[0]["stack"]);
        assert_eq!(after.last().unwrap()["count"], CALLS_WRITTEN_EACH + 3);
        let other = after.iter().find(|line| line["kind"] == "request").unwrap();
        assert_eq!((other["name"].as_str(), other["count"].as_u64()), (Some("SEND"), Some(1)));
        let stacks: std::collections::BTreeSet<_> =
            after.iter().filter_map(|line| line["stack"].as_str()).collect();
        assert_eq!(stacks.len(), 2);
    }

    #[test]
    fn threads_and_queues_are_counted_by_themselves() {
        let folder = tempfile::tempdir().unwrap();
        let mut counts = CallCounts::new(folder.path().join("calls"));
        let other = std::thread::spawn(own).join().unwrap();
        for (queue, thread) in [(1, own()), (2, own()), (1, other), (2, own())] {
            counts.called(send(queue), thread, &stack(0x10));
        }
        assert_eq!(counts.places[0].line.count, 2);
    }

    #[test]
    fn places_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut counts = CallCounts::new(folder.path().join("calls"));
        for offset in 0..MAX_COUNTED_PLACES as u64 + 2 {
            counts.called(Verb::AllocPd.into(), own(), &stack(offset));
        }
        assert_eq!(counts.places.len(), MAX_COUNTED_PLACES);
    }

    #[test]
    fn queues_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut counts = CallCounts::new(folder.path().join("calls"));
        for queue in 1..=MAX_COUNT_SCOPES + 2 {
            counts.called(send(queue), own(), &stack(0x10));
        }
        assert_eq!(counts.scopes.len(), MAX_COUNT_SCOPES);
        // A known one goes on counting.
        counts.called(send(1), own(), &stack(0x10));
        assert_eq!(counts.places[0].line.count, 2);
    }
}
