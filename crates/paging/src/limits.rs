//! Bounds of this crate.

/// Bytes of a page on the machines that Pagewire runs on (x86-64).
pub const PAGE: u64 = 4 << 10;

/// Bytes of a block (PART-5, PART-7: PI4 brings in its four pages).
pub const BLOCK: u64 = 16 << 10;

/// Bytes of the largest section that is brought in beyond what is needed (JBMT-4).
pub const LARGEST_SECTION: u64 = 1 << 20;

/// Bytes of the first one, where accesses turn out to follow each other.
pub const FIRST_SECTION: u64 = 64 << 10;

/// Times that memory was short from which on nothing is brought in beyond what is needed; the time before, sections are as long as four pages.
pub const SHORTAGES: u32 = 4;

/// Sections after which one of these times is forgotten.
pub const SECTIONS_OF_PLENTY: u32 = 16;

/// Bytes that are brought in at once where accesses follow each other: what the other side sends meanwhile has room in the socket.
pub const BEFORE_ACCESS: u64 = 64 << 10;

/// Threads that bring pages in. Each may wait without bound.
pub const THREADS: usize = 256;

/// Of these, for one matter at once (what one half of the queue pairs with a peer needs, or what is ahead of that; of what users' pagers give, one region):
/// whoever names pages that never come leaves the others theirs.
pub const THREADS_OF_ONE: usize = 16;

/// one tenant may have at most one in so many of the threads that are free, whatever it asks for, so that some always are: one alone may have 51.
pub const SHARE_OF_FREE_THREADS: usize = 4;

/// Tasks that wait for a thread.
pub const WAITING_TASKS: usize = 65_536;

/// Of these, for one tenant, whatever it asks for.
pub const WAITING_OF_TENANT: usize = WAITING_TASKS / 8;

/// Of these, for one matter: whoever names much memory that never comes leaves room to the others.
pub const WAITING_OF_ONE: usize = 2048;

/// Milliseconds without work after which a thread ends.
pub const IDLE: u64 = 500;

/// Powers of two, of nanoseconds, that a histogram tells apart: the last of them is 2^39, about nine minutes.
pub const BUCKETS: usize = 40;
