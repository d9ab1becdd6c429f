//! Conditional writes: posted before the peer's memory is known, and held until the peer releases them.

use crate::boundary::{Result, bytes, call, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use crate::operation::{Running, Started, WordPlace, hand_over, pw_operation};
use pagewire::raw::RawBuffer;
use pagewire::{Acceptance, ConditionalRequest, Direction, Peer};
use std::ffi::c_void;
use std::time::Duration;

/// Bytes of a peer.
pub const PW_PEER_SIZE: usize = 56;

/// Names the node of a process. It is plain bytes: send them by any means.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pw_peer {
    /// Opaque.
    pub bytes: [u8; PW_PEER_SIZE],
}

const _: () = assert!(PW_PEER_SIZE == Peer::LEN);

/// The data are the peer's: release them.
pub const PW_CONDITIONAL_WRITE: u32 = 0;
/// The peer waits for data of this process: write them.
pub const PW_CONDITIONAL_READ: u32 = 1;

/// What a peer has opened.
pub struct pw_conditional_request {
    _opaque: [u8; 0],
}

/// What there is to know of what a peer has opened.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pw_conditional_request_info {
    /// Who has opened it.
    pub peer: pw_peer,
    /// Couples it with its answer.
    pub tag: u64,
    /// In bytes: of the peer's data, or space for so many.
    pub length: u64,
    /// PW_CONDITIONAL_WRITE or PW_CONDITIONAL_READ.
    pub direction: u32,
}

impl Object for ConditionalRequest {
    type Opaque = pw_conditional_request;
    const MARK: u64 = u64::from_be_bytes(*b"pw_open!");
    const NAME: &str = "opening";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<ConditionalRequest> = Places::new();
        &PLACES
    }
}

/// # Safety
/// NULL, or a peer.
pub(crate) unsafe fn peer_of(peer: *const pw_peer) -> Result<Peer> {
    // SAFETY: `peer` is NULL or points to a `pw_peer` that is valid for the call (pagewire.h); its bytes are copied before that ends.
    let Some(peer) = (unsafe { peer.as_ref() }) else {
        return Err(Refusal::argument("the peer is NULL"));
    };
    Peer::from_bytes(&peer.bytes).map_err(|error| pagewire::Error::Token(error).into())
}

/// # Safety
/// NULL, or a place for a peer.
unsafe fn give_peer(peer: Peer, to: *mut pw_peer) -> Result<()> {
    let to = place(to, "peer")?;
    // SAFETY: the caller's promise; aligned and not NULL.
    unsafe { to.write(pw_peer { bytes: peer.to_bytes() }) };
    Ok(())
}

/// The node of a rank of the job, below pw_size().
///
/// PW_JOB: there is no such rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_peer_of_rank(node: *mut pw_node, rank: usize, peer: *mut pw_peer) -> pw_error {
    // SAFETY: a pointer of this library, and a place for a peer (pagewire.h).
    call(|| unsafe { give_peer(node_of(node)?.peer(rank)?, peer) })
}

/// This node, as others name it.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_identity(node: *mut pw_node, peer: *mut pw_peer) -> pw_error {
    // SAFETY: a pointer of this library, and a place for a peer (pagewire.h).
    call(|| unsafe { give_peer(node_of(node)?.identity(), peer) })
}

/// The node that made a token.
///
/// PW_TOKEN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_owner(token: *const pw_token, peer: *mut pw_peer) -> pw_error {
    // SAFETY: a token, and a place for a peer (pagewire.h).
    call(|| unsafe { give_peer(token_of(token)?.owner(), peer) })
}

/// Starts a conditional write of length bytes of buffer: sends a message to the peer, and holds the write until the peer accepts it. The buffer must stay,
/// and must not be changed, until the operation has ended. A node holds one write of a tag to each peer.
///
/// pw_wait() and pw_test() give its end: PW_OK: the bytes are visible at the peer; PW_CANCELLED; PW_TIMEOUT; PW_DECLINED; PW_RELEASE: the
/// token that it was released to does not take it; PW_PEER_LOST. operation: NULL if nobody asks.
///
/// PW_PEER_LOST: the peer cannot be connected to, or is no Pagewire; PW_TAG; PW_LENGTH; PW_LIMIT: nothing is held.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_conditional_write(
    node: *mut pw_node,
    peer: *const pw_peer,
    tag: u64,
    buffer: *const c_void,
    length: usize,
    operation: *mut *mut pw_operation,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a peer (pagewire.h).
        let (node, peer) = unsafe { (node_of(node)?, peer_of(peer)?) };
        let start = bytes(buffer.cast(), length, "buffer")?;
        // SAFETY: the buffer is the operation's until that has ended (pagewire.h).
        let buffer = unsafe { RawBuffer::new(start, length) };
        hand_over(Running::Held(node.conditional_write(peer, tag, buffer)?), operation)
    })
}

/// Cancels a conditional write, from any thread: when it returns, no byte will be written that was not released before. pw_wait() says how it
/// ended: PW_CANCELLED, or PW_OK if its release came first.
///
/// PW_ARGUMENT: the operation is no conditional write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_cancel(operation: *mut pw_operation) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let started = unsafe { object::<Started>(operation) }?;
        started.canceller.as_ref().ok_or_else(not_conditional)?.cancel();
        Ok(())
    })
}

/// Has a conditional write end with PW_TIMEOUT if its release has not come in so many nanoseconds, counted from now.
///
/// PW_ARGUMENT: the operation is no conditional write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_end_after(operation: *mut pw_operation, nanoseconds: u64) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let started = unsafe { object::<Started>(operation) }?;
        let canceller = started.canceller.as_ref().ok_or_else(not_conditional)?;
        canceller.end_after(Duration::from_nanos(nanoseconds));
        Ok(())
    })
}

fn not_conditional() -> Refusal {
    Refusal::argument("the operation is no conditional write (pw_conditional_write)")
}

/// Accepts the conditional write of a tag that a peer holds, or will hold: it goes to the first bytes of the token's memory, which must be of
/// this node. peer: NULL for whichever peer has opened one, or will first.
///
/// operation: ends with the write; NULL if nobody asks. pw_wait() gives PW_OK; PW_CANCELLED; PW_TIMEOUT: no write came within 60 s;
/// PW_RELEASE: the token does not take the write; PW_DECLINED: the peer keeps as many releases as it can; PW_PEER_LOST. written: gets the count of bytes with PW_OK; it must stay until then; NULL if
/// nobody asks.
///
/// PW_TAG: a release of the tag to this peer is under way; PW_TOKEN; PW_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_accept_conditional_write(
    node: *mut pw_node,
    peer: *const pw_peer,
    tag: u64,
    token: *const pw_token,
    written: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a token (pagewire.h).
        let (node, token) = unsafe { (node_of(node)?, token_of(token)?) };
        // SAFETY: NULL, or a peer (pagewire.h).
        let peer = if peer.is_null() { None } else { Some(unsafe { peer_of(peer) }?) };
        hand_over_release(written, operation, || match peer {
            Some(peer) => node.accept_conditional_write(peer, tag, &token),
            None => node.accept_any_conditional_write(tag, &token),
        })
    })
}

/// Releases, and gives C the release: the count of bytes goes to `written`, which is checked first.
pub(crate) fn hand_over_release(
    written: *mut u64,
    operation: *mut *mut pw_operation,
    release: impl FnOnce() -> pagewire::Result<Acceptance>,
) -> Result<()> {
    let written = WordPlace::new(written)?;
    hand_over(Running::Acceptance(release()?, written), operation)
}

/// Starts a conditional read: asks a peer for data, which come as its conditional write to the memory of the token. As pw_accept_conditional_write().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_conditional_read(
    node: *mut pw_node,
    peer: *const pw_peer,
    tag: u64,
    token: *const pw_token,
    written: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, a peer and a token (pagewire.h).
        let (node, peer, token) = unsafe { (node_of(node)?, peer_of(peer)?, token_of(token)?) };
        hand_over_release(written, operation, || node.conditional_read_into(peer, tag, &token))
    })
}

/// Waits for a conditional write or read that a peer opens, for so many nanoseconds at most (PW_FOREVER: without a bound). Each is given to one
/// caller. opening: gets what there is to know of it. opened: is answered by one of the three calls below, and freed by pw_conditional_request_free().
///
/// PW_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_next_conditional_request(
    node: *mut pw_node,
    nanoseconds: u64,
    opening: *mut pw_conditional_request_info,
    opened: *mut *mut pw_conditional_request,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let (about, to) = (place(opening, "opening")?, place(opened, "opened")?);
        let next = node.next_conditional_request(Duration::from_nanos(nanoseconds))?;
        let direction = match next.direction() {
            Direction::Write => PW_CONDITIONAL_WRITE,
            Direction::Read => PW_CONDITIONAL_READ,
        };
        let peer = pw_peer { bytes: next.peer().to_bytes() };
        // SAFETY: the caller's places (pagewire.h), aligned and not NULL.
        unsafe {
            about.write(pw_conditional_request_info {
                peer,
                tag: next.tag(),
                length: next.length(),
                direction,
            });
            to.write(hand_out(next));
        }
        Ok(())
    })
}

/// Has the peer write to the first bytes of the token's memory. As pw_accept_conditional_write().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_conditional_request_accept(
    opened: *mut pw_conditional_request,
    token: *const pw_token,
    written: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and a token (pagewire.h).
        let (opened, token) = unsafe { (object::<ConditionalRequest>(opened)?, token_of(token)?) };
        hand_over_release(written, operation, || opened.accept(&token))
    })
}

/// Writes length bytes of buffer to the memory that the peer has space in. As pw_conditional_write().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_conditional_request_supply(
    opened: *mut pw_conditional_request,
    buffer: *const c_void,
    length: usize,
    operation: *mut *mut pw_operation,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let opened = unsafe { object::<ConditionalRequest>(opened) }?;
        let start = bytes(buffer.cast(), length, "buffer")?;
        // SAFETY: the buffer is the operation's until that has ended (pagewire.h).
        let buffer = unsafe { RawBuffer::new(start, length) };
        hand_over(Running::Held(opened.supply(buffer)?), operation)
    })
}

/// Declines what the peer has opened, and frees the opening.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_conditional_request_decline(opened: *mut pw_conditional_request) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        unsafe { take_back::<ConditionalRequest>(opened) }?.decline();
        Ok(())
    })
}

/// Frees an opening; the pointer is not valid any more. One that was not answered can still be answered by its tag. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_conditional_request_free(opened: *mut pw_conditional_request) -> pw_error {
    if opened.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<ConditionalRequest>(opened) }?);
        Ok(())
    })
}
