//! Names in the abstract UNIX namespace: one for each network namespace, and released by death, so that a name is a
//! claim for exactly as long and as far as it should be.

use crate::descriptors::Descriptor;
use crate::limits::BACKLOG;
use crate::members::SharedFile;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
use rustix::process::geteuid;
use std::io;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

const SIBLING: &str = "pagewire-sibling-";

/// The claim on a block. The process that leases it listens here for peers, unless it takes the network only.
pub fn of_block(block: u32) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-qpn-{block}"))
}

/// Where it takes datagrams that came to another process by mistake.
pub fn of_forwarding(block: u32) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-fwd-{block}"))
}

/// Who holds this name sets up the steering of a port; others wait a while.
pub fn of_steering(port: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-steer-{port}"))
}

/// Where the answers to the probes of one round of steering go. Everybody sees names, so that this one has 16 bits of the nonce only:
/// who answers with all of it has got the probe.
pub fn of_answers(port: u16, nonce: u64) -> io::Result<SocketAddrUnix> {
    let [.., high, low] = nonce.to_ne_bytes();
    abstract_address(&format!("pagewire-steer-{port}-{high:02x}{low:02x}"))
}

/// Held by one of the processes that share a port, as long as the port's sockets have a steering program.
pub fn of_steered(port: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-steered-{port}"))
}

/// The claim on a port of the connection manager, in the port space with this number. Its owner takes requests for connections here.
pub fn of_cm_port(space: u16, port: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-cm-{space:04x}-{port}"))
}

/// The claim on a block of ports that begins with this one.
pub fn of_cm_port_block(space: u16, first: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-cm-block-{space:04x}-{first}"))
}

/// Where the process whose communication IDs begin so takes messages of its connections.
pub fn of_comm_ids(block: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-comm-{block}"))
}

/// Where that process learns of siblings.
pub fn of_sibling(block: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("{SIBLING}{block}"))
}

/// Held by the one sibling that says the last words of a process.
pub fn of_heir(block: u16) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("pagewire-heir-{block}"))
}

/// Where a process listens for others that have opened the same file.
pub fn of_member(file: SharedFile, name: u32) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("{}{name:x}", prefix_of_members(file)))
}

/// Held by the one process that becomes a member for a file.
pub fn of_member_guard(file: SharedFile) -> io::Result<SocketAddrUnix> {
    abstract_address(&format!("{}guard", prefix_of_members(file)))
}

fn prefix_of_members(SharedFile { device, inode }: SharedFile) -> String {
    format!("pagewire-xrc-{}-{device:x}-{inode:x}-", geteuid().as_raw())
}

/// The names of all members for a file in this network namespace.
///
/// # Errors
/// The kernel's, where /proc cannot be read.
pub fn members(file: SharedFile) -> io::Result<Vec<u32>> {
    let prefix = format!(" @{}", prefix_of_members(file));
    let sockets = std::fs::read("/proc/self/net/unix")?;
    let name = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        u32::from_str_radix(line.rsplit_once(&prefix)?.1, 16).ok()
    };
    let mut found: Vec<u32> = sockets.split(|byte| *byte == b'\n').filter_map(name).collect();
    // A connection that was taken has the name, too.
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// The blocks of all siblings of this network namespace.
///
/// # Errors
/// The kernel's, where /proc cannot be read.
pub fn siblings() -> io::Result<Vec<u16>> {
    // Names are bytes of anybody's choice.
    let sockets = std::fs::read("/proc/self/net/unix")?;
    let block = |line: &[u8]| {
        let line = std::str::from_utf8(line).ok()?;
        line.rsplit_once(&format!(" @{SIBLING}"))?.1.parse().ok()
    };
    Ok(sockets.split(|byte| *byte == b'\n').filter_map(block).collect())
}

fn abstract_address(name: &str) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(name.as_bytes())?)
}

/// A socket that holds a name, on which nobody can connect until it [listens](listen_on).
pub fn claim(name: &SocketAddrUnix) -> io::Result<Descriptor> {
    let socket = connection()?;
    bind(&socket, name)?;
    Ok(socket)
}

/// Lets peers connect.
pub fn listen_on(claim: &Descriptor) -> io::Result<()> {
    Ok(listen(claim, BACKLOG)?)
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
