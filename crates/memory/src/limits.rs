//! Bounds of this crate.

/// Bytes that one system call copies at most, so that a big copy holds no kernel lock for long.
pub const PIECE: usize = 1 << 20;
/// Pieces of memory that one system call is given at most (the kernel's own bound is 1,024): they lie on the program's stack, which
/// may be a small one.
pub const IO_VECTORS: usize = 16;
/// Arenas of one process.
pub const ARENAS: usize = 256;
/// Bytes of the largest arena.
pub const ARENA_BYTES: usize = 1 << 20;
/// Bytes of a thread's scratch memory.
pub const SCRATCH_BYTES: usize = 16 << 10;
/// Copies up to this many bytes go through the scratch memory: two copies and a cheap system call cost less than
/// one expensive system call. Measured by `benches/copies.rs`.
pub const SCRATCH_COPY: usize = SCRATCH_BYTES;
/// Bytes at the end of a message that become visible last.
pub const TAIL: u64 = 8;
/// Pages that are remembered as resident, and as many blocks of them.
pub const REMEMBERED_PAGES: usize = 4096;
/// Pages of a block.
pub const BLOCK_PAGES: u64 = 16;
/// Pages of a range that is remembered page by page, too.
pub const SHORT_PAGES: u64 = 4 * BLOCK_PAGES;
/// Longest range in blocks that is remembered: a quarter of what there is room for.
pub const REMEMBERED_BLOCKS: u64 = REMEMBERED_PAGES as u64 / 4;
/// Pages whose residency one system call asks for; a byte of the stack for each.
pub const RESIDENCY_PAGES: usize = 256;
/// Times that a page which the kernel cannot reach is touched in user mode before one place of a copy is given up: it may
/// leave again before the kernel comes back to it.
pub const TOUCHES: u32 = 16;

/// Nanoseconds for which it is believed what kinds of memory a process has where, at least.
pub const LEAST_KNOWLEDGE: u64 = 100_000_000;

/// Nanoseconds for which it is believed what kinds of memory a process has where, at most.
pub const MOST_KNOWLEDGE: u64 = 2_000_000_000;

/// Between these, in times of what it took to ask.
pub const SHARE_OF_LEARNING: u64 = 100;

/// Nanoseconds for which what was learnt of this process's own memory is believed after that: whether somebody watches it is asked
/// at each access, and other changes cost a wait.
pub const OWN_GRACE: u64 = 1_000_000_000;

/// Bytes of a block of a peer's memory whose pages are looked at together.
pub const PEER_BLOCK: u64 = 2 << 20;

/// For 2^27 nanoseconds at most a peer's pages that were present are believed to be still there.
pub const BELIEVED_BITS: u32 = 27;

/// Bytes of a peer's memory from which on one page of what is believed to be present is looked at each time: if all of it has gone, the
/// transfer takes twice as long with one thread, and a look a hundredth of what it takes at best.
pub const SAMPLED: u64 = 256 << 10;

/// Pages of which one look into pagemap tells; eight bytes of the stack for each, which may be a small one.
pub const PAGEMAP_ENTRIES: usize = 128;

/// Descriptors of peers' pagemaps that are kept open.
pub const PAGEMAPS_KEPT: usize = 256;

/// Bytes of own memory that are brought in before it is looked whether they are still wanted, where that takes little time.
pub const BROUGHT_IN_AT_ONCE: u64 = 64 << 10;

/// Pages of another process that one system call touches at most.
pub const TOUCH_BATCH: usize = 16;

/// Pages from which on it is cheaper to bring them in by one system call than to touch each.
pub const POPULATED_PAGES: u64 = 3;

/// Nanoseconds after the beginning of a piece for which a thread that brings it in is said to want a processor: 64 KiB take less from compressed memory.
pub const LONGEST_WORK: u64 = 10_000_000;

/// Bytes of the memory that reads as zeros, and of the memory that is a sink: of the longest message.
pub const NULL_PAGES: usize = 1 << 31;

/// Bytes of memory that stand behind the whole sink.
pub const SINK_PAGES: usize = 16 << 20;
