//! Datagrams that came to the wrong process: those of other processes are handed on to them, and theirs taken.

use super::Network;
use super::receiving::{Receiving, Taker};
use crate::limits::{FORWARD_HEADER, FORWARD_ROUND, RECEIVE_BYTES, SOCKET_BUFFER};
use crate::udp::Arrival;
use crate::{forward, names, sockets};
use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::atomic::Ordering;

impl Network {
    pub(super) fn hand_on(&self, block: u32, arrival: &Arrival, bytes: &[u8], datagrams: u64) {
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

    /// Hands on what others had no room for before. True: something still waits.
    pub(super) fn hand_on_waiting(&self) -> bool {
        if !self.any_waits.load(Ordering::SeqCst) {
            return false;
        }
        let mut waiting = self.waiting.lock();
        waiting.retry(|block, message| {
            let sent = names::of_forwarding(block)
                .and_then(|name| sockets::send_datagram(&self.hand_on, &name, message, &[]));
            !sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        });
        let left = !waiting.messages.is_empty();
        self.any_waits.store(left, Ordering::SeqCst);
        left
    }

    pub(super) fn read_forwarded(
        &self,
        receiving: &mut Receiving,
        index: usize,
        limit: usize,
        taker: &mut Taker<'_>,
    ) -> usize {
        let forwards = self.forwards.read();
        let Some((_, socket)) = forwards.get(index) else { return 0 };
        let mut handed = 0;
        for _ in 0..FORWARD_ROUND {
            if handed >= limit || receiving.is_left() {
                break;
            }
            let Forwarded { buffer, length, offset, .. } = &mut receiving.forwarded;
            buffer.resize(FORWARD_HEADER + RECEIVE_BYTES, 0);
            (*length, *offset) = (0, 0);
            match sockets::receive_datagram(socket, buffer, self.user) {
                Ok(Some(received)) => *length = received,
                Ok(None) => break,
                Err(error) => {
                    log::debug!("nothing received from another process: {error}");
                    break;
                }
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

/// Messages for other processes that had no room for them; as many bytes at most as a socket has.
#[derive(Default)]
pub(super) struct Waiting {
    messages: VecDeque<(u32, Vec<u8>)>,
    bytes: usize,
}

impl Waiting {
    /// Whether something waits for the process behind a block: what comes later must not overtake it.
    fn has(&self, block: u32) -> bool {
        self.messages.iter().any(|(other, _)| *other == block)
    }

    /// Adds a message; false: too much waits.
    fn push(&mut self, block: u32, message: Vec<u8>) -> bool {
        if self.bytes + message.len() > SOCKET_BUFFER {
            return false;
        }
        self.bytes += message.len();
        self.messages.push_back((block, message));
        true
    }

    /// Tries each message, in order; after the first of a block that has to wait on the others of that block do, too. `send`
    /// tells whether a message is done with.
    fn retry(&mut self, mut send: impl FnMut(u32, &[u8]) -> bool) {
        let mut full = HashSet::new();
        let bytes = &mut self.bytes;
        self.messages.retain(|(block, message)| {
            let waits = full.contains(block) || !send(*block, message);
            if waits {
                full.insert(*block);
            } else {
                *bytes -= message.len();
            }
            waits
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
    pub fn message(&self) -> Option<(Arrival, &[u8])> {
        // Mostly there is none, or nothing is left of it.
        if self.offset.saturating_add(FORWARD_HEADER) >= self.length { None } else { self.parse() }
    }

    fn parse(&self) -> Option<(Arrival, &[u8])> {
        forward::parse(self.buffer.get(..self.length)?).filter(|(_, bytes)| self.offset < bytes.len())
    }
}
