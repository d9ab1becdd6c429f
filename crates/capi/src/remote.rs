//! Exported memory of other processes: put, get, atomics.

use crate::boundary::{Result, bytes, call, ffi_call, give, place};
use crate::error::{Refusal, pw_error};
use crate::export::{pw_token, token_of};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use crate::operation::{Running, WordPlace, hand_over, pw_operation};
use pagewire::raw::RawBuffer;
use pagewire::{RemoteRegion, SignalUpdate};
use std::ffi::c_void;

/// Exported memory of a process, opened by its token. Offsets are bytes from its first one.
pub struct pw_remote {
    _opaque: [u8; 0],
}

impl Object for RemoteRegion {
    type Opaque = pw_remote;
    const MARK: u64 = u64::from_be_bytes(*b"pw_remo!");
    const NAME: &str = "remote";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<RemoteRegion> = Places::new();
        &PLACES
    }
}

/// A signal is set to its value.
pub const PW_SET: u32 = 0;
/// The value is added to a signal, as an atomic.
pub const PW_ADD: u32 = 1;

/// A word of 8 bytes that is changed behind a put.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_signal {
    /// Of the word, in bytes: a multiple of 8.
    pub offset: u64,
    /// What it is set to, or what is added.
    pub value: u64,
    /// PW_SET, which needs PW_WRITE, or PW_ADD, which needs PW_ATOMIC.
    pub change: u32,
}

/// Bytes of a remote that come from or go to one place of a buffer.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_piece {
    /// Of its first byte, in bytes.
    pub offset: u64,
    /// In bytes.
    pub length: usize,
}

/// The remote behind a pointer.
///
/// # Safety
/// As for [`object`].
pub(crate) unsafe fn remote_of<'a>(remote: *mut pw_remote) -> Result<&'a RemoteRegion> {
    // SAFETY: `remote` is NULL or a live `pw_remote` that nobody closes while the reference is used, as pagewire.h says; `object` checks the mark.
    unsafe { object::<RemoteRegion>(remote) }
}

/// The remote behind a pointer, and a buffer.
struct Target<'a> {
    remote: &'a RemoteRegion,
    buffer: RawBuffer,
}

/// # Safety
/// As for [`object`]; the buffer has so many bytes, and is the operation's until that has ended (pagewire.h).
unsafe fn target<'a>(remote: *mut pw_remote, buffer: *const c_void, length: usize) -> Result<Target<'a>> {
    // SAFETY: `remote` is NULL or a live `pw_remote`: pagewire.h lets nobody close it while an operation is started on it.
    let remote = unsafe { object::<RemoteRegion>(remote) }?;
    let start = bytes(buffer.cast(), length, "buffer")?;
    // SAFETY: `start` has `length` bytes, which pagewire.h leaves to the operation until it has ended; `bytes` has checked NULL and the range.
    Ok(Target { remote, buffer: unsafe { RawBuffer::new(start, length) } })
}

/// # Safety
/// NULL, or a signal.
unsafe fn update_of(remote: &RemoteRegion, signal: *const pw_signal) -> Result<SignalUpdate> {
    let place = place(signal.cast_mut(), "signal")?;
    // SAFETY: the caller's promise; aligned and not NULL.
    let pw_signal { offset, value, change } = unsafe { place.read() };
    match change {
        PW_SET => Ok(remote.signal(offset).set(value)),
        PW_ADD => Ok(remote.signal(offset).add(value)),
        _ => Err(Refusal::argument(format!("'change' is {change}: it must be PW_SET or PW_ADD"))),
    }
}

/// # Safety
/// `count` pieces.
unsafe fn pieces_of(pieces: *const pw_piece, count: usize) -> Result<Vec<(u64, usize)>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let first = place(pieces.cast_mut(), "pieces")?;
    if count > isize::MAX as usize / size_of::<pw_piece>() {
        return Err(Refusal::argument("'count' is more pieces than an address space has"));
    }
    // SAFETY: the caller's promise; aligned and not NULL.
    let pieces = unsafe { std::slice::from_raw_parts(first.as_ptr(), count) };
    Ok(pieces.iter().map(|piece| (piece.offset, piece.length)).collect())
}

/// Pieces at a distance from each other.
#[derive(Clone, Copy)]
struct Strides {
    offset: u64,
    stride: u64,
    piece: usize,
}

impl Target<'_> {
    fn put(self, offset: u64) -> Running {
        Running::Buffer(self.remote.put(offset, self.buffer))
    }

    fn get(self, offset: u64) -> Running {
        Running::Buffer(self.remote.get_into(offset, self.buffer))
    }

    /// # Safety
    /// `signal` is NULL, or a signal.
    unsafe fn put_signal(self, offset: u64, signal: *const pw_signal) -> Result<Running> {
        // SAFETY: `signal` is NULL, which `update_of` refuses, or points to a `pw_signal` that is valid for the call (pagewire.h).
        let update = unsafe { update_of(self.remote, signal) }?;
        Ok(Running::Buffer(self.remote.put_signal(offset, self.buffer, update)))
    }

    fn put_strided(self, Strides { offset, stride, piece }: Strides) -> Running {
        Running::Buffer(self.remote.put_strided(offset, stride, piece, self.buffer))
    }

    fn get_strided(self, Strides { offset, stride, piece }: Strides) -> Running {
        Running::Buffer(self.remote.get_strided(offset, stride, piece, self.buffer))
    }
}

/// Opens the memory that a token names: connects to its owner if the node is not connected to it. *remote is NULL after an error.
///
/// PW_TOKEN; PW_CONNECT: the owner has ended, cannot be reached or takes no more peers. Whether the token is still valid is told by the first
/// operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_open(
    node: *mut pw_node,
    token: *const pw_token,
    remote: *mut *mut pw_remote,
) -> pw_error {
    call(|| {
        let to = place(remote, "remote")?;
        // SAFETY: the caller's place for the result (pagewire.h).
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library, and a token (pagewire.h).
        let (node, token) = unsafe { (node_of(node)?, token_of(token)?) };
        let opened = node.open(&token)?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(opened)) };
        Ok(())
    })
}

/// Closes a remote; the pointer is not valid any more. Operations that were started go on. NULL: nothing is done.
///
/// PW_HANDLE: it was closed before. That is noticed as long as its place is not used for another remote.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_close(remote: *mut pw_remote) -> pw_error {
    if remote.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<RemoteRegion>(remote) }?);
        Ok(())
    })
}

/// Bytes of a remote. 0: it is none, and pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_remote_length(remote: *const pw_remote) -> u64 {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<RemoteRegion>(remote) }?.length()), |_| 0)
}

/// Puts length bytes of buffer at offset, and waits until they are visible there.
///
/// PW_BOUNDS, PW_RIGHTS, PW_LENGTH: refused before anything was sent. PW_KEY, PW_MEMORY: refused by the owner. PW_BUFFER, PW_PEER_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put(
    remote: *mut pw_remote,
    offset: u64,
    buffer: *const c_void,
    length: usize,
) -> pw_error {
    // SAFETY: a pointer of this library, and a buffer that is not used until the call returns (pagewire.h).
    ffi_call(|| unsafe { target(remote, buffer, length) }?.put(offset).wait())
}

/// Starts a put. The buffer must stay, and must not be changed, until the operation has ended; pw_wait() gives its result, with the codes of
/// pw_put(). operation: NULL if nobody asks for the result; a failure is then told by pw_flush().
///
/// PW_ARGUMENT, PW_HANDLE: nothing was started.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put_start(
    remote: *mut pw_remote,
    offset: u64,
    buffer: *const c_void,
    length: usize,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: a pointer of this library, and a buffer that stays until the operation has ended (pagewire.h).
    ffi_call(|| hand_over(unsafe { target(remote, buffer, length) }?.put(offset), operation))
}

/// Gets length bytes from offset into buffer.
///
/// As pw_put().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_get(
    remote: *mut pw_remote,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
) -> pw_error {
    // SAFETY: a pointer of this library, and a buffer that nobody uses until the call returns (pagewire.h).
    ffi_call(|| unsafe { target(remote, buffer, length) }?.get(offset).wait())
}

/// Starts a get. The buffer must stay, and must not be used, until the operation has ended. As pw_put_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_get_start(
    remote: *mut pw_remote,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: a pointer of this library, and a buffer that stays until the operation has ended (pagewire.h).
    ffi_call(|| hand_over(unsafe { target(remote, buffer, length) }?.get(offset), operation))
}

/// Puts length bytes of buffer at offset, then changes a signal: who sees it changed sees the bytes. It waits until both are done.
///
/// As pw_put(); PW_ALIGNMENT. If the signal is refused by the owner, the bytes are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put_signal(
    remote: *mut pw_remote,
    offset: u64,
    buffer: *const c_void,
    length: usize,
    signal: *const pw_signal,
) -> pw_error {
    // SAFETY: a pointer of this library, a buffer that is not used until the call returns, and a signal (pagewire.h).
    ffi_call(|| unsafe { target(remote, buffer, length)?.put_signal(offset, signal) }?.wait())
}

/// Starts a put with a signal behind it; *signal is read at once. As pw_put_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put_signal_start(
    remote: *mut pw_remote,
    offset: u64,
    buffer: *const c_void,
    length: usize,
    signal: *const pw_signal,
    operation: *mut *mut pw_operation,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: a pointer of this library, a buffer that stays until the operation has ended, and a signal (pagewire.h).
        hand_over(unsafe { target(remote, buffer, length)?.put_signal(offset, signal) }?, operation)
    })
}

/// Changes a signal without a put.
///
/// As pw_put(); PW_ALIGNMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_signal_change(remote: *mut pw_remote, signal: *const pw_signal) -> pw_error {
    ffi_call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let remote = unsafe { object::<RemoteRegion>(remote) }?;
        // SAFETY: a signal, or NULL (pagewire.h).
        let update = unsafe { update_of(remote, signal) }?;
        Running::Signal(remote.signal_only(update)).wait()
    })
}

/// Puts the pieces of buffer, one behind the other in it, each at its offset. count: of the pieces, whose lengths sum up to length. It waits
/// until all are there.
///
/// As pw_put(); PW_PIECES. Pieces before one that the owner refuses are there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put_scattered(
    remote: *mut pw_remote,
    pieces: *const pw_piece,
    count: usize,
    buffer: *const c_void,
    length: usize,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| unsafe { scattered_put(remote, (pieces, count), (buffer, length)) }?.wait())
}

/// Starts a scattered put; the pieces are read at once. As pw_put_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put_scattered_start(
    remote: *mut pw_remote,
    pieces: *const pw_piece,
    count: usize,
    buffer: *const c_void,
    length: usize,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| hand_over(unsafe { scattered_put(remote, (pieces, count), (buffer, length)) }?, operation))
}

/// Gets pieces from several offsets into buffer, one behind the other. As pw_put_scattered().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_get_scattered(
    remote: *mut pw_remote,
    pieces: *const pw_piece,
    count: usize,
    buffer: *mut c_void,
    length: usize,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| unsafe { scattered_get(remote, (pieces, count), (buffer, length)) }?.wait())
}

/// Starts a scattered get; the pieces are read at once. As pw_get_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_get_scattered_start(
    remote: *mut pw_remote,
    pieces: *const pw_piece,
    count: usize,
    buffer: *mut c_void,
    length: usize,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| hand_over(unsafe { scattered_get(remote, (pieces, count), (buffer, length)) }?, operation))
}

/// # Safety
/// As for [`target`] and [`pieces_of`].
unsafe fn scattered_put(
    remote: *mut pw_remote,
    (pieces, count): (*const pw_piece, usize),
    (buffer, length): (*const c_void, usize),
) -> Result<Running> {
    // SAFETY: `remote` is live, `buffer` is not changed until the put has ended, and `pieces` has `count` elements for the call (pagewire.h).
    let (target, pieces) = unsafe { (target(remote, buffer, length)?, pieces_of(pieces, count)?) };
    Ok(Running::Buffer(target.remote.put_scattered(&pieces, target.buffer)))
}

/// # Safety
/// As for [`target`] and [`pieces_of`].
unsafe fn scattered_get(
    remote: *mut pw_remote,
    (pieces, count): (*const pw_piece, usize),
    (buffer, length): (*mut c_void, usize),
) -> Result<Running> {
    // SAFETY: `remote` is live, nobody uses `buffer` until the get has ended, and `pieces` has `count` elements for the call (pagewire.h).
    let (target, pieces) = unsafe { (target(remote, buffer, length)?, pieces_of(pieces, count)?) };
    Ok(Running::Buffer(target.remote.get_scattered(&pieces, target.buffer)))
}

/// Puts buffer in pieces of piece bytes, the first at offset, each stride bytes behind the one before: a column of a matrix. It waits until all
/// are there. The last piece is shorter where length is no multiple of piece. Pieces with a stride below piece overlap: the later one stays.
///
/// As pw_put_scattered().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_put_strided(
    remote: *mut pw_remote,
    offset: u64,
    stride: u64,
    piece: usize,
    buffer: *const c_void,
    length: usize,
) -> pw_error {
    let strides = Strides { offset, stride, piece };
    // SAFETY: a pointer of this library, and a buffer that is not used until the call returns (pagewire.h).
    ffi_call(|| unsafe { target(remote, buffer, length) }?.put_strided(strides).wait())
}

/// Gets pieces of piece bytes into buffer, one behind the other. As pw_put_strided().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_get_strided(
    remote: *mut pw_remote,
    offset: u64,
    stride: u64,
    piece: usize,
    buffer: *mut c_void,
    length: usize,
) -> pw_error {
    let strides = Strides { offset, stride, piece };
    // SAFETY: a pointer of this library, and a buffer that nobody uses until the call returns (pagewire.h).
    ffi_call(|| unsafe { target(remote, buffer, length) }?.get_strided(strides).wait())
}

/// An atomic, which gives the word that was there.
///
/// # Safety
/// As for [`object`]; `before` is NULL, or a place that is valid until the result is taken.
unsafe fn atomic(
    remote: *mut pw_remote,
    before: *mut u64,
    start: impl FnOnce(&RemoteRegion) -> pagewire::Operation<u64>,
) -> Result<Running> {
    // SAFETY: `remote` is NULL or a live `pw_remote`: pagewire.h lets nobody close it while an atomic is started; `object` checks the mark.
    let remote = unsafe { object::<RemoteRegion>(remote) }?;
    let place = WordPlace::new(before)?;
    Ok(Running::Word(start(remote), place))
}

/// Adds to the word of 8 bytes at offset. before: gets what it was; NULL if nobody asks.
///
/// PW_BOUNDS, PW_RIGHTS, PW_ALIGNMENT, PW_KEY, PW_MEMORY, PW_PEER_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_add(
    remote: *mut pw_remote,
    offset: u64,
    add: u64,
    before: *mut u64,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| unsafe { atomic(remote, before, |remote| remote.fetch_add(offset, add)) }?.wait())
}

/// Starts an addition. *before is written by the call that gives the result: pw_wait(), pw_test() or pw_notify(). As pw_put_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_add_start(
    remote: *mut pw_remote,
    offset: u64,
    add: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        hand_over(unsafe { atomic(remote, before, |remote| remote.fetch_add(offset, add)) }?, operation)
    })
}

/// Sets the word of 8 bytes at offset to swap if it is compare. before: gets what it was; NULL if nobody asks. As pw_fetch_add().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_compare_swap(
    remote: *mut pw_remote,
    offset: u64,
    compare: u64,
    swap: u64,
    before: *mut u64,
) -> pw_error {
    let start = |remote: &RemoteRegion| remote.compare_swap(offset, compare, swap);
    // SAFETY: this function's own promise.
    ffi_call(|| unsafe { atomic(remote, before, start) }?.wait())
}

/// Starts a compare-swap. As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_compare_swap_start(
    remote: *mut pw_remote,
    offset: u64,
    compare: u64,
    swap: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    let start = |remote: &RemoteRegion| remote.compare_swap(offset, compare, swap);
    // SAFETY: this function's own promise.
    ffi_call(|| hand_over(unsafe { atomic(remote, before, start) }?, operation))
}

/// Sets the word of 8 bytes at offset. before: gets what it was; NULL if nobody asks. It is a compare-swap that comes again until nobody came
/// between, so operations that are started later may overtake it. As pw_fetch_add().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_swap(
    remote: *mut pw_remote,
    offset: u64,
    swap: u64,
    before: *mut u64,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| unsafe { atomic(remote, before, |remote| remote.swap(offset, swap)) }?.wait())
}

/// Starts a swap. As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_swap_start(
    remote: *mut pw_remote,
    offset: u64,
    swap: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    ffi_call(|| hand_over(unsafe { atomic(remote, before, |remote| remote.swap(offset, swap)) }?, operation))
}

/// Waits until everything that was started to this peer before has ended.
///
/// The first failure since the last flush of an operation whose result nobody asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_flush(remote: *mut pw_remote) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<RemoteRegion>(remote) }?.flush()?))
}
