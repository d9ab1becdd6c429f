//! UDP: the port of RoCEv2, segmentation and coalescing, buffers.

use super::{Finding, setting};
use anyhow::{Result, bail};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;

/// A socket buffer that holds a window of 1 MB with the kernel's own overhead.
const BUFFER: u64 = 2 << 20;

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![socket()];
    if findings[0].verdict == super::Verdict::Ok {
        findings.extend([port(), segmentation(), coalescing()]);
    }
    findings.extend([buffer("rmem_max", "net.core.rmem_max"), buffer("wmem_max", "net.core.wmem_max")]);
    findings
}

fn socket() -> Finding {
    match UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) {
        Ok(_) => Finding::ok("UDP", "works on the loopback device", "the udp path"),
        Err(error) => Finding::forbids(
            "UDP",
            format!("no socket on 127.0.0.1: {error}"),
            "without it no path is left to other hosts, and no device is found",
            "ip link set lo up",
        ),
    }
}

fn port() -> Finding {
    const CHECK: &str = "UDP port 4791";
    let error = match UdpSocket::bind((Ipv4Addr::UNSPECIFIED, ROCE_PORT)) {
        Ok(_) => return Finding::ok(CHECK, "free", "standard RoCEv2 peers can reach this user's programs"),
        Err(error) => error,
    };
    if error.kind() == ErrorKind::AddrInUse && shared_bind().is_ok() {
        return Finding::ok(
            CHECK,
            format!("held by {}, shared with this user", holder()),
            "programs of one user share it",
        );
    }
    Finding::costs(
        CHECK,
        format!("{error}; held by {}", holder()),
        "only Pagewire peers reach this user's programs (by direct ports), standard RoCEv2 peers do not",
        "end what holds it (a kernel rxe device: rdma link delete NAME), or run as its user",
    )
}

fn shared_bind() -> Result<()> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, socket};
    let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
    setsockopt(&socket, sockopt::ReusePort, &true)?;
    bind(std::os::fd::AsRawFd::as_raw_fd(&socket), &SockaddrIn::new(0, 0, 0, 0, ROCE_PORT))?;
    Ok(())
}

/// Who holds the port, as far as this user may know: a line of /proc/net/udp is
/// `sl local remote st queues tr retransmits uid timeout inode`.
fn holder() -> String {
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        for line in setting(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let held = fields.get(1).and_then(|local| local.rsplit(':').next());
            if held.and_then(|hex| u16::from_str_radix(hex, 16).ok()) != Some(ROCE_PORT) {
                continue;
            }
            let user = fields.get(7).copied().unwrap_or("?");
            return match fields.get(9).copied() {
                // The kernel's own sockets have no inode.
                Some("0") | None => "the kernel (rxe?)".to_owned(),
                Some(inode) => process_with(inode).unwrap_or_else(|| format!("a process of user {user}")),
            };
        }
    }
    "nobody that this user can see".to_owned()
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

fn buffer(check: &'static str, name: &'static str) -> Finding {
    let file = format!("/proc/sys/{}", name.replace('.', "/"));
    let Some(bytes) = setting(&file).and_then(|text| text.parse::<u64>().ok()) else {
        // Not visible in network namespaces of older kernels.
        return Finding::ok(
            check,
            "not visible here",
            "socket buffers are what the machine's administrator set",
        );
    };
    if bytes >= BUFFER {
        return Finding::ok(check, format!("{} KB", bytes / 1024), "socket buffers hold a window of packets");
    }
    Finding::costs(
        check,
        format!("{} KB", bytes / 1024),
        "small socket buffers lose packets in bursts, which are then sent again",
        "sysctl net.core.rmem_max=4194304 net.core.wmem_max=4194304",
    )
}
