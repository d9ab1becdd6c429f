//! Receives: posting them, and checking what arrived in them.

use super::connection::{ConnectionEnd, ExpectedMessage, Phase, PostedReceive};
use super::driver::Workload;
use super::party::{SHARED_RECEIVE, Zone, ZoneUse};
use super::{Violation, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::{Completion, CompletionOpcode, ReceiveRequest, RoutingHeader, Status};
use pagewire_wire::datagram::NetworkHeader;
use pagewire_wire::grh;
use std::net::IpAddr;

/// Requests of receives are numbered from here on.
pub const RECEIVE_IDS: u64 = 1 << 63;
/// Bytes that every receive holds at least.
pub const SHORTEST_RECEIVE: u64 = 512;
/// Bytes in front of a datagram.
pub const GLOBAL_ROUTE: u64 = 40;
/// Receives of one queue pair.
const RECEIVES: usize = 8;

/// Receives of the shared queues of a party, which have equal shares: where memory is short, and where it is not.
const SHARED_LEAST: usize = 24;
const SHARED_MOST: usize = 96;

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Posts receives to a party's shared queues. True: it did.
    pub(super) fn replenish_shared(&mut self, party: usize) -> Result<bool, Violation> {
        let mut posted = false;
        for index in 0..self.parties[party].shared.len() {
            while self.wants_shared_receive(party, index) && self.post_shared_receive(party, index)? {
                posted = true;
            }
        }
        Ok(posted)
    }

    /// Posts receives where some are missing on a connection. True: it did.
    pub(super) fn replenish(&mut self, connection: usize) -> Result<bool, Violation> {
        let mut posted = false;
        for side in 0..2 {
            let link = &self.connections[connection];
            let end = &link.ends[side];
            let dead = self.parties[end.party].dead;
            let wanted = link.phase == Phase::Running && !end.shared && !end.failed && !dead;
            // Now and then there are none: the other side learns of RNR.
            while wanted && self.connections[connection].ends[side].receives.len() < RECEIVES {
                if !self.post_receive(connection, side)? {
                    break;
                }
                posted = true;
                if self.random.u32(0..4) == 0 {
                    break;
                }
            }
        }
        Ok(posted)
    }

    /// Whether memory for receives is short.
    fn is_crowded(&self, party: usize) -> bool {
        let receives = |zone: &&Zone<F>| zone.kind == ZoneUse::Receives;
        self.parties[party].zones.iter().filter(receives).any(|zone| zone.space.is_crowded())
    }

    fn wants_shared_receive(&self, party: usize, index: usize) -> bool {
        let shared = &self.parties[party].shared;
        let posted = shared[index].receives.len() * shared.len();
        posted < SHARED_LEAST || posted < SHARED_MOST && !self.is_crowded(party)
    }

    fn post_shared_receive(&mut self, party: usize, index: usize) -> Result<bool, Violation> {
        let count = self.random.usize(1..=4);
        let owner = &mut self.parties[party];
        let Some(pieces) = owner.take_pieces(&mut self.random, ZoneUse::Receives, SHARED_RECEIVE, count)
        else {
            return Ok(false);
        };
        let id = RECEIVE_IDS + self.next_id;
        self.next_id += 1;
        let segments = owner.segments(&pieces);
        let posted = owner.shared[index].queue.post(&ReceiveRequest { wr_id: id, segments: &segments });
        pieces.iter().for_each(|piece| owner.unsettle(piece.address, piece.length));
        owner.shared[index].receives.insert(id, PostedReceive { id, pieces });
        posted
            .map_err(|error| self.violation(format!("a receive was refused by a shared queue: {error}")))?;
        Ok(true)
    }

    fn post_receive(&mut self, connection: usize, side: usize) -> Result<bool, Violation> {
        let kind = self.connections[connection].kind;
        let party = self.connections[connection].ends[side].party;
        // What is left is for those that have none.
        let crowded = self.is_crowded(party);
        let length = match (kind, self.random.u32(0..64)) {
            (QueuePairType::Ud, _) => {
                u64::from(self.parties[party].context.device().mtu.bytes()) + GLOBAL_ROUTE
            }
            _ if crowded => SHORTEST_RECEIVE,
            (_, 0) => u64::from(self.plan.longest),
            (_, 1..6) => 64 << 10,
            _ => self.random.u64(SHORTEST_RECEIVE..=8192),
        }
        .max(SHORTEST_RECEIVE);
        let count = self.random.usize(1..=8);
        let owner = &mut self.parties[party];
        let Some(pieces) = owner.take_pieces(&mut self.random, ZoneUse::Receives, length, count) else {
            return Ok(false);
        };
        let id = RECEIVE_IDS + self.next_id;
        self.next_id += 1;
        let segments = owner.segments(&pieces);
        let end = &mut self.connections[connection].ends[side];
        let posted = end.queue_pair.post_receive(&ReceiveRequest { wr_id: id, segments: &segments });
        pieces.iter().for_each(|piece| owner.unsettle(piece.address, piece.length));
        end.receives.push_back(PostedReceive { id, pieces });
        posted.map_err(|error| self.violation(format!("a receive was refused: {error}")))?;
        Ok(true)
    }

    /// Checks the completion of a receive.
    pub(super) fn receive_completed(
        &mut self,
        connection: usize,
        side: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let end = &mut self.connections[connection].ends[side];
        let party = end.party;
        let queue = end.expected.front().map_or(0, |message| message.queue);
        let receive = match end.shared {
            true => self.parties[party].shared[queue].receives.remove(&completion.wr_id),
            false => end.receives.pop_front().filter(|receive| receive.id == completion.wr_id),
        };
        let Some(receive) = receive else {
            return Err(self.violation(format!("a receive completed twice or out of order: {completion:?}")));
        };
        if completion.status != Status::Success {
            // The requester may have given up before its completion is looked at; see `send_completed`.
            let may_fail = self.connections[connection].may_fail || self.may_be_given_up(connection);
            let end = &self.connections[connection].ends[side];
            let refused = completion.status == Status::RemoteInvalidRequest
                && end.expected.front().is_some_and(|message| message.invalidates);
            if !may_fail || completion.status != Status::Flushed && !refused {
                return Err(self.violation(format!("a receive failed: {completion:?}")));
            }
            self.report.errors += 1;
            let link = &mut self.connections[connection];
            (link.may_fail, link.ends[side].failed) = (true, true);
            self.connections[connection].flushed.push((side, receive));
            self.begin_failing(connection);
            return Ok(());
        }
        let message = self.match_message(connection, side, completion, &receive)?;
        self.check_arrival(connection, side, completion, &receive, &message)?;
        self.release_receive(party, &receive)
    }

    /// What was received: the next message, or where some may be lost, any late one that fits.
    fn match_message(
        &mut self,
        connection: usize,
        side: usize,
        completion: &Completion,
        receive: &PostedReceive,
    ) -> Result<ExpectedMessage, Violation> {
        let kind = self.connections[connection].kind;
        if !kind.is_reliable() {
            self.report.unreliable_received += 1;
            self.report.group_received += u64::from(self.connections[connection].ends[side].group.is_some());
        }
        if self.plan.exact || kind.is_reliable() {
            return self.connections[connection].ends[side]
                .expected
                .pop_front()
                .ok_or_else(|| self.violation(format!("received what nobody sent: {completion:?}")));
        }
        let front = if kind == QueuePairType::Ud { GLOBAL_ROUTE } else { 0 };
        let length = u64::from(completion.byte_length).saturating_sub(front);
        let party = self.connections[connection].ends[side].party;
        let bytes = self.received(party, receive, front + length);
        let fits = |message: &&ExpectedMessage| {
            message.length == length
                && message.immediate == completion.immediate
                && message.solicited == completion.solicited
                && message.write == (completion.opcode == CompletionOpcode::ReceiveWriteImmediate)
                && (message.write || bytes[front as usize..] == pattern::of(message.id, length as usize))
        };
        let found = self.connections[connection].ends[side].history.iter().rev().find(fits).copied();
        found.ok_or_else(|| self.violation(format!("received what nobody sent: {completion:?}")))
    }

    /// The first bytes that a receive holds now.
    pub(super) fn received(&self, party: usize, receive: &PostedReceive, length: u64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length as usize);
        for piece in &receive.pieces {
            let take = piece.length.min(length - bytes.len() as u64);
            if take > 0 {
                bytes.extend_from_slice(&self.parties[party].memory(piece.address, take));
            }
        }
        bytes
    }

    /// Whether the global routing header in front of a datagram is whole, is of the version that its completion says, and tells
    /// where the datagram came from and went to.
    fn names(&self, bytes: &[u8], from: usize, to: &ConnectionEnd<F>, version: RoutingHeader) -> bool {
        let address_of = |party: usize| self.parties[party].context.device().gids[0].address;
        let (source, destination) =
            (address_of(from), to.group.map_or_else(|| address_of(to.party), IpAddr::from));
        match grh::parse(bytes) {
            Ok(NetworkHeader::Ipv4(header)) => {
                version == RoutingHeader::Ipv4
                    && (IpAddr::from(header.source), IpAddr::from(header.destination))
                        == (source, destination)
            }
            Ok(NetworkHeader::Ipv6(header)) => {
                version == RoutingHeader::Ipv6
                    && (IpAddr::from(header.source), IpAddr::from(header.destination))
                        == (source, destination)
            }
            Err(_) => false,
        }
    }

    fn check_arrival(
        &mut self,
        connection: usize,
        side: usize,
        completion: &Completion,
        receive: &PostedReceive,
        message: &ExpectedMessage,
    ) -> Result<(), Violation> {
        let kind = self.connections[connection].kind;
        let party = self.connections[connection].ends[side].party;
        let front = if kind == QueuePairType::Ud { GLOBAL_ROUTE } else { 0 };
        let opcode =
            if message.write { CompletionOpcode::ReceiveWriteImmediate } else { CompletionOpcode::Receive };
        let as_sent = completion.opcode == opcode
            && completion.immediate == message.immediate
            && completion.solicited == message.solicited
            && u64::from(completion.byte_length) == message.length + front
            && (completion.routing_header != RoutingHeader::None) == (kind == QueuePairType::Ud);
        if !as_sent {
            return Err(
                self.violation(format!("{completion:?} does not fit {message:?} of a {kind:?} connection"))
            );
        }
        let placed = if message.write { 0 } else { front + message.length };
        let bytes = self.received(party, receive, receive.length());
        let body = pattern::of(message.id, message.length as usize);
        let sender = &self.connections[connection].ends[1 - side];
        if kind == QueuePairType::Ud && completion.source_queue_pair != sender.queue_pair.number() {
            // Messages of an earlier queue pair in its place may still arrive where the network is bad.
            if self.plan.exact {
                return Err(self.violation(format!("a datagram from the wrong queue pair: {completion:?}")));
            }
        }
        let version = completion.routing_header;
        let receiver = &self.connections[connection].ends[side];
        if kind == QueuePairType::Ud && !self.names(&bytes, sender.party, receiver, version) {
            return Err(self.violation(format!("the global route in front of {message:?} is wrong")));
        }
        if !message.write && bytes[front as usize..placed as usize] != body {
            let place = pattern::difference(&bytes[front as usize..placed as usize], &body);
            return Err(self.violation(format!("byte {place:?} of received {message:?} is wrong")));
        }
        // Behind the message nothing was touched.
        let mut at = 0;
        for piece in &receive.pieces {
            let from = (placed as usize).clamp(at, at + piece.length as usize);
            let before = &self.parties[party].expected(piece.address, piece.length)[from - at..];
            at += piece.length as usize;
            if bytes[from..at] != *before {
                return Err(self.violation(format!("bytes behind received {message:?} were touched")));
            }
        }
        if message.write && kind.is_reliable() {
            self.check_write_landed(connection, 1 - side, message.id)?;
        }
        self.report.bytes_checked += bytes.len() as u64;
        Ok(())
    }

    /// What a receive holds is what it should; its memory may be used for other things.
    pub(super) fn release_receive(&mut self, party: usize, receive: &PostedReceive) -> Result<(), Violation> {
        self.check_guards(party, &receive.pieces)?;
        let owner = &mut self.parties[party];
        for piece in &receive.pieces {
            let bytes = owner.memory(piece.address, piece.length);
            owner.expect(piece.address, &bytes);
            owner.leave_flux(piece.address);
            owner.give_back(piece);
        }
        self.thaw(party, &receive.pieces);
        Ok(())
    }
}
