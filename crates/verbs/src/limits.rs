//! Bounds of the C ABI; those of the objects are in `pagewire_nic::limits`.

use pagewire_nic::device::LIMITS;

/// Scatter-gather elements of one work request, as an array length.
pub const MAX_SEGMENTS: usize = LIMITS.max_sge as usize;
/// Completion vectors of a context: all completion events come from one NIC thread.
pub const COMPLETION_VECTORS: i32 = 1;
/// Seconds that the answer to one reader of the explain socket may take before it is cut off.
pub const EXPLAIN_TIMEOUT_SECONDS: u64 = 2;
/// Processes with the same PID, in other PID namespaces, beside which one more can be asked.
pub const MAX_NAMESAKES: u32 = 4096;
/// Readers that wait to be answered.
pub const EXPLAIN_BACKLOG: i32 = 8;
/// Bytes taken from a file in sysfs or procfs.
pub const MAX_SYSTEM_FILE: u64 = 1 << 20;
/// Queue pairs that are gone and of which the statistics still tell.
pub const MAX_ENDED_CONNECTIONS: usize = 1024;
/// Milliseconds that the end of a process waits for a thread that starts the engine, or just looks at it.
pub const EXIT_PATIENCE_MILLISECONDS: u64 = 100;
