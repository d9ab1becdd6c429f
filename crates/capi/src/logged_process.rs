//! Processes whose puts and gets are logged, so that any one of them may die and repeat its work.

use crate::boundary::{Result, bytes, bytes_of, call, give, optional, path_of, place};
use crate::checkpoint::syncs_of;
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use crate::table::PW_ABSENT;
use pagewire_active::{LoggedProcess, LoggedProcessOptions, Ticket};
use parking_lot::Mutex;
use std::ffi::{c_char, c_void};

/// A process of several, each of which has memory that the others put to and get from, and any one of which may die.
///
/// Its program must repeat its work when it begins again from a checkpoint: what it does depends on its memory, its note and what it gets, and on nothing else.
/// It reads what others put only behind pw_logged_process_next_epoch(). Calls of several threads wait for each other.
pub struct pw_logged_process {
    _opaque: [u8; 0],
}

/// A process, and the note of the checkpoint that it was restored from.
pub struct OpenProcess {
    process: Mutex<LoggedProcess>,
    note: Option<Vec<u8>>,
}

impl Object for OpenProcess {
    type Opaque = pw_logged_process;
    const MARK: u64 = u64::from_be_bytes(*b"pw_proce");
    const NAME: &str = "process";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenProcess> = Places::new();
        &PLACES
    }
}

/// Processes that can log each other.
const MOST_PROCESSES: usize = 4096;

/// How a process begins.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_logged_process_options {
    /// Its number, less than size.
    pub rank: usize,
    /// Processes, 4096 at most.
    pub size: usize,
    /// Bytes of its memory.
    pub bytes: usize,
    /// Bytes of each log: of puts to each other process, and of gets of it, between two of its checkpoints. 0: 1 MiB.
    pub log_bytes: usize,
    /// PW_SYNC or PW_NO_SYNC.
    pub checkpoints: u32,
}

/// Bytes of a ticket.
pub const PW_TICKET_SIZE: usize = 232;

/// What one process gives another one, so that it may put to it and get from it: plain bytes, to be sent by any means. It is for one process only.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_ticket {
    /// Opaque.
    pub bytes: [u8; PW_TICKET_SIZE],
}

const _: () = assert!(PW_TICKET_SIZE == Ticket::LEN);

/// Begins as a process of several. If the file has a checkpoint of it, that is restored: then pw_logged_process_note() gives its note, and the process connects all
/// others, calls pw_logged_process_replay(), and repeats its work from there. Else its memory is zeros. *process is NULL after an error. The node stays until the
/// process has ended.
///
/// path: of the file, which is made if there is none. PW_ARGUMENT; PW_IN_USE, PW_FILE, PW_SYSTEM: as pw_checkpoint_open(); PW_REPLAY: the file is of another
/// program; PW_NO_MEMORY, PW_HEAP; as pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_start(
    node: *mut pw_node,
    path: *const c_char,
    options: *const pw_logged_process_options,
    process: *mut *mut pw_logged_process,
) -> pw_error {
    call(|| {
        let to = place(process, "process")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and a string (pagewire.h).
        let (node, path) = unsafe { (node_of(node)?, path_of(path, "path")?) };
        let at = place(options.cast_mut(), "options")?;
        // SAFETY: options (pagewire.h), aligned and not NULL.
        let given = unsafe { at.read() };
        let pw_logged_process_options { rank, size, bytes, .. } = given;
        let options = options_of(given)?;
        let (started, note) = LoggedProcess::start(node, (rank, size), bytes, path, &options)?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(OpenProcess { process: Mutex::new(started), note })) };
        Ok(())
    })
}

fn options_of(given: pw_logged_process_options) -> Result<LoggedProcessOptions> {
    let pw_logged_process_options { rank, size, bytes, log_bytes, checkpoints } = given;
    let refuse = |sentence: String| Err(Refusal::argument(format!("'options' has {sentence}")));
    if size > MOST_PROCESSES || rank >= size {
        return refuse(format!(
            "rank {rank} of {size} processes: there are {MOST_PROCESSES} at most, and ranks begin at 0"
        ));
    }
    if bytes == 0 || isize::try_from(bytes).is_err() || isize::try_from(log_bytes).is_err() {
        return refuse(format!("{bytes} bytes of memory and {log_bytes} of each log, which cannot be"));
    }
    let mut options = LoggedProcessOptions::default();
    options.checkpoints.syncs = syncs_of(checkpoints, "checkpoints")?;
    if log_bytes > 0 {
        options.log_bytes = log_bytes;
    }
    Ok(options)
}

/// Ends a process; the pointer is not valid any more, and its memory is gone. What others had logged of it stays with them. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_end(process: *mut pw_logged_process) -> pw_error {
    if process.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<OpenProcess>(process) }.map(drop))
}

/// The memory of a process, until it has ended. What others put is there behind pw_logged_process_next_epoch(). NULL: the process is none, and pw_error_message() says
/// so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_memory(process: *mut pw_logged_process) -> *mut c_void {
    let memory = || {
        // SAFETY: a pointer of this library (pagewire.h).
        let address = unsafe { object::<OpenProcess>(process) }?.process.lock().memory().address();
        Ok(std::ptr::with_exposed_provenance_mut(address as usize))
    };
    give(memory, |_| std::ptr::null_mut())
}

/// The note of the checkpoint that the process was restored from. *length gets its bytes, or PW_ABSENT: it was not restored. A note of more than size bytes is
/// cut.
///
/// note: size bytes, NULL if size is 0. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_note(
    process: *mut pw_logged_process,
    note: *mut c_void,
    size: usize,
    length: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let open = unsafe { object::<OpenProcess>(process) }?;
        let (to, said) = (bytes(note.cast(), size, "note")?, place(length, "length")?);
        let kept = open.note.as_deref().unwrap_or_default();
        // SAFETY: the note has `size` bytes, and `length` is the caller's place (pagewire.h).
        unsafe {
            to.as_ptr().copy_from(kept.as_ptr(), kept.len().min(size));
            said.write(open.note.as_ref().map_or(PW_ABSENT, |note| note.len() as u64));
        }
        Ok(())
    })
}

/// # Safety
/// As for [`object`].
unsafe fn with<R>(
    process: *mut pw_logged_process,
    work: impl FnOnce(&mut LoggedProcess) -> Result<R>,
) -> Result<R> {
    // SAFETY: `process` is NULL or a live `pw_logged_process`: pagewire.h lets nobody free it during the call, so the lock outlives `work`.
    work(&mut unsafe { object::<OpenProcess>(process) }?.process.lock())
}

/// Makes a ticket for another process.
///
/// PW_ARGUMENT: there is no process of this rank; PW_ENGINE: there are too many exports.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_ticket(
    process: *mut pw_logged_process,
    peer: usize,
    ticket: *mut pw_ticket,
) -> pw_error {
    call(|| {
        let to = place(ticket, "ticket")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let made = unsafe { with(process, |process| Ok(process.ticket(peer)?)) }?.to_bytes();
        let bytes = made.try_into().unwrap_or([0; PW_TICKET_SIZE]);
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { to.write(pw_ticket { bytes }) };
        Ok(())
    })
}

/// Connects another process by the ticket that it has made for this one, once in its life. A process that takes the place of one that died makes its tickets when
/// it is replaying no more: what others had put meanwhile is put when they connect it.
///
/// PW_TOKEN: it is no ticket for this process; as pw_open(), pw_get() and pw_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_connect(
    process: *mut pw_logged_process,
    ticket: *const pw_ticket,
) -> pw_error {
    call(|| {
        let connect = |process: &mut _| {
            let at = place(ticket.cast_mut(), "ticket")?;
            // SAFETY: a ticket (pagewire.h), aligned and not NULL.
            let ticket = Ticket::from_bytes(&unsafe { at.read() }.bytes)?;
            Ok(LoggedProcess::connect(process, &ticket)?)
        };
        // SAFETY: a pointer of this library (pagewire.h).
        unsafe { with(process, connect) }
    })
}

/// Takes the logs of all others, of a process that was restored: what they had put, what gets had returned, and which puts had arrived.
///
/// PW_ARGUMENT: a process is not connected; PW_REPLAY: this one was not restored, or a log has lost a get; as pw_get().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_replay(process: *mut pw_logged_process) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| unsafe { with(process, |process| Ok(process.replay()?)) })
}

/// Whether the process is in an epoch that the others have left: there is no barrier to wait for, and nobody may put to it yet. False too if it is none:
/// pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_is_replaying(process: *mut pw_logged_process) -> bool {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| unsafe { with(process, |process| Ok(process.is_replaying())) }, |_| false)
}

/// A barrier of all processes has been passed: what they had put before is in the memory, in a replay, too. *epoch gets how many were passed; NULL if nobody asks.
///
/// PW_REPLAY: pw_logged_process_replay() was not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_next_epoch(
    process: *mut pw_logged_process,
    epoch: *mut u64,
) -> pw_error {
    call(|| {
        let to = optional(epoch, "epoch")?;
        let next = |process: &mut LoggedProcess| {
            process.next_epoch()?;
            Ok(process.epoch())
        };
        // SAFETY: a pointer of this library (pagewire.h).
        let now = unsafe { with(process, next) }?;
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
            unsafe { to.write(now) };
        }
        Ok(())
    })
}

/// Puts length bytes into the memory of another process, and logs them here first. In a replay, a put that had arrived is not made again.
///
/// PW_LIMIT: the log has no space, and the peer must save a checkpoint. PW_PEER_LOST and its like: the put is logged, and pw_logged_process_connect() makes it.
/// PW_BOUNDS; PW_ARGUMENT: the peer is not connected; PW_REPLAY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_put(
    process: *mut pw_logged_process,
    peer: usize,
    offset: u64,
    data: *const c_void,
    length: usize,
) -> pw_error {
    call(|| {
        // SAFETY: so many bytes (pagewire.h).
        let data = unsafe { bytes_of(data, length, "data") }?;
        // SAFETY: a pointer of this library (pagewire.h).
        unsafe { with(process, |process| Ok(process.put(peer, offset, data)?)) }
    })
}

/// Gets length bytes from the memory of another process, which logs them. In a replay they come from that log.
///
/// PW_LIMIT: the log has no space, and this process must save a checkpoint. PW_REPLAY: it does something else than before. PW_PEER_LOST and its like: the get
/// may be made again when another process is in the peer's place. PW_ARGUMENT: the peer is not connected; PW_BOUNDS.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_get(
    process: *mut pw_logged_process,
    peer: usize,
    offset: u64,
    data: *mut c_void,
    length: usize,
) -> pw_error {
    call(|| {
        let to = bytes(data.cast(), length, "data")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let got = unsafe { with(process, |process| Ok(process.get(peer, offset, length)?)) }?;
        // SAFETY: `data` has `length` bytes (pagewire.h), and nobody else uses them now.
        unsafe { to.as_ptr().copy_from(got.as_ptr(), got.len().min(length)) };
        Ok(())
    })
}

/// Saves the memory and a note, which says where the work is; then trims the logs of the others. No other process takes part.
///
/// note: length bytes, NULL if there are none. number: gets that of the checkpoint; NULL if nobody asks. PW_REPLAY: the process repeats its work still; as
/// pw_checkpoint_save().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_logged_process_checkpoint(
    process: *mut pw_logged_process,
    note: *const c_void,
    length: usize,
    number: *mut u64,
) -> pw_error {
    call(|| {
        let to = optional(number, "number")?;
        // SAFETY: so many bytes (pagewire.h).
        let note = unsafe { bytes_of(note, length, "note") }?;
        // SAFETY: a pointer of this library (pagewire.h).
        let saved = unsafe { with(process, |process| Ok(process.checkpoint(note)?)) }?;
        if let Some(to) = to {
            // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
            unsafe { to.write(saved) };
        }
        Ok(())
    })
}
