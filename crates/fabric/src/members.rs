//! Processes of one user and one network namespace that have opened the same file, to share what the file names.
//!
//! Each of them listens at names of its own in the abstract UNIX namespace, which the kernel takes away when it ends. So whoever can
//! connect has found a process that lives, and no list of members can be out of date. The names hold the identity of the file. Anybody
//! can take such a name, so both ends of a connection look at the user of the other. This file does not know what they tell each other.

use crate::descriptors::Descriptor;
use crate::limits::BACKLOG;
use crate::{names, trust};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::TimeVal;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with,
    bind, connect, listen, recv, send, shutdown, socket_with,
};
use std::io;
use std::time::{Duration, Instant};

/// How long a process may take for what it does under the guard.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two tries for the guard.
const GUARD_LOOK: Duration = Duration::from_millis(1);
/// Time between two tries where there are no descriptors.
const SHORTAGE_LOOK: Duration = Duration::from_millis(10);

/// The file by which processes share something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SharedFile {
    pub device: u64,
    pub inode: u64,
}

/// Held by the one process that finds out which members there are and becomes one.
#[derive(Debug)]
pub struct MemberGuard {
    _name: Descriptor,
}

impl MemberGuard {
    /// Waits until no other process has it.
    ///
    /// # Errors
    /// `TimedOut`: another process has had it for five seconds. Those of the kernel.
    pub fn take(file: SharedFile) -> io::Result<Self> {
        let until = Instant::now() + PATIENCE;
        loop {
            match names::claim(&names::of_member_guard(file)?) {
                Ok(name) => return Ok(MemberGuard { _name: name }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    if Instant::now() > until {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    std::thread::sleep(GUARD_LOOK);
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// The names that processes listen at for a file, this one among them. Some may be other users', or of processes that have just ended.
///
/// # Errors
/// The kernel's, where /proc cannot be read.
pub fn members(file: SharedFile) -> io::Result<Vec<u32>> {
    names::members(file)
}

/// Where a member can be connected to.
#[derive(Debug)]
pub struct MemberListener {
    socket: Descriptor,
}

impl MemberListener {
    /// Listens at a name. `None`: it is taken.
    ///
    /// # Errors
    /// The kernel's.
    pub fn claim(file: SharedFile, name: u32) -> io::Result<Option<Self>> {
        let socket = stream_socket()?;
        match bind(&socket, &names::of_member(file, name)?) {
            Ok(()) => {}
            Err(Errno::ADDRINUSE) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        listen(&socket, BACKLOG)?;
        Ok(Some(MemberListener { socket }))
    }

    /// Waits for the next connection of a process of this user. `None`: the listener was shut down.
    pub fn accept(&self) -> Option<MemberStream> {
        loop {
            match accept_with(&self.socket, SocketFlags::CLOEXEC) {
                Ok(socket) => match Descriptor::new(socket).map(checked) {
                    Ok(Ok(stream)) => return Some(stream),
                    Ok(Err(reason)) => log::debug!("a connection of a member is not taken: {reason}"),
                    Err(error) => log::debug!("a connection of a member is not taken: {error}"),
                },
                Err(Errno::INVAL | Errno::BADF | Errno::NOTSOCK) => return None,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    std::thread::sleep(SHORTAGE_LOOK);
                }
                Err(error) => log::debug!("a member cannot be connected: {error}"),
            }
        }
    }

    /// Ends it: nobody is connected any more, and [`accept`](Self::accept) returns.
    pub fn shut_down(&self) {
        // It fails where it was done before.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// A connection to another member.
#[derive(Debug)]
pub struct MemberStream {
    socket: Descriptor,
}

impl MemberStream {
    /// Connects to the member that listens at a name. `None`: no process of this user does.
    ///
    /// # Errors
    /// `WouldBlock`: a process listens, and has not taken connections for the whole time. Those of the kernel.
    pub fn connect(file: SharedFile, name: u32, time: Duration) -> io::Result<Option<Self>> {
        let socket = stream_socket()?;
        set_send_patience(&socket, time)?;
        let address: SocketAddrUnix = names::of_member(file, name)?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::CONNREFUSED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
        set_send_patience(&socket, Duration::ZERO)?;
        match checked(socket) {
            Ok(stream) => Ok(Some(stream)),
            Err(reason) => {
                log::debug!("the member {name:#x} is not asked: {reason}");
                Ok(None)
            }
        }
    }

    /// Has [`receive`](Self::receive) wait no longer than this.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_patience(&self, patience: Duration) -> io::Result<()> {
        setsockopt(&self.socket, sockopt::ReceiveTimeout, &time_of(patience))?;
        Ok(())
    }

    /// Sends all of these bytes.
    ///
    /// # Errors
    /// The kernel's: the other process has ended, or the connection was shut down.
    pub fn send(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Waits for so many bytes as `into` has.
    ///
    /// # Errors
    /// `UnexpectedEof`: the other process has ended, or the connection was shut down. `WouldBlock`: the patience is over. Those of the
    /// kernel.
    pub fn receive(&self, mut into: &mut [u8]) -> io::Result<()> {
        while !into.is_empty() {
            match recv(&self.socket, &mut *into, RecvFlags::empty()) {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok((received, _)) => into = &mut into[received..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether nothing comes any more: the other end has shut down its side, or has ended.
    pub fn is_at_end(&self) -> bool {
        let mut byte = [0];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.socket, &mut byte, flags) {
            Ok((received, _)) => received == 0,
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => true,
        }
    }

    /// Tells the other end that nothing more comes from here. What it sends is still received.
    pub fn shut_down_sending(&self) {
        // It fails where the other end has gone.
        let _ = shutdown(&self.socket, Shutdown::Write);
    }

    /// Ends the connection in both directions.
    pub fn shut_down(&self) {
        // It fails where the other end has gone.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

fn stream_socket() -> io::Result<Descriptor> {
    Descriptor::new(socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// A connection whose other end belongs to this user; else the reason why it does not.
fn checked(socket: Descriptor) -> Result<MemberStream, String> {
    trust::peer_of(&socket)?;
    Ok(MemberStream { socket })
}

fn set_send_patience(socket: &Descriptor, patience: Duration) -> io::Result<()> {
    setsockopt(socket, sockopt::SendTimeout, &time_of(patience))?;
    Ok(())
}

fn time_of(duration: Duration) -> TimeVal {
    TimeVal::new(duration.as_secs() as i64, i64::from(duration.subsec_micros()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A file that no other test has.
    fn file(inode: u64) -> SharedFile {
        SharedFile { device: u64::from(std::process::id()), inode }
    }

    #[test]
    fn members_talk_to_each_other() {
        let file = file(1);
        assert!(MemberStream::connect(file, 7, PATIENCE).unwrap().is_none());
        assert!(members(file).unwrap().is_empty());
        let listener = Arc::new(MemberListener::claim(file, 7).unwrap().unwrap());
        assert!(MemberListener::claim(file, 7).unwrap().is_none());
        assert_eq!(members(file).unwrap(), [7]);
        let server = {
            let listener = listener.clone();
            std::thread::spawn(move || {
                let stream = listener.accept().unwrap();
                let mut bytes = [0; 3];
                stream.receive(&mut bytes).unwrap();
                stream.send(&bytes).unwrap();
                let ended = stream.receive(&mut bytes).unwrap_err().kind();
                assert!(stream.is_at_end() && listener.accept().is_none());
                ended
            })
        };
        let stream = MemberStream::connect(file, 7, PATIENCE).unwrap().unwrap();
        assert!(!stream.is_at_end());
        stream.send(b"abc").unwrap();
        let mut bytes = [0; 3];
        stream.receive(&mut bytes).unwrap();
        assert_eq!(&bytes, b"abc");
        stream.shut_down_sending();
        listener.shut_down();
        assert_eq!(server.join().unwrap(), io::ErrorKind::UnexpectedEof);
        drop(listener);
        assert!(
            MemberStream::connect(file, 7, PATIENCE).unwrap().is_none() && members(file).unwrap().is_empty()
        );
    }

    #[test]
    fn guard_is_held_by_one() {
        let file = file(2);
        let guard = MemberGuard::take(file).unwrap();
        let other = std::thread::spawn(move || MemberGuard::take(file).map(drop));
        std::thread::sleep(10 * GUARD_LOOK);
        assert!(!other.is_finished() && members(file).unwrap().is_empty());
        drop(guard);
        other.join().unwrap().unwrap();
    }

    #[test]
    fn silent_member_is_not_waited_for_without_end() {
        let file = file(3);
        let _listener = MemberListener::claim(file, 1).unwrap().unwrap();
        let stream = MemberStream::connect(file, 1, PATIENCE).unwrap().unwrap();
        stream.set_patience(Duration::from_millis(5)).unwrap();
        assert_eq!(stream.receive(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }
}
