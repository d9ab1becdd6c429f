//! Abstract UNIX sockets by which the tools reach a process.

use crate::limits::MAX_NAMESAKES;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

/// The first name that nobody has: processes of different PID namespaces may have the same number.
///
/// # Errors
/// The kernel's.
pub fn bind(prefix: &str) -> io::Result<UnixListener> {
    let name = format!("{prefix}{}", std::process::id());
    let mut bound = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?);
    for namesake in 1..=MAX_NAMESAKES {
        if !matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse) {
            break;
        }
        let name = format!("{name}.{namesake}");
        bound = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?);
    }
    bound
}

/// Whether the process at the other end is this user's, or root's.
///
/// # Errors
/// The kernel's.
pub fn may_read(reader: &UnixStream) -> io::Result<bool> {
    let peer = socket_peercred(reader)?.uid;
    Ok(peer.is_root() || peer == geteuid())
}
