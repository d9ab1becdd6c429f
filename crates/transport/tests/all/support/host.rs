//! The transport operations of one connection: model memory, receives, completions, and a box of outgoing
//! packets. It checks whatever the contract promises.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use pagewire_transport::*;
use pagewire_wire::{PacketHeader, VendorPacket};

use super::{BASE, KEY};

pub type Memory = Rc<RefCell<Vec<u8>>>;

#[derive(Debug, Clone)]
pub enum Packet {
    Standard { header: PacketHeader, payload: Vec<u8> },
    Vendor(VendorPacket),
}

#[derive(Debug)]
struct Receive {
    capacity: usize,
    bytes: Vec<u8>,
    ended: bool,
}

#[derive(Debug, PartialEq, Eq, Clone)]
pub struct Received {
    pub result: Result<Arrival, Status>,
    pub bytes: Vec<u8>,
}

/// The number of the shared receive queue that a host of XRC has.
pub const SHARED_QUEUE: u32 = 0x51_0001;

pub struct Host {
    pub memory: Memory,
    pub peer: Memory,
    /// Bytes of each posted work request: to send, or to receive responses into.
    pub buffers: HashMap<WorkId, Vec<u8>>,
    /// READs whose final bytes have been placed.
    ended: Vec<WorkId>,
    receives: VecDeque<usize>,
    current: Option<Receive>,
    pub received: Vec<Received>,
    pub completions: Vec<(WorkId, Status)>,
    pub failed: bool,
    /// Requests that ended while the connection goes on, and how many bytes of them had landed.
    pub landed: Vec<(WorkId, u32)>,
    pub events: Vec<QpEvent>,
    pub sent: Vec<Packet>,
    pub atomics_run: usize,
    /// What the memory of each FLUSH that was executed held then.
    pub flushed: Vec<Vec<u8>>,
    /// READs that were refused: an access log has a record of each.
    pub reads_refused: usize,
    pub invalidated: Vec<u32>,
    /// Work that touched no wire.
    pub executed: Vec<WorkId>,
    pub link: LinkState,
    /// How often the peer's process may not have read what was sent, when that is asked.
    pub unread: u32,
    /// Each time that was asked, whether not for the first time in the silence.
    pub unread_questions: Vec<bool>,
    /// Answers `Wait` this often.
    pub wait: f64,
    /// Answers `initiator_copy` with Unavailable this often.
    pub indirect: f64,
    pub random: fastrand::Rng,
    /// The next access to these is refused.
    pub deny_transmit: Option<(WorkId, Denial)>,
    /// Says that the bytes of what is placed cannot be read where they lie.
    pub unreadable: bool,
    /// From this offset of the work request on.
    pub deny_from: u32,
    pub deny_response: Option<Denial>,
    pub deny_receive: Option<Denial>,
    pub deny_write: Option<Denial>,
    pub deny_invalidate: Option<Denial>,
    pub deny_local: bool,
    pub deny_place: Option<Denial>,
    /// Memory from this address on is refused when it is accessed, though a check of its range permits it.
    pub gone_from: u64,
    /// `write_remote`, `place_receive`, `atomic_remote`, `flush_remote` and responses of READs say Wait until this is false.
    pub page_absent: bool,
    /// Reads of what it sends of its own say Wait until this is false.
    pub source_absent: bool,
    /// Reads of what this work request sends say Wait while it is named.
    pub absent_work: Option<WorkId>,
    /// What says Wait does so for something else than a page.
    pub busy: bool,
    /// `place_response` says Wait from this offset of a READ on.
    pub absent_from: u64,
    /// A receive may be begun again from its start.
    pub restarts: bool,
    /// A receive that is too short ends, as one of a shared receive queue does.
    pub shares_receives: bool,
    /// Packets of each row that was to be sent.
    pub bursts: Vec<u32>,
}

impl Host {
    pub fn new(memory: Memory, peer: Memory, seed: u64) -> Host {
        Host {
            memory,
            peer,
            buffers: HashMap::new(),
            ended: Vec::new(),
            receives: VecDeque::new(),
            current: None,
            received: Vec::new(),
            completions: Vec::new(),
            failed: false,
            reads_refused: 0,
            landed: Vec::new(),
            events: Vec::new(),
            sent: Vec::new(),
            atomics_run: 0,
            flushed: Vec::new(),
            invalidated: Vec::new(),
            executed: Vec::new(),
            link: LinkState::Delivered,
            unread: 0,
            unread_questions: Vec::new(),
            wait: 0.0,
            indirect: 0.0,
            random: fastrand::Rng::with_seed(seed),
            deny_transmit: None,
            unreadable: false,
            deny_from: 0,
            deny_response: None,
            deny_receive: None,
            deny_write: None,
            deny_invalidate: None,
            deny_local: false,
            deny_place: None,
            gone_from: u64::MAX,
            page_absent: false,
            source_absent: false,
            absent_work: None,
            busy: false,
            absent_from: u64::MAX,
            restarts: false,
            shares_receives: false,
            bursts: Vec::new(),
        }
    }

    pub fn post_receive(&mut self, capacity: usize) {
        self.receives.push_back(capacity);
    }

    pub fn receives_posted(&self) -> usize {
        self.receives.len()
    }

    /// Why it says Wait.
    fn reason(&self) -> Reason {
        if self.busy { Reason::NoClaim } else { Reason::Page }
    }

    fn waits(&mut self) -> bool {
        self.wait > 0.0 && self.random.f64() < self.wait
    }

    fn range(&self, remote: RemoteAddress, length: u64) -> Result<std::ops::Range<usize>, Denial> {
        let size = self.memory.borrow().len() as u64;
        let start = remote.address.checked_sub(BASE).ok_or(Denial::RemoteAccess)?;
        let end = start.checked_add(length).filter(|&end| end <= size).ok_or(Denial::RemoteAccess)?;
        if remote.key != KEY {
            return Err(Denial::RemoteAccess);
        }
        Ok(start as usize..end as usize)
    }
}

/// Handles the packets of a burst one by one, up to the first that cannot be handled; gives how many.
pub fn one_by_one(payload: Payload<'_>, mut one: impl FnMut(&[u8]) -> Outcome<()>) -> Outcome<u32> {
    let Payload::Bytes(burst) = payload else { panic!("the model has no references") };
    for (index, bytes) in burst.iter().enumerate() {
        match one(bytes) {
            Outcome::Done(()) => {}
            other if index == 0 => return other.map(|()| 0),
            _ => return Outcome::Done(index as u32),
        }
    }
    Outcome::Done(burst.len() as u32)
}

fn place(buffer: &mut Vec<u8>, offset: u64, payload: &[u8]) -> usize {
    let end = offset as usize + payload.len();
    if buffer.len() < end {
        buffer.resize(end, 0);
    }
    buffer[offset as usize..end].copy_from_slice(payload);
    end
}

impl Host {
    fn transmit_one(&mut self, header: &PacketHeader, source: PayloadSource) -> Outcome<u32> {
        let code = header.bth.opcode;
        assert_eq!(code.extensions(), Some(header.extensions()), "{header:?}");
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        let payload = match source {
            PayloadSource::None => Vec::new(),
            PayloadSource::Work { id, .. } if self.source_absent || self.absent_work == Some(id) => {
                return Outcome::Wait(self.reason());
            }
            PayloadSource::Work { id, offset, length, .. } => {
                if let Some((denied, denial)) = self.deny_transmit {
                    if denied == id && offset >= self.deny_from {
                        return Outcome::Denied(denial);
                    }
                }
                self.buffers[&id][offset as usize..(offset + length) as usize].to_vec()
            }
            PayloadSource::Remote { .. } if self.page_absent => return Outcome::Wait(self.reason()),
            PayloadSource::Remote { remote, length, .. } => {
                if let Some(denial) = self.deny_response {
                    return Outcome::Denied(denial);
                }
                if remote.address + u64::from(source.len()) > self.gone_from {
                    return Outcome::Denied(Denial::RemoteAccess);
                }
                match self.range(remote, length.into()) {
                    Ok(range) => self.memory.borrow()[range].to_vec(),
                    Err(denial) => return Outcome::Denied(denial),
                }
            }
        };
        // Through the wire's own format and back.
        let mut buffer = vec![0; pagewire_wire::packet::len(header, payload.len())];
        let at = header.len();
        buffer[at..at + payload.len()].copy_from_slice(&payload);
        pagewire_wire::packet::emit(header, payload.len(), &mut buffer);
        let packet = pagewire_wire::Packet::parse(&buffer).expect("what was emitted parses");
        assert_eq!(packet.payload, payload);
        self.sent.push(Packet::Standard { header: packet.header, payload });
        Outcome::Done(1)
    }

    fn receive_one(&mut self, offset: u64, payload: &[u8], last: bool) -> Outcome<()> {
        if self.unreadable {
            return Outcome::Denied(Denial::SenderUnreadable);
        }
        if self.page_absent || self.waits() {
            return Outcome::Wait(self.reason());
        }
        if let Some(denial) = self.deny_receive {
            return Outcome::Denied(denial);
        }
        let current = self.current.as_mut().expect("a receive was begun");
        if self.restarts && offset == 0 {
            // A UC message was dropped; the next one uses its receive.
            current.bytes.clear();
            current.ended = false;
        }
        assert!(!current.ended, "bytes after the last ones");
        if offset + payload.len() as u64 > current.capacity as u64 {
            return Outcome::Denied(Denial::LocalLength);
        }
        assert_eq!(offset, current.bytes.len() as u64, "bytes come in order, once");
        place(&mut current.bytes, offset, payload);
        current.ended = last;
        Outcome::Done(())
    }

    fn write_one(&mut self, remote: RemoteAddress, payload: &[u8]) -> Outcome<()> {
        if self.unreadable {
            return Outcome::Denied(Denial::SenderUnreadable);
        }
        if self.page_absent || self.waits() {
            return Outcome::Wait(self.reason());
        }
        if let Some(denial) = self.deny_write {
            return Outcome::Denied(denial);
        }
        if remote.address + payload.len() as u64 > self.gone_from {
            return Outcome::Denied(Denial::RemoteAccess);
        }
        match self.range(remote, payload.len() as u64) {
            Ok(range) => {
                self.memory.borrow_mut()[range].copy_from_slice(payload);
                Outcome::Done(())
            }
            Err(denial) => Outcome::Denied(denial),
        }
    }

    fn respond_one(&mut self, work: WorkId, offset: u64, payload: &[u8], last: bool) -> Outcome<()> {
        if offset >= self.absent_from || self.waits() {
            return Outcome::Wait(self.reason());
        }
        if let Some(denial) = self.deny_place {
            return Outcome::Denied(denial);
        }
        assert!(!self.ended.contains(&work), "bytes after the last ones");
        let buffer = self.buffers.get_mut(&work).expect("posted");
        let size = buffer.len();
        let end = place(buffer, offset, payload);
        assert_eq!(buffer.len(), size, "a response does not outgrow its buffer");
        assert_eq!(last, end == size);
        if last {
            self.ended.push(work);
        }
        Outcome::Done(())
    }
}

impl PacketSink for Host {
    fn transmit(&mut self, header: &PacketHeader, source: PayloadSource, count: u32) -> Outcome<u32> {
        if count > 1 {
            self.bursts.push(count);
        }
        for index in 0..count {
            match self
                .transmit_one(&header_in_burst(header, source.len(), index), source_in_burst(source, index))
            {
                Outcome::Done(_) => {}
                other if index == 0 => return other,
                _ => return Outcome::Done(index),
            }
        }
        Outcome::Done(count)
    }

    fn transmit_control(&mut self, header: &PacketHeader, body: &VendorPacket) -> Outcome<u32> {
        assert_eq!(header.bth.opcode, body.opcode());
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        let mut buffer = vec![0; body.body_len()];
        body.emit(&mut buffer);
        self.sent.push(Packet::Vendor(
            VendorPacket::parse(header.bth.opcode, &buffer).expect("what was emitted parses"),
        ));
        Outcome::Done(1)
    }

    fn link(&mut self) -> LinkState {
        self.link
    }

    fn is_unread(&mut self, again: bool) -> bool {
        self.unread_questions.push(again);
        let is_unread = self.unread > 0;
        self.unread = self.unread.saturating_sub(1);
        is_unread
    }
}

impl MemoryAccess for Host {
    fn check_remote(&mut self, remote: RemoteAddress, length: u32, right: Right) -> Outcome<()> {
        assert!(length > 0, "zero length is not checked");
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        match self.range(remote, length.into()) {
            Ok(_) => Outcome::Done(()),
            Err(denial) => {
                self.reads_refused += usize::from(right == Right::RemoteRead);
                Outcome::Denied(denial)
            }
        }
    }

    fn write_remote(&mut self, remote: RemoteAddress, payload: Payload<'_>, _rest: u32) -> Outcome<u32> {
        let mut at = remote;
        one_by_one(payload, |bytes| {
            let outcome = self.write_one(at, bytes);
            at.address += bytes.len() as u64;
            outcome
        })
    }

    fn atomic_remote(&mut self, remote: RemoteAddress, atomic: AtomicRequest) -> Outcome<u64> {
        if self.page_absent || self.waits() {
            return Outcome::Wait(self.reason());
        }
        let range = match self.range(remote, 8) {
            Ok(range) => range,
            Err(denial) => return Outcome::Denied(denial),
        };
        let mut memory = self.memory.borrow_mut();
        let word: &mut [u8; 8] = (&mut memory[range]).try_into().unwrap();
        let original = u64::from_ne_bytes(*word);
        *word = apply(original, atomic).to_ne_bytes();
        self.atomics_run += 1;
        Outcome::Done(original)
    }

    fn flush_remote(&mut self, remote: RemoteAddress, length: u32, flush: FlushRequest) -> Outcome<()> {
        if self.page_absent || self.waits() {
            return Outcome::Wait(self.reason());
        }
        let (remote, length) = match flush.whole_region {
            true => (RemoteAddress { address: BASE, ..remote }, self.memory.borrow().len() as u64),
            false => (remote, length.into()),
        };
        match self.range(remote, length) {
            Ok(range) => {
                self.flushed.push(self.memory.borrow()[range].to_vec());
                Outcome::Done(())
            }
            Err(denial) => Outcome::Denied(denial),
        }
    }

    fn invalidate(&mut self, key: u32) -> Outcome<()> {
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        if let Some(denial) = self.deny_invalidate {
            return Outcome::Denied(denial);
        }
        self.invalidated.push(key);
        Outcome::Done(())
    }

    fn execute_local(&mut self, work: WorkId) -> Outcome<()> {
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        if self.deny_local {
            return Outcome::Denied(Denial::LocalProtection);
        }
        self.executed.push(work);
        Outcome::Done(())
    }

    fn place_response(
        &mut self,
        work: WorkId,
        offset: u64,
        payload: Payload<'_>,
        last: bool,
    ) -> Outcome<u32> {
        let mut at = offset;
        one_by_one(payload, |bytes| {
            let outcome = self.respond_one(work, at, bytes, last);
            at += bytes.len() as u64;
            outcome
        })
    }

    fn place_atomic(&mut self, work: WorkId, value: u64) -> Outcome<()> {
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        self.buffers.insert(work, value.to_ne_bytes().to_vec());
        Outcome::Done(())
    }

    fn initiator_copy(&mut self, work: &WorkRequest) -> InitiatorCopy {
        if self.waits() {
            return InitiatorCopy::Wait;
        }
        if self.random.f64() < self.indirect {
            return InitiatorCopy::Unavailable;
        }
        let length = work.length as usize;
        let (WorkOperation::Write { remote, .. }
        | WorkOperation::Read { remote }
        | WorkOperation::Atomic { remote, .. }) = work.operation
        else {
            panic!("not for direct execution: {:?}", work.operation)
        };
        // The peer's memory is gone where that of this end is.
        if remote.key != KEY || remote.address + length as u64 > self.gone_from {
            return InitiatorCopy::Unavailable;
        }
        match work.operation {
            WorkOperation::Write { remote, immediate: None } => {
                let start = (remote.address - BASE) as usize;
                self.peer.borrow_mut()[start..start + length].copy_from_slice(&self.buffers[&work.id]);
            }
            WorkOperation::Read { remote } => {
                let start = (remote.address - BASE) as usize;
                let bytes = self.peer.borrow()[start..start + length].to_vec();
                self.buffers.insert(work.id, bytes);
            }
            WorkOperation::Atomic { remote, atomic } => {
                let start = (remote.address - BASE) as usize;
                let mut peer = self.peer.borrow_mut();
                let word: &mut [u8; 8] = (&mut peer[start..start + 8]).try_into().unwrap();
                let original = u64::from_ne_bytes(*word);
                *word = apply(original, atomic).to_ne_bytes();
                self.buffers.insert(work.id, original.to_ne_bytes().to_vec());
            }
            other => panic!("not for direct execution: {other:?}"),
        }
        InitiatorCopy::Done
    }
}

impl WorkQueues for Host {
    fn select_shared_queue(&mut self, number: u32) -> Outcome<()> {
        if self.waits() {
            return Outcome::Wait(self.reason());
        }
        match number {
            SHARED_QUEUE => Outcome::Done(()),
            _ => Outcome::Denied(Denial::InvalidRequest),
        }
    }

    fn begin_receive(&mut self) -> bool {
        assert!(self.current.is_none(), "the receive before is still current");
        let Some(capacity) = self.receives.pop_front() else { return false };
        self.current = Some(Receive { capacity, bytes: Vec::new(), ended: false });
        true
    }

    fn place_receive(&mut self, offset: u64, payload: Payload<'_>, last: bool) -> Outcome<u32> {
        let mut at = offset;
        one_by_one(payload, |bytes| {
            let outcome = self.receive_one(at, bytes, last);
            at += bytes.len() as u64;
            outcome
        })
    }

    fn finish_receive(&mut self, arrival: Arrival) {
        let mut current = self.current.take().expect("a receive was begun");
        if self.restarts && (arrival.length == 0 || arrival.kind == ArrivalKind::WriteImmediate) {
            current.bytes.clear();
        }
        if arrival.kind == ArrivalKind::Send {
            assert_eq!(current.bytes.len(), arrival.length as usize);
            assert!(current.ended || current.bytes.is_empty(), "the last bytes were not said to be the last");
        } else {
            assert!(current.bytes.is_empty());
        }
        self.received.push(Received { result: Ok(arrival), bytes: current.bytes });
    }

    fn fail_receive(&mut self, status: Status) {
        let current = self.current.take().expect("a receive was begun");
        self.received.push(Received { result: Err(status), bytes: current.bytes });
    }

    fn keep_short_receive(&mut self) -> bool {
        if self.shares_receives {
            self.fail_receive(Status::LocalLength);
        }
        !self.shares_receives
    }

    fn complete(&mut self, work: WorkId, status: Status) {
        assert!(!self.failed, "a completion after the connection died");
        let next = self.completions.last().map_or(0, |last| last.0.0 + 1);
        assert!(work.0 >= next, "{work:?} is complete twice");
        self.completions.extend((next..work.0).map(|id| (WorkId(id), Status::Success)));
        self.completions.push((work, status));
        self.failed = status != Status::Success;
    }

    fn end_request(&mut self, work: WorkId, status: Status, landed: u32) {
        assert_ne!(status, Status::Success);
        self.complete(work, status);
        self.failed = false;
        self.landed.push((work, landed));
    }

    fn event(&mut self, event: QpEvent) {
        self.events.push(event);
    }
}

pub fn apply(original: u64, atomic: AtomicRequest) -> u64 {
    match atomic {
        AtomicRequest::CompareSwap { compare, swap } if original == compare => swap,
        AtomicRequest::CompareSwap { .. } => original,
        AtomicRequest::FetchAdd { add } => original.wrapping_add(add),
    }
}

/// The bytes of packet `index` of a burst whose first one has these.
pub fn source_in_burst(first: PayloadSource, index: u32) -> PayloadSource {
    match first {
        PayloadSource::None => PayloadSource::None,
        PayloadSource::Work { id, offset, length, copied } => {
            PayloadSource::Work { id, offset: offset + index * length, length, copied }
        }
        PayloadSource::Remote { remote, length, part } => {
            let skipped = u64::from(index) * u64::from(length);
            let address = remote.address.wrapping_add(skipped);
            let skipped = skipped as u32;
            let part = ReadPart { before: part.before + skipped, after: part.after - skipped, ..part };
            PayloadSource::Remote { remote: RemoteAddress { address, ..remote }, length, part }
        }
    }
}

/// The header of packet `index` of a burst of packets of `length` bytes whose first one has this: the PSN counts on, and a RETH
/// names what is left of the memory behind those before.
pub fn header_in_burst(first: &PacketHeader, length: u32, index: u32) -> PacketHeader {
    let mut header = *first;
    header.bth.psn = Psn::new(first.bth.psn).plus(index).value();
    if let Some(reth) = &mut header.reth {
        let skipped = u64::from(index) * u64::from(length);
        reth.address = reth.address.wrapping_add(skipped);
        reth.length = u64::from(reth.length).saturating_sub(skipped) as u32;
    }
    header
}
