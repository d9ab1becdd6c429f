//! Nodes: this process as others of its job see it.

use crate::boundary::{Result, bytes, call, give, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::version;
use pagewire::Node;
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// This process as others of its job see it.
pub struct pw_node {
    _opaque: [u8; 0],
}

/// Applications of it hold it, too.
impl Object for Arc<Node> {
    type Opaque = pw_node;
    const MARK: u64 = u64::from_be_bytes(*b"pw_node!");
    const NAME: &str = "node";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<Arc<Node>> = Places::new();
        &PLACES
    }
}

/// Has nodes use the engine of the verbs: a process has one.
pub(crate) fn share_engine() {
    pagewire::set_engine_source(pagewire_verbs::shared_nic);
}

fn enter(header: u32, node: *mut *mut pw_node, make: impl FnOnce() -> pagewire::Result<Node>) -> pw_error {
    call(|| {
        let to = place(node, "node")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        version::check(header)?;
        share_engine();
        let made = make()?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(Arc::new(made))) };
        Ok(())
    })
}

/// pw_node_from_env() for other languages: header is the PW_VERSION that the caller was written for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_node_from_env_for(header: u32, node: *mut *mut pw_node) -> pw_error {
    enter(header, node, Node::from_env)
}

/// pw_node_alone() for other languages: header is the PW_VERSION that the caller was written for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_node_alone_for(header: u32, node: *mut *mut pw_node) -> pw_error {
    enter(header, node, Node::alone)
}

/// Leaves the job. All exports of the node end; when it returns, no access by their tokens is under way. What was started and has not ended
/// fails with PW_PEER_LOST. The pointer is not valid any more; remotes of the node are to be closed all the same.
///
/// PW_IN_USE: an application of it is open, as a mapped file, a hash table, access statistics, a checkpoint, a logged process, built-in handlers, batches, a parity, a member
/// of one, a part of the job, a global memory, a listener, a stream, a store or a client of stores: free that before.
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_node_leave(node: *mut pw_node) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let holders = Arc::strong_count(unsafe { object::<Arc<Node>>(node) }?);
        if holders > 1 {
            let sentence = "pw_node_leave: an application of the node is open, as a mapped file, a hash table, access statistics, a checkpoint, a logged process, built-in handlers, \
                batches, a parity, a member of one, a part of the job, a global memory, a listener, a stream, a store or a client of stores: free that before";
            return Err(Refusal::new(pw_error::PW_IN_USE, sentence));
        }
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<Arc<Node>>(node) }?);
        Ok(())
    })
}

/// The number of this process in its job, from 0 on. 0 too if the node is none: pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_rank(node: *const pw_node) -> usize {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<Arc<Node>>(node) }?.rank()), |_| 0)
}

/// Processes of the job, 1 or more. 0: the node is none, and pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_size(node: *const pw_node) -> usize {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<Arc<Node>>(node) }?.size()), |_| 0)
}

/// Waits until all processes of the job have called it, for PAGEWIRE_JOB_TIMEOUT seconds at most (300 by default). What was started may
/// still be under way: see pw_flush().
///
/// PW_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_barrier(node: *mut pw_node) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<Arc<Node>>(node) }?.barrier()?))
}

/// pw_barrier() for so many nanoseconds at most, or PW_FOREVER. 0 begins it, and looks.
///
/// PW_TIMEOUT: the barrier stays begun; for the other processes this one has come. The next pw_barrier() or pw_barrier_for() of this process is no new
/// barrier, but waits on for this one. Until it has ended, each other call of the job gives PW_UNFINISHED and does nothing. PAGEWIRE_JOB_TIMEOUT counts
/// from the beginning of the barrier, and ends it and the job. PW_JOB; PW_UNFINISHED: an all-gather is under way that was late.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_barrier_for(node: *mut pw_node, nanoseconds: u64) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<Arc<Node>>(node) }?.barrier_for(Duration::from_nanos(nanoseconds))?))
}

/// Gives size bytes to all processes of the job, and takes theirs: all gets size bytes of each, by rank. All processes call it with the same
/// size. It is for tokens and the like, not for bulk data.
///
/// mine: size bytes. all: size * pw_size(node) bytes. PW_JOB: a process is lost, or gave another count of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_all_gather(
    node: *mut pw_node,
    mine: *const c_void,
    size: usize,
    all: *mut c_void,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { object::<Arc<Node>>(node) }?;
        let gather = |mine: &[u8]| node.all_gather_bytes(mine);
        // SAFETY: `size` bytes at `mine`, and for each process at `all` (pagewire.h).
        unsafe { all_gather("pw_all_gather", node.size(), (mine, size, all), gather) }
    })
}

/// pw_all_gather() for so many nanoseconds at most, or PW_FOREVER.
///
/// PW_TIMEOUT: it stays begun, as pw_barrier_for() says, and is continued by a call with the same bytes. As pw_all_gather().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_all_gather_for(
    node: *mut pw_node,
    mine: *const c_void,
    size: usize,
    all: *mut c_void,
    nanoseconds: u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { object::<Arc<Node>>(node) }?;
        let gather = |mine: &[u8]| node.all_gather_bytes_for(mine, Duration::from_nanos(nanoseconds));
        // SAFETY: `size` bytes at `mine`, and for each process at `all` (pagewire.h).
        unsafe { all_gather("pw_all_gather_for", node.size(), (mine, size, all), gather) }
    })
}

/// Gathers `size` bytes of each process.
///
/// # Safety
/// `size` bytes at `mine`, and `size` for each process at `all`, which nobody else uses.
pub(crate) unsafe fn all_gather(
    name: &str,
    processes: usize,
    (mine, size, all): (*const c_void, usize, *mut c_void),
    gather: impl FnOnce(&[u8]) -> pagewire::Result<Vec<Vec<u8>>>,
) -> Result<()> {
    let from = bytes(mine.cast(), size, "mine")?;
    let to = bytes(all.cast(), size.saturating_mul(processes), "all")?;
    // SAFETY: `mine` has `size` bytes, valid for the call (pagewire.h), which are not written before `gather` has read them; `bytes` has checked NULL.
    let mine = unsafe { std::slice::from_raw_parts(from.as_ptr(), size) };
    let gathered = gather(mine)?;
    if let Some((rank, other)) = gathered.iter().enumerate().find(|(_, other)| other.len() != size) {
        return Err(other_length(name, rank, other.len(), size));
    }
    for (rank, bytes) in gathered.iter().enumerate() {
        // SAFETY: a job gives one entry for each of `processes`, of `size` bytes as checked, so the copy stays in the bytes of `all`.
        unsafe { to.as_ptr().add(rank * size).copy_from(bytes.as_ptr(), size) };
    }
    Ok(())
}

/// A descriptor that poll(2), select(2) or epoll(7) reports as readable while something of the node is ready: an operation, a conditional write or a release that
/// ended after this call and whose result was not taken, or something that a peer has opened. Read nothing from it, and do not close it: pw_wait(), pw_test(),
/// pw_wait_any() and pw_wait() of what that names, and pw_next_conditional_request() take what is ready, and make it unreadable. Signals are not among that, as peers
/// write them without any notice. It is valid until pw_node_leave().
///
/// descriptor: gets it, the same one each time. PW_SYSTEM: there is no descriptor left. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_node_descriptor(node: *mut pw_node, descriptor: *mut c_int) -> pw_error {
    call(|| {
        let to = place(descriptor, "descriptor")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { object::<Arc<Node>>(node) }?;
        let found = node.descriptor()?.as_raw_fd();
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(found) };
        Ok(())
    })
}

/// Gives size bytes of the process root to all. All processes call it with the same root and size.
///
/// data: size bytes, which are read at root and written elsewhere. PW_JOB: a process is lost, or root gave another count of bytes;
/// PW_ARGUMENT: there is no process root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_broadcast(
    node: *mut pw_node,
    root: usize,
    data: *mut c_void,
    size: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { object::<Arc<Node>>(node) }?;
        let place = bytes(data.cast::<u8>(), size, "data")?;
        if root >= node.size() {
            let size = node.size();
            return Err(Refusal::argument(format!("'root' is {root}, and ranks are 0 to {}", size - 1)));
        }
        let own: &[u8] = if root == node.rank() {
            // SAFETY: `data` has so many bytes (pagewire.h).
            unsafe { std::slice::from_raw_parts(place.as_ptr(), size) }
        } else {
            &[]
        };
        let given = node.broadcast(root, own)?;
        if given.len() != size {
            return Err(other_length("pw_broadcast", root, given.len(), size));
        }
        // SAFETY: `data` has so many bytes (pagewire.h), and nobody else uses them now.
        unsafe { place.as_ptr().copy_from(given.as_ptr(), size) };
        Ok(())
    })
}

/// Waits until everything that was started by this node before has ended, at all peers.
///
/// The first failure since the last flush of an operation whose result nobody asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_flush_all(node: *mut pw_node) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<Arc<Node>>(node) }?.flush()?))
}

/// Writes the path to the owner of a token, and why it is no better one, as a string to text. What is longer than size bytes is cut.
///
/// As pw_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_explain(
    node: *mut pw_node,
    token: *const pw_token,
    text: *mut c_char,
    size: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { object::<Arc<Node>>(node) }?;
        // SAFETY: a token, or NULL (pagewire.h).
        let token = unsafe { token_of(token) }?;
        let place = bytes(text.cast(), size, "text")?;
        if size == 0 {
            return Err(Refusal::argument("'size' is 0: there must be a byte for the end of the text"));
        }
        let text = node.explain(&token)?;
        let count = text.floor_boundary(size - 1);
        // SAFETY: `text` has `size` bytes (pagewire.h), and `count` is less.
        unsafe {
            place.as_ptr().copy_from(text.as_ptr(), count);
            place.as_ptr().add(count).write(0);
        }
        Ok(())
    })
}

/// Where a text may be cut.
trait FloorBoundary {
    fn floor_boundary(&self, most: usize) -> usize;
}

impl FloorBoundary for String {
    fn floor_boundary(&self, most: usize) -> usize {
        (0..=most.min(self.len())).rev().find(|count| self.is_char_boundary(*count)).unwrap_or(0)
    }
}

pub(crate) fn other_length(call: &str, rank: usize, theirs: usize, own: usize) -> Refusal {
    Refusal::new(
        pw_error::PW_JOB,
        format!(
            "{call}: process {rank} gave {theirs} bytes, and this process expects {own}: call it with one size everywhere"
        ),
    )
}

/// The node behind a pointer.
///
/// # Safety
/// As for [`object`].
pub(crate) unsafe fn node_of<'a>(node: *const pw_node) -> Result<&'a Arc<Node>> {
    // SAFETY: `node` is NULL or a live `pw_node` that nobody leaves while the reference is used, as pagewire.h says; `object` checks the mark.
    unsafe { object::<Arc<Node>>(node) }
}
