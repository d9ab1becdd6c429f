//! Bounds of the C ABI; those of the objects are in `pagewire_nic::limits`.

/// Scatter-gather elements of one work request, as an array length.
pub const MAX_SEGMENTS: usize = pagewire_nic::limits::MAX_SEGMENTS as usize;
/// Completion vectors of a context: all completion events come from one NIC thread.
pub const COMPLETION_VECTORS: i32 = 1;
/// Bytes of device memory that a process may allocate: `max_dm_size`.
pub const MAX_DEVICE_MEMORY: usize = 64 << 20;
/// Readers that wait to be answered.
pub const EXPLAIN_BACKLOG: i32 = 8;
/// Milliseconds for which the files of devices are those that were found at a look at the network devices.
pub const TREE_MILLISECONDS: u64 = 1000;
/// Directory streams of such files that a process has open.
pub const MAX_STREAMS: usize = 1024;
/// uverbs devices for which the kernel keeps minor numbers (its `IB_UVERBS_NUM_FIXED_MINOR`).
pub const FIXED_UVERBS: u32 = 32;
/// Bytes taken from a file in sysfs or procfs.
pub const MAX_SYSTEM_FILE: u64 = 1 << 20;
/// Bytes of a file of sysfs whose content is one value.
pub const MAX_SMALL_FILE: usize = 1 << 16;
/// Queue pairs that are gone and of which the statistics still tell.
pub const MAX_ENDED_CONNECTIONS: usize = 1024;
/// Milliseconds that the end of a process waits for a thread that starts the engine, or just looks at it.
pub const EXIT_PATIENCE_MILLISECONDS: u64 = 100;
/// Events that wait at a channel of the connection manager when a program may write no more to itself.
pub const MAX_WAITING_EVENTS: usize = 1 << 16;
/// IDs of the connection manager that a process tells of.
pub const MAX_REPORTED_IDS: usize = 1024;
/// Threads and queues of all places together that `PAGEWIRE_CALLS` counts by themselves.
pub const MAX_COUNT_SCOPES: usize = 1 << 16;
/// Places of a program whose calls `PAGEWIRE_CALLS` counts.
pub const MAX_COUNTED_PLACES: usize = 4096;
/// Calls of one place that are written one by one; later ones as their number doubles, and at exit.
pub const CALLS_WRITTEN_EACH: u64 = 32;
/// Blocks of 256 shared receive queues that a process has in one XRC domain which processes share.
pub const MAX_XRC_BLOCKS: usize = 64;
/// Connections of one process to others that share an XRC domain with it, in each direction.
pub const MAX_XRC_CONNECTIONS: usize = 1024;
