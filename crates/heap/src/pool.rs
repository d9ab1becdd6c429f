//! Reservations without a heap. mimalloc never forgets an arena, and its threads may keep pointers into one, so a heap that ends
//! leaves its addresses mapped, without pages, to the next heap of the same size.

use crate::error::{HeapError, Result};
use crate::fork;
use crate::operation;
use crate::options::HeapOptions;
use crate::presence::{GONE, SHARED, UNUSED};
use crate::range::Backing;
use crate::small;
use crate::space::Space;
use parking_lot::Mutex;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::atomic::Ordering;

static UNUSED_SPACES: Mutex<Vec<&'static Space>> = Mutex::new(Vec::new());

/// A reservation for a heap that begins, mapped and ready.
pub fn take(options: &HeapOptions) -> Result<&'static Space> {
    let _operation = operation::enter();
    let space = find(options.range)?;
    match begin(space, options) {
        Ok(()) => Ok(space),
        Err(error) => {
            space.presence.store(UNUSED, Ordering::Release);
            UNUSED_SPACES.lock().push(space);
            Err(error)
        }
    }
}

fn find(length: usize) -> Result<&'static Space> {
    let mut unused = UNUSED_SPACES.lock();
    // Those of a parent are gone.
    unused.retain(|space| space.presence.load(Ordering::Acquire) == UNUSED);
    if let Some(index) = unused.iter().position(|space| space.range.length == length) {
        return Ok(unused.swap_remove(index));
    }
    drop(unused);
    let space: &'static Space = Box::leak(Box::new(Space::new(length)?));
    fork::watch(space)?;
    Ok(space)
}

fn begin(space: &'static Space, options: &HeapOptions) -> Result<()> {
    let file = space.range.make_file()?;
    for part in space.parts_of_file() {
        // SAFETY: the reservation has no heap, so nobody uses its pages.
        unsafe { space.range.map_file(&file, part)? };
    }
    space.configure(options);
    space.arenas.make_heaps()?;
    space.file.store(file.into_raw_fd(), Ordering::Release);
    space.presence.store(SHARED, Ordering::Release);
    Ok(())
}

/// Takes the reservation of a heap that ends, and gives its pages back to the system.
///
/// # Safety
/// Nobody uses objects of the heap, now or later.
pub unsafe fn give(space: &'static Space) {
    let _operation = operation::enter();
    let Ok(backing) = space.backing() else { return };
    // SAFETY: the caller's promise.
    unsafe { space.arenas.destroy_heaps() };
    small::collect(space);
    space.forget_objects();
    match backing {
        Backing::File => {
            if let Err(error) = empty(space) {
                // Its pages stay until the process ends. Nobody can be told from a destructor.
                let _: HeapError = error;
                space.presence.store(GONE, Ordering::Release);
                return;
            }
            space.presence.store(UNUSED, Ordering::Release);
            UNUSED_SPACES.lock().push(space);
        }
        // A copy in a child ends with it: there is no second one.
        Backing::Private => {
            for part in space.parts_of_file() {
                // SAFETY: no object is left.
                let _ = unsafe { crate::range::give_back(part.start, part.len(), Backing::Private) };
            }
            space.presence.store(GONE, Ordering::Release);
        }
    }
}

/// Maps an empty file in place of the heap's: threads of mimalloc may still look at their old pages, and find zeros.
fn empty(space: &Space) -> Result<()> {
    let empty = space.range.make_file()?;
    for part in space.parts_of_file() {
        // SAFETY: no object is left.
        unsafe { space.range.map_file(&empty, part)? };
    }
    let file = space.file.swap(-1, Ordering::AcqRel);
    debug_assert!(file >= 0 && file != empty.as_raw_fd());
    // SAFETY: the descriptor was stored by `begin`, and nobody borrows it from a heap that ends.
    drop(unsafe { OwnedFd::from_raw_fd(file) });
    Ok(())
}
