//! Abstract UNIX sockets by which the tools reach a process.

use crate::limits::MAX_NAMESAKES;
use nix::sys::socket::{getsockopt, sockopt};
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
    // The PID of one in another PID namespace is 0, which rustix's credentials cannot have.
    let peer = getsockopt(reader, sockopt::PeerCredentials)?.uid();
    Ok(peer == 0 || peer == geteuid().as_raw())
}
