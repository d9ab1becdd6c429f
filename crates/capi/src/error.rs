//! Codes of errors, and the sentence that each thread keeps of its last one.

use crate::language::{Language, in_language};
use pagewire::bootstrap::JobError;
use pagewire::{Error, Failure, OperationError, Rule};
use pagewire_active::{CheckpointError, LoggedProcessError, ParityError, SaveError};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};

/// What a call gives: 0, or why it was refused. pw_error_message() says more.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum pw_error {
    /// It was done.
    PW_OK = 0,
    /// The operation has not ended (pw_test), or one of the job that must end first (pw_barrier_for).
    PW_UNFINISHED = 1,
    /// An argument is NULL, or cannot be.
    PW_ARGUMENT = 2,
    /// The pointer is no such object, or the object was freed.
    PW_HANDLE = 3,
    /// The program was compiled with a header that the library does not serve.
    PW_VERSION_MISMATCH = 4,
    /// The bytes are not inside the memory that the token names.
    PW_BOUNDS = 5,
    /// The token does not give the right.
    PW_RIGHTS = 6,
    /// Atomics and signals need offsets and addresses that are multiples of 8; atomics of 4 bytes, of 4.
    PW_ALIGNMENT = 7,
    /// The pieces and the buffer have different lengths.
    PW_PIECES = 8,
    /// One operation moves at most 2 GiB.
    PW_LENGTH = 9,
    /// The owner does not know the key: the memory was unexported or freed. Or its pages refuse such accesses (pw_set_attributes).
    PW_KEY = 10,
    /// The memory was unmapped, protected or truncated at its owner.
    PW_MEMORY = 11,
    /// The caller's own buffer cannot be accessed.
    PW_BUFFER = 12,
    /// The peer is gone. Whether the operation was done is not known.
    PW_PEER_LOST = 13,
    /// The engine gave up for a reason that should not occur.
    PW_UNEXPECTED = 14,
    /// The job could not be joined, or one of its processes is lost.
    PW_JOB = 15,
    /// The bytes are no token.
    PW_TOKEN = 16,
    /// The node that a token names cannot be connected to.
    PW_CONNECT = 17,
    /// What was waited for did not happen in time.
    PW_TIMEOUT = 18,
    /// A documented bound is reached.
    PW_LIMIT = 19,
    /// The engine refused.
    PW_ENGINE = 20,
    /// The operating system refused.
    PW_SYSTEM = 21,
    /// This process was forked from the one that has the object. Each call on an object of the parent ends at once with it, and does
    /// nothing; so do those that free. A forked child makes a node of its own by pw_node_alone().
    PW_FORKED = 22,
    /// There is no memory.
    PW_NO_MEMORY = 23,
    /// The registered heap refused.
    PW_HEAP = 24,
    /// A variable of the environment has a value that cannot be.
    PW_ENVIRONMENT = 25,
    /// A defect of Pagewire.
    PW_DEFECT = 26,
    /// A conditional write was cancelled, and wrote nothing.
    PW_CANCELLED = 27,
    /// The peer does not want it, or has no space for it.
    PW_DECLINED = 28,
    /// The tag is in use with this peer.
    PW_TAG = 29,
    /// The token of a release does not take the write.
    PW_RELEASE = 30,
    /// A handler of the same log cannot make this call.
    PW_IN_HANDLER = 31,
    /// Something else uses it still, or has it open.
    PW_IN_USE = 32,
    /// The file is none of this kind and version, or is damaged.
    PW_FILE = 33,
    /// A process that is replayed does something else than before, or in another order, or a log has lost what it needs.
    PW_REPLAY = 34,
    /// The members of a parity have no round that is complete and whole, or one was begun anew.
    PW_PARITY = 35,
    /// Of pagewire_experimental.h. The stream has an end: the peer has closed it, this side sends no more, or a part is missing.
    PW_STREAM = 36,
    /// Of pagewire_experimental.h. Another transaction has won, and nothing of this one was done: start it again.
    PW_CONFLICT = 37,
    /// Of pagewire_experimental.h. The store that decides was lost: all of the transaction is done, or nothing.
    PW_UNDECIDED = 38,
}

/// Why a call is refused: what C programs get of it.
#[derive(Debug, Clone)]
pub struct Refusal {
    code: pw_error,
    sentence: String,
}

impl Refusal {
    pub fn new(code: pw_error, sentence: impl Into<String>) -> Self {
        Refusal { code, sentence: sentence.into() }
    }

    /// That of a forked child, for an object of its parent. `object`: what it is.
    pub fn forked(object: &str) -> Refusal {
        let sentence = format!(
            "this process was forked from the one that has the {object}, which stays the parent's: make one here"
        );
        Refusal::new(pw_error::PW_FORKED, sentence)
    }

    /// An argument cannot be.
    pub fn argument(sentence: impl Into<String>) -> Self {
        Refusal::new(pw_error::PW_ARGUMENT, sentence)
    }

    /// Keeps the sentence for this thread, and gives the code.
    pub fn record(self) -> pw_error {
        // A NUL would end the sentence; no sentence of ours has one, but names in the environment are the user's.
        let sentence = self.sentence.replace('\0', "?");
        // A thread that ends has nobody to read it.
        let _ = MESSAGE.try_with(|message| {
            message.replace(Message { sentence, texts: Default::default() });
        });
        self.code
    }
}

/// The last refusal of a thread.
#[derive(Default)]
struct Message {
    sentence: String,
    /// As each language has it that has asked.
    texts: [Option<CString>; Language::COUNT],
}

impl Message {
    fn text(&mut self, language: Language) -> *const c_char {
        let text = self.texts[language as usize]
            .get_or_insert_with(|| CString::new(in_language(&self.sentence, language)).unwrap_or_default());
        text.as_ptr()
    }
}

thread_local! {
    static MESSAGE: RefCell<Message> = RefCell::default();
}

/// For pw_error_message_for(): names of calls as C++ has them.
pub const PW_CPP: u32 = 1;
/// For pw_error_message_for(): names of calls as Python has them.
pub const PW_PYTHON: u32 = 2;

const _: () = assert!(PW_CPP == Language::Cpp as u32 && PW_PYTHON == Language::Python as u32);

/// The last refusal of a call of this thread, in a sentence: what was refused, by which side, by which rule. Empty: nothing was refused.
/// It is valid until the next call of this thread that is refused.
#[unsafe(no_mangle)]
pub extern "C" fn pw_error_message() -> *const c_char {
    message(Language::C)
}

/// As pw_error_message(), with the names of calls that another language has for them: PW_CPP or PW_PYTHON. It is for the packages of these languages.
#[unsafe(no_mangle)]
pub extern "C" fn pw_error_message_for(language: u32) -> *const c_char {
    message(match language {
        PW_CPP => Language::Cpp,
        PW_PYTHON => Language::Python,
        _ => Language::C,
    })
}

fn message(language: Language) -> *const c_char {
    let last = MESSAGE.try_with(|message| message.borrow_mut().text(language));
    last.unwrap_or(c"the thread ends".as_ptr())
}

/// The name of a code, as "PW_BOUNDS". It is static. A number that is no code: "unknown".
#[unsafe(no_mangle)]
pub extern "C" fn pw_error_name(code: i32) -> *const c_char {
    NAMES.get(code as usize).copied().unwrap_or(c"unknown").as_ptr()
}

/// Prints "what: " and the last sentence to the standard error output, and ends the process with status 1. what: may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_die(what: *const c_char) -> ! {
    // SAFETY: a string ends with a NUL (pagewire.h).
    let what = (!what.is_null()).then(|| unsafe { CStr::from_ptr(what) }.to_string_lossy());
    // SAFETY: the message is a string of this thread.
    let message = unsafe { CStr::from_ptr(pw_error_message()) }.to_string_lossy();
    let line = format!("{}: {message}\n", what.as_deref().unwrap_or("pagewire"));
    // Not by `eprintln!`: a thread that a forked child does not have may hold its lock. Whoever has closed the descriptor wants no line.
    // SAFETY: write(2) of so many bytes.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
    // SAFETY: exit(3) takes any number; handlers of the program run.
    unsafe { libc::exit(1) }
}

const NAMES: [&CStr; 39] = [
    c"PW_OK",
    c"PW_UNFINISHED",
    c"PW_ARGUMENT",
    c"PW_HANDLE",
    c"PW_VERSION_MISMATCH",
    c"PW_BOUNDS",
    c"PW_RIGHTS",
    c"PW_ALIGNMENT",
    c"PW_PIECES",
    c"PW_LENGTH",
    c"PW_KEY",
    c"PW_MEMORY",
    c"PW_BUFFER",
    c"PW_PEER_LOST",
    c"PW_UNEXPECTED",
    c"PW_JOB",
    c"PW_TOKEN",
    c"PW_CONNECT",
    c"PW_TIMEOUT",
    c"PW_LIMIT",
    c"PW_ENGINE",
    c"PW_SYSTEM",
    c"PW_FORKED",
    c"PW_NO_MEMORY",
    c"PW_HEAP",
    c"PW_ENVIRONMENT",
    c"PW_DEFECT",
    c"PW_CANCELLED",
    c"PW_DECLINED",
    c"PW_TAG",
    c"PW_RELEASE",
    c"PW_IN_HANDLER",
    c"PW_IN_USE",
    c"PW_FILE",
    c"PW_REPLAY",
    c"PW_PARITY",
    c"PW_STREAM",
    c"PW_CONFLICT",
    c"PW_UNDECIDED",
];

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Failed(failure) => of_failure(failure),
            Error::Job(JobError::BadVariable { .. } | JobError::MissingVariable { .. }) => {
                pw_error::PW_ENVIRONMENT
            }
            Error::Job(JobError::TimedOut { .. }) => pw_error::PW_TIMEOUT,
            Error::Job(JobError::Unfinished { .. }) => pw_error::PW_UNFINISHED,
            Error::Job(_) => pw_error::PW_JOB,
            Error::Token(_) => pw_error::PW_TOKEN,
            Error::Connect { .. } => pw_error::PW_CONNECT,
            Error::Range { .. } => pw_error::PW_BOUNDS,
            Error::Alignment { .. } => pw_error::PW_ALIGNMENT,
            Error::Attributes(_) => pw_error::PW_BOUNDS,
            Error::Argument { .. } => pw_error::PW_ARGUMENT,
            Error::Timeout { .. } => pw_error::PW_TIMEOUT,
            Error::Limit { .. } => pw_error::PW_LIMIT,
            Error::Engine { .. } => pw_error::PW_ENGINE,
            Error::System { .. } => pw_error::PW_SYSTEM,
            Error::Forked => pw_error::PW_FORKED,
            Error::NoMemory(_) => pw_error::PW_NO_MEMORY,
            Error::Heap(_) => pw_error::PW_HEAP,
            Error::Environment { .. } => pw_error::PW_ENVIRONMENT,
            Error::Address(_) => pw_error::PW_SYSTEM,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Refusal::new(of_failure(&failure), failure.to_string())
    }
}

impl<B> From<OperationError<B>> for Refusal {
    fn from(error: OperationError<B>) -> Self {
        error.failure.into()
    }
}

impl From<CheckpointError> for Refusal {
    fn from(error: CheckpointError) -> Self {
        let (code, sentence) = match error {
            CheckpointError::Pagewire(error) => return error.into(),
            CheckpointError::Save(error) => (of_save(&error), error.to_string()),
            CheckpointError::Others { .. } => (pw_error::PW_JOB, error.to_string()),
        };
        Refusal::new(code, sentence)
    }
}

/// Why memory was not saved, as a code.
pub fn of_save(error: &SaveError) -> pw_error {
    match error {
        SaveError::File { .. } | SaveError::Watch { .. } | SaveError::Memory(_) => pw_error::PW_SYSTEM,
        SaveError::Busy { .. } => pw_error::PW_IN_USE,
        SaveError::Foreign { .. } | SaveError::Damaged { .. } => pw_error::PW_FILE,
        SaveError::NoSuchNumber { .. } | SaveError::Regions { .. } => pw_error::PW_ARGUMENT,
        SaveError::Limit { .. } => pw_error::PW_LIMIT,
    }
}

impl From<LoggedProcessError> for Refusal {
    fn from(error: LoggedProcessError) -> Self {
        let code = match error {
            LoggedProcessError::Pagewire(error) => return error.into(),
            LoggedProcessError::Checkpoint(error) => return error.into(),
            LoggedProcessError::NotConnected { .. } => pw_error::PW_ARGUMENT,
            LoggedProcessError::Ticket { .. } => pw_error::PW_TOKEN,
            LoggedProcessError::Full { .. } => pw_error::PW_LIMIT,
            LoggedProcessError::Diverged { .. }
            | LoggedProcessError::Lost { .. }
            | LoggedProcessError::Unlogged { .. }
            | LoggedProcessError::Order(_) => pw_error::PW_REPLAY,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<ParityError> for Refusal {
    fn from(error: ParityError) -> Self {
        let code = match error {
            ParityError::Pagewire(error) => return error.into(),
            ParityError::Members { .. } | ParityError::NoMember { .. } | ParityError::Regions { .. } => {
                pw_error::PW_ARGUMENT
            }
            ParityError::Token { .. } | ParityError::NotOfMember { .. } | ParityError::Others { .. } => {
                pw_error::PW_TOKEN
            }
            ParityError::Length { .. } => pw_error::PW_LIMIT,
            ParityError::Timeout { .. } => pw_error::PW_TIMEOUT,
            ParityError::Incomplete { .. }
            | ParityError::BegunAnew { .. }
            | ParityError::Nothing
            | ParityError::Damaged { .. } => pw_error::PW_PARITY,
        };
        Refusal::new(code, error.to_string())
    }
}

impl From<pagewire_heap::HeapError> for Refusal {
    fn from(error: pagewire_heap::HeapError) -> Self {
        Error::Heap(error).into()
    }
}

fn of_failure(failure: &Failure) -> pw_error {
    match failure {
        Failure::Refused { rule, .. } => match rule {
            Rule::Bounds { .. } | Rule::HalfOutside { .. } => pw_error::PW_BOUNDS,
            Rule::Rights(_) => pw_error::PW_RIGHTS,
            Rule::Alignment { .. } | Rule::HalfAlignment { .. } => pw_error::PW_ALIGNMENT,
            Rule::Pieces { .. } => pw_error::PW_PIECES,
            Rule::Length(_) => pw_error::PW_LENGTH,
            Rule::Key => pw_error::PW_KEY,
            Rule::Memory | Rule::DamagedLog => pw_error::PW_MEMORY,
            Rule::Buffer => pw_error::PW_BUFFER,
            Rule::TagInUse(_) => pw_error::PW_TAG,
            Rule::TooMany => pw_error::PW_LIMIT,
            Rule::Release => pw_error::PW_RELEASE,
        },
        Failure::PeerLost { .. } => pw_error::PW_PEER_LOST,
        Failure::Forked { .. } => pw_error::PW_FORKED,
        Failure::Unexpected { .. } => pw_error::PW_UNEXPECTED,
        Failure::Cancelled { .. } => pw_error::PW_CANCELLED,
        Failure::TimedOut { .. } => pw_error::PW_TIMEOUT,
        Failure::Declined { .. } => pw_error::PW_DECLINED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> String {
        // SAFETY: the message is a string of this thread.
        unsafe { CStr::from_ptr(pw_error_message()) }.to_string_lossy().into_owned()
    }

    #[test]
    fn each_thread_has_the_sentence_of_its_last_refusal() {
        assert_eq!(message(), "");
        assert_eq!(Refusal::argument("the first\0rule").record(), pw_error::PW_ARGUMENT);
        std::thread::spawn(|| assert_eq!(message(), "")).join().unwrap();
        assert_eq!(message(), "the first?rule");
    }

    #[test]
    fn a_sentence_is_read_in_each_language() {
        Refusal::argument("set `HeapOptions::range`, or call `replay`").record();
        let read = |text: *const c_char| {
            // SAFETY: the message is a string of this thread.
            unsafe { CStr::from_ptr(text) }.to_str().unwrap()
        };
        let first = pw_error_message();
        assert_eq!(read(first), "set PAGEWIRE_HEAP_RANGE, or call pw_logged_process_replay()");
        assert_eq!(read(pw_error_message_for(PW_PYTHON)), "set PAGEWIRE_HEAP_RANGE, or call replay()");
        assert_eq!(pw_error_message(), first, "it stays until the next refusal");
        assert_eq!(pw_error_message_for(0), first);
    }

    #[test]
    fn names_stand_in_the_order_of_the_codes() {
        assert_eq!(NAMES.len(), pw_error::PW_UNDECIDED as usize + 1);
        for (code, name) in NAMES.iter().enumerate() {
            assert_eq!(pw_error_name(code as i32), name.as_ptr());
        }
        let codes = [pw_error::PW_OK, pw_error::PW_TIMEOUT, pw_error::PW_REPLAY, pw_error::PW_UNDECIDED];
        for code in codes {
            assert_eq!(NAMES[code as usize].to_str().unwrap(), format!("{code:?}"));
        }
        assert_eq!(pw_error_name(-1), pw_error_name(NAMES.len() as i32));
    }
}
