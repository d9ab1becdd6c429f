//! Incremental checkpoints of memory that peers write, too.

use crate::boundary::{Result, array, bytes, bytes_of, call, optional, path_of, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use crate::raw_memory::RawMemory;
use crate::remote::{pw_remote, remote_of};
use pagewire::{Node, RemoteRegion};
use pagewire_active::{Checkpoint, CheckpointKind, CheckpointOptions, LocalWrites, Memory, Restored, Saved};
use parking_lot::Mutex;
use std::ffi::{c_char, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

/// Checkpoints of memory of this process, in a file.
pub struct pw_checkpoint {
    _opaque: [u8; 0],
}

/// A file, and the memory that it is for.
pub struct OpenCheckpoint {
    node: Arc<Node>,
    memories: Vec<RawMemory>,
    checkpoint: Mutex<Checkpoint>,
}

impl Object for OpenCheckpoint {
    type Opaque = pw_checkpoint;
    const MARK: u64 = u64::from_be_bytes(*b"pw_check");
    const NAME: &str = "checkpoint";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenCheckpoint> = Places::new();
        &PLACES
    }
}

/// A checkpoint is on the disk when it is saved.
pub const PW_SYNC: u32 = 0;
/// It survives the process, but not the machine.
pub const PW_NO_SYNC: u32 = 1;

/// Whether checkpoints are on the disk when they are saved, as an argument says.
pub(crate) fn syncs_of(value: u32, name: &str) -> Result<bool> {
    match value {
        PW_SYNC => Ok(true),
        PW_NO_SYNC => Ok(false),
        _ => Err(Refusal::argument(format!("'{name}' is {value}: it must be PW_SYNC or PW_NO_SYNC"))),
    }
}

/// Each checkpoint is a full copy: the kernel does not say what this process writes.
pub const PW_FULL_COPIES: u32 = 0;
/// By soft-dirty bits. No thread of this process may write during a save: the next one could miss it.
pub const PW_SOFT_DIRTY: u32 = 1;
/// By asynchronous write protection.
pub const PW_WRITE_PROTECT: u32 = 2;

/// Bytes of memory that a checkpoint can have, which are 16 TiB.
const MOST_BYTES: u64 = 1 << 44;

/// Memory that is saved and restored.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_memory {
    /// Its first byte.
    pub address: *mut c_void,
    /// Bytes of it.
    pub length: usize,
    /// Of exactly these bytes, by pw_export(): what peers write by it is saved. The checkpoint sets the attributes of its pages. NULL: no peer writes them.
    pub token: *const pw_token,
}

/// What was saved.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_saved {
    /// The number of the checkpoint, from 1 on: one more than that of the one before.
    pub number: u64,
    /// Pages of data in it.
    pub pages: u64,
    /// Whether it has all pages, and not only what has changed.
    pub is_full: bool,
}

/// What was restored.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_restored {
    /// The number of the checkpoint. 0: there is none, and nothing was changed.
    pub number: u64,
    /// Bytes of the note that was saved with it.
    pub note_length: u64,
}

/// Opens a file of checkpoints of some memory, and makes it if there is none. One process at a time has it open. *checkpoint is NULL after an error. The node
/// stays until the checkpoint is closed.
///
/// path: of the file. options: PW_SYNC or PW_NO_SYNC. memories: count of them, 1 or more: the same for each open of the file, in the same order. They are used by
/// saves and restores only.
///
/// PW_IN_USE; PW_FILE: it is no file of checkpoints of this version, or damaged; PW_SYSTEM: it cannot be opened, or the memory not be read; PW_LIMIT:
/// the memory has more than 16 TiB; PW_TOKEN; PW_ARGUMENT: also, a token names other bytes; as pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_open(
    node: *mut pw_node,
    path: *const c_char,
    options: u32,
    memories: *const pw_memory,
    count: usize,
    checkpoint: *mut *mut pw_checkpoint,
) -> pw_error {
    call(|| {
        let to = place(checkpoint, "checkpoint")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and a string (pagewire.h).
        let (node, path) = unsafe { (node_of(node)?, path_of(path, "path")?) };
        let syncs = syncs_of(options, "options")?;
        // SAFETY: so many of them (pagewire.h).
        let memories = unsafe { memories_of(node, memories, count) }?;
        let options = CheckpointOptions { syncs, ..CheckpointOptions::default() };
        let checkpoint = Mutex::new(Checkpoint::open_with(node, path, &options)?);
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(OpenCheckpoint { node: node.clone(), memories, checkpoint })) };
        Ok(())
    })
}

/// Closes the file; the pointer is not valid any more. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_close(checkpoint: *mut pw_checkpoint) -> pw_error {
    if checkpoint.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<OpenCheckpoint>(checkpoint) }.map(drop))
}

/// The numbers of the first and the last checkpoint that can be restored: *first and *last are 0 if there is none. *local_writes gets how writes of this process are
/// seen: PW_FULL_COPIES, PW_SOFT_DIRTY or PW_WRITE_PROTECT. Each may be NULL.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_numbers(
    checkpoint: *mut pw_checkpoint,
    first: *mut u64,
    last: *mut u64,
    local_writes: *mut u32,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let checkpoint = unsafe { object::<OpenCheckpoint>(checkpoint) }?.checkpoint.lock();
        let numbers = checkpoint.numbers().unwrap_or((0, 0));
        let method = match checkpoint.local_writes() {
            LocalWrites::None => PW_FULL_COPIES,
            LocalWrites::SoftDirty => PW_SOFT_DIRTY,
            LocalWrites::WriteProtect => PW_WRITE_PROTECT,
        };
        for (at, number, name) in [(first, numbers.0, "first"), (last, numbers.1, "last")] {
            if let Some(at) = optional(at, name)? {
                // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
                unsafe { at.write(number) };
            }
        }
        if let Some(to) = optional(local_writes, "local_writes")? {
            // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
            unsafe { to.write(method) };
        }
        Ok(())
    })
}

/// Saves the memory as one checkpoint, with a note of the program's own. It has what peers had put before the call, and what this process had written before. The
/// first one since pw_checkpoint_open() is full, unless the memory was restored.
///
/// note: length bytes, NULL if there are none. saved: gets what was saved; NULL if nobody asks.
///
/// PW_ARGUMENT: the file has other memory; PW_SYSTEM: the file could not be written, and the checkpoints before stay; PW_ENGINE: a token is of another node, or
/// was unexported; PW_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_save(
    checkpoint: *mut pw_checkpoint,
    note: *const c_void,
    length: usize,
    saved: *mut pw_saved,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, a note and a place (pagewire.h).
        unsafe {
            let open = object::<OpenCheckpoint>(checkpoint)?;
            let (note, to) = (bytes_of(note, length, "note")?, optional(saved, "saved")?);
            let saved = open.checkpoint.lock().save_all(&open.views(), note)?;
            write_saved(to, saved);
        }
        Ok(())
    })
}

/// Saves together with all processes of the job, each of which calls this with its own file: what a process has put before the call is in the checkpoint of
/// whom it has put to. When it returns, all have saved.
///
/// remotes: count of them, that this process puts to; NULL if there are none. Else as pw_checkpoint_save(). If any process has an error, all have one: then
/// pw_checkpoint_restore_together() before the next save. PW_JOB: another process could not save; as pw_flush_handled() and pw_barrier().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_save_together(
    checkpoint: *mut pw_checkpoint,
    remotes: *const *mut pw_remote,
    count: usize,
    note: *const c_void,
    length: usize,
    saved: *mut pw_saved,
) -> pw_error {
    call(|| {
        // SAFETY: pointers of this library, a note and a place (pagewire.h).
        unsafe {
            let open = object::<OpenCheckpoint>(checkpoint)?;
            let peers = remotes_of(remotes, count)?;
            let (note, to) = (bytes_of(note, length, "note")?, optional(saved, "saved")?);
            let saved = open.checkpoint.lock().save_together(&open.node, &peers, &open.views(), note)?;
            write_saved(to, saved);
        }
        Ok(())
    })
}

/// Restores the memory from a checkpoint. Nobody else may use it meanwhile. All data are compared with their checksums before anything is changed. Later
/// checkpoints are forgotten by the next save.
///
/// number: of the checkpoint, or 0 for the last one. note: gets the note, of which size bytes at most are copied; NULL if size is 0. restored: gets what was
/// restored; its number is 0 if there is no checkpoint yet.
///
/// PW_ARGUMENT: there is no such checkpoint, or the file has other memory; PW_FILE: it is damaged; PW_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_restore(
    checkpoint: *mut pw_checkpoint,
    number: u64,
    note: *mut c_void,
    size: usize,
    restored: *mut pw_restored,
) -> pw_error {
    // SAFETY: a pointer of this library, and places (pagewire.h).
    unsafe {
        restore(checkpoint, (note, size), restored, |open| {
            let mut checkpoint = open.checkpoint.lock();
            match (number, checkpoint.numbers()) {
                (0, None) => Ok(None),
                (0, Some((_, last))) => Ok(Some(checkpoint.restore_all(last, &open.views())?)),
                _ => Ok(Some(checkpoint.restore_all(number, &open.views())?)),
            }
        })
    }
}

/// Restores together with all processes of the job, each of which calls this, from the last checkpoint that all have. As pw_checkpoint_restore(), and PW_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_checkpoint_restore_together(
    checkpoint: *mut pw_checkpoint,
    note: *mut c_void,
    size: usize,
    restored: *mut pw_restored,
) -> pw_error {
    // SAFETY: a pointer of this library, and places (pagewire.h).
    unsafe {
        restore(checkpoint, (note, size), restored, |open| {
            Ok(open.checkpoint.lock().restore_together(&open.node, &open.views())?)
        })
    }
}

/// # Safety
/// A pointer of this library, and places.
unsafe fn restore(
    checkpoint: *mut pw_checkpoint,
    (note, size): (*mut c_void, usize),
    restored: *mut pw_restored,
    how: impl FnOnce(&OpenCheckpoint) -> Result<Option<Restored>>,
) -> pw_error {
    call(|| {
        // SAFETY: `checkpoint` is NULL or a live `pw_checkpoint`: pagewire.h lets nobody close it during the call; `object` checks the mark.
        let open = unsafe { object::<OpenCheckpoint>(checkpoint) }?;
        let (to, at) = (place(restored, "restored")?, bytes(note.cast(), size, "note")?);
        let (number, found) = how(open)?.map_or((0, Vec::new()), |found| (found.number, found.note));
        // SAFETY: the note has `size` bytes, and `restored` is the caller's place, aligned and not NULL.
        unsafe {
            at.as_ptr().copy_from(found.as_ptr(), found.len().min(size));
            to.write(pw_restored { number, note_length: found.len() as u64 });
        }
        Ok(())
    })
}

impl OpenCheckpoint {
    fn views(&self) -> Vec<&dyn Memory> {
        self.memories.iter().map(|memory| memory as &dyn Memory).collect()
    }
}

/// # Safety
/// The place is the caller's.
pub(crate) unsafe fn write_saved(to: Option<NonNull<pw_saved>>, saved: Saved) {
    let Saved { number, kind, pages } = saved;
    if let Some(to) = to {
        // SAFETY: the caller's promise; aligned and not NULL.
        unsafe { to.write(pw_saved { number, pages, is_full: kind == CheckpointKind::Full }) };
    }
}

/// # Safety
/// So many pointers of this library.
unsafe fn remotes_of<'r>(remotes: *const *mut pw_remote, count: usize) -> Result<Vec<&'r RemoteRegion>> {
    // SAFETY: `remotes` has `count` pointers that are valid for the call (pagewire.h); `array` checks NULL and alignment.
    let remotes = unsafe { array(remotes, count, "remotes") }?;
    // SAFETY: each element is NULL or a live `pw_remote`: pagewire.h lets nobody close one during the call; `object` checks its mark.
    remotes.iter().map(|remote| unsafe { remote_of(*remote) }).collect()
}

/// # Safety
/// So many of them.
pub(crate) unsafe fn memories_of(
    node: &Arc<Node>,
    memories: *const pw_memory,
    count: usize,
) -> Result<Vec<RawMemory>> {
    // SAFETY: `memories` has `count` elements that are valid for the call (pagewire.h); `array` checks NULL and alignment.
    let memories = unsafe { array(memories, count, "memories") }?;
    if memories.is_empty() {
        return Err(Refusal::argument("'count' is 0: there is no memory to save or to restore"));
    }
    let of = |memory: &pw_memory| {
        let pw_memory { address, length, token } = *memory;
        if address.is_null() || length == 0 {
            return Err(Refusal::argument(
                "memory has the address NULL, or no bytes: there is nothing to save",
            ));
        }
        // SAFETY: NULL, or a token (pagewire.h).
        let token = if token.is_null() { None } else { Some(unsafe { token_of(token) }?) };
        let memory = RawMemory::new(node, (address, length), token)?;
        if memory.bytes() > MOST_BYTES {
            let sentence = format!("memory of {length} bytes: a checkpoint has {MOST_BYTES} at most");
            return Err(Refusal::new(pw_error::PW_LIMIT, sentence));
        }
        // What is no memory would be found by a save, which first makes a bit for each page of it.
        memory.check_ends()?;
        Ok(memory)
    };
    memories.iter().map(of).collect()
}
