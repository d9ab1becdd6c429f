//! Posting random send requests.

use super::atomics::PostedAtomic;
use super::connection::{ExpectedMessage, Phase, PostedRequest, RequestKind};
use super::driver::Workload;
use super::party::{ATOMIC_WORDS, SHARED_RECEIVE, XRC_QUEUES, ZoneUse};
use super::receive::SHORTEST_RECEIVE;
use super::space::RequestRange;
use super::{Violation, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::{QpState, QueuePairType};
use pagewire_nic::{
    CompletionOpcode, Data, Destination, FlushRequest, GROUP_QUEUE_PAIR, ScatterGather, SendOperation,
    SendRequest, WindowBinding, WindowWork,
};

/// Send requests of one queue pair under way.
const OUTSTANDING: usize = 24;
/// Unsignaled requests in a row.
const UNSIGNALED: u32 = 7;
/// Bytes that are sent inline at most.
pub const INLINE: u32 = 256;
/// Messages that are remembered where they may be lost: more than wait between a sender and a receiver that lags, on a link, in a
/// stash and in a completion queue.
const HISTORY: usize = 65_536;
/// The Q_Key of every UD queue pair.
pub const QUEUE_KEY: u32 = 0x1111_1111;

/// A request about to be posted.
struct Draft {
    kind: RequestKind,
    length: u64,
    immediate: Option<u32>,
    remote: Option<RequestRange>,
    /// Where the other side's memory is accessed, by which key.
    target: (u64, u32),
    /// A WRITE whose 8 bytes are to appear at once.
    is_atomic: bool,
    /// Bytes to send, where they are not those of the request's number.
    bytes: Option<Vec<u8>>,
    stale: bool,
    /// A key that the receiver is asked to make invalid.
    invalidate: Option<u32>,
    /// What a window is to be bound to.
    binding: Option<WindowBinding>,
    /// A READ and what sends its bytes on share this buffer.
    shared: Option<(RequestRange, Vec<u8>)>,
}

/// A request as it is posted.
struct PostRequest {
    message: ExpectedMessage,
    operation: SendOperation,
    opcode: CompletionOpcode,
    signaled: bool,
    is_fenced: bool,
    inline: bool,
    window_work: Option<WindowWork>,
}

impl Draft {
    /// Whether bytes of this side go out.
    fn sends(&self) -> bool {
        matches!(self.kind, RequestKind::Send | RequestKind::Write)
    }

    /// A request with nothing else to it.
    fn new(kind: RequestKind, length: u64) -> Self {
        Draft {
            kind,
            length,
            immediate: None,
            remote: None,
            target: (0, 0),
            is_atomic: false,
            bytes: None,
            stale: false,
            invalidate: None,
            binding: None,
            shared: None,
        }
    }
}

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Bytes of the next message.
    fn random_length(&mut self, most: u64) -> u64 {
        let random = &mut self.random;
        let length = match random.u32(0..1000) {
            0..60 => 0,
            60..600 => random.u64(1..=256),
            600..900 => random.u64(1..=4096),
            900..990 => random.u64(1..=32 << 10),
            _ => random.u64(1..=1 << 20),
        };
        length.min(most).min(u64::from(self.plan.longest))
    }

    /// Posts one random request, if there is room. True: it did.
    pub(super) fn post(&mut self, connection: usize, side: usize) -> Result<bool, Violation> {
        self.at = Some(connection);
        let link = &self.connections[connection];
        if link.phase != Phase::Running
            || link.ends[side].sends.len() >= OUTSTANDING
            || link.ends[side].failed
            || !link.sends_at(side)
        {
            return Ok(false);
        }
        let draft = match link.kind {
            QueuePairType::Rc | QueuePairType::XrcSend => match self.random.u32(0..100) {
                0..3 => return self.post_copy(connection, side),
                3..35 => self.draft_send(connection, side),
                35..65 => self.draft_write(connection, side),
                65..82 => self.draft_read(connection, side),
                82..88 => self.draft_flush(connection, side),
                _ => self.draft_atomic(connection, side),
            },
            QueuePairType::Uc if self.random.bool() => self.draft_window_write(connection, side),
            _ => self.draft_send(connection, side),
        };
        match draft {
            Some(draft) => self.post_draft(connection, side, draft, false),
            None => Ok(false),
        }
    }

    /// Posts something whose completion tells that everything before it is done.
    pub(super) fn post_last(&mut self, connection: usize, side: usize) -> Result<bool, Violation> {
        let link = &self.connections[connection];
        let kind = link.kind;
        let open = link.phase == Phase::Running && !link.ends[side].failed;
        if !open || link.ends[side].sends.back().is_none_or(|last| last.signaled) {
            return Ok(false);
        }
        let draft = match kind {
            QueuePairType::Rc | QueuePairType::XrcSend => Some(Draft {
                target: (self.random.u64(..), self.random.u32(..)),
                ..Draft::new(RequestKind::Write, 0)
            }),
            QueuePairType::Uc => self.draft_window_write(connection, side),
            _ => self.draft_send(connection, side),
        };
        match draft {
            Some(draft) => self.post_draft(connection, side, draft, true),
            None => Ok(false),
        }
    }

    /// Posts a WRITE through a key that is dead.
    pub(super) fn post_stale(
        &mut self,
        connection: usize,
        side: usize,
        address: u64,
        key: u32,
    ) -> Result<bool, Violation> {
        self.report.stale_requests += 1;
        self.connections[connection].may_fail = true;
        let length = self.random.u64(1..=512);
        let draft = Draft { target: (address, key), stale: true, ..Draft::new(RequestKind::Write, length) };
        self.post_draft(connection, side, draft, true)
    }

    /// Posts a SEND that asks for the end of a region of the receiver's, which is none that may be ended so.
    pub(super) fn post_invalidate(&mut self, connection: usize, side: usize) -> Result<(), Violation> {
        let end = &self.connections[connection].ends[side];
        if end.sends.len() >= OUTSTANDING || end.failed {
            return Ok(());
        }
        let Some(draft) = self.draft_send(connection, side) else { return Ok(()) };
        let to = self.connections[connection].ends[1 - side].party;
        let keys: Vec<u32> =
            self.parties[to].zones.iter().filter_map(|zone| Some(zone.region.as_ref()?.rkey())).collect();
        let invalidate = self.random.choice(keys);
        self.connections[connection].may_fail = true;
        self.report.stale_requests += 1;
        let draft = Draft { invalidate, immediate: None, stale: true, ..draft };
        if !self.post_draft(connection, side, draft, true)? {
            // As it may fail from now on, it has to come down.
            self.stop(connection, side, QpState::Error)?;
        }
        Ok(())
    }

    /// Posts a request that binds a window, if there is room. True: it did.
    pub(super) fn post_bind(
        &mut self,
        connection: usize,
        side: usize,
        binding: WindowBinding,
    ) -> Result<bool, Violation> {
        let end = &self.connections[connection].ends[side];
        if end.sends.len() >= OUTSTANDING || end.failed {
            return Ok(false);
        }
        let draft = Draft { binding: Some(binding), ..Draft::new(RequestKind::Bind, 0) };
        self.post_draft(connection, side, draft, true)
    }

    /// Posts a READ, and a fenced WRITE of what it will have brought.
    fn post_copy(&mut self, connection: usize, side: usize) -> Result<bool, Violation> {
        let link = &self.connections[connection];
        let (party, to) = (link.ends[side].party, link.ends[1 - side].party);
        if link.ends[side].sends.len() + 2 > OUTSTANDING {
            return Ok(false);
        }
        let length = self.random_length(16 << 10).max(1);
        let ranges = [to, to, party].map(|of| {
            let taken = self.parties[of].take(&mut self.random, ZoneUse::Data, length, false);
            taken.map(|range| (of, range))
        });
        let [Some((_, from)), Some((_, into)), Some((_, buffer))] = ranges else {
            for (of, range) in ranges.into_iter().flatten() {
                self.parties[of].give_back(&range);
            }
            return Ok(false);
        };
        let bytes = self.parties[to].expected(from.address, length).to_vec();
        for (kind, remote) in [(RequestKind::Read, from), (RequestKind::Write, into)] {
            let draft = Draft {
                remote: Some(remote),
                target: (remote.address, self.parties[to].key(&remote)),
                shared: Some((buffer, bytes.clone())),
                ..Draft::new(kind, length)
            };
            self.post_draft(connection, side, draft, false)?;
        }
        Ok(true)
    }

    fn draft_send(&mut self, connection: usize, side: usize) -> Option<Draft> {
        let is_reliable = self.connections[connection].kind.is_reliable();
        let reliable = self.plan.exact || is_reliable;
        let to = &self.connections[connection].ends[1 - side];
        let mtu = u64::from(self.parties[to.party].context.device().mtu.bytes());
        // The receive that this message will find, if it is there already.
        let receive = to.receives.get(to.expected.len()).map(|receive| receive.length());
        let room = match (self.connections[connection].kind, receive) {
            (QueuePairType::Ud, _) => mtu,
            _ if to.shared => SHARED_RECEIVE,
            (_, Some(room)) if reliable => room,
            _ => SHORTEST_RECEIVE,
        };
        if reliable && receive.is_none() && !to.shared {
            // Nothing may be sent into the void where losing it would be noticed; RC may now and then.
            let may_wait = is_reliable && self.random.u32(0..16) == 0;
            if !may_wait {
                return None;
            }
        }
        let length = self.random_length(room);
        let immediate = self.random.bool().then(|| self.random.u32(..));
        Some(Draft { immediate, ..Draft::new(RequestKind::Send, length) })
    }

    fn draft_window_write(&mut self, connection: usize, side: usize) -> Option<Draft> {
        let to = &self.connections[connection].ends[1 - side];
        let room = to.receives.len() > to.expected.len();
        let party = to.party;
        let length = self.random_length(16 << 10);
        let window = self.connections[connection].ends[1 - side].window.as_ref()?;
        let (address, bytes) = window.place(length);
        let key = self.parties[party].key(&window.range);
        let immediate = (room && self.random.u32(0..4) == 0).then(|| self.random.u32(..));
        let target = (address, key);
        Some(Draft { immediate, target, bytes: Some(bytes), ..Draft::new(RequestKind::Write, length) })
    }

    /// Memory of the other side for a WRITE or READ, and the key it is accessed by.
    fn draft_remote(&mut self, connection: usize, side: usize, length: u64) -> Option<(RequestRange, u32)> {
        let party = self.connections[connection].ends[1 - side].party;
        if let Some(temporary) = &mut self.connections[connection].temporary {
            let fits = temporary.cursor + length + 8 <= temporary.range.length;
            if temporary.side == side
                && temporary.region.is_some()
                && temporary.is_usable
                && fits
                && length > 0
            {
                let address = temporary.range.address + temporary.cursor;
                temporary.cursor += length + 8;
                temporary.requests = temporary.requests.saturating_sub(1);
                return Some((RequestRange::fixed(temporary.range.zone, address, length), temporary.key));
            }
        }
        let range = self.parties[party].take(&mut self.random, ZoneUse::Data, length, false)?;
        let key = self.parties[party].key(&range);
        Some((range, key))
    }

    fn draft_write(&mut self, connection: usize, side: usize) -> Option<Draft> {
        let is_word = self.random.u32(0..4) == 0;
        let length = if is_word { 8 } else { self.random_length(u64::from(self.plan.longest)) };
        let to = &self.connections[connection].ends[1 - side];
        let receive = to.shared || to.receives.len() > to.expected.len();
        let (range, key) = self.draft_remote(connection, side, length)?;
        let immediate = (receive && self.random.u32(0..3) == 0).then(|| self.random.u32(..));
        let target =
            if length == 0 { (self.random.u64(..), self.random.u32(..)) } else { (range.address, key) };
        let is_atomic = is_word && immediate.is_none() && range.address.is_multiple_of(8);
        let remote = Some(range);
        Some(Draft { immediate, remote, target, is_atomic, ..Draft::new(RequestKind::Write, length) })
    }

    fn draft_read(&mut self, connection: usize, side: usize) -> Option<Draft> {
        let length = self.random_length(u64::from(self.plan.longest));
        let (range, key) = self.draft_remote(connection, side, length)?;
        let target =
            if length == 0 { (self.random.u64(..), self.random.u32(..)) } else { (range.address, key) };
        let remote = Some(range);
        Some(Draft { remote, target, ..Draft::new(RequestKind::Read, length) })
    }

    fn draft_flush(&mut self, connection: usize, side: usize) -> Option<Draft> {
        let length = self.random_length(u64::from(self.plan.longest));
        let (range, key) = self.draft_remote(connection, side, length)?;
        let to = self.connections[connection].ends[1 - side].party;
        let is_temporary = self.parties[to].zones[range.zone].kind == ZoneUse::Temporary;
        // Windows have no such right, and the whole region is in use by others: what is persistent of them changes.
        let persistent = self.parties[to].is_persistent && !is_temporary && self.random.bool();
        let global = !persistent || self.random.bool();
        let whole_region = !persistent && self.random.u32(0..8) == 0;
        let flush = FlushRequest { global, persistent, whole_region };
        let remote = Some(range);
        Some(Draft { remote, target: (range.address, key), ..Draft::new(RequestKind::Flush(flush), length) })
    }

    fn draft_atomic(&mut self, connection: usize, side: usize) -> Option<Draft> {
        let party = self.connections[connection].ends[1 - side].party;
        let word = self.random.u64(0..ATOMIC_WORDS);
        let zone = &self.parties[party].zones[0];
        let range = RequestRange::fixed(0, zone.address + word * 8, 8);
        let key = self.parties[party].key(&range);
        let atomic = match self.random.bool() {
            true => PostedAtomic::FetchAdd { add: self.random.u64(1..) },
            false => PostedAtomic::CompareSwap {
                compare: self.chains[party][word as usize].recent,
                swap: self.random.u64(..),
            },
        };
        let target = (range.address, key);
        let kind = RequestKind::Atomic(atomic);
        Some(Draft { remote: Some(range), target, ..Draft::new(kind, 8) })
    }

    fn post_draft(
        &mut self,
        connection: usize,
        side: usize,
        mut draft: Draft,
        signaled: bool,
    ) -> Result<bool, Violation> {
        let sends = draft.sends();
        let inline = sends
            && draft.shared.is_none()
            && draft.length <= u64::from(INLINE)
            && self.random.u32(0..3) == 0;
        let Some(pieces) = self.take_buffers(connection, side, &draft, inline) else {
            self.give_back_remote(connection, side, draft.remote.as_ref());
            return Ok(false);
        };
        let id = self.next_id;
        self.next_id += 1;
        let bytes = self.fill_buffers(connection, side, &mut draft, (id, &pieces));
        let signaled = self.draw_signaled(connection, side, signaled);
        let solicited = draft.immediate.is_some() && self.random.bool()
            || draft.kind == RequestKind::Send && self.random.bool();
        let (operation, opcode) = match (draft.invalidate, draft.binding) {
            (Some(key), _) => (SendOperation::SendInvalidate(key), CompletionOpcode::Send),
            (None, Some(_)) => (SendOperation::BindWindow, CompletionOpcode::BindWindow),
            (None, None) if draft.is_atomic => {
                let (address, key) = draft.target;
                (SendOperation::AtomicWrite { address, key }, CompletionOpcode::AtomicWrite)
            }
            (None, None) => operation(&draft.kind, draft.immediate, draft.target, draft.length),
        };
        let message = ExpectedMessage {
            id,
            length: draft.length,
            immediate: draft.immediate,
            solicited,
            write: draft.kind == RequestKind::Write,
            invalidates: draft.invalidate.is_some(),
            queue: self.draw_queue(connection),
        };
        let is_fenced = draft.shared.is_some() && sends;
        let window_work = draft.binding.map(WindowWork::Bind);
        let request = PostRequest { message, operation, opcode, signaled, is_fenced, inline, window_work };
        let outcome = self.submit(connection, side, &request, (&bytes, &pieces));
        self.connections[connection].ends[side].sends.push_back(PostedRequest {
            id,
            kind: draft.kind,
            opcode,
            length: draft.length,
            signaled,
            pieces,
            remote: draft.remote,
            stale: draft.stale,
            lends: draft.shared.is_some() && !sends,
            copied: draft.shared.map(|(_, bytes)| bytes).filter(|_| sends),
        });
        if message.immediate.is_some() || draft.kind == RequestKind::Send {
            self.expect(connection, 1 - side, message);
        }
        self.report.operations += 1;
        self.report.extended += u64::from(self.connections[connection].kind.is_xrc());
        let party = self.connections[connection].ends[side].party;
        match outcome {
            Ok(_) => Ok(true),
            Err(_) if !self.stage.is_alive(party) => Ok(true),
            Err(error) => Err(self.violation(format!("a request was refused: {error}"))),
        }
    }

    /// Memory of this side for a request; `None`: there is not enough.
    fn take_buffers(
        &mut self,
        connection: usize,
        side: usize,
        draft: &Draft,
        inline: bool,
    ) -> Option<Vec<RequestRange>> {
        if matches!(draft.kind, RequestKind::Flush(_)) {
            return Some(Vec::new());
        }
        let count = if matches!(draft.kind, RequestKind::Atomic(_)) { 1 } else { self.random.usize(1..=8) };
        match (inline, &draft.shared) {
            (true, _) => Some(Vec::new()),
            (false, Some((buffer, _))) => Some(vec![*buffer]),
            (false, None) => {
                let party = &mut self.parties[self.connections[connection].ends[side].party];
                party.take_pieces(&mut self.random, ZoneUse::Data, draft.length, count)
            }
        }
    }

    /// Writes what is to be sent into the buffers of a request, and gives it; what an access is to change is unknown from here on.
    fn fill_buffers(
        &mut self,
        connection: usize,
        side: usize,
        draft: &mut Draft,
        (id, pieces): (u64, &[RequestRange]),
    ) -> Vec<u8> {
        let [party, to] = [side, 1 - side].map(|side| self.connections[connection].ends[side].party);
        let sends = draft.sends();
        let bytes = match draft.bytes.take() {
            Some(bytes) => {
                if let Some(window) = &mut self.connections[connection].ends[1 - side].window {
                    window.posted(draft.length);
                }
                bytes
            }
            None if sends => pattern::of(id, draft.length as usize),
            None => Vec::new(),
        };
        let mut at = 0;
        for piece in pieces.iter().filter(|_| draft.shared.is_none() || !sends) {
            if sends {
                self.parties[party].program_writes(piece.address, &bytes[at..at + piece.length as usize]);
                at += piece.length as usize;
            } else {
                self.parties[party].unsettle(piece.address, piece.length);
            }
        }
        if let (Some(range), RequestKind::Write) = (&draft.remote, draft.kind) {
            self.parties[to].unsettle(range.address, range.length);
        }
        bytes
    }

    /// The shared receive queue that a request names.
    fn draw_queue(&mut self, connection: usize) -> usize {
        match self.connections[connection].kind.is_xrc() {
            true => self.random.usize(1..=XRC_QUEUES),
            false => 0,
        }
    }

    /// Whether a request gives a completion: always where that is `wanted`.
    fn draw_signaled(&mut self, connection: usize, side: usize, wanted: bool) -> bool {
        let end = &mut self.connections[connection].ends[side];
        end.unsignaled = if wanted || self.random.u32(0..3) > 0 || end.unsignaled >= UNSIGNALED {
            0
        } else {
            end.unsignaled + 1
        };
        end.unsignaled == 0
    }

    /// Posts a request, and rings the doorbell at once or later.
    fn submit(
        &mut self,
        connection: usize,
        side: usize,
        given: &PostRequest,
        (bytes, pieces): (&[u8], &[RequestRange]),
    ) -> pagewire_nic::Result<bool> {
        let link = &self.connections[connection];
        let (peer, end) = (&link.ends[1 - side], &link.ends[side]);
        let segments: Vec<ScatterGather> = self.parties[end.party].segments(pieces);
        let cut = if given.inline { self.random.usize(0..=bytes.len()) } else { 0 };
        let parts = [&bytes[..cut], &bytes[cut..]];
        let destination = match (&end.address, link.kind) {
            (Some(address), QueuePairType::Ud) => Some(Destination::Address {
                address,
                queue_pair: peer.group.map_or(peer.queue_pair.number(), |_| GROUP_QUEUE_PAIR),
                // With the top bit set: the queue pair's own.
                queue_key: if self.random.bool() { QUEUE_KEY } else { 1 << 31 },
            }),
            (_, kind) if kind.is_xrc() => {
                let queue = &self.parties[peer.party].shared[given.message.queue].queue;
                queue.number().map(Destination::SharedQueue)
            }
            _ => None,
        };
        let &PostRequest { message, opcode, signaled, .. } = given;
        let request = SendRequest {
            wr_id: message.id,
            data: match &given.window_work {
                Some(work) => Data::Window(work),
                None if given.inline => Data::Inline(&parts),
                None => Data::Segments(&segments),
            },
            operation: given.operation,
            signaled,
            fence: given.is_fenced || self.random.u32(0..10) == 0,
            solicited: message.solicited,
            destination,
        };
        self.stage.note(connection, &|| {
            let (party, ExpectedMessage { id, length, immediate, .. }) = (end.party, message);
            format!(
                "party {party} posts request {id}: {opcode:?}, {length} bytes, {immediate:?}, signaled: {signaled}"
            )
        });
        let outcome = end.queue_pair.post_send(&request);
        if self.random.bool() {
            end.queue_pair.doorbell();
        } else {
            self.doorbells.push((connection, side));
        }
        outcome
    }

    /// Notes a message that takes a receive of the end `to`.
    fn expect(&mut self, connection: usize, to: usize, message: ExpectedMessage) {
        let link = &mut self.connections[connection];
        let end = &mut link.ends[to];
        if self.plan.exact || link.kind.is_reliable() {
            end.expected.push_back(message);
        } else {
            end.history.push_back(message);
            if end.history.len() > HISTORY {
                end.history.pop_front();
            }
        }
        self.report.unreliable_sent += u64::from(!link.kind.is_reliable());
    }

    /// Gives back the other side's memory that a request would have used.
    pub(super) fn give_back_remote(&mut self, connection: usize, side: usize, remote: Option<&RequestRange>) {
        let party = self.connections[connection].ends[1 - side].party;
        if let Some(range) = remote {
            self.parties[party].give_back(range);
        }
    }

    /// Rings the doorbells that were put off.
    pub(super) fn ring_doorbells(&mut self) {
        for (connection, side) in std::mem::take(&mut self.doorbells) {
            self.connections[connection].ends[side].queue_pair.doorbell();
        }
    }
}

fn operation(
    kind: &RequestKind,
    immediate: Option<u32>,
    (address, key): (u64, u32),
    length: u64,
) -> (SendOperation, CompletionOpcode) {
    match (*kind, immediate) {
        (RequestKind::Send, None) => (SendOperation::Send, CompletionOpcode::Send),
        (RequestKind::Send, Some(immediate)) => {
            (SendOperation::SendImmediate(immediate), CompletionOpcode::Send)
        }
        (RequestKind::Write, None) => (SendOperation::Write { address, key }, CompletionOpcode::Write),
        (RequestKind::Write, Some(immediate)) => {
            (SendOperation::WriteImmediate { address, key, immediate }, CompletionOpcode::Write)
        }
        // A bind says itself what it does.
        (RequestKind::Read | RequestKind::Bind, _) => {
            (SendOperation::Read { address, key }, CompletionOpcode::Read)
        }
        (RequestKind::Flush(flush), _) => {
            (SendOperation::Flush { address, key, length: length as u32, flush }, CompletionOpcode::Flush)
        }
        (RequestKind::Atomic(PostedAtomic::CompareSwap { compare, swap }), _) => {
            (SendOperation::CompareSwap { address, key, compare, swap }, CompletionOpcode::CompareSwap)
        }
        (RequestKind::Atomic(PostedAtomic::FetchAdd { add }), _) => {
            (SendOperation::FetchAdd { address, key, add }, CompletionOpcode::FetchAdd)
        }
    }
}
