//! `/dev/infiniband/rdma_cm`: by this file a program's own librdmacm reaches a kernel's connection manager, and here Pagewire's
//! (`pagewire_cm`). Nothing of librdmacm is replaced.
//!
//! A program opens the file ([`open_channel`]) and writes commands to it ([`pagewire_cm_write`], which the wrapper of write(2) in
//! `c/connection_manager.c` calls). The pure part: [`abi`] (structures). [`channel`] has the descriptors and their events, [`ports`] who owns
//! a port, [`service`] the state and its thread, [`commands`] what each command does.

mod abi;
mod addresses;
mod channel;
mod commands;
mod deaths;
mod events;
mod groups;
mod known_channels;
mod outbox;
mod ports;
mod qp_attributes;
mod reachability;
mod removal;
pub mod report;
mod service;
mod siblings;
mod user_memory;

use crate::boundary::{Errno, Result, set_errno};
use crate::calls;
use abi::Header;
use channel::{Channel, ChannelKey};
use commands::{Execution, Written};
use libc::{EINVAL, EMFILE, O_CLOEXEC, O_NONBLOCK, c_int, c_ulong, c_void, ssize_t};
use pagewire_failures::Verb;
use pagewire_memory::Uncancelled;
use rustix::net::SocketFlags;
use std::cell::Cell;
use std::os::fd::{BorrowedFd, IntoRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::FromBytes;

/// Its path.
pub const DEVICE_FILE: &str = "/dev/infiniband/rdma_cm";
const HEADER_LEN: usize = size_of::<Header>();
/// The longest command, without its header.
const LONGEST_BODY: usize = 296;
/// [`pagewire_cm_write`] answers this for what is no channel.
const NOT_OURS: ssize_t = -2;
/// And this, where the command is to be written again as soon as the descriptor is readable.
const WAITS: ssize_t = -3;

/// Whether this process, or one that it was forked from, has opened a channel: before that no descriptor is one. Read by the wrapper in C.
#[unsafe(no_mangle)]
pub static PAGEWIRE_CM_OPENED: AtomicBool = AtomicBool::new(false);

/// open(2) of the device file.
///
/// # Errors
/// The engine's; the kernel's: no descriptors, no thread.
pub fn open_channel(flags: c_int) -> Result<RawFd> {
    service::start()?;
    let mut socket_flags = SocketFlags::empty();
    socket_flags.set(SocketFlags::CLOEXEC, flags & O_CLOEXEC != 0);
    socket_flags.set(SocketFlags::NONBLOCK, flags & O_NONBLOCK != 0);
    let (channel, key, theirs) = Channel::new(socket_flags)?;
    service::with_service(|service| service.add_channel(key, channel)).unwrap_or(Err(Errno(EINVAL)))?;
    if !known_channels::add(key.inode()) {
        return Err(Errno(EMFILE));
    }
    PAGEWIRE_CM_OPENED.store(true, Ordering::Release);
    Ok(theirs.into_raw_fd())
}

/// The last descriptor of a channel is closed: its inode may become another socket's.
fn forget_channel(key: ChannelKey) {
    known_channels::remove(key.inode());
}

/// The channel that a descriptor is of; `None`: it is of none.
fn channel_of(descriptor: RawFd) -> Option<ChannelKey> {
    if descriptor < 0 || !PAGEWIRE_CM_OPENED.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: only asked what it is; a number that is no descriptor is refused (EBADF).
    let key = ChannelKey::of(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    known_channels::has(key.inode()).then_some(key)
}

/// Whether a descriptor is a channel.
pub fn is_channel(descriptor: RawFd) -> bool {
    channel_of(descriptor).is_some()
}

/// write(2) to a channel: one command. `NOT_OURS`: the descriptor is of none. `begun`: the inode of the channel on which the command was begun
/// that is written again, or 0; then it is set. A descriptor of another channel, which has got the number since, is `NOT_OURS`.
///
/// # Safety
/// As write(2): there are `length` bytes at `bytes`, or the call fails. `begun` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_cm_write(
    descriptor: c_int,
    bytes: *const c_void,
    length: usize,
    begun: *mut c_ulong,
) -> ssize_t {
    let Some(channel) = channel_of(descriptor) else { return NOT_OURS };
    // SAFETY: the caller promises that `begun` is valid.
    let begun = unsafe { &mut *begun };
    if *begun != 0 && *begun != channel.inode() {
        return NOT_OURS;
    }
    *begun = channel.inode();
    // SAFETY: the program's descriptor, which is open during the call as for write(2).
    let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
    // The wrapper is the cancellation point.
    let _uncancelled = Uncancelled::begin();
    match write_command(channel, descriptor, bytes as u64, length) {
        Ok(Execution::Complete) => length as ssize_t,
        Ok(Execution::WaitsForEvent) => WAITS,
        Err(Errno(error)) => {
            set_errno(error);
            -1
        }
    }
}

fn write_command(
    channel: ChannelKey,
    descriptor: BorrowedFd<'_>,
    address: u64,
    length: usize,
) -> Result<Execution> {
    if length < HEADER_LEN {
        return Err(Errno(EINVAL));
    }
    let mut bytes = [0; HEADER_LEN + LONGEST_BODY];
    // librdmacm writes a command alone: it is read at once. Else only what the header says is there.
    let first = length.min(bytes.len());
    let is_whole = user_memory::read(address, &mut bytes[..first]).is_ok();
    if !is_whole {
        user_memory::read(address, &mut bytes[..HEADER_LEN])?;
    }
    let (header, body) = bytes.split_at_mut(HEADER_LEN);
    let header = Header::read_from_bytes(header).map_err(|_| Errno(EINVAL))?;
    if HEADER_LEN + usize::from(header.input) > length {
        return Err(Errno(EINVAL));
    }
    // What a later version has after a command is not looked at.
    let body = &mut body[..LONGEST_BODY.min(header.input.into())];
    if !is_whole {
        user_memory::read(address.wrapping_add(HEADER_LEN as u64), body)?;
    }
    execute_observed(&Written { channel, descriptor, header, body })
}

/// Executes a command, which is a call of librdmacm's for whoever observes calls.
fn execute_observed(written: &Written<'_>) -> Result<Execution> {
    thread_local! {
        /// The thread's last command waits for an event: when it is written again, that is the same call.
        static WAITS_FOR_EVENT: Cell<bool> = const { Cell::new(false) };
    }
    let verb = calls::are_observed().then(|| commands::function_of(written.header.command)).flatten();
    let is_repeated = WAITS_FOR_EVENT.take() && verb == Some(Verb::RdmaGetCmEvent);
    let executed = match verb.filter(|_| !is_repeated) {
        Some(verb) => calls::observed(verb.into(), |_| 0, || commands::execute(written)),
        None => commands::execute(written),
    };
    WAITS_FOR_EVENT.set(matches!(executed, Ok(Execution::WaitsForEvent)));
    executed
}
