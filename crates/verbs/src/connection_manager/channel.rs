//! Event channels: what a program has when it opens `/dev/infiniband/rdma_cm`.
//!
//! The program's descriptor is one end of a pair of sockets, which is readable while events wait: poll(2) and epoll(7) need no wrapper. The
//! other end notices when the last copy of the program's is closed. A channel is known by the inode of the program's end, so that dup(2),
//! fork(2) and numbers that are used again make no difference.

use super::abi::EventAnswer;
use crate::boundary::Result;
use pagewire_memory::above_low_numbers;
use rustix::fs::fstat;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, recv, send, shutdown, socketpair,
};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The byte that makes the program's end readable.
const MARK: &[u8] = &[1];

/// The device and the inode of the program's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelKey {
    device: u64,
    inode: u64,
}

impl ChannelKey {
    /// The number of the socket, which no other has at the same time.
    pub fn inode(self) -> u64 {
        self.inode
    }

    /// What names the channel of a descriptor, if it is one of a channel; `None`: it is no socket.
    pub fn of(descriptor: BorrowedFd<'_>) -> Option<Self> {
        let status = fstat(descriptor).ok()?;
        let is_socket = status.st_mode & libc::S_IFMT == libc::S_IFSOCK;
        is_socket.then_some(ChannelKey { device: status.st_dev, inode: status.st_ino })
    }
}

/// An event that the program has not taken.
#[derive(Debug)]
pub struct QueuedEvent {
    /// Who destroys this ID waits until the event is acknowledged.
    pub counted_for: u32,
    /// The membership in a group that the event is about.
    pub group: Option<u32>,
    /// The request that the event announces.
    pub request: Option<u32>,
    pub answer: EventAnswer,
}

/// The NIC's side of a channel.
#[derive(Debug)]
pub struct Channel {
    ours: OwnedFd,
    events: VecDeque<QueuedEvent>,
    is_marked: bool,
}

impl Channel {
    /// A channel, and the program's end of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(flags: SocketFlags) -> Result<(Channel, ChannelKey, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        rustix::io::ioctl_fionbio(&ours, true)?;
        // Another process that has got the program's end cannot write commands: EPIPE, as nobody reads.
        shutdown(&ours, Shutdown::Read)?;
        rustix::io::ioctl_fionbio(&theirs, flags.contains(SocketFlags::NONBLOCK))?;
        if !flags.contains(SocketFlags::CLOEXEC) {
            rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())?;
        }
        let status = fstat(&theirs)?;
        let key = ChannelKey { device: status.st_dev, inode: status.st_ino };
        let ours = above_low_numbers(ours)?;
        Ok((Channel { ours, events: VecDeque::new(), is_marked: false }, key, theirs))
    }

    /// The end that hangs up when the program has closed its own.
    pub fn ours(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// Events that the program has not taken.
    pub fn waiting(&self) -> usize {
        self.events.len()
    }

    /// Has the program find an event.
    pub fn push(&mut self, event: QueuedEvent) {
        self.events.push_back(event);
        self.mark();
    }

    /// Has the program find an event that it was not told before all others.
    pub fn put_back(&mut self, event: QueuedEvent) {
        self.events.push_front(event);
        self.mark();
    }

    /// Takes the oldest event. `theirs` is the program's end.
    pub fn pop(&mut self, theirs: BorrowedFd<'_>) -> Option<QueuedEvent> {
        let event = self.events.pop_front();
        self.unmark(theirs);
        event
    }

    /// Takes out the events that are wanted, in their order.
    pub fn take(&mut self, is_wanted: impl Fn(&QueuedEvent) -> bool) -> Vec<QueuedEvent> {
        let (taken, kept): (VecDeque<_>, VecDeque<_>) = self.events.drain(..).partition(is_wanted);
        self.events = kept;
        taken.into()
    }

    fn mark(&mut self) {
        if !self.is_marked {
            // The socket is empty: one byte has room. A program that has closed its end takes no event.
            self.is_marked = send(&self.ours, MARK, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok();
        }
    }

    /// The program's end is readable only while events wait.
    pub fn unmark(&mut self, theirs: BorrowedFd<'_>) {
        if self.is_marked && self.events.is_empty() {
            // A copy of the descriptor may have read it: nobody waits for it then.
            let _was_there = recv(theirs, &mut [0; 1], RecvFlags::DONTWAIT);
            self.is_marked = false;
        }
    }
}
