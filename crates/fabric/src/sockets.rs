//! Messages with files over UNIX sockets.

use crate::descriptors::Descriptor;
use crate::handshake::READY_FILES;
use crate::limits::MESSAGES_IN_A_ROW;
use nix::sys::socket::{self, ControlMessageOwned, MsgFlags, UnixCredentials};
use pagewire_memory::Uncancelled;
use rustix::cmsg_space;
use rustix::io::{Errno, IoSlice, IoSliceMut};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, recvmsg, sendmsg, sendmsg_addr,
};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Sends one message, with files. Does not wait.
pub fn send_message(socket: &Descriptor, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(READY_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message and its files. `None`: there is none now. Length 0: the connection has ended.
///
/// # Errors
/// The kernel's; `InvalidData` for a message that is too long. Files that did not fit are missing.
pub fn receive_message(socket: &Descriptor, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(READY_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
        Ok(received) => received,
        Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
        Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Some((0, Vec::new()))),
        Err(error) => return Err(error.into()),
    };
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(some) = message {
            files.extend(some);
        }
    }
    if received.flags.contains(ReturnFlags::TRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is too long"));
    }
    Ok(Some((received.bytes, files)))
}

/// Sends a datagram of two parts to a name. Does not wait.
pub fn send_datagram(
    socket: &Descriptor,
    name: &SocketAddrUnix,
    first: &[u8],
    rest: &[u8],
) -> io::Result<()> {
    send_datagram_with_files(socket, name, &[first, rest], &[])
}

/// Sends a datagram of two parts, with files, to a name. Does not wait.
pub fn send_datagram_with_files(
    socket: &Descriptor,
    name: &SocketAddrUnix,
    [first, rest]: &[&[u8]; 2],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let parts = [IoSlice::new(first), IoSlice::new(rest)];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(READY_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg_addr(socket, name, &parts, &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// A datagram that was received.
pub struct ReceivedMessage {
    pub length: usize,
    /// The number of the user who sent it.
    pub sender: u32,
    pub files: Vec<OwnedFd>,
}

/// Receives a datagram: its bytes, and the number of the user who sent it. Datagrams that are too long or of nobody are dropped, a few
/// at a time. `None`: there is none now.
///
/// # Errors
/// The kernel's.
pub fn receive_datagram(socket: &Descriptor, buffer: &mut [u8]) -> io::Result<Option<(usize, u32)>> {
    // No room for files: should somebody send some, the kernel cuts them off.
    let received = receive_into(socket, buffer, &mut nix::cmsg_space!(UnixCredentials))?;
    Ok(received.map(|received| (received.length, received.sender)))
}

/// As [`receive_datagram`], with the files that came along; those that have no room are missing.
///
/// # Errors
/// The kernel's.
pub fn receive_datagram_with_files(
    socket: &Descriptor,
    buffer: &mut [u8],
) -> io::Result<Option<ReceivedMessage>> {
    receive_into(socket, buffer, &mut nix::cmsg_space!(UnixCredentials, [RawFd; READY_FILES]))
}

fn receive_into(
    socket: &Descriptor,
    buffer: &mut [u8],
    space: &mut Vec<u8>,
) -> io::Result<Option<ReceivedMessage>> {
    let _uncancelled = Uncancelled::begin();
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    // SAFETY: the kernel has just made the descriptor for this process, and nobody else knows it.
    let own = |number| unsafe { OwnedFd::from_raw_fd(number) };
    for _ in 0..MESSAGES_IN_A_ROW {
        let mut parts = [IoSliceMut::new(buffer)];
        let number = socket.as_fd().as_raw_fd();
        let received = match socket::recvmsg::<()>(number, &mut parts, Some(&mut *space), flags) {
            Ok(received) => received,
            Err(nix::Error::EAGAIN | nix::Error::EINTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (mut sender, mut files) = (None, Vec::new());
        for message in received.cmsgs().into_iter().flatten() {
            match message {
                // Not by rustix, for which no process has the number 0, as those have that this one does not see.
                ControlMessageOwned::ScmCredentials(credentials) => sender = Some(credentials.uid()),
                ControlMessageOwned::ScmRights(numbers) => files.extend(numbers.into_iter().map(own)),
                _ => {}
            }
        }
        if let Some(sender) = sender.filter(|_| !received.flags.contains(MsgFlags::MSG_TRUNC)) {
            return Ok(Some(ReceivedMessage { length: received.bytes, sender, files }));
        }
    }
    // Somebody floods the socket: others have their turn.
    Ok(None)
}
