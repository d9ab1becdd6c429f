//! Bounds of what is watched and saved.

/// Processes with the same PID, in other PID namespaces, beside which one more can be asked.
pub const MAX_NAMESAKES: u32 = 4096;
/// Bytes of a region that is watched or saved at most: its table of attributes has 4 bytes a page, all of which are set.
pub const MAX_WATCHED_REGION: u64 = 1 << 36;
/// Pages whose accesses are counted one by one. What goes to others is counted in all.
pub const MAX_COUNTED_PAGES: usize = 1 << 20;
/// Pages of which reports tell, those with the most accesses first.
pub const MAX_HOT_PAGES: usize = 64;
/// Regions that cannot be watched, of which reports tell why.
pub const MAX_UNWATCHED: usize = 16;
/// Rings of the log behind the counts, two for each queue pair of a peer. One more waits until another one has ended.
pub const WATCH_SOURCES: usize = 4096;
/// Bytes of each ring.
pub const WATCH_RING: usize = 1 << 16;
/// Records of a queue pair at which the counting thread is woken.
pub const WATCH_THRESHOLD: u64 = 256;
/// Milliseconds that the counting thread sleeps at most.
pub const WATCH_MILLISECONDS: u64 = 50;
/// Regions that are saved at once. Each takes three descriptors, and programs mostly have a limit of 1,024.
pub const MAX_SAVED_REGIONS: usize = 128;
/// Files of regions that have ended that are kept, the youngest.
pub const MAX_ENDED_CHECKPOINTS: usize = 64;
/// Processes of one name and PID, in other PID namespaces or of earlier times, beside which one more has a folder.
pub const MAX_CHECKPOINT_FOLDERS: u32 = 4096;
/// Seconds that a process that ends waits for a checkpoint of another thread.
pub const CHECKPOINT_EXIT_SECONDS: u64 = 60;
/// Milliseconds for which a checkpoint reads what was logged before. Where that was more, all of the region counts as written.
pub const CHECKPOINT_CATCH_UP_MILLISECONDS: u64 = 10_000;
/// Milliseconds between two files of counts at least.
pub const SNAPSHOT_MILLISECONDS: u64 = 100;
/// So many times as long as the last file took, the next one is not written.
pub const SNAPSHOT_SHARE: u32 = 20;
/// Records between two looks whether such a file is due.
pub const SNAPSHOT_RECORDS: u32 = 1024;
/// Milliseconds that who asks for counts spends on what was not counted yet.
pub const WATCH_CATCH_UP_MILLISECONDS: u64 = 500;
/// Milliseconds that the end of a process waits for a thread that is just saving.
pub const EXIT_PATIENCE_MILLISECONDS: u64 = 100;
/// Seconds that the answer to one reader of a process's socket may take before it is cut off.
pub const ANSWER_TIMEOUT_SECONDS: u64 = 2;
