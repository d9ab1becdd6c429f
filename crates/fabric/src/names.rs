//! Names in the abstract UNIX namespace: one for each network namespace, and released by death, so that a name is a
//! claim for exactly as long and as far as it should be.

use crate::descriptors::Descriptor;
use crate::limits::BACKLOG;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use std::io;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// Where the process that leases a block listens for peers.
pub fn of_block(block: u32) -> io::Result<SocketAddrUnix> {
    named(&format!("pagewire-qpn-{block}"))
}

/// Where it takes datagrams that came to another process by mistake.
pub fn of_forwarding(block: u32) -> io::Result<SocketAddrUnix> {
    named(&format!("pagewire-fwd-{block}"))
}

/// Who holds this name sets up the steering of a port; others wait a while.
pub fn of_steering(port: u16) -> io::Result<SocketAddrUnix> {
    named(&format!("pagewire-steer-{port}"))
}

/// Where the answers to the probes of one round of steering go.
pub fn of_answers(port: u16, nonce: u64) -> io::Result<SocketAddrUnix> {
    named(&format!("pagewire-steer-{port}-{nonce:x}"))
}

/// Held by one of the processes that share a port, as long as the port's sockets have a steering program.
pub fn of_steered(port: u16) -> io::Result<SocketAddrUnix> {
    named(&format!("pagewire-steered-{port}"))
}

fn named(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// A socket that listens for peers' connections.
pub fn listener(name: &SocketAddrUnix) -> io::Result<Descriptor> {
    let socket = connection()?;
    bind(&socket, name)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// A socket for a connection to a peer.
pub fn connection() -> io::Result<Descriptor> {
    Descriptor::new(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)?)
}

/// A datagram socket, with a name or without.
pub fn datagrams(name: Option<&SocketAddrUnix>) -> io::Result<Descriptor> {
    let socket = Descriptor::new(socket_with(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None)?)?;
    if let Some(name) = name {
        bind(&socket, name)?;
    }
    Ok(socket)
}
