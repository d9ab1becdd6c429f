//! Bringing connections up, down and up again.

use super::connection::{ConnectionEnd, Phase, PostedRequest, RequestKind, SimConnection, kind_at};
use super::driver::Workload;
use super::party::Party;
use super::post::{INLINE, QUEUE_KEY};
use super::space::RequestRange;
use super::{Violation, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{Error, QueuePairInit, Rights, XrcOpener};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Nanoseconds in which a queue pair in ERR must have flushed.
const FLUSH_TIME: u64 = 1_000_000_000;
/// Nanoseconds in which requests to a silent peer must fail.
const NOTICE_TIME: u64 = 20_000_000_000;
/// Times that a call is repeated while a dead process seems to be busy.
const BUSY_TRIES: u32 = 3;

pub(super) fn rights() -> Rights {
    Rights::LOCAL_WRITE | Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::REMOTE_ATOMIC | Rights::FLUSH
}

pub(super) fn create_end<F: Fabric>(
    parties: &mut [Party<F>],
    random: &mut fastrand::Rng,
    (party, peer): (usize, usize),
    kind: QueuePairType,
    shared: bool,
    groups: EndGroups,
) -> Result<ConnectionEnd<F>, Error> {
    let mut vector = address_of(&parties[peer]);
    if let Some(group) = groups.peer {
        vector.destination_gid = group.to_ipv6_mapped().octets();
    }
    let owner = &mut parties[party];
    let common = random.u32(0..4) == 0;
    let init = QueuePairInit {
        kind,
        send_cq: if common { owner.common_cq.clone() } else { owner.send_cq.clone() },
        recv_cq: if common { owner.common_cq.clone() } else { owner.receive_cq.clone() },
        srq: (shared && !kind.is_xrc()).then(|| owner.shared[0].queue.clone()),
        capabilities: QpCapabilities {
            max_send_wr: 32,
            max_recv_wr: 32,
            max_send_sge: 8,
            max_recv_sge: 8,
            max_inline_data: INLINE,
        },
        signal_all: false,
        xrc: None,
    };
    let address = if kind == QueuePairType::Ud { Some(owner.domain.create_ah(&vector)?) } else { None };
    let queue_pair = match owner.xrc.as_ref().filter(|_| kind == QueuePairType::XrcReceive) {
        Some(xrc) => xrc.create_queue_pair()?,
        None => pagewire_nic::QueuePair::create(&owner.domain, init)?,
    };
    // Events name it by this.
    queue_pair.set_cookie(u64::from(queue_pair.number()));
    if let Some(group) = groups.own {
        queue_pair.attach_group(group.to_ipv6_mapped().octets())?;
    }
    Ok(ConnectionEnd {
        party,
        queue_pair,
        shared,
        sends: VecDeque::new(),
        receives: VecDeque::new(),
        expected: VecDeque::new(),
        history: VecDeque::new(),
        unsignaled: 0,
        failed: false,
        send_failed: false,
        stopped: None,
        stop_at: 0,
        pause: None,
        window: None,
        address,
        group: groups.own,
        incarnation: 0,
    })
}

impl<F: Fabric> ConnectionEnd<F> {
    /// Its queue pair leaves the group that it is in, if it is in one: else it cannot be destroyed.
    pub(super) fn leave_group(&self) -> Result<(), Error> {
        self.group.map_or(Ok(()), |group| self.queue_pair.detach_group(group.to_ipv6_mapped().octets()))
    }
}

/// The multicast groups by which messages come to an end and to the other one.
#[derive(Clone, Copy, Default)]
pub(super) struct EndGroups {
    pub own: Option<Ipv4Addr>,
    pub peer: Option<Ipv4Addr>,
}

pub(super) fn address_of<F: Fabric>(party: &Party<F>) -> AddressVector {
    AddressVector {
        destination_gid: party.context.device().gids[0].raw(),
        is_global: true,
        hop_limit: 64,
        port: 1,
        ..AddressVector::default()
    }
}

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Makes a connection between two parties, down as yet. `None`: one of them is dead.
    pub(super) fn create_connection(
        &mut self,
        parties: (usize, usize),
        kind: QueuePairType,
    ) -> Result<Option<SimConnection<F>>, Violation> {
        let mut ends = Vec::with_capacity(2);
        let groups = self.draw_groups(kind);
        for (side, (party, peer)) in [(parties.0, parties.1), (parties.1, parties.0)].into_iter().enumerate()
        {
            let shared = self.draw_shared(kind);
            let own = kind_at(kind, side);
            let groups = EndGroups { own: groups[side], peer: groups[1 - side] };
            match create_end(&mut self.parties, &mut self.random, (party, peer), own, shared, groups) {
                Ok(mut end) => {
                    if kind == QueuePairType::Uc {
                        end.window = Some(self.parties[party].take_window(self.random.u64(..)));
                    }
                    ends.push(end);
                }
                Err(_) if !self.stage.is_alive(party) => return Ok(None),
                Err(error) => return Err(self.violation(format!("a queue pair cannot be created: {error}"))),
            }
        }
        let [Some(one), Some(other)] = [ends.pop(), ends.pop()] else { return Ok(None) };
        Ok(Some(SimConnection {
            kind,
            ends: [other, one],
            phase: Phase::Cooling(0),
            may_fail: false,
            failed: Vec::new(),
            flushed: Vec::new(),
            temporary: None,
        }))
    }

    /// Multicast groups for the two ends of every second connection by UD, in the place of their addresses.
    fn draw_groups(&mut self, kind: QueuePairType) -> [Option<Ipv4Addr>; 2] {
        if kind != QueuePairType::Ud || !self.plan.groups || self.random.bool() {
            return [None; 2];
        }
        // 239.0.0.1 and those that follow.
        let first = 0xEF00_0001 + 2 * self.connections.len() as u32;
        [first, first + 1].map(|group| Some(Ipv4Addr::from_bits(group)))
    }

    /// As [`ConnectionEnd::leave_group`], which fails for dead parties only.
    pub(super) fn leave_group(&self, connection: usize, side: usize) -> Result<(), Violation> {
        let end = &self.connections[connection].ends[side];
        match end.leave_group() {
            // A dead party may have ended between this and the queue pair that follows.
            Err(error) if self.stage.is_alive(end.party) => {
                Err(self.violation(format!("a queue pair does not leave its group: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Whether an end of such a connection has a shared receive queue.
    pub(super) fn draw_shared(&mut self, kind: QueuePairType) -> bool {
        kind.is_xrc() || kind == QueuePairType::Rc && self.random.u32(0..4) == 0
    }

    /// RESET to RTS at both ends.
    fn bring_up(&mut self, connection: usize) -> Result<(), Violation> {
        let psns = [self.random.u32(0..1 << 24), self.random.u32(0..1 << 24)];
        // Now and then the numbers wrap soon.
        let psns = psns.map(|psn| if self.random.u32(0..4) == 0 { 0xFF_FFF0 | psn } else { psn });
        let kind = self.connections[connection].kind;
        for side in 0..2 {
            let link = &self.connections[connection];
            let (end, peer) = (&link.ends[side], &link.ends[1 - side]);
            // Requests go one way in an extended reliable connection.
            let asks = kind.is_reliable() && link.sends_at(side);
            let answers = kind.is_reliable() && link.sends_at(1 - side);
            let connected = kind != QueuePairType::Ud;
            let mtu = self.parties[end.party].context.device().mtu;
            let init = QueuePairChange {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: connected.then(rights),
                queue_key: (!connected).then_some(QUEUE_KEY),
                ..QueuePairChange::default()
            };
            let receive = QueuePairChange {
                state: Some(QpState::ReadyToReceive),
                address: connected.then(|| address_of(&self.parties[peer.party])),
                path_mtu: connected.then_some(mtu),
                destination: connected.then(|| peer.queue_pair.number()),
                receive_psn: connected.then_some(psns[1 - side]),
                max_dest_read_atomic: answers.then_some(8),
                min_rnr_timer: answers.then_some(8),
                ..QueuePairChange::default()
            };
            let send = QueuePairChange {
                state: Some(QpState::ReadyToSend),
                send_psn: Some(psns[side]),
                timeout: kind.is_reliable().then_some(self.plan.timeout),
                retry_count: asks.then_some(self.plan.retry_count),
                rnr_retry: asks.then_some(7),
                max_read_atomic: asks.then_some(8),
                ..QueuePairChange::default()
            };
            let (queue_pair, party) = (end.queue_pair.clone(), end.party);
            for change in [init, receive, send] {
                if let Err(error) = queue_pair.modify(&change) {
                    if !self.stage.is_alive(party) {
                        return Ok(());
                    }
                    return Err(
                        self.violation(format!("a queue pair cannot go to {:?}: {error}", change.state))
                    );
                }
            }
        }
        let numbers = [0, 1].map(|side| self.connections[connection].ends[side].queue_pair.number());
        self.stage.note(connection, &|| format!("queue pairs {numbers:#x?} are up, first PSNs {psns:#x?}"));
        self.next_incarnation += 2;
        let incarnation = self.next_incarnation;
        let link = &mut self.connections[connection];
        for (side, end) in link.ends.iter_mut().enumerate() {
            (end.failed, end.send_failed, end.stopped, end.unsignaled) = (false, false, None, 0);
            end.pause = None;
            end.incarnation = incarnation + side as u64;
        }
        link.may_fail = false;
        link.phase = Phase::Running;
        Ok(())
    }

    /// An error was seen: the connection has to come down.
    pub(super) fn begin_failing(&mut self, connection: usize) {
        let now = self.stage.now();
        let natural = self.random.bool() && self.connections[connection].kind.is_reliable();
        let link = &mut self.connections[connection];
        if link.phase != Phase::Running {
            return;
        }
        link.phase = Phase::Failing(now);
        for end in &mut link.ends {
            // Half of the time the other end has to find out by itself.
            end.stop_at = if natural { u64::MAX } else { now + self.random.u64(0..2_000_000) };
            if end.pause.take().is_some() {
                // In SQD nothing is sent that could fail.
                end.stop_at = now;
            }
        }
    }

    /// Moves one end to ERR or RESET. From now on nothing may land in its memory through it.
    pub(super) fn stop(&mut self, connection: usize, side: usize, to: QpState) -> Result<(), Violation> {
        let end = &self.connections[connection].ends[side];
        let (party, queue_pair) = (end.party, end.queue_pair.clone());
        let change = QueuePairChange { state: Some(to), ..QueuePairChange::default() };
        self.stage.note(connection, &|| format!("party {party} moves its queue pair to {to:?}"));
        let changed = self.patiently(party, || queue_pair.modify(&change));
        self.connections[connection].may_fail = true;
        if let (Err(error), true) = (changed, self.stage.is_alive(party)) {
            return Err(self.violation(format!("a queue pair cannot go to {to:?}: {error}")));
        }
        self.freeze_end(connection, side);
        let now = self.stage.now();
        let end = &mut self.connections[connection].ends[side];
        end.stopped = Some(now);
        if to == QpState::Reset {
            self.poll(party)?;
            // What is not complete by now never will be.
            let end = &mut self.connections[connection].ends[side];
            end.failed = true;
            let sends: Vec<PostedRequest> = end.sends.drain(..).collect();
            let receives: Vec<_> = end.receives.drain(..).collect();
            let link = &mut self.connections[connection];
            link.failed.extend(sends.into_iter().map(|posted| (side, posted)));
            link.flushed.extend(receives.into_iter().map(|receive| (side, receive)));
        }
        self.begin_failing(connection);
        Ok(())
    }

    /// Repeats what is refused because a process that has ended seems to be in the middle of an access, until its
    /// engine has heard of that.
    pub(super) fn patiently(&self, party: usize, call: impl Fn() -> Result<(), Error>) -> Result<(), Error> {
        let mut outcome = call();
        for _ in 0..BUSY_TRIES {
            let excused = (0..self.parties.len()).any(|other| !self.stage.is_alive(other));
            if !matches!(outcome, Err(Error::Busy(_))) || !excused {
                break;
            }
            self.parties[party].nic.progress();
            outcome = call();
        }
        outcome
    }

    /// Remembers memory of one end that its queue pair may have written until now.
    fn freeze_end(&mut self, connection: usize, side: usize) {
        let link = &self.connections[connection];
        let (own, peer) = (&link.ends[side], &link.ends[1 - side]);
        let (party, failed) = (own.party, &link.failed);
        let of_peer =
            peer.sends.iter().chain(failed.iter().filter(|(of, _)| *of != side).map(|(_, posted)| posted));
        let targets =
            of_peer.filter(|posted| posted.kind == RequestKind::Write).filter_map(|posted| posted.remote);
        let of_own =
            own.sends.iter().chain(failed.iter().filter(|(of, _)| *of == side).map(|(_, posted)| posted));
        let answers = of_own
            .filter(|posted| matches!(posted.kind, RequestKind::Read | RequestKind::Atomic(_)))
            .flat_map(|posted| posted.pieces.iter().copied());
        let receives = own.receives.iter().flat_map(|receive| receive.pieces.iter().copied());
        let ranges: Vec<RequestRange> = targets.chain(answers).chain(receives).collect();
        for range in ranges {
            self.freeze(party, &range);
        }
    }

    /// Remembers a range that must not change until it is thawed.
    pub(super) fn freeze(&mut self, party: usize, range: &RequestRange) {
        if range.length > 0 {
            let bytes = self.parties[party].memory(range.address, range.length);
            self.frozen.insert((party, range.address), bytes);
        }
    }

    /// Ranges are about to be used for other things.
    pub(super) fn thaw(&mut self, party: usize, ranges: &[RequestRange]) {
        for range in ranges {
            self.frozen.remove(&(party, range.address));
        }
    }

    fn check_frozen(&mut self, party: usize, range: &RequestRange) -> Result<(), Violation> {
        let Some(before) = self.frozen.remove(&(party, range.address)) else { return Ok(()) };
        let now = self.parties[party].memory(range.address, before.len() as u64);
        match pattern::difference(&before, &now) {
            Some(place) if self.stage.is_alive(party) => {
                let address = range.address + place as u64;
                Err(self
                    .violation(format!("{address:#x} was written after its queue pair or region had ended")))
            }
            _ => Ok(()),
        }
    }

    /// Lets time do its work on a connection. True: something happened.
    pub(super) fn tick(&mut self, connection: usize) -> Result<bool, Violation> {
        let now = self.stage.now();
        match self.connections[connection].phase {
            Phase::Running => self.go_on(connection),
            Phase::Gone => Ok(false),
            Phase::Cooling(until) => {
                if now >= until && !self.is_orphaned(connection) {
                    self.bring_up(connection)?;
                    return Ok(true);
                }
                Ok(false)
            }
            Phase::Failing(since) => self.come_down(connection, since, now),
        }
    }

    pub(super) fn is_orphaned(&self, connection: usize) -> bool {
        self.connections[connection].ends.iter().any(|end| self.parties[end.party].dead)
    }

    fn come_down(&mut self, connection: usize, since: u64, now: u64) -> Result<bool, Violation> {
        let mut acted = false;
        for side in 0..2 {
            let link = &self.connections[connection];
            let (end, peer) = (&link.ends[side], &link.ends[1 - side]);
            if self.parties[end.party].dead {
                continue;
            }
            match end.stopped {
                None => {
                    let peer_is_silent =
                        peer.stopped.is_some() || peer.failed || self.parties[peer.party].dead;
                    // What is not signaled may have succeeded long ago.
                    let open = end.sends.iter().any(|posted| posted.signaled);
                    let waits = open && end.stop_at > now && peer_is_silent;
                    if waits && now > since + NOTICE_TIME {
                        let waiting = end.sends.front().map(|posted| posted.id);
                        let what =
                            format!("request {waiting:?} to a silent peer does not fail:{}", self.describe());
                        return Err(self.violation(what));
                    }
                    if !waits {
                        self.stop(connection, side, QpState::Error)?;
                        acted = true;
                    }
                }
                Some(at) => {
                    acted |= self.poll(self.connections[connection].ends[side].party)?;
                    self.finish_silent(connection, side)?;
                    let end = &self.connections[connection].ends[side];
                    let left = end.sends.len() + end.receives.len();
                    if left > 0 && now > at + FLUSH_TIME {
                        let what = format!(
                            "{left} requests of a queue pair in ERR were not flushed (side {side}, sends {:?}, receives {:?}):{}",
                            end.sends,
                            end.receives,
                            self.describe(),
                        );
                        return Err(self.violation(what));
                    }
                }
            }
        }
        let link = &self.connections[connection];
        let down = link.ends.iter().all(|end| {
            self.parties[end.party].dead
                || end.stopped.is_some() && end.sends.is_empty() && end.receives.is_empty()
        });
        if down {
            self.recycle(connection)?;
            return Ok(true);
        }
        Ok(acted)
    }

    /// A queue pair in ERR has flushed. Requests that made no completion were unsignaled and had succeeded before.
    fn finish_silent(&mut self, connection: usize, side: usize) -> Result<(), Violation> {
        let end = &mut self.connections[connection].ends[side];
        if end.send_failed || end.sends.iter().any(|posted| posted.signaled) {
            return Ok(());
        }
        let sends: Vec<PostedRequest> = end.sends.drain(..).collect();
        for posted in sends {
            self.succeeded(connection, side, posted)?;
        }
        Ok(())
    }

    /// Both ends are down: checks what is left, and makes the queue pairs new.
    fn recycle(&mut self, connection: usize) -> Result<(), Violation> {
        self.report.upheavals += 1;
        self.end_temporary(connection)?;
        for side in 0..2 {
            let party = self.connections[connection].ends[side].party;
            if self.parties[party].dead {
                continue;
            }
            let fresh = self.random.u32(0..4) == 0;
            self.renew(connection, side, fresh)?;
            self.poll(party)?;
        }
        let link = &mut self.connections[connection];
        let failed = std::mem::take(&mut link.failed);
        let flushed = std::mem::take(&mut link.flushed);
        if let Some(temporary) = self.connections[connection].temporary.take() {
            let party = self.connections[connection].ends[1 - temporary.side].party;
            self.check_frozen(party, &temporary.range)?;
            self.parties[party].give_back(&temporary.range);
        }
        for (side, posted) in failed {
            self.adopt(connection, side, posted)?;
        }
        for (side, receive) in flushed {
            let party = self.connections[connection].ends[side].party;
            for piece in &receive.pieces {
                self.check_frozen(party, piece)?;
            }
            self.release_receive(party, &receive)?;
        }
        let quiet_time = self.stage.now() + self.plan.quiet_time;
        let gone = self.is_orphaned(connection);
        for side in 0..2 {
            let end = &mut self.connections[connection].ends[side];
            end.expected.clear();
            if let Some(window) = &mut end.window {
                let memory = self.parties[end.party].memory(window.range.address, window.range.length);
                window.adopt(&memory);
            }
        }
        self.connections[connection].phase = if gone { Phase::Gone } else { Phase::Cooling(quiet_time) };
        Ok(())
    }

    /// RESET, or another queue pair in its place.
    fn renew(&mut self, connection: usize, side: usize, fresh: bool) -> Result<(), Violation> {
        let end = &self.connections[connection].ends[side];
        let (party, peer) = (end.party, self.connections[connection].ends[1 - side].party);
        let (old, shared) = (end.queue_pair.clone(), end.shared);
        let groups = EndGroups { own: end.group, peer: self.connections[connection].ends[1 - side].group };
        let kind = self.connections[connection].kind_at(side);
        let change = QueuePairChange { state: Some(QpState::Reset), ..QueuePairChange::default() };
        self.stage
            .note(connection, &|| format!("party {party} gives its queue pair up, for another: {fresh}"));
        if fresh {
            self.leave_group(connection, side)?;
        }
        let xrc = self.parties[party].xrc.as_ref().filter(|_| kind == QueuePairType::XrcReceive);
        let outcome = self.patiently(party, || match (fresh, xrc) {
            (false, _) => old.modify(&change),
            (true, Some(xrc)) => xrc.close_queue_pair(old.number(), XrcOpener::ThisProcess).map(drop),
            (true, None) => old.destroy(),
        });
        if let Err(error) = outcome {
            return match self.stage.is_alive(party) {
                true => Err(self.violation(format!("a queue pair cannot be reset or destroyed: {error}"))),
                false => Ok(()),
            };
        }
        if !fresh {
            return Ok(());
        }
        self.poll(party)?;
        self.by_number.remove(&(party, old.number()));
        match create_end(&mut self.parties, &mut self.random, (party, peer), kind, shared, groups) {
            Ok(made) => {
                self.by_number.insert((party, made.queue_pair.number()), (connection, side));
                let end = &mut self.connections[connection].ends[side];
                // Its window stays where it was.
                (end.queue_pair, end.address) = (made.queue_pair, made.address);
                Ok(())
            }
            Err(_) if !self.stage.is_alive(party) => Ok(()),
            Err(error) => Err(self.violation(format!("a queue pair cannot be created: {error}"))),
        }
    }

    /// A request failed: what it touched holds the old bytes or the new, and counts from now on.
    fn adopt(&mut self, connection: usize, side: usize, posted: PostedRequest) -> Result<(), Violation> {
        let link = &self.connections[connection];
        let incarnation = link.ends[side].incarnation;
        let (from, to) = (link.ends[side].party, link.ends[1 - side].party);
        for piece in &posted.pieces {
            self.check_frozen(from, piece)?;
        }
        if let Some(range) = &posted.remote {
            match posted.kind {
                RequestKind::Atomic(atomic) => {
                    let word = (range.address - self.parties[to].zones[0].address) / 8;
                    self.chains[to][word as usize].unanswered(incarnation, atomic);
                }
                RequestKind::Write => {
                    self.check_frozen(to, range)?;
                    let now = self.parties[to].memory(range.address, range.length);
                    let old = self.parties[to].expected(range.address, range.length);
                    let new = posted.content();
                    let strange =
                        now.iter().zip(old).zip(&new).position(|((now, old), new)| now != old && now != new);
                    if let (Some(place), true) = (strange, self.stage.is_alive(to)) {
                        return Err(self
                            .violation(format!("byte {place} of failed {posted:?} is neither old nor new")));
                    }
                }
                RequestKind::Send | RequestKind::Read | RequestKind::Bind | RequestKind::Flush(_) => {}
            }
        }
        self.release(connection, side, posted)
    }

    /// Does something drastic to one connection.
    pub(super) fn upheave(&mut self) -> Result<(), Violation> {
        let connection = self.random.usize(0..self.connections.len());
        let side = self.random.usize(0..2);
        let link = &self.connections[connection];
        if link.phase != Phase::Running || link.may_fail || self.is_orphaned(connection) {
            return Ok(());
        }
        let sending = if link.sends_at(side) { side } else { 1 - side };
        match self.random.u32(0..10) {
            0..3 => self.stop(connection, side, QpState::Error),
            3..5 => self.stop(connection, side, QpState::Reset),
            5 => self.pause(connection, sending),
            // XRC has no such operation here.
            6 if link.kind == QueuePairType::Rc => self.post_invalidate(connection, side),
            _ if link.kind.is_reliable() && link.temporary.is_none() => {
                self.begin_temporary(connection, sending)
            }
            _ => {
                self.close_zone(self.connections[connection].ends[side].party);
                Ok(())
            }
        }
    }

    /// A party has died: its connections come down at the other end.
    pub(super) fn mourn(&mut self, party: usize) {
        let now = self.stage.now();
        (self.parties[party].dead, self.parties[party].died_at) = (true, now);
        for connection in 0..self.connections.len() {
            let link = &mut self.connections[connection];
            let Some(side) = link.ends.iter().position(|end| end.party == party) else { continue };
            let end = &mut link.ends[side];
            end.failed = true;
            end.stopped = Some(now);
            end.receives.clear();
            end.expected.clear();
            let sends: Vec<PostedRequest> = end.sends.drain(..).collect();
            link.failed.extend(sends.into_iter().map(|posted| (side, posted)));
            link.may_fail = true;
            if matches!(link.phase, Phase::Cooling(_)) {
                link.phase = Phase::Gone;
            }
            let comes_down = link.phase != Phase::Running;
            if !comes_down {
                link.phase = Phase::Failing(now);
            }
            for end in &mut link.ends {
                // RC finds out by itself. One that was to be stopped still is: in SQD it would not find out.
                let stop_at = if link.kind.is_reliable() { u64::MAX } else { now };
                end.stop_at = if comes_down { end.stop_at.min(stop_at) } else { stop_at };
                if end.pause.take().is_some() {
                    // Not in SQD.
                    end.stop_at = now;
                }
            }
        }
    }
}
