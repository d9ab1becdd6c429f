//! What a heap is made with.

use crate::limits::DEFAULT_RANGE;
use std::time::Duration;

/// What a heap is made with. `HeapOptions::default()` suits most programs.
///
/// ```
/// use pagewire_heap::HeapOptions;
/// let options = HeapOptions { range: 1 << 30, ceiling: Some(256 << 20), ..HeapOptions::default() };
/// ```
#[derive(Debug, Clone)]
pub struct HeapOptions {
    /// Bytes of addresses to reserve, a multiple of 32 MiB; 1 TiB. They take no memory, but count for `ulimit -v`.
    pub range: usize,
    /// Bytes that objects may take up at most, counted in units of 64 KiB; `None`: as many as the range has.
    pub ceiling: Option<usize>,
    /// Bytes of freed memory that stay resident, for the next objects; 64 MiB. See [`Heap::retain`](crate::Heap::retain).
    pub retain: usize,
    /// How long freed memory beyond that stays resident; 1 s. mimalloc waits 1 s itself before it gives small objects' units back. While small
    /// objects and freed memory take more than `retain`, a thread `pagewire-purge` looks as often as this says, at most 1 s apart.
    pub purge_delay: Duration,
    /// Whether a forked child gets a copy of the heap. See [`Heap::fork_copies`](crate::Heap::fork_copies).
    pub fork_copies: bool,
}

impl Default for HeapOptions {
    fn default() -> Self {
        HeapOptions {
            range: DEFAULT_RANGE,
            ceiling: None,
            retain: 64 << 20,
            purge_delay: Duration::from_secs(1),
            fork_copies: false,
        }
    }
}
