//! A few pages for each thread, in an arena: small copies to and from engine memory that is no arena go through it.

use crate::limits::SCRATCH_BYTES;
use crate::{Arena, fork};
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<Scratch> = const { RefCell::new(Scratch::None) };
}

enum Scratch {
    None,
    /// The kernel gave none; asked for again in the next generation only.
    Refused(u64),
    Page(u64, Arena),
}

/// Runs `work` with this thread's scratch memory of [`SCRATCH_BYTES`]. `None`: there is none (no memory, a thread that ends, or
/// the thread is at it already).
pub fn with<R>(work: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
    SCRATCH
        .try_with(|scratch| {
            let mut scratch = scratch.try_borrow_mut().ok()?;
            let generation = fork::generation();
            let fresh = match &*scratch {
                Scratch::None => false,
                Scratch::Refused(made) | Scratch::Page(made, _) => *made == generation,
            };
            if !fresh {
                *scratch = match Arena::spare(SCRATCH_BYTES) {
                    Ok(arena) => Scratch::Page(generation, arena),
                    // The slower way remains.
                    Err(_) => Scratch::Refused(generation),
                };
            }
            match &mut *scratch {
                Scratch::Page(_, arena) => Some(work(arena.bytes_mut())),
                Scratch::None | Scratch::Refused(_) => None,
            }
        })
        .ok()
        .flatten()
}
