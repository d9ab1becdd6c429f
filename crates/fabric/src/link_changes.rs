//! Announcements of the kernel that network devices or their addresses have changed (rtnetlink(7)).
//!
//! What has changed is not read from them: whoever is notified lists the [network devices](crate::network_devices) again, because the
//! kernel drops announcements when the socket is full.

use crate::descriptors::Descriptor;
use nix::sys::socket::{AddressFamily, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, socket};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Groups of rtnetlink(7): links, addresses of IPv4 and of IPv6.
const GROUPS: u32 = (libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR) as u32;
/// Announcements that one call takes. What is left makes the next call return true again.
const ANNOUNCEMENTS: usize = 64;
/// Nanoseconds between two looks by threads that poll.
const LOOK_INTERVAL: u64 = 10_000_000;

/// The socket on which the kernel announces changes. Without one (AF_NETLINK is forbidden) nothing is announced.
#[derive(Debug)]
pub struct LinkChanges {
    socket: Option<Descriptor>,
    looked: AtomicU64,
}

impl LinkChanges {
    /// Subscribes.
    pub fn subscribe() -> Self {
        let socket = open();
        if let Err(error) = &socket {
            log::info!(
                "changes of network devices and addresses are not noticed, because there is no AF_NETLINK socket: {error}"
            );
        }
        LinkChanges { socket: socket.ok(), looked: AtomicU64::new(0) }
    }

    /// The socket, which is readable when there are announcements.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Whether anything was announced since the last call. A thread that was not woken for it looks once in [`LOOK_INTERVAL`].
    pub fn take(&self, now: u64, woken: bool) -> bool {
        let Some(socket) = &self.socket else { return false };
        if !woken && now.saturating_sub(self.looked.load(Ordering::Relaxed)) < LOOK_INTERVAL {
            return false;
        }
        self.looked.store(now, Ordering::Relaxed);
        let mut any = false;
        for _ in 0..ANNOUNCEMENTS {
            // The rest of a longer message is dropped.
            match recv(socket, &mut [0u8; 64], RecvFlags::DONTWAIT) {
                Ok(_) => any = true,
                // The socket was full: announcements are lost.
                Err(Errno::NOBUFS) => any = true,
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        any
    }
}

fn open() -> io::Result<Descriptor> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkRoute)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, GROUPS))?;
    Descriptor::new(socket)
}
