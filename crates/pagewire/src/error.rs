//! What can go wrong, and at which side.

use crate::bootstrap::JobError;
use crate::regions::token::TokenError;
use pagewire_fabric::{Explained, shortage};
use pagewire_heap::HeapError;
use pagewire_nic::AttributeError;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The result of most calls.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// fn run() -> pagewire::Result<()> {
///     pagewire::Node::alone()?.barrier()
/// }
/// run()?;
/// # Ok(())
/// # }
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. `Debug` prints the same sentence as `Display`, as a `main` that returns the error does.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::Node;
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// match table.get(16) {
///     Err(pagewire::Error::Range { offset: 128, count: 8, length: 128 }) => {}
///     other => panic!("{other:?}"),
/// }
/// println!("{}", table.get(16).unwrap_err()); // bytes 128 to 136 are not inside the region, which has 128
/// # Ok(())
/// # }
/// ```
#[derive(thiserror::Error)]
pub enum Error {
    /// An operation was not done.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The job could not be joined, or an operation of all its processes failed.
    #[error(transparent)]
    Job(JobError),
    /// Bytes that should be a token are none.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The node that a token names could not be connected to.
    #[error("cannot connect to the node at {node}: {why}")]
    Connect { node: SocketAddr, why: String },
    /// The range is not inside the region.
    #[error("bytes {offset} to {} are not inside the region, which has {length}", offset.saturating_add(*count))]
    Range { offset: u64, count: u64, length: u64 },
    /// The offset does not fit the type: a multiple of `align` is needed.
    #[error("offset {offset} is not a multiple of {align}, which this access needs")]
    Alignment { offset: u64, align: u64 },
    /// What was waited for did not happen in time.
    #[error("{what} did not happen within {after:?}")]
    Timeout { what: &'static str, after: Duration },
    /// A bound of [`limits`](crate::limits) is reached.
    #[error("no more than {most} {what} are possible")]
    Limit { what: &'static str, most: usize },
    /// Attributes cannot be set for these pages.
    #[error("attributes of pages: {0}")]
    Attributes(AttributeError),
    /// An argument is none that the call takes, whatever the state of things.
    #[error("{what}: {why}")]
    Argument { what: &'static str, why: String },
    /// The engine refused.
    #[error("{what}: {}", engine_refusal(why))]
    Engine { what: &'static str, why: pagewire_nic::Error },
    /// The operating system refused.
    #[error("{what}: {}", Explained(why))]
    System { what: String, why: std::io::Error },
    /// This process was forked from the one that made the object. A forked child makes a node of its own.
    #[error("{FORKED}")]
    Forked,
    /// There is no memory for a region or a buffer.
    #[error("there is no memory for {}{}", wanted_bytes(*_0), memory_limit())]
    NoMemory(u64),
    /// The registered heap refused.
    #[error("{0}{hint}", hint = heap_hint(_0))]
    Heap(#[from] HeapError),
    /// No network device has the address.
    #[error("{0} is no address of a network device here that is up")]
    Address(IpAddr),
    /// The environment asks for something that cannot be.
    #[error("{variable} is {why}")]
    Environment { variable: &'static str, why: String },
}

/// What a forked child is told of an object of its parent.
const FORKED: &str =
    "this process was forked from the one that has the object, which stays the parent's: make a node here";

impl From<pagewire_nic::Forked> for Error {
    fn from(_: pagewire_nic::Forked) -> Self {
        Error::Forked
    }
}

impl From<JobError> for Error {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Forked => Error::Forked,
            error => Error::Job(error),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// How the one heap of a process is made larger, where its error speaks of options that this interface makes it with.
fn heap_hint(error: &HeapError) -> String {
    match error {
        HeapError::Exhausted { .. } => " (the registered heap of a process: PAGEWIRE_HEAP_RANGE)".to_owned(),
        HeapError::System { error, .. } => {
            shortage(error).map_or_else(String::new, |limit| format!(": {limit}"))
        }
        _ => String::new(),
    }
}

/// How many bytes were wanted; `u64::MAX` stands for a count that no address space has.
fn wanted_bytes(bytes: u64) -> String {
    match bytes {
        u64::MAX => "more bytes than an address space has".to_owned(),
        bytes => format!("{bytes} bytes"),
    }
}

/// Which limit keeps this process from memory, if one does.
fn memory_limit() -> String {
    let refused = std::io::Error::from_raw_os_error(libc::ENOMEM);
    shortage(&refused).map_or_else(String::new, |limit| format!(": {limit}"))
}

/// Why the engine refused, with the words of the operating system and the limit in the way if that is what refused.
fn engine_refusal(why: &pagewire_nic::Error) -> String {
    match why {
        pagewire_nic::Error::OperatingSystem(number) => {
            Explained(&std::io::Error::from_raw_os_error(*number)).to_string()
        }
        why => why.to_string(),
    }
}

/// Says what the engine was asked for when it refused.
pub(crate) fn refused(what: &'static str) -> impl FnOnce(pagewire_nic::Error) -> Error {
    move |why| Error::Engine { what, why }
}

/// Says what the operating system was asked for when it refused.
pub(crate) fn system<E: Into<std::io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
    move |why| Error::System { what: what.into(), why: why.into() }
}

/// What a refusal says of bytes that were moved.
fn landed_bytes(landed: u64) -> String {
    match landed {
        0 => String::new(),
        _ => format!(" (its first {landed} bytes had been moved)"),
    }
}

/// Which side of an operation refused it.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// use pagewire::{Failure, Side};
/// let failure = remote.put(128, vec![1u64]).wait().unwrap_err().failure;
/// assert!(matches!(failure, Failure::Refused { side: Side::Caller, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The process that called; nothing was sent.
    Caller,
    /// The owner of the memory. The request that was refused wrote nothing there; those of the same operation before it did.
    Target,
}

impl fmt::Display for Side {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Side::Caller => "refused before it was sent",
            Side::Target => "refused by the owner of the memory",
        })
    }
}

/// Which rule an operation breaks.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// use pagewire::{Failure, Rule};
/// let failure = remote.fetch_add(4, 1).wait().unwrap_err().failure;
/// assert!(matches!(failure, Failure::Refused { rule: Rule::Alignment { offset: 4 }, .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rule {
    /// It leaves the memory that the token names.
    #[error("bytes {offset} to {} are not inside the {length} bytes of the token", offset.saturating_add(*count))]
    Bounds { offset: u64, count: u64, length: u64 },
    /// The token does not give the right.
    #[error("the token does not give the right to {0}")]
    Rights(&'static str),
    /// Atomics and signals act on aligned words of 8 bytes.
    #[error("offset {offset} is at no multiple of 8 bytes, which atomics and signals need")]
    Alignment { offset: u64 },
    /// Atomics of 4 bytes act on aligned ones.
    #[error("offset {offset} is at no multiple of 4 bytes, which atomics of 4 bytes need")]
    HalfAlignment { offset: u64 },
    /// An atomic of 4 bytes acts on the word of 8 that has them, of which the token names only a part.
    #[error(
        "the 4 bytes at {offset} are half of a word of 8, which is not inside the {length} bytes of the token: export memory that begins and ends at multiples of 8 bytes"
    )]
    HalfOutside { offset: u64, length: u64 },
    /// Pieces and buffer do not agree.
    #[error("the pieces have {pieces} bytes and the buffer {buffer}: make them equal")]
    Pieces { pieces: u64, buffer: u64 },
    /// One operation moves at most [`MAX_LENGTH`](crate::limits::MAX_LENGTH) bytes.
    #[error("{0} bytes are more than one operation moves: split it")]
    Length(u64),
    /// The owner does not know the key, or what it names has no such bytes or rights: the token was made up, its memory was
    /// unexported or freed.
    #[error(
        "the key of the token is not valid there: its memory was unexported or freed, its pages refuse such accesses, or the token was made up"
    )]
    Key,
    /// The memory is there no more, or cannot be accessed in this way; or the log of its accesses has [lost](Self::DamagedLog) records of this
    /// process.
    #[error(
        "the memory cannot be accessed there: it was unmapped, protected or truncated, or the ring of this process in its access log is damaged, which a flush of handlers says once"
    )]
    Memory,
    /// Handlers will not handle all that was put: something has written over records of this process in a log of the owner.
    #[error(
        "the ring of this process in an access log of the owner is damaged, and what was not handled there is lost: put it again, or have the owner make a new log"
    )]
    DamagedLog,
    /// A node holds one write of a tag to a peer, and keeps one release of it.
    #[error("tag {0} is in use with this peer: wait for its write, cancel it, or take another one")]
    TagInUse(u64),
    /// A bound of [`limits`](crate::limits) is reached.
    #[error("too many are under way: wait for some of them")]
    TooMany,
    /// The token of a release does not take the write.
    #[error(
        "the token of the release does not take the write: it must be of the releasing node, give the right to put, name at least as many bytes, and be exported still"
    )]
    Release,
    /// The buffer of the caller cannot be accessed.
    #[error("the caller's own buffer cannot be accessed")]
    Buffer,
}

/// Why an operation was not done.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// use pagewire::Failure;
/// match remote.put(128, vec![1u64]).wait() {
///     Err(error) if matches!(error.failure, Failure::Refused { .. }) => println!("{error}"),
///     Err(error) if matches!(error.failure, Failure::PeerLost { .. }) => println!("go on without it"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// A side refused it. Operations behind it go on. Of an operation of several requests (pieces, a signal behind its put), those before the
    /// refused one are done.
    #[error("{operation} on the region of {peer}: {side}: {rule}{}", landed_bytes(*landed))]
    Refused {
        operation: &'static str,
        peer: SocketAddr,
        side: Side,
        rule: Rule,
        /// Bytes of the operation, from the first on, that were moved before it was refused. More of them may have been, where memory went
        /// away in the middle of a copy.
        landed: u64,
    },
    /// The peer is gone, or cannot be reached. Whether the operation was done there is not known.
    #[error("{operation}: the peer at {peer} is lost: {why}")]
    PeerLost { operation: &'static str, peer: SocketAddr, why: String },
    /// It was cancelled, by this process or by the peer, and wrote nothing.
    #[error("{operation} with {peer} was cancelled")]
    Cancelled { operation: &'static str, peer: SocketAddr },
    /// What it waited for did not come in time, and it wrote nothing.
    #[error("{operation}: {waited_for} did not come in time")]
    TimedOut { operation: &'static str, waited_for: &'static str },
    /// The peer does not want it; `is_full`: or has no space for it. It wrote nothing.
    #[error("{operation} was declined by {peer}{}", if *is_full { ", which has too many of them" } else { "" })]
    Declined { operation: &'static str, peer: SocketAddr, is_full: bool },
    /// This process was forked from the one that has the region, the node or the operation. Nothing was done.
    #[error("{operation}: {FORKED}")]
    Forked { operation: &'static str },
    /// The engine gave up for a reason that this interface should not cause.
    #[error("{operation} on the region of {peer} ended with {status}")]
    Unexpected { operation: &'static str, peer: SocketAddr, status: String },
}

/// An operation that was not done, and its buffer.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let error = remote.put(128, vec![1u64]).wait().unwrap_err();
/// println!("{error}"); // put on the region of ...: refused before it was sent: bytes 128 to 136 are not inside ...
/// let buffer = error.buffer;
/// remote.put(120, buffer).wait()?;
/// # Ok(())
/// # }
/// ```
pub struct OperationError<B> {
    /// The buffer, as it came. That of a get may hold part of what was asked for.
    pub buffer: B,
    /// Why.
    pub failure: Failure,
}

impl<B> fmt::Debug for OperationError<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, formatter)
    }
}

impl<B> fmt::Display for OperationError<B> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.failure, formatter)
    }
}

impl<B> std::error::Error for OperationError<B> {}

impl<B> From<OperationError<B>> for Error {
    fn from(error: OperationError<B>) -> Self {
        Error::Failed(error.failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_refusal_names_limit() {
        let said = refused("a queue pair")(pagewire_nic::Error::OperatingSystem(libc::EMFILE)).to_string();
        for part in ["a queue pair: ", "Too many open files", " files open: raise that (ulimit -n 1024"] {
            assert!(said.contains(part), "{part} is missing in: {said}");
        }
        let said = refused("a queue pair")(pagewire_nic::Error::Busy("in use")).to_string();
        assert_eq!(said, "a queue pair: busy: in use");
    }

    #[test]
    fn memory_that_no_process_can_have_is_no_number() {
        let said = Error::NoMemory(u64::MAX).to_string();
        assert!(said.starts_with("there is no memory for more bytes than an address space has"), "{said}");
        assert!(Error::NoMemory(7).to_string().starts_with("there is no memory for 7 bytes"));
    }
}
