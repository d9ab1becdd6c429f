//! The objects of a program: what each is, and what the rules want to know of it.

use strum::IntoStaticStr;

/// A kind of object that a program makes and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, IntoStaticStr)]
pub enum ObjectKind {
    #[strum(serialize = "context")]
    Context,
    #[strum(serialize = "completion channel")]
    CompletionChannel,
    #[strum(serialize = "protection domain")]
    ProtectionDomain,
    #[strum(serialize = "thread domain")]
    ThreadDomain,
    #[strum(serialize = "memory region")]
    MemoryRegion,
    #[strum(serialize = "memory window")]
    MemoryWindow,
    #[strum(serialize = "device memory")]
    DeviceMemory,
    #[strum(serialize = "completion counter")]
    CompletionCounter,
    #[strum(serialize = "completion queue")]
    CompletionQueue,
    #[strum(serialize = "shared receive queue")]
    SharedReceiveQueue,
    #[strum(serialize = "XRC domain")]
    XrcDomain,
    #[strum(serialize = "queue pair")]
    QueuePair,
    #[strum(serialize = "address handle")]
    AddressHandle,
}

impl ObjectKind {
    /// Its name in English.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An object that a call made.
#[derive(Debug)]
pub struct NewObject<S> {
    pub kind: ObjectKind,
    pub verb: &'static str,
    /// The address of the context that it belongs to; its own, of a context.
    pub context: usize,
    pub place: S,
    pub details: Details,
}

/// What the rules want to know of an object.
#[derive(Debug)]
pub enum Details {
    None,
    Region(RegionDetails),
    /// Entries of a completion queue, and whether it may be overrun.
    CompletionQueue {
        entries: u32,
        ignores_overrun: bool,
    },
    QueuePair(QueuePairDetails),
}

/// Keys of a region, and the bytes that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionDetails {
    pub lkey: u32,
    pub rkey: u32,
    pub address: u64,
    pub length: u64,
    /// The address by which requests name its first byte.
    pub iova: u64,
}

/// What a queue pair was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairDetails {
    pub number: u32,
    /// The address of the completion queue of its send requests.
    pub send_cq: usize,
    /// The address of its shared receive queue; 0: it has none.
    pub srq: usize,
    pub max_send_wr: u32,
    pub signals_all: bool,
}

/// An object that has ended.
#[derive(Debug, Clone)]
pub struct EndedObject<S> {
    pub kind: ObjectKind,
    pub verb: &'static str,
    pub place: S,
}
