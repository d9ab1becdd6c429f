//! Why a call was refused.

/// `EIO` (Linux), for failures of the operating system that have no number.
const EIO: i32 = 5;

/// A refusal; each kind is one `errno` of the verbs' man pages, with what was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("invalid argument: {0}")]
    InvalidArgument(&'static str),
    #[error("busy: {0}")]
    Busy(&'static str),
    #[error("out of room: {0}")]
    NoMemory(&'static str),
    #[error("not supported: {0}")]
    NotSupported(&'static str),
    #[error("not found: {0}")]
    NotFound(&'static str),
    #[error("try again: {0}")]
    Again(&'static str),
    #[error("not permitted: {0}")]
    Permission(&'static str),
    #[error("bad address: {0}")]
    Fault(&'static str),
    /// The operating system refused; its error number.
    #[error("operating system error {0}")]
    OperatingSystem(i32),
}

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// This process was forked from the one that made the object, which stays the parent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this process was forked from the one that has the object, which stays the parent's")]
pub struct Forked;

impl Error {
    /// The `errno` value (Linux).
    pub fn errno(&self) -> i32 {
        match self {
            Error::Permission(_) => 1,
            Error::NotFound(_) => 2,
            Error::Again(_) => 11,
            Error::NoMemory(_) => 12,
            Error::Fault(_) => 14,
            Error::Busy(_) => 16,
            Error::InvalidArgument(_) => 22,
            Error::NotSupported(_) => 95,
            Error::OperatingSystem(number) => *number,
        }
    }
}

/// Refuses an argument: `what` is wrong with it, or was asked for in vain.
#[inline(always)]
pub fn invalid_if(wrong: bool, what: &'static str) -> Result<()> {
    if wrong { Err(Error::InvalidArgument(what)) } else { Ok(()) }
}

/// Refuses the end of an object that something else needs: `what` says by whom it is used.
pub fn busy_if(used: bool, what: &'static str) -> Result<()> {
    if used { Err(Error::Busy(what)) } else { Ok(()) }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind;
        match (error.raw_os_error(), error.kind()) {
            (Some(number), _) => Error::OperatingSystem(number),
            (None, ErrorKind::OutOfMemory | ErrorKind::AddrNotAvailable) => {
                Error::NoMemory("the host has no more of what is needed")
            }
            (None, _) => Error::OperatingSystem(EIO),
        }
    }
}
