//! Whether what is sent to a process still reaches it.
//!
//! When a socket of the port is closed the kernel gives its place to the last one, and tells nobody. What the steering program
//! then names may be the place of a process that was stopped, which neither hands datagrams on nor has the steering set up
//! anew. So a process that shares the port sends datagrams to a block of its own now and then, by way of the loopback
//! device. If one does not come back, directly or handed on, it asks for steering. They have several source addresses: where the
//! program names no place any more, the kernel chooses by a hash of the addresses, and one alone may find its way by chance.

use super::{PROBE_BYTES, eight, to_own_host};
use crate::fabric::{QUEUE_PAIRS_PER_BLOCK, Route};
use crate::limits::{STEERING_CHECK, STEERING_CHECK_MOST, STEERING_TIME};
use crate::network::port::UdpPort;
use crate::udp::{self, Family, MessageInfo, Transmit};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Opcode of such a datagram, of those left to manufacturers. It never leaves the loopback device.
const CHECK: u8 = 0xDE;
/// Its bytes: opcode, number, nothing (2), destination (4), nonce (8). As long as the shortest packet.
const CHECK_BYTES: usize = PROBE_BYTES;
/// Datagrams of one check over IPv4, whose loopback device has many addresses; over IPv6 there is one.
const OVER_IPV4: usize = 4;

/// The datagrams of one process to itself.
#[derive(Default)]
pub struct Check {
    /// Nonce of the last ones.
    nonce: AtomicU64,
    /// A bit for each of them that has not come back.
    awaited: AtomicU32,
    state: Mutex<CheckState>,
}

#[derive(Default)]
struct CheckState {
    /// When the last ones left, if they are not judged yet.
    sent: Option<u64>,
    /// When the next ones leave.
    due: u64,
    /// Nanoseconds from one check to the next: longer while they find what steering does not mend.
    interval: u64,
    /// How many were made: blocks take turns.
    made: usize,
}

impl Check {
    /// Takes note of a datagram that is a check of this process's. False: it is something else.
    pub fn take(&self, arrival: &MessageInfo, bytes: &[u8]) -> bool {
        let Some(check) = bytes.first_chunk::<CHECK_BYTES>() else { return false };
        if check[0] != CHECK || bytes.len() != CHECK_BYTES || !arrival.source.is_loopback() {
            return false;
        }
        // An old one, or a stranger's, changes nothing.
        if u64::from_ne_bytes(eight(&check[8..])) == self.nonce.load(Ordering::Acquire) && check[1] < 32 {
            self.awaited.fetch_and(!(1 << check[1]), Ordering::AcqRel);
        }
        true
    }

    /// Does the next step: sends, or judges what was sent once everything that had come by then was handed over, which is the case
    /// up to `rx_watermark`. True: something did not come back.
    pub fn keep_up(
        &self,
        (now, rx_watermark): (u64, u64),
        nonce: impl FnOnce() -> u64,
        port: &UdpPort,
        blocks: impl Fn() -> Vec<u16>,
    ) -> bool {
        let Some(mut state) = self.state.try_lock() else { return false };
        if let Some(sent) = state.sent {
            let lost = self.awaited.load(Ordering::Acquire) != 0;
            if lost && rx_watermark < sent + STEERING_TIME {
                return false;
            }
            state.sent = None;
            state.interval =
                if lost { (2 * state.interval).min(STEERING_CHECK_MOST) } else { STEERING_CHECK };
            state.due = now + state.interval;
            return lost;
        }
        if now < state.due {
            return false;
        }
        let blocks = blocks();
        state.made = state.made.wrapping_add(1);
        state.interval = state.interval.max(STEERING_CHECK);
        state.due = now + state.interval;
        if let Some(block) = blocks.get(state.made % blocks.len().max(1)) {
            self.send(*block, nonce(), port);
            state.sent = Some(now);
        }
        false
    }

    /// When [`keep_up`](Self::keep_up) has something to do again.
    pub fn due(&self) -> u64 {
        let state = self.state.lock();
        state.sent.map_or(state.due, |sent| sent + STEERING_TIME)
    }

    fn send(&self, block: u16, nonce: u64, port: &UdpPort) {
        self.awaited.store(0, Ordering::Release);
        self.nonce.store(nonce, Ordering::Release);
        let mut number = 0;
        for (family, socket) in port.sockets() {
            let mut routes = vec![to_own_host(family)];
            if family == Family::V4 {
                let other = nonce.to_ne_bytes();
                let sources =
                    (1..OVER_IPV4).map(|index| Ipv4Addr::new(127, other[0], index as u8, other[1] | 1));
                routes.extend(
                    sources.map(|source| Route { source: IpAddr::V4(source), ..to_own_host(family) }),
                );
            }
            let datagrams: Vec<_> =
                (number..).take(routes.len()).map(|number| datagram(number, block, nonce)).collect();
            let transmits: Vec<Transmit<'_>> = routes
                .iter()
                .zip(&datagrams)
                .map(|(route, bytes)| Transmit { route, bytes, segment: None })
                .collect();
            let all = bits(number, transmits.len());
            // They may be back before the call is.
            self.awaited.fetch_or(all, Ordering::AcqRel);
            let sent = udp::send(socket, &transmits).unwrap_or_else(|error| {
                // A loopback device that is down, or has no address: nothing can be found out.
                log::debug!("no check of the steering: {error}");
                0
            });
            self.awaited.fetch_and(!all | bits(number, sent), Ordering::AcqRel);
            number += transmits.len() as u8;
        }
    }
}

/// So many bits from one on.
fn bits(first: u8, count: usize) -> u32 {
    ((1 << count) - 1) << first
}

fn datagram(number: u8, block: u16, nonce: u64) -> [u8; CHECK_BYTES] {
    let mut bytes = [0; CHECK_BYTES];
    bytes[0] = CHECK;
    bytes[1] = number;
    bytes[4..8].copy_from_slice(&(u32::from(block) * QUEUE_PAIRS_PER_BLOCK).to_be_bytes());
    bytes[8..].copy_from_slice(&nonce.to_ne_bytes());
    bytes
}
