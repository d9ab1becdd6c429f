//! How an access ends: it is made, it waits, or it is refused.

use pagewire_iommu::AccessRefusal;
use pagewire_memory::MemoryError;
use pagewire_transport::Reason;

/// Why an access is never made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Key, bounds, rights or protection domain.
    Region(AccessRefusal),
    /// Nothing is mapped there, though the key is valid.
    NotMapped,
    /// The peer has ended, or has ended its queue pair.
    PeerGone,
    /// This process cannot read or write the peer's memory: the key is invalid, nothing is mapped there, or only its owner can access it.
    PeerUnreadable,
    /// The source has damaged its ring of the owner's access log, which is read no more.
    LogDamaged,
    /// The memory maps no file that it could be written to, or the kernel could not write it.
    NotSynced,
    /// The path does not permit it.
    NoRemoteAccess,
}

/// An access that is not made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessError {
    Wait(Reason),
    Refused(Cause),
}

/// How an access, or a step of one, ends.
pub type AccessResult<T> = Result<T, AccessError>;

impl From<AccessRefusal> for AccessError {
    fn from(refusal: AccessRefusal) -> Self {
        AccessError::Refused(Cause::Region(refusal))
    }
}

impl From<MemoryError> for AccessError {
    fn from(error: MemoryError) -> Self {
        AccessError::Refused(match error {
            MemoryError::NotMapped => Cause::NotMapped,
            MemoryError::PeerNotMapped | MemoryError::PeerDenied => Cause::PeerUnreadable,
            MemoryError::PeerGone => Cause::PeerGone,
        })
    }
}
