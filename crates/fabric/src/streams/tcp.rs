//! TCP sockets as streams need them.

use crate::descriptors::Descriptor;
use crate::limits::{BACKLOG, STREAM_LOWAT, STREAM_SILENCE};
use crate::udp::{self, Family};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect as connect_socket, listen as listen_on,
    socket_with, sockopt,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

fn unbound(family: Family) -> io::Result<Descriptor> {
    let domain = if family == Family::V4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Descriptor::new(socket_with(domain, SocketType::STREAM, flags, None)?)
}

/// What packets need of a connection: they leave at once, and no more wait unsent in the kernel than keeps it busy.
fn prepare(socket: &Descriptor) -> io::Result<()> {
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_tcp_user_timeout(socket, STREAM_SILENCE)?;
    udp::set(socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, STREAM_LOWAT)
}

/// A socket that takes connections at a port of all addresses, beside those of other processes of this user where `shared`.
///
/// # Errors
/// The kernel's; `AddrInUse`: another user has the port, or a program that does not share it.
pub fn listen(family: Family, port: u16, shared: bool) -> io::Result<Descriptor> {
    let socket = unbound(family)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Connections that have ended keep the port for a minute.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let everywhere: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => {
            sockopt::set_ipv6_v6only(&socket, true)?;
            Ipv6Addr::UNSPECIFIED.into()
        }
    };
    bind(&socket, &SocketAddr::new(everywhere, port))?;
    listen_on(&socket, BACKLOG)?;
    Ok(socket)
}

/// Begins a connection; it is there when the socket can be written to.
///
/// # Errors
/// The kernel's.
pub fn connect(source: IpAddr, to: SocketAddr, interface: u32) -> io::Result<Descriptor> {
    let socket = unbound(Family::of(to.ip()))?;
    prepare(&socket)?;
    // Connections to different ends may share a port: else a host has 28,000 of them, and none for others.
    if let Err(error) = udp::set(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1) {
        log::debug!("a port is taken before the connection: {error}");
    }
    bind(&socket, &with_scope(SocketAddr::new(source, 0), interface))?;
    match connect_socket(&socket, &with_scope(to, interface)) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Link-local addresses are those of one interface.
fn with_scope(address: SocketAddr, interface: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(address) if address.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*address.ip(), address.port(), 0, interface).into()
        }
        other => other,
    }
}

/// The next connection. `None`: there is none now.
///
/// # Errors
/// The kernel's.
pub fn accept(listener: &Descriptor) -> io::Result<Option<Descriptor>> {
    match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
        Ok(socket) => {
            let socket = Descriptor::new(socket)?;
            prepare(&socket)?;
            Ok(Some(socket))
        }
        Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Another descriptor of the same connection, which is watched by itself.
///
/// # Errors
/// The kernel's: there are none left.
pub fn duplicate(socket: &Descriptor) -> io::Result<Descriptor> {
    Descriptor::new(rustix::io::fcntl_dupfd_cloexec(socket, 0)?)
}

/// The peer's end of a connection.
///
/// # Errors
/// The kernel's; it is none any more.
pub fn peer(socket: &Descriptor) -> io::Result<SocketAddr> {
    let peer = rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
    Ok(SocketAddr::try_from(peer)?)
}

/// What went wrong with a connection since this was last asked.
///
/// # Errors
/// That.
pub fn error_of(socket: &Descriptor) -> io::Result<()> {
    sockopt::socket_error(socket)?.map_err(io::Error::from)
}
