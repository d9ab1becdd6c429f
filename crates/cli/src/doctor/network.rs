//! Network devices, and UDP: the port of RoCEv2, segmentation and coalescing, buffers.

use super::limits::mend;
use super::{Finding, Verdict, setting};
use anyhow::{Result, bail, ensure};
use nix::sys::socket::{AddressFamily, getsockopt, setsockopt, sockopt};
use pagewire_fabric::{ROCE_PORT, network_devices};
use std::net::{Ipv4Addr, UdpSocket};

/// A socket buffer that holds a window of 1 MB with the kernel's own overhead.
const BUFFER: usize = 2 << 20;

/// What the engine asks for.
const BUFFER_ASKED: usize = 8 << 20;

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![devices(), loopback()];
    if findings[1].verdict == Verdict::Ok {
        findings.extend([port(), segmentation(), coalescing()]);
    }
    findings.extend([
        buffer("receive buffer", |socket| {
            setsockopt(socket, sockopt::RcvBuf, &BUFFER_ASKED)?;
            getsockopt(socket, sockopt::RcvBuf)
        }),
        buffer("send buffer", |socket| {
            setsockopt(socket, sockopt::SndBuf, &BUFFER_ASKED)?;
            getsockopt(socket, sockopt::SndBuf)
        }),
    ]);
    findings
}

/// The network devices, as the engine finds them: each is a verbs device.
fn devices() -> Finding {
    const CHECK: &str = "network devices";
    let devices = match network_devices() {
        Ok(devices) => devices,
        Err(error) => {
            return Finding::forbids(
                CHECK,
                error.to_string(),
                "the engine finds no device either",
                mend(&error.into(), "allow netlink sockets (seccomp, AppArmor)"),
            );
        }
    };
    if devices.is_empty() {
        return Finding::forbids(
            CHECK,
            "none is up and has an address",
            "programs find no verbs device",
            "ip link set lo up (peers on this host), or give a network device an address: ip address add",
        );
    }
    let means = if devices.iter().all(|device| device.is_loopback) {
        "one verbs device, for peers on this host only"
    } else {
        "each is one verbs device; its MTU bounds that of the packets"
    };
    let described = devices.iter().map(|device| format!("{} (MTU {})", device.name, device.mtu));
    Finding::ok(CHECK, described.collect::<Vec<_>>().join(", "), means)
}

fn loopback() -> Finding {
    match one_datagram() {
        Ok(()) => {
            Finding::ok("loopback device", "UDP works on it", "the udp path between processes of this host")
        }
        Err(error) => Finding::costs(
            "loopback device",
            format!("no datagram gets through: {error:#}"),
            "processes of this host do not reach each other over UDP, and nothing more of UDP can be tried",
            mend(&error, "ip link set lo up"),
        ),
    }
}

/// Sends a datagram over the loopback device.
fn one_datagram() -> Result<()> {
    // A socket can be bound to the address while the device is down.
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_read_timeout(Some(crate::limits::PROBE_PATIENCE))?;
    socket.send_to(b"pagewire", socket.local_addr()?)?;
    let mut buffer = [0; 16];
    let length = socket.recv(&mut buffer)?;
    ensure!(&buffer[..length] == b"pagewire", "another datagram came");
    Ok(())
}

fn port() -> Finding {
    const CHECK: &str = "UDP port 4791";
    let holder = holder();
    match (shared_bind(), holder) {
        (Ok(()), None) => Finding::ok(CHECK, "free", "standard RoCEv2 peers can reach this user's programs"),
        (Ok(()), Some(holder)) => Finding::ok(
            CHECK,
            format!("held by {holder}, shared with this user"),
            "programs of one user share it",
        ),
        (Err(error), holder) => Finding::costs(
            CHECK,
            format!("{error}; held by {}", holder.as_deref().unwrap_or("nobody that this user can see")),
            "this user's programs get direct ports (61440 to 65534), at which Pagewires find them; standard RoCEv2 peers do not",
            "end what holds it (a kernel rxe device: rdma link delete NAME), or run as its user",
        ),
    }
}

/// Takes the port for a moment, as the engine does: never alone, or a program that begins just then could not have it.
fn shared_bind() -> Result<()> {
    use nix::sys::socket::{SockFlag, SockType, SockaddrIn, bind, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::new(0, 0, 0, 0, ROCE_PORT))?;
    Ok(())
}

/// Who holds the port, as far as this user may know: a line of /proc/net/udp is
/// `sl local remote st queues tr retransmits uid timeout inode`.
fn holder() -> Option<String> {
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        for line in setting(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let held = fields.get(1).and_then(|local| local.rsplit(':').next());
            if held.and_then(|hex| u16::from_str_radix(hex, 16).ok()) != Some(ROCE_PORT) {
                continue;
            }
            let user = fields.get(7).copied().unwrap_or("?");
            return Some(match fields.get(9).copied() {
                // The kernel's own sockets have no inode.
                Some("0") | None => "the kernel (rxe?)".to_owned(),
                Some(inode) => process_with(inode).unwrap_or_else(|| format!("a process of user {user}")),
            });
        }
    }
    None
}

fn process_with(inode: &str) -> Option<String> {
    let wanted = format!("socket:[{inode}]");
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let mut links = descriptors.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
        if links.any(|link| link.as_os_str() == wanted.as_str()) {
            let name = setting(&format!("/proc/{pid}/comm")).unwrap_or_default();
            return Some(format!("{name} (PID {pid})"));
        }
    }
    None
}

fn segmentation() -> Finding {
    match two_datagrams(false) {
        Ok(_) => Finding::ok("UDP GSO", "works", "one system call sends many packets"),
        Err(error) => Finding::costs(
            "UDP GSO",
            format!("{error:#}"),
            "each packet costs a system call or a place in a batch: the udp path is several times slower",
            "a kernel of 4.18 or later",
        ),
    }
}

fn coalescing() -> Finding {
    match two_datagrams(true) {
        Ok(2) => Finding::ok("UDP GRO", "works", "one system call receives many packets"),
        Ok(_) => Finding::costs(
            "UDP GRO",
            "accepted, but packets stayed single",
            "each packet is received singly",
            "a kernel of 5.0 or later",
        ),
        Err(error) => Finding::costs(
            "UDP GRO",
            format!("{error:#}"),
            "each packet is received singly",
            "a kernel of 5.0 or later",
        ),
    }
}

/// Sends two datagrams in one system call over the loopback device; gives how many the first receive brought.
fn two_datagrams(coalesce: bool) -> Result<usize> {
    const SEGMENT: usize = 1000;
    let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    receiver.set_read_timeout(Some(crate::limits::PROBE_PATIENCE))?;
    if coalesce {
        setsockopt(&receiver, sockopt::UdpGroSegment, &true)?;
    }
    let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    setsockopt(&sender, sockopt::UdpGsoSegment, &(SEGMENT as i32))?;
    sender.send_to(&[7; 2 * SEGMENT], receiver.local_addr()?)?;
    let length = receiver.recv(&mut [0; 4 * SEGMENT])?;
    if length == 0 || length % SEGMENT != 0 {
        bail!("a datagram of {length} bytes came instead of {SEGMENT}");
    }
    Ok(length / SEGMENT)
}

/// Tries what a socket gets; the kernel counts its own overhead, and so doubles what it grants.
fn buffer(check: &'static str, ask: fn(&UdpSocket) -> nix::Result<usize>) -> Finding {
    let got = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
        .and_then(|socket| ask(&socket).map_err(std::io::Error::from))
        .map(|doubled| doubled / 2);
    match got {
        Ok(bytes) if bytes >= BUFFER => {
            Finding::ok(check, format!("{} KB", bytes >> 10), "holds a window of packets")
        }
        Ok(bytes) => Finding::costs(
            check,
            format!("{} KB of the {} KB asked for", bytes >> 10, BUFFER_ASKED >> 10),
            "bursts of packets are lost, and sent again, on the udp path",
            "sysctl net.core.rmem_max=8388608 net.core.wmem_max=8388608 (on the host, if this is a container)",
        ),
        Err(error) => Finding::costs(
            check,
            format!("cannot be asked for: {error}"),
            "the udp path works with what the kernel gives",
            mend(&error.into(), "allow setsockopt (seccomp)"),
        ),
    }
}
