//! Datagrams that came to the wrong process: those of other processes are handed on to them, and theirs taken.

use super::Network;
use super::receiving::{DatagramSink, ReceiveCursor};
use crate::limits::{FORWARD_HEADER, FORWARD_RETRY, FORWARD_ROUND, RECEIVE_BYTES, SOCKET_BUFFER};
use crate::sockets::ReceivedMessage;
use crate::udp::MessageInfo;
use crate::{forward, names, sockets};
use rustix::process::{Uid, geteuid};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

impl Network {
    pub(super) fn hand_on(&self, block: u32, arrival: &MessageInfo, bytes: &[u8], datagrams: u64) {
        let header = forward::header(arrival);
        let mut waiting = self.waiting.lock();
        let sent = if waiting.has(block) {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            names::of_forwarding(block)
                .and_then(|name| sockets::send_datagram(&self.hand_on, &name, &header, bytes))
        };
        let taken = match sent {
            Ok(()) => true,
            // The queue of a UNIX socket is short, and its reader may not be running.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.any_waits.store(true, Ordering::SeqCst);
                waiting.push(block, [&header[..], bytes].concat())
            }
            Err(_) => false,
        };
        drop(waiting);
        if taken {
            self.counters.forwarded.add(datagrams);
            if let Some(steering) = &self.steering {
                steering.want();
            }
        } else {
            self.counters.unknown_block.add(datagrams);
        }
    }

    /// Hands on what others had no room for before, if that was not tried just now.
    pub(super) fn hand_on_waiting(&self, now: u64) {
        if !self.any_waits.load(Ordering::SeqCst) {
            return;
        }
        let mut waiting = self.waiting.lock();
        if now.saturating_sub(waiting.tried) < FORWARD_RETRY {
            return;
        }
        waiting.tried = now;
        waiting.retry(|block, message| {
            let sent = names::of_forwarding(block)
                .and_then(|name| sockets::send_datagram(&self.hand_on, &name, message, &[]));
            !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        self.any_waits.store(!waiting.blocks.is_empty(), Ordering::SeqCst);
    }

    /// Whether a process of this user may hand on a datagram from there. Those that share the port belong to the user who bound it, or did:
    /// a process may have changed its user since. Of anybody else nothing is taken that it could not have sent to the port itself:
    /// a datagram from an address of this host.
    fn may_forward(&self, sender: u32, source: IpAddr) -> bool {
        self.is_trusted(sender) || self.addresses.contains(source, now()).unwrap_or(false)
    }

    fn is_trusted(&self, sender: u32) -> bool {
        sender == self.user.as_raw() || sender == geteuid().as_raw() || Uid::from_raw(sender).is_root()
    }

    pub(super) fn read_forwarded(
        &self,
        receiving: &mut ReceiveCursor,
        index: usize,
        limit: usize,
        taker: &mut DatagramSink<'_>,
    ) -> usize {
        // Not held while messages are handed over: that may take as long as a page does.
        let socket = self.forwards.read().get(index).map(|(_, socket)| socket.clone());
        let Some(socket) = socket else { return 0 };
        let mut handed = 0;
        for _ in 0..FORWARD_ROUND {
            if handed >= limit || receiving.is_left() {
                break;
            }
            let Forwarded { buffer, length, offset, .. } = &mut receiving.forwarded;
            buffer.resize(FORWARD_HEADER + RECEIVE_BYTES, 0);
            (*length, *offset) = (0, 0);
            let (sender, files) = match sockets::receive_datagram_with_files(&socket, buffer) {
                Ok(Some(ReceivedMessage { length: received, sender, files })) => {
                    *length = received;
                    (sender, files)
                }
                Ok(None) => break,
                Err(error) => {
                    log::debug!("nothing received from another process: {error}");
                    break;
                }
            };
            if !files.is_empty() {
                let message = &buffer[..*length];
                let taken = self.is_trusted(sender)
                    && self.streams.take_handed(message, files, &|block| self.serves(block));
                *length = 0;
                self.counters.bad_length.add(u64::from(!taken));
                continue;
            }
            let source = receiving.forwarded.message().map(|(arrival, _)| arrival.source);
            // As for the sockets of ports.
            let is_clear = self.streams.is_encrypted();
            if source.is_some_and(|source| is_clear || !self.may_forward(sender, source)) {
                receiving.forwarded.length = 0;
                continue;
            }
            match receiving.forwarded.message() {
                Some((arrival, bytes)) => {
                    self.counters.forwarded_here.add(bytes.len().div_ceil(arrival.segment) as u64);
                }
                None => self.counters.bad_length.add(1),
            }
            handed += self.hand_over(receiving, limit - handed, taker);
        }
        handed
    }
}

/// Nanoseconds of the clock by which the host's addresses are looked up anew.
fn now() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Messages for other processes that had no room for them; as many bytes at most as a socket has, a quarter of them for one process.
#[derive(Default)]
pub(super) struct ForwardBacklog {
    blocks: HashMap<u32, BlockQueue>,
    bytes: usize,
    /// When they were last tried.
    tried: u64,
}

#[derive(Default)]
struct BlockQueue {
    messages: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl ForwardBacklog {
    /// Whether something waits for the process behind a block: what comes later must not overtake it.
    fn has(&self, block: u32) -> bool {
        self.blocks.contains_key(&block)
    }

    /// Adds a message; false: too much waits.
    fn push(&mut self, block: u32, message: Vec<u8>) -> bool {
        let queued = self.blocks.get(&block).map_or(0, |queue| queue.bytes);
        if self.bytes + message.len() > SOCKET_BUFFER || queued + message.len() > SOCKET_BUFFER / 4 {
            return false;
        }
        self.bytes += message.len();
        let queue = self.blocks.entry(block).or_default();
        queue.bytes += message.len();
        queue.messages.push_back(message);
        true
    }

    /// Tries the messages of each block in order, until one has to wait on. `send` tells whether a message is done with.
    fn retry(&mut self, mut send: impl FnMut(u32, &[u8]) -> bool) {
        let bytes = &mut self.bytes;
        self.blocks.retain(|block, queue| {
            while let Some(message) = queue.messages.front() {
                if !send(*block, message) {
                    break;
                }
                *bytes -= message.len();
                queue.bytes -= message.len();
                queue.messages.pop_front();
            }
            !queue.messages.is_empty()
        });
    }
}

/// The last message from another process, and how far it has been handed over.
#[derive(Default)]
pub(super) struct Forwarded {
    buffer: Vec<u8>,
    length: usize,
    pub offset: usize,
}

impl Forwarded {
    /// What is left of it, as the whole message.
    #[inline]
    pub fn message(&self) -> Option<(MessageInfo, &[u8])> {
        // Mostly there is none, or nothing is left of it.
        if self.offset.saturating_add(FORWARD_HEADER) >= self.length { None } else { self.parse() }
    }

    fn parse(&self) -> Option<(MessageInfo, &[u8])> {
        forward::parse(self.buffer.get(..self.length)?).filter(|(_, bytes)| self.offset < bytes.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that is stopped keeps neither the others' messages from being handed on nor the room that they need.
    #[test]
    fn stopped_reader_delays_no_other() {
        let mut waiting = ForwardBacklog::default();
        let message = || vec![0; SOCKET_BUFFER / 16];
        let mut taken = 0;
        while waiting.push(1, message()) {
            taken += 1;
        }
        assert_eq!(taken, 4);
        assert!(waiting.push(2, message()) && waiting.push(2, message()));
        let mut sent = Vec::new();
        waiting.retry(|block, _| {
            sent.push(block);
            block == 2
        });
        sent.sort_unstable();
        assert_eq!(sent, [1, 2, 2], "one try of what has to wait on");
        assert!(waiting.has(1) && !waiting.has(2));
        waiting.retry(|_, _| true);
        assert!(!waiting.has(1) && waiting.bytes == 0 && waiting.push(1, message()));
    }
}
