//! Reservations without a heap. mimalloc never forgets an arena, and the end of a thread looks into every arena that the thread has
//! used. So a heap that ends leaves its addresses, its memory file and its arenas to the next heap of the same size.
//!
//! mimalloc 3.3.2 could destroy an arena's heap, but not while a thread that has used it ends (a race of `mi_heap_free_theaps` with
//! `mi_thread_theaps_done` on `theap->heap`).

use crate::error::Result;
use crate::options::HeapOptions;
use crate::presence::{GONE, SHARED, UNUSED};
use crate::range::Backing;
use crate::space::{self, HeapSpace};
use crate::{fork, operation, purger, small};
use parking_lot::Mutex;
use std::os::fd::IntoRawFd;
use std::sync::atomic::Ordering;

static UNUSED_SPACES: Mutex<Vec<&'static HeapSpace>> = Mutex::new(Vec::new());

/// A reservation for a heap that begins, mapped and ready.
pub fn take(options: &HeapOptions) -> Result<&'static HeapSpace> {
    let _operation = operation::enter();
    let space = find(options.range)?;
    match begin(space, options) {
        Ok(()) => Ok(space),
        Err(error) => {
            space.set_presence(UNUSED);
            UNUSED_SPACES.lock().push(space);
            Err(error)
        }
    }
}

fn find(length: usize) -> Result<&'static HeapSpace> {
    let mut unused = UNUSED_SPACES.lock();
    // Those of a parent are gone.
    unused.retain(|space| space.gate.presence.load(Ordering::Acquire) == UNUSED);
    if let Some(index) = unused.iter().position(|space| space.range.length == length) {
        return Ok(unused.swap_remove(index));
    }
    drop(unused);
    space::set_purger(purger::start);
    let space: &'static HeapSpace = Box::leak(Box::new(HeapSpace::new(length)?));
    fork::watch(space)?;
    Ok(space)
}

fn begin(space: &'static HeapSpace, options: &HeapOptions) -> Result<()> {
    if space.file.load(Ordering::Acquire) < 0 {
        let file = space.range.make_file()?;
        let whole = space.range.base..space.range.base + space.range.length;
        // SAFETY: the reservation is new, so nobody uses its pages.
        unsafe { space.range.map_file(&file, whole)? };
        space.file.store(file.into_raw_fd(), Ordering::Release);
    }
    space.configure(options);
    space.set_presence(SHARED);
    Ok(())
}

/// Takes the reservation of a heap that ends. Pages of freed objects and of all large objects go back to the system.
///
/// # Safety
/// Nobody uses objects of the heap, now or later.
pub unsafe fn give(space: &'static HeapSpace) {
    let _operation = operation::enter();
    let Ok(backing) = space.backing() else { return };
    small::collect(space);
    space.free_runs();
    space.purge_all();
    // A copy in a child ends with it: there is no second one.
    if backing == Backing::Private {
        space.set_presence(GONE);
        return;
    }
    space.set_presence(UNUSED);
    UNUSED_SPACES.lock().push(space);
}
