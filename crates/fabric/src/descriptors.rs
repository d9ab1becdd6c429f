//! Descriptors of the engine. A forked child closes its copies at once, so that the parent's claims (names,
//! ports, connections) end with the parent, and steering counts each socket once.

use pagewire_memory::{Uncancelled, above_low_numbers, fork};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each descriptor of the engine. Higher numbers than these are not closed in children; they are
/// close-on-exec like all.
static ENGINE: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
static REGISTERED: Once = Once::new();

/// A descriptor that a forked child does not keep.
#[derive(Debug)]
pub struct Descriptor {
    inner: ManuallyDrop<OwnedFd>,
    generation: u64,
}

impl Descriptor {
    /// Takes a descriptor over.
    ///
    /// # Errors
    /// Those of [`above_low_numbers`].
    pub fn new(inner: OwnedFd) -> io::Result<Self> {
        let inner = above_low_numbers(inner)?;
        // The generation's own handler runs first, so that the child knows itself to be one.
        let generation = fork::generation();
        REGISTERED.call_once(|| {
            // SAFETY: `close_in_child` only swaps atomics and calls close(2): async-signal-safe.
            let failed = unsafe { libc::pthread_atfork(None, None, Some(close_in_child)) };
            // Only ENOMEM exists; a child that keeps the sockets would break the parent.
            assert_eq!(failed, 0, "no memory for the fork handler");
        });
        if let Some((word, bit)) = place(inner.as_raw_fd()) {
            word.fetch_or(bit, Ordering::AcqRel);
        }
        Ok(Descriptor { inner: ManuallyDrop::new(inner), generation })
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return;
        }
        if let Some((word, bit)) = place(self.inner.as_raw_fd()) {
            word.fetch_and(!bit, Ordering::AcqRel);
        }
        let _uncancelled = Uncancelled::begin();
        // SAFETY: dropped once, here; in a child, where the number may name another file by now, not at all.
        unsafe { ManuallyDrop::drop(&mut self.inner) };
    }
}

fn place(descriptor: RawFd) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(descriptor).ok()?;
    Some((ENGINE.get(number / 64)?, 1 << (number % 64)))
}

unsafe extern "C" fn close_in_child() {
    let _uncancelled = Uncancelled::begin();
    for (index, word) in ENGINE.iter().enumerate() {
        let mut bits = word.swap(0, Ordering::AcqRel);
        while bits != 0 {
            let number = index * 64 + bits.trailing_zeros() as usize;
            // SAFETY: the child's copy of a descriptor that its parent's engine owned; nothing in the child uses it,
            // since the engine there is dead (`HostFabric::is_forked_child`).
            unsafe { libc::close(number as RawFd) };
            bits &= bits - 1;
        }
    }
}
