//! Batches: many small puts to one owner in one message, to a handler or to memory.

use crate::boundary::{Result, bytes_of, call, give, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::handler;
use crate::node::{node_of, pw_node};
use crate::raw_memory::RawMemory;
use pagewire::Node;
use pagewire_active::{BATCH_ADDRESS_LEN, Batch, BatchedPut, Batches, MAX_BATCHED};
use parking_lot::Mutex;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory of this process to which others put in batches.
pub struct pw_batches {
    _opaque: [u8; 0],
}

/// Puts to one owner that are collected.
pub struct pw_batch {
    _opaque: [u8; 0],
}

/// What handles batches, and its node, which stays until that ends.
pub struct ServedBatches {
    batches: Batches,
    _node: Arc<Node>,
}

impl Object for ServedBatches {
    type Opaque = pw_batches;
    const MARK: u64 = u64::from_be_bytes(*b"pw_batc!");
    const NAME: &str = "owner of batches";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<ServedBatches> = Places::new();
        &PLACES
    }
}

/// A batch, and the node that it was opened by, which stays until it is closed.
pub struct OpenBatch {
    batch: Mutex<Batch>,
    _node: Arc<Node>,
}

impl Object for OpenBatch {
    type Opaque = pw_batch;
    const MARK: u64 = u64::from_be_bytes(*b"pw_batch");
    const NAME: &str = "batch";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenBatch> = Places::new();
        &PLACES
    }
}

/// Bytes of a put of a batch at most. A longer one is an ordinary put.
pub const PW_MOST_BATCHED: usize = 31984;

const _: () = assert!(PW_MOST_BATCHED == MAX_BATCHED);

/// A put, as a handler gets it: one of a batch, or a single one. A single one of more than 64 KiB comes in parts.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_batched_put {
    /// What it writes.
    pub data: *const c_void,
    /// Bytes of it.
    pub length: usize,
    /// Where it goes to, in bytes from the beginning of the memory. It lies inside.
    pub offset: u64,
    /// Where it goes to in this process. memcpy(address, data, length) has it reach memory.
    pub address: *mut c_void,
    /// Who puts: as in pw_access.
    pub source: u64,
}

/// A function that handles puts of batches. context is what was given along with it. The put is valid until it returns.
///
/// It may do what a pw_handler may, and says by pw_handler_failed() that it has failed: the put counts as failed, and the next one is handled.
pub type pw_batch_handler = Option<unsafe extern "C" fn(context: *mut c_void, put: *const pw_batched_put)>;

/// What has come in batches.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_batch_counts {
    /// Messages.
    pub messages: u64,
    /// Puts in them.
    pub puts: u64,
    /// Messages that were refused: they were none, or had a put outside of the memory. Nothing of them was done.
    pub malformed: u64,
    /// Puts that were not done, those of batches and single ones: the handler has failed, or the memory cannot be accessed.
    pub failed: u64,
}

/// Bytes of an address of batches.
pub const PW_BATCH_ADDRESS_SIZE: usize = 66;

/// By which others put in batches: plain bytes, to be sent by any means. Who holds them may put.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pw_batch_address {
    /// Opaque.
    pub bytes: [u8; PW_BATCH_ADDRESS_SIZE],
}

const _: () = assert!(PW_BATCH_ADDRESS_SIZE == BATCH_ADDRESS_LEN);

/// A function of C for puts, with its context.
struct PutHandler {
    function: unsafe extern "C" fn(*mut c_void, *const pw_batched_put),
    context: *mut c_void,
}

// SAFETY: an address; who gave it has promised that the function takes it in a thread of the library (pagewire.h).
unsafe impl Send for PutHandler {}

impl PutHandler {
    fn handle(&self, put: BatchedPut<'_>) {
        let of_c = pw_batched_put {
            data: put.bytes().as_ptr().cast(),
            length: put.bytes().len(),
            offset: put.offset(),
            address: std::ptr::with_exposed_provenance_mut(put.address() as usize),
            source: put.source(),
        };
        // SAFETY: the function takes the context in a thread of the library (pagewire.h); the put lives until it has returned.
        if !handler::run(put.source(), || unsafe { (self.function)(self.context, &raw const of_c) }) {
            handler::unwind();
        }
    }
}

/// Has the puts of batches reach length bytes at address, any memory of this process, by a thread of the library. Single puts reach it as ever, and may overtake a
/// batch that was not flushed. *batches is NULL after an error. The memory and the node stay until pw_batches_end().
///
/// PW_ARGUMENT; PW_SYSTEM: the memory cannot be accessed; PW_NO_MEMORY, PW_HEAP; as pw_log_make(), as it takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batches_to_memory(
    node: *mut pw_node,
    address: *mut c_void,
    length: usize,
    batches: *mut *mut pw_batches,
) -> pw_error {
    // SAFETY: a pointer of this library, and a place (pagewire.h).
    unsafe {
        serve(node, batches, |node| {
            let memory = RawMemory::new(node, (address, length), None)?;
            memory.check_ends()?;
            Ok(Batches::to_memory(node, &Arc::new(memory))?)
        })
    }
}

/// Redirects the puts by a token of pw_export() to a handler, which a thread of the library calls: those of batches and single ones, each caller's in their order.
/// Nothing reaches memory but what the handler copies there. This sets the attributes of all pages of the token (pw_set_attributes); behind pw_batches_end() they
/// are ordinary ones. *batches is NULL after an error. The memory and the node stay until pw_batches_end().
///
/// context: is given to the handler. PW_ARGUMENT, PW_TOKEN; PW_ENGINE: the token is of another node, or was unexported, or as pw_log_make(), as it takes a log;
/// PW_NO_MEMORY, PW_HEAP, PW_SYSTEM.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batches_redirect(
    node: *mut pw_node,
    token: *const pw_token,
    handler: pw_batch_handler,
    context: *mut c_void,
    batches: *mut *mut pw_batches,
) -> pw_error {
    // SAFETY: a pointer of this library, and a place (pagewire.h).
    unsafe {
        serve(node, batches, |node| {
            let memory = RawMemory::of_token(node, token_of(token)?)?;
            let function = handler.ok_or_else(|| Refusal::argument("'handler' is NULL"))?;
            let handler = PutHandler { function, context };
            Ok(Batches::redirect(node, &Arc::new(memory), move |put| handler.handle(put))?)
        })
    }
}

/// # Safety
/// A pointer of this library, and a place for the result, or NULL.
unsafe fn serve(
    node: *mut pw_node,
    batches: *mut *mut pw_batches,
    start: impl FnOnce(&Arc<Node>) -> Result<Batches>,
) -> pw_error {
    call(|| {
        let to = place(batches, "batches")?;
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: `node` is NULL or a live `pw_node`: pagewire.h lets nobody leave it during the call; `object` checks NULL and the mark.
        let node = unsafe { node_of(node) }?;
        let served = ServedBatches { batches: start(node)?, _node: node.clone() };
        // SAFETY: the caller's place for the result, aligned and not NULL.
        unsafe { to.write(hand_out(served)) };
        Ok(())
    })
}

/// Handles no batches any more, when the handler has returned; the pointer is not valid any more. Callers get PW_KEY or PW_PEER_LOST, and what they have not flushed
/// may be lost. NULL: nothing is done.
///
/// PW_HANDLE; PW_IN_HANDLER: its handler calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batches_end(batches: *mut pw_batches) -> pw_error {
    if batches.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        if unsafe { object::<ServedBatches>(batches) }?.batches.is_in_handler() {
            let sentence = "pw_batches_end: a handler cannot end its own batches";
            return Err(Refusal::new(pw_error::PW_IN_HANDLER, sentence));
        }
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<ServedBatches>(batches) }?);
        Ok(())
    })
}

/// Gives the address by which others put in batches.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batches_address(
    batches: *mut pw_batches,
    address: *mut pw_batch_address,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let served = unsafe { object::<ServedBatches>(batches) }?;
        let to = place(address, "address")?;
        let mut bytes = [0; PW_BATCH_ADDRESS_SIZE];
        bytes.copy_from_slice(&served.batches.address());
        // SAFETY: the caller's place (pagewire.h).
        unsafe { to.write(pw_batch_address { bytes }) };
        Ok(())
    })
}

/// What has come in batches so far.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batches_counts(
    batches: *mut pw_batches,
    counts: *mut pw_batch_counts,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let served = unsafe { object::<ServedBatches>(batches) }?;
        let to = place(counts, "counts")?;
        let now = served.batches.counts();
        let counts = pw_batch_counts {
            messages: now.messages,
            puts: now.puts,
            malformed: now.malformed,
            failed: now.failed,
        };
        // SAFETY: the caller's place (pagewire.h), aligned and not NULL.
        unsafe { to.write(counts) };
        Ok(())
    })
}

/// Opens the memory that an address names for batches. *batch is NULL after an error. Calls of several threads wait for each other. The node stays until
/// pw_batch_close().
///
/// PW_TOKEN: it is no address; PW_ARGUMENT; as pw_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_open(
    node: *mut pw_node,
    address: *const pw_batch_address,
    batch: *mut *mut pw_batch,
) -> pw_error {
    call(|| {
        let to = place(batch, "batch")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let at = place(address.cast_mut(), "address")?;
        // SAFETY: an address (pagewire.h), aligned and not NULL.
        let opened = Batch::open(node, &unsafe { at.read() }.bytes)?;
        let opened = OpenBatch { batch: Mutex::new(opened), _node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(opened)) };
        Ok(())
    })
}

/// Sends what the batch has, and closes it; the pointer is not valid any more. Nobody learns whether that arrives: pw_batch_wait() before. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_close(batch: *mut pw_batch) -> pw_error {
    if batch.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<OpenBatch>(batch) }.map(drop))
}

/// # Safety
/// As for [`object`].
unsafe fn with<R>(batch: *mut pw_batch, work: impl FnOnce(&mut Batch) -> Result<R>) -> Result<R> {
    // SAFETY: `batch` is NULL or a live `pw_batch`: pagewire.h lets nobody close it during the call, so the lock outlives `work`.
    work(&mut unsafe { object::<OpenBatch>(batch) }?.batch.lock())
}

/// Adds a put of length bytes, PW_MOST_BATCHED at most. If the message is full, it is sent first; that waits where 16 are under way. No bytes: nothing is done.
///
/// data: is copied. PW_BOUNDS: they are not inside the memory; PW_LIMIT: they are too many; PW_ARGUMENT; as pw_put(): a message before did not arrive, and its puts
/// were not made, or nobody knows. The put is not in the batch then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_put(
    batch: *mut pw_batch,
    offset: u64,
    data: *const c_void,
    length: usize,
) -> pw_error {
    call(|| {
        // SAFETY: so many bytes (pagewire.h).
        let data = unsafe { bytes_of(data, length, "data") }?;
        // SAFETY: a pointer of this library (pagewire.h).
        unsafe { with(batch, |batch| Ok(batch.put(offset, data)?)) }
    })
}

/// Sends what was added. It waits only where 16 messages are under way.
///
/// PW_HANDLE; as pw_put(): a message before did not arrive, and its puts were not made, or nobody knows. What was added is sent all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_send(batch: *mut pw_batch) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| unsafe { with(batch, |batch| Ok(batch.send()?)) })
}

/// Sends what was added, and waits until all messages are in the owner's log. The owner's death loses them from there.
///
/// As pw_batch_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_wait(batch: *mut pw_batch) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| unsafe { with(batch, |batch| Ok(batch.wait()?)) })
}

/// As pw_batch_wait(), and until the owner has handled all of them: what they were to write is in memory then. A handler must not wait so for itself.
///
/// As pw_batch_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_flush_handled(batch: *mut pw_batch) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| unsafe { with(batch, |batch| Ok(batch.flush_handled()?)) })
}

/// Puts that were added and not sent yet. 0 too if it is no batch: pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_unsent(batch: *mut pw_batch) -> usize {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| unsafe { with(batch, |batch| Ok(batch.unsent())) }, |_| 0)
}

/// Bytes of the memory that puts go to. 0: it is no batch, and pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_batch_length(batch: *mut pw_batch) -> u64 {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| unsafe { with(batch, |batch| Ok(batch.length())) }, |_| 0)
}
