//! One UDP socket as RoCEv2 needs it: the source address chosen for each packet, the destination address told,
//! DF set, batches cut and merged by the kernel (UDP_SEGMENT, UDP_GRO). The system calls and their control messages; nothing
//! else.

use crate::descriptors::Descriptor;
use crate::fabric::Route;
use crate::limits::{RECEIVE_BYTES, RECEIVE_MESSAGES, SOCKET_BUFFER, TX_PEER_SOCKET_RECEIVE_BUFFER};
use pagewire_memory::Arena;
use pagewire_wire::bth;
use pagewire_wire::datagram::parse_ipv4;
use pagewire_wire::etherparse::{Ipv4Header, UdpHeader};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, getsockname, recv, sendto,
    socket_with, sockopt,
};
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};

/// Room for all control messages of one packet.
const CONTROL_BYTES: usize = 128;
/// Messages of one system call. Each takes 240 bytes of the stack of whoever posts or polls.
const AT_ONCE: usize = 8;
/// Hops for routes that name none.
pub const DEFAULT_HOPS: u8 = 64;

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// Which network a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Both, in the order of their numbers.
    pub const ALL: [Family; 2] = [Family::V4, Family::V6];

    /// The one that an address belongs to.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }
}

/// A socket on a port of all addresses, shared with other processes of this user where `shared`.
pub fn open(family: Family, port: u16, shared: bool) -> io::Result<Descriptor> {
    let socket = receiving(family, shared)?;
    let (level, option, everywhere): (_, _, IpAddr) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_PKTINFO, Ipv4Addr::UNSPECIFIED.into()),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, Ipv6Addr::UNSPECIFIED.into()),
    };
    set(&socket, level, option, 1)?;
    bind(&socket, &SocketAddr::new(everywhere, port))?;
    Ok(socket)
}

/// One that shares its port, and gets what comes from one socket to one address.
///
/// # Errors
/// The kernel's.
pub fn rx_peer_socket(from: SocketAddr, to: SocketAddr) -> io::Result<Descriptor> {
    let socket = receiving(Family::of(from.ip()), true)?;
    bind(&socket, &to)?;
    connect(&socket, &from)?;
    Ok(socket)
}

/// A socket that is ready to be bound. What leaves by it has DF, and this hop limit and traffic class where it names no others.
fn unbound(family: Family, receive_buffer: usize, hops: u8, class: u8) -> io::Result<Descriptor> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let domain = if family == Family::V4 { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = Descriptor::new(socket_with(domain, SocketType::DGRAM, flags, None)?)?;
    // As far as the limits (net.core.rmem_max, wmem_max) allow; less is no error.
    sockopt::set_socket_recv_buffer_size(&socket, receive_buffer)?;
    sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER)?;
    let (level, [discovery, hop_limit, traffic_class], always) = match family {
        Family::V4 => {
            (libc::IPPROTO_IP, [libc::IP_MTU_DISCOVER, libc::IP_TTL, libc::IP_TOS], libc::IP_PMTUDISC_DO)
        }
        Family::V6 => (
            libc::IPPROTO_IPV6,
            [libc::IPV6_MTU_DISCOVER, libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS],
            libc::IPV6_PMTUDISC_DO,
        ),
    };
    set(&socket, level, discovery, always)?;
    set(&socket, level, hop_limit, hops.into())?;
    set(&socket, level, traffic_class, class.into())?;
    Ok(socket)
}

/// A socket to receive by; with others at its port where `shared`.
fn receiving(family: Family, shared: bool) -> io::Result<Descriptor> {
    // What most packets have need not be said of each.
    let socket = unbound(family, SOCKET_BUFFER, DEFAULT_HOPS, 0)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    if family == Family::V6 {
        sockopt::set_ipv6_v6only(&socket, true)?;
        // RoCEv2 senders leave the checksum out (annex A17); the ICRC is checked. Else the kernel drops such datagrams.
        set(&socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)?;
    }
    // Linux 5.0; without it datagrams come one by one.
    if let Err(error) = set(&socket, libc::SOL_UDP, libc::UDP_GRO, 1) {
        log::debug!("no UDP_GRO: {error}");
    }
    Ok(socket)
}

/// Has the kernel tell traffic class and hop limit of what is received from now on.
pub fn request_hop_info(socket: &Descriptor, family: Family) -> io::Result<()> {
    let (level, class, hops) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVTOS, libc::IP_RECVTTL),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT),
    };
    set(socket, level, class, 1)?;
    set(socket, level, hops, 1)
}

/// A socket connected to the end of a route, and its own address. What leaves by it needs no route of its own.
///
/// # Errors
/// The kernel's; the routes are those of one address each and no interface.
pub fn connected(route: &Route) -> io::Result<(Descriptor, SocketAddr)> {
    let family = Family::of(route.destination);
    let socket = unbound(family, TX_PEER_SOCKET_RECEIVE_BUFFER, hops_of(route), route.traffic_class)?;
    bind(&socket, &SocketAddr::new(route.source, 0))?;
    connect(&socket, &SocketAddr::new(route.destination, route.port))?;
    let own = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, own))
}

/// The IPv4 identification that the next packet of a connected socket will have, and by how much that of the one after it will
/// differ: Linux numbers such packets (before 5.17 those with DF have 0), wherever they go, and tells what it has sent to
/// who asks for timestamps. Two empty datagrams are sent to this socket's `own` address, where nobody takes them.
///
/// # Errors
/// The kernel's; `Unsupported` where it does not tell, or numbers otherwise.
pub fn next_identification(socket: &Descriptor, own: SocketAddrV4) -> io::Result<(u16, u16)> {
    // When a packet is on its way to the device: then it is there as soon as it is sent.
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, libc::SOF_TIMESTAMPING_TX_SCHED as i32)?;
    let both =
        sent_identification(socket, own).and_then(|first| Ok((first, sent_identification(socket, own)?)));
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, 0)?;
    let (first, second) = both?;
    match second.wrapping_sub(first) {
        step @ (0 | 1) => Ok((second.wrapping_add(step), step)),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// The identification of an empty datagram that is sent now, by what the kernel tells of it.
fn sent_identification(socket: &Descriptor, to: SocketAddrV4) -> io::Result<u16> {
    /// Bytes of the longest header below IPv4 and those up to the payload.
    const LONGEST: usize = 256;
    let mut bytes = [0; LONGEST];
    sendto(socket, &[], SendFlags::DONTWAIT, &to)?;
    let (received, _) = recv(socket, &mut bytes, RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT)?;
    // The packet with all its headers, whose length below IPv4 is the device's affair: it ends with those of IPv4 and UDP.
    let packet = bytes
        .get(..received)
        .and_then(|bytes| bytes.last_chunk::<{ Ipv4Header::MIN_LEN + UdpHeader::LEN }>());
    let header = packet.and_then(|packet| parse_ipv4(packet).ok());
    header.map(|header| header.identification()).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Asks whether a host has a UDP port: the header of a packet to queue pair 0, which RoCE does not have, so nobody takes or answers it. A
/// shorter datagram crashes a Linux 6.1 with soft-RoCE, whose `rxe_rcv` then drops a reference that it has not taken.
pub const PORT_PROBE: [u8; bth::LEN] = [0; bth::LEN];

/// A UDP socket at any port of an address.
///
/// A system call makes it, because a preloaded library (librspreload.so) may answer socket(2) with a socket over the connection manager.
///
/// # Errors
/// The kernel's.
pub fn socket_at(address: IpAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::new(address, 0))?;
    Ok(socket.into())
}

/// A socket connected to a UDP port of a host, which the kernel gives all errors of ICMP, also that there is no such host (IP_RECVERR).
///
/// # Errors
/// The kernel's: there is no route.
pub fn probe(source: IpAddr, destination: SocketAddr) -> io::Result<UdpSocket> {
    let socket = socket_at(source)?;
    match Family::of(source) {
        Family::V4 => set(&socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1)?,
        Family::V6 => set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?,
    }
    socket.connect(destination)?;
    Ok(socket)
}

/// The hops that a packet is given.
fn hops_of(route: &Route) -> u8 {
    if route.hop_limit == 0 { DEFAULT_HOPS } else { route.hop_limit }
}

/// Sets an option whose value is an integer.
pub fn set(socket: &impl AsFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_to(socket, level, option, &value)
}

fn set_to<T>(socket: &impl AsFd, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the value lives through the call, and its size is given (setsockopt(2)).
    let failed = unsafe {
        let length = size_of::<T>() as libc::socklen_t;
        libc::setsockopt(socket.as_fd().as_raw_fd(), level, option, (&raw const *value).cast(), length)
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Attaches a classic BPF program that chooses among the sockets of a port (SO_ATTACH_REUSEPORT_CBPF).
pub fn attach_steering(socket: &Descriptor, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // The kernel copies the program, of the length given, and checks it (socket(7)).
    set_to(socket, libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF, &program)
}

/// One send: bytes to a route, cut by the kernel into datagrams of `segment` bytes (the last may be shorter).
#[derive(Clone, Copy)]
pub struct Transmit<'a> {
    pub route: &'a Route,
    pub bytes: &'a [u8],
    pub segment: Option<u16>,
}

/// Sends, until the kernel takes no more; gives how many it took.
///
/// # Errors
/// Why the first was not taken.
pub fn send(socket: &Descriptor, transmits: &[Transmit<'_>]) -> io::Result<usize> {
    let mut sent = 0;
    for some in transmits.chunks(AT_ONCE) {
        match send_some(socket, some) {
            Ok(taken) if taken == some.len() => sent += taken,
            Ok(taken) => return Ok(sent + taken),
            Err(error) if sent == 0 => return Err(error),
            // Whoever sends the rest is told.
            Err(_) => break,
        }
    }
    Ok(sent)
}

/// [`send`] of [`AT_ONCE`] at most, by one system call.
fn send_some(socket: &Descriptor, transmits: &[Transmit<'_>]) -> io::Result<usize> {
    let count = transmits.len().min(AT_ONCE);
    // Only what is used is written.
    let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; AT_ONCE];
    let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; AT_ONCE];
    let mut controls = [const { MaybeUninit::<Control>::uninit() }; AT_ONCE];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; AT_ONCE];
    for (index, transmit) in transmits.iter().enumerate().take(count) {
        let vector = vectors[index].write(libc::iovec {
            iov_base: transmit.bytes.as_ptr().cast_mut().cast(),
            iov_len: transmit.bytes.len(),
        });
        // SAFETY: a plain C structure for which zero is a valid value.
        let name = names[index].write(unsafe { std::mem::zeroed() });
        let name_length = write_name(name, transmit.route);
        let control = controls[index].write(Control([0; CONTROL_BYTES]));
        // SAFETY: a C structure of integers and pointers, for which zero is a valid value.
        let header = &mut messages[index].write(unsafe { std::mem::zeroed() }).msg_hdr;
        header.msg_name = (&raw mut *name).cast();
        header.msg_namelen = name_length;
        header.msg_iov = &raw mut *vector;
        header.msg_iovlen = 1;
        write_control(ControlWriter::new(header, control), transmit);
    }
    // SAFETY: the first `count` messages are written, and point to names, vectors, controls and packet bytes that all live
    // through the call; the kernel reads no others, and writes only their lengths (sendmmsg(2), sendmsg(2)).
    let sent = unsafe {
        let (socket, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let first = messages.as_mut_ptr().cast::<libc::mmsghdr>();
        // Not by the C library's functions, which are cancellation points.
        if count == 1 {
            let sent = libc::syscall(libc::SYS_sendmsg, socket, &raw const (*first).msg_hdr, flags);
            if sent < 0 { -1 } else { 1 }
        } else {
            libc::syscall(libc::SYS_sendmmsg, socket, first, count as libc::c_uint, flags)
        }
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// How the kernel cuts what is sent by a connected socket into datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// As the socket is set to (UDP_SEGMENT).
    AsSet,
    /// Into so many bytes, whatever it is set to; 0: not at all.
    Into(u16),
}

/// Sends bytes by a connected socket.
///
/// # Errors
/// The kernel's, those of earlier packets among them (ECONNREFUSED): then nothing was sent.
pub fn send_connected(socket: &Descriptor, bytes: &[u8], cut: Cut) -> io::Result<()> {
    let (descriptor, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let sent = match cut {
        // SAFETY: the bytes live through the call and are only read; without an address its length is 0 (sendto(2)).
        Cut::AsSet => unsafe {
            let nobody = std::ptr::null::<libc::sockaddr>();
            libc::syscall(libc::SYS_sendto, descriptor, bytes.as_ptr(), bytes.len(), flags, nobody, 0)
        },
        Cut::Into(segment) => {
            let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let mut control = Control([0; CONTROL_BYTES]);
            // SAFETY: a plain C structure for which zero is a valid value.
            let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
            header.msg_iov = &raw mut vector;
            header.msg_iovlen = 1;
            let mut writer = ControlWriter::new(&mut header, &mut control);
            writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
            writer.finish();
            // SAFETY: the message points to a vector, control data and packet bytes that all live through the call, and are
            // only read (sendmsg(2)).
            unsafe { libc::syscall(libc::SYS_sendmsg, descriptor, &raw const header, flags) }
        }
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn write_name(name: &mut libc::sockaddr_in6, route: &Route) -> libc::socklen_t {
    match route.destination {
        IpAddr::V4(address) => {
            // SAFETY: sockaddr_in is smaller than sockaddr_in6 and needs no more alignment; every bit pattern is valid
            // for both.
            let name = unsafe { &mut *(&raw mut *name).cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as _;
            name.sin_port = route.port.to_be();
            name.sin_addr.s_addr = u32::from_ne_bytes(address.octets());
            size_of::<libc::sockaddr_in>() as _
        }
        IpAddr::V6(address) => {
            name.sin6_family = libc::AF_INET6 as _;
            name.sin6_port = route.port.to_be();
            name.sin6_addr.s6_addr = address.octets();
            name.sin6_scope_id = route.interface;
            size_of::<libc::sockaddr_in6>() as _
        }
    }
}

/// Writes the control messages.
fn write_control(mut writer: ControlWriter<'_>, transmit: &Transmit<'_>) {
    let route = transmit.route;
    // The others are the socket's; each message less makes a send cheaper.
    let hops = hops_of(route);
    let usual = hops == DEFAULT_HOPS && !route.destination.is_multicast();
    let (level, class, hop_limit) = match route.source {
        IpAddr::V4(source) => {
            let information = libc::in_pktinfo {
                ipi_ifindex: route.interface as i32,
                ipi_spec_dst: libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) },
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            writer.put(libc::IPPROTO_IP, libc::IP_PKTINFO, information);
            (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
        }
        IpAddr::V6(source) => {
            let source = libc::in6_addr { s6_addr: source.octets() };
            let information = libc::in6_pktinfo { ipi6_addr: source, ipi6_ifindex: route.interface as _ };
            writer.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, information);
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
        }
    };
    if route.traffic_class != 0 {
        writer.put(level, class, i32::from(route.traffic_class));
    }
    if !usual {
        writer.put(level, hop_limit, i32::from(hops));
    }
    if let Some(segment) = transmit.segment {
        writer.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
    }
    writer.finish();
}

struct ControlWriter<'a> {
    header: &'a mut libc::msghdr,
    used: usize,
    next: *mut libc::cmsghdr,
}

impl<'a> ControlWriter<'a> {
    /// The control messages of a message stand in `control`, which is zeroed.
    fn new(header: &'a mut libc::msghdr, control: &'a mut Control) -> Self {
        header.msg_control = (&raw mut *control).cast();
        header.msg_controllen = CONTROL_BYTES as _;
        ControlWriter { header, used: 0, next: std::ptr::null_mut() }
    }

    /// There are no more.
    fn finish(self) {
        self.header.msg_controllen = self.used as _;
    }

    fn put<T: Copy>(&mut self, level: i32, kind: i32, value: T) {
        let size = size_of::<T>() as u32;
        // SAFETY: msg_control is a zeroed, aligned buffer of CONTROL_BYTES, which is more than all messages together
        // (checked); CMSG_FIRSTHDR and CMSG_NXTHDR stay inside it, and CMSG_DATA has room for `size` bytes then
        // (cmsg(3)).
        unsafe {
            let space = libc::CMSG_SPACE(size) as usize;
            assert!(self.used + space <= CONTROL_BYTES);
            self.next = if self.next.is_null() {
                libc::CMSG_FIRSTHDR(self.header)
            } else {
                libc::CMSG_NXTHDR(self.header, self.next)
            };
            assert!(!self.next.is_null());
            (*self.next).cmsg_level = level;
            (*self.next).cmsg_type = kind;
            (*self.next).cmsg_len = libc::CMSG_LEN(size) as _;
            libc::CMSG_DATA(self.next).cast::<T>().write_unaligned(value);
            self.used += space;
        }
    }
}

/// What the kernel told of a received message.
#[derive(Debug, Clone, Copy)]
pub struct MessageInfo {
    pub source: IpAddr,
    pub source_port: u16,
    pub destination: IpAddr,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// Bytes of each datagram in the message; the last may be shorter.
    pub segment: usize,
    /// Bytes of the message.
    pub length: usize,
}

/// What is known of all that comes by a socket, so that the kernel need not tell it.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownAddresses {
    pub source: Option<SocketAddr>,
    pub destination: Option<IpAddr>,
}

/// Buffers that messages are received into.
pub struct ReceiveBuffers {
    arena: Arena,
    arrivals: [Option<MessageInfo>; RECEIVE_MESSAGES],
    count: usize,
    /// Messages to ask for where few are expected.
    ask: usize,
}

impl ReceiveBuffers {
    /// Empty buffers.
    pub fn new() -> io::Result<Self> {
        let arena = Arena::new(RECEIVE_MESSAGES * RECEIVE_BYTES)?;
        Ok(ReceiveBuffers { arena, arrivals: [None; RECEIVE_MESSAGES], count: 0, ask: 1 })
    }

    /// Messages received last.
    pub fn count(&self) -> usize {
        self.count
    }

    /// One of them; `None` where the kernel did not tell its addresses or it was cut off.
    pub fn message(&self, index: usize) -> Option<(&MessageInfo, &[u8])> {
        let arrival = self.arrivals[index].as_ref()?;
        let at = index * RECEIVE_BYTES;
        Some((arrival, &self.arena.bytes()[at..at + arrival.length]))
    }

    /// Receives what is there, without waiting; forgets what was there before. Gives the number of messages, and whether the
    /// socket was empty then. `few`: where lately there was hardly more than one message no more is asked for. What `ends` says is
    /// not asked for either.
    ///
    /// # Errors
    /// The kernel's; that nothing is there is no error.
    #[inline(never)] // The stack that it takes is given back before what came is handled: a program's threads may have little.
    pub fn receive(
        &mut self,
        socket: &Descriptor,
        few: bool,
        ends: &KnownAddresses,
    ) -> io::Result<(usize, bool)> {
        self.count = 0;
        let wanted = if few { self.ask } else { RECEIVE_MESSAGES };
        let buffers = self.arena.bytes_mut();
        if buffers.len() < RECEIVE_MESSAGES * RECEIVE_BYTES {
            return Ok((0, false));
        }
        let mut names = [const { MaybeUninit::<libc::sockaddr_in6>::uninit() }; RECEIVE_MESSAGES];
        let mut vectors = [const { MaybeUninit::<libc::iovec>::uninit() }; RECEIVE_MESSAGES];
        let mut controls = [const { MaybeUninit::<Control>::uninit() }; RECEIVE_MESSAGES];
        // Only what is used is written.
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; RECEIVE_MESSAGES];
        for (index, buffer) in buffers.chunks_mut(RECEIVE_BYTES).enumerate().take(wanted) {
            let vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            // SAFETY: a plain C structure for which zero is a valid value.
            let header = &mut messages[index].write(unsafe { std::mem::zeroed() }).msg_hdr;
            if ends.source.is_none() {
                // SAFETY: a C structure of integers and pointers, for which zero is a valid value.
                header.msg_name = (&raw mut *names[index].write(unsafe { std::mem::zeroed() })).cast();
                header.msg_namelen = size_of::<libc::sockaddr_in6>() as _;
            }
            header.msg_iov = &raw mut *vectors[index].write(vector);
            header.msg_iovlen = 1;
            header.msg_control = controls[index].as_mut_ptr().cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        // SAFETY: the first `wanted` messages are written, and point to names, vectors, controls and buffers that all live
        // through the call and are borrowed for writing here (recvmmsg(2), recvmsg(2)).
        let received = unsafe {
            let (socket, flags) = (socket.as_fd().as_raw_fd(), libc::MSG_DONTWAIT);
            let first = messages.as_mut_ptr().cast::<libc::mmsghdr>();
            // One message needs no recvmmsg(2).
            if wanted == 1 {
                // A third cheaper where nothing is there.
                let length = libc::syscall(libc::SYS_recvmsg, socket, &raw mut (*first).msg_hdr, flags);
                (*first).msg_len = length.max(0) as u32;
                if length < 0 { -1 } else { 1 }
            } else {
                let timeout = std::ptr::null_mut::<libc::timespec>();
                libc::syscall(libc::SYS_recvmmsg, socket, first, wanted as libc::c_uint, flags, timeout)
            }
        };
        if received < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => {
                    self.ask = 1;
                    Ok((0, true))
                }
                io::ErrorKind::Interrupted => Ok((0, false)),
                _ => Err(error),
            };
        }
        self.count = (received as usize).min(wanted);
        self.ask = (2 * self.count).clamp(1, RECEIVE_MESSAGES);
        for index in 0..self.count {
            // SAFETY: written above, as it was asked for.
            let message = unsafe { messages[index].assume_init_ref() };
            let cut_off = message.msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
            let length = (message.msg_len as usize).min(RECEIVE_BYTES);
            let source = ends.source.or_else(|| {
                // SAFETY: the name was written above, with zeros, before the kernel wrote over it.
                read_name(unsafe { names[index].assume_init_ref() })
            });
            self.arrivals[index] = match source {
                Some(source) if !cut_off => read_arrival(source, ends.destination, &message.msg_hdr, length),
                _ => None,
            };
        }
        Ok((self.count, self.count < wanted))
    }
}

fn read_name(name: &libc::sockaddr_in6) -> Option<SocketAddr> {
    let (source, port) = match i32::from(name.sin6_family) {
        libc::AF_INET => {
            // SAFETY: the kernel wrote a sockaddr_in there, which is smaller and needs no more alignment.
            let name = unsafe { &*(&raw const *name).cast::<libc::sockaddr_in>() };
            (IpAddr::from(name.sin_addr.s_addr.to_ne_bytes()), u16::from_be(name.sin_port))
        }
        libc::AF_INET6 => (IpAddr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port)),
        _ => return None,
    };
    Some(SocketAddr::new(source, port))
}

fn read_arrival(
    source: SocketAddr,
    mut destination: Option<IpAddr>,
    header: &libc::msghdr,
    length: usize,
) -> Option<MessageInfo> {
    let (mut traffic_class, mut hop_limit) = (0, 0);
    let mut segment = length;
    // SAFETY: the kernel has filled the control buffer, whose length it wrote to msg_controllen, with well-formed
    // messages; the macros stay inside it. Values are read unaligned, and only of kinds whose size is known
    // (cmsg(3), ip(7), ipv6(7), udp(7)).
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(header);
        while !control.is_null() {
            let data = libc::CMSG_DATA(control);
            match ((*control).cmsg_level, (*control).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let information = data.cast::<libc::in_pktinfo>().read_unaligned();
                    destination = Some(IpAddr::from(information.ipi_addr.s_addr.to_ne_bytes()));
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let information = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    destination = Some(IpAddr::from(information.ipi6_addr.s6_addr));
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => traffic_class = data.read(),
                (libc::IPPROTO_IP, libc::IP_TTL) => hop_limit = data.cast::<i32>().read_unaligned() as u8,
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    traffic_class = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    hop_limit = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data.cast::<i32>().read_unaligned();
                    segment = usize::try_from(size).ok().filter(|size| *size > 0).unwrap_or(length);
                }
                _ => {}
            }
            control = libc::CMSG_NXTHDR(header, control);
        }
    }
    Some(MessageInfo {
        source: source.ip(),
        source_port: source.port(),
        destination: destination?,
        traffic_class,
        hop_limit,
        segment,
        length,
    })
}
