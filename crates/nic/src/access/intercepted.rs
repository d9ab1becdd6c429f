//! Accesses of peers to pages with attributes: logged, redirected, or refused (PAPERS AA-2 and AA-3).
//!
//! Data are read once: what is written goes from its source into the record and from there into memory; what is read goes from memory into the
//! record and from there to the peer. A record is reserved before the access, and published behind it.

use crate::services::Services;
use crate::services::interception::{LogFlush, SharedLog};
use crate::types::limits::RECORD_BYTES;
use crate::types::outcome::{AccessError, AccessResult, Cause};
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use pagewire_iommu::access_log::{
    FlushState, LogFull, LogSource, LoggedOperation, RecordFlags, RecordHeader,
};
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{AccessKind, AccessRefusal, AttributeTable, Logging, PageAttributes};
use pagewire_memory::{AtomicOperation, Segment};
use pagewire_transport::{Psn, ReadPart, Reason, RemoteAddress};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;

/// What one queue pair has to remember of intercepted accesses.
#[derive_where(Default)]
pub struct Intercepted<F: Fabric> {
    /// Messages so far.
    sequence: u32,
    open: Option<OpenWrite>,
    /// The latest READs. The oldest comes first.
    reads: VecDeque<LoggedRead>,
    sources: SmallVec<[LogRing<F>; 1]>,
    /// What the first request waits for, if it is a flush.
    flush: Option<LogFlush<F>>,
    /// Responses that were read, and have not left: of a READ, and of one that was asked for again.
    responses: SmallVec<[Response; 1]>,
    /// What the response that is sent carries.
    pub part: ReadPart,
}

/// READs that are remembered: more than may be outstanding on a queue pair (max_dest_rd_atomic has 8 bits).
const MAX_READS: usize = 256;

/// Responses that are kept. Two may wait; what else is there was given up.
const MAX_RESPONSES: usize = 4;

/// A READ of which a response was logged.
struct LoggedRead {
    psn: Psn,
    sequence: u32,
}

/// A WRITE of which packets are to come, or of which a part had to wait.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OpenWrite {
    sequence: u32,
    remote: RemoteAddress,
    length: u32,
    /// Bytes that were handled.
    handled: u64,
}

/// A response, which is what was logged of it.
pub struct Response {
    pub psn: u32,
    /// The number of the READ.
    pub sequence: u32,
    pub part: ReadPart,
    pub remote: RemoteAddress,
    pub bytes: Vec<u8>,
    /// Where they were read, in this process.
    pub segment: Segment,
    pub region: Option<u32>,
    pub logged: u64,
}

/// The ring of the queue pair in one log.
struct LogRing<F: Fabric> {
    log: Arc<SharedLog<F>>,
    ring: LogSource<F::SharedMemory>,
}

/// Bytes of an access before a piece of it and behind.
#[derive(Clone, Copy)]
pub struct Around {
    pub before: u64,
    pub behind: u64,
}

impl Around {
    /// The flags of a piece's record: whether its log gets the first of the access with it, and the last.
    pub fn flags<W: SharedWords>(
        self,
        table: Option<&AttributeTable<W>>,
        kind: AccessKind,
        attributes: PageAttributes,
        at: Segment,
    ) -> RecordFlags {
        let end = at.address.saturating_add(at.length);
        let whole = at.address.saturating_sub(self.before)..end.saturating_add(self.behind);
        let (is_first, is_last) = match table {
            Some(table) => table.ends(kind, attributes, at.address..end, whole),
            None => (self.before == 0, self.behind == 0),
        };
        let mut flags = RecordFlags::empty();
        flags.set(RecordFlags::FIRST, is_first);
        flags.set(RecordFlags::LAST, is_last);
        flags
    }
}

/// A piece of an access, on pages with equal attributes.
#[derive(Clone, Copy)]
pub struct LoggedPiece {
    pub operation: LoggedOperation,
    /// The number of the message that it is part of.
    pub sequence: u32,
    pub flags: RecordFlags,
    pub key: u32,
    /// In this process.
    pub segment: Segment,
    pub attributes: PageAttributes,
}

impl LoggedPiece {
    /// Its record, of a source.
    pub fn record(&self, source: u32, flags: RecordFlags) -> RecordHeader {
        RecordHeader {
            operation: self.operation,
            flags,
            user_domain: self.attributes.user_domain,
            source: source.into(),
            key: self.key,
            sequence: self.sequence,
            address: self.segment.address,
            length: self.segment.length as u32,
            stamp: 0,
        }
    }
}

/// The operands of an atomic, as they are logged: in the processor's order of bytes.
pub fn operands_of(operation: AtomicOperation) -> (LoggedOperation, SmallVec<[u8; 16]>) {
    match operation {
        AtomicOperation::FetchAdd { add } => {
            (LoggedOperation::FetchAdd, SmallVec::from_slice(&add.to_ne_bytes()))
        }
        AtomicOperation::CompareSwap { compare, swap } => {
            let operands = [compare.to_ne_bytes(), swap.to_ne_bytes()];
            (LoggedOperation::CompareSwap, operands.as_flattened().into())
        }
    }
}

/// Who accesses, and with which services.
#[derive_where(Clone, Copy)]
pub struct Accessor<'a, F: Fabric> {
    pub services: &'a Services<F>,
    /// The number of the queue pair.
    pub number: u32,
}

impl<F: Fabric> Intercepted<F> {
    /// The number of a message that begins.
    pub fn next_sequence(&mut self) -> u32 {
        self.sequence = self.sequence.wrapping_add(1);
        self.sequence
    }

    /// The number of the READ that has a part, which is logged.
    pub fn sequence_of_read(&mut self, part: ReadPart) -> u32 {
        let known = self.reads.iter().position(|read| read.psn == part.read);
        // PSNs come again: what has never been sent is the beginning of another READ.
        let is_new = part.before == 0 && !part.repeated;
        match known {
            Some(place) if !is_new => return self.reads[place].sequence,
            Some(place) => _ = self.reads.remove(place),
            None if self.reads.len() == MAX_READS => _ = self.reads.pop_front(),
            None => {}
        }
        let sequence = self.next_sequence();
        self.reads.push_back(LoggedRead { psn: part.read, sequence });
        sequence
    }

    /// The response with a PSN, if it was read before and has not left.
    pub fn take_response(&mut self, psn: u32, remote: RemoteAddress, length: u32) -> Option<Response> {
        let is_it =
            |kept: &Response| kept.psn == psn && kept.remote == remote && kept.bytes.len() == length as usize;
        let place = self.responses.iter().position(is_it)?;
        Some(self.responses.remove(place))
    }

    /// Keeps a response that has to wait.
    pub fn keep_response(&mut self, response: Response) {
        if self.responses.len() == MAX_RESPONSES {
            self.responses.remove(0);
        }
        self.responses.push(response);
    }

    /// The number of the WRITE or atomic that is executed.
    pub fn open_sequence(&self) -> u32 {
        self.open.map_or(self.sequence, |open| open.sequence)
    }

    /// Begins a WRITE or an atomic, or goes on with the same one: a part of it had to wait, or its packets each name what is left of it. Gives
    /// its number.
    pub fn begin_message(&mut self, remote: RemoteAddress, length: u32) -> u32 {
        let goes_on = |open: &OpenWrite| {
            // Bytes of the message before the packet.
            let before = remote.address.wrapping_sub(open.remote.address);
            let ends_alike = before.checked_add(length.into()) == Some(open.length.into());
            open.handled > 0 && ends_alike && before <= open.handled && open.remote.key == remote.key
        };
        if !self.open.as_ref().is_some_and(goes_on) {
            let sequence = self.next_sequence();
            self.open = Some(OpenWrite { sequence, remote, length, handled: 0 });
        }
        self.open_sequence()
    }

    /// Bytes of a packet that goes to `at` which were handled before it had to wait.
    pub fn handled_before(&self, at: u64, length: u64) -> u64 {
        let handled =
            self.open.map_or(0, |open| open.remote.address.wrapping_add(open.handled).wrapping_sub(at));
        if handled <= length { handled } else { 0 }
    }

    /// What is around a piece of the WRITE that goes to `at`.
    pub fn around(&self, at: u64, length: u64) -> Around {
        let Some(open) = self.open else { return Around { before: 0, behind: 0 } };
        let before = at.wrapping_sub(open.remote.address);
        Around { before, behind: u64::from(open.length).saturating_sub(before.saturating_add(length)) }
    }

    /// So many bytes more of the message were handled. `is_last`: they are its last.
    pub fn note_handled(&mut self, length: u64, is_last: bool) {
        match &mut self.open {
            Some(_) if is_last => self.open = None,
            Some(open) => open.handled = (open.handled + length).min(open.length.into()),
            None => {}
        }
    }

    /// Whether handlers have handled all that was logged of the caller when it was first asked: in the log of a user domain, or in all.
    pub fn flush(&mut self, by: Accessor<'_, F>, user_domain: Option<u16>) -> FlushState {
        let flush = match self.flush.take().filter(|flush| flush.is_of(user_domain)) {
            Some(flush) => self.flush.insert(flush),
            None => self.flush.insert(by.services.interception.flush(by.number, user_domain)),
        };
        let state = flush.state();
        if state != FlushState::Waits {
            self.flush = None;
        }
        state
    }

    /// The ring of the queue pair in the log of a user domain. `None`: nobody reads such a log.
    fn source(&mut self, by: Accessor<'_, F>, user_domain: u16) -> AccessResult<Option<&mut LogRing<F>>> {
        let Some(log) = by.services.interception.log(user_domain) else {
            // A log that has ended is kept for nobody.
            self.sources.retain(|source| source.log.user_domain() != user_domain);
            return Ok(None);
        };
        // The initiator may have a ring of its own there.
        if log.log.has_damaged(by.number.into()) {
            return Err(AccessError::Refused(Cause::LogDamaged));
        }
        // A flush has told the caller of a ring that was damaged: this is another one.
        if log.log.has_any_damage() {
            self.sources.retain(|source| !source.ring.is_damaged());
        }
        let known = self.sources.iter().position(|source| Arc::ptr_eq(&source.log, &log));
        let place = match known {
            Some(place) => place,
            None => {
                let ring = log.claim_source(by.number).ok_or(AccessError::Wait(Reason::LogFull))?;
                self.sources.retain(|source| source.log.user_domain() != user_domain);
                self.sources.push(LogRing { log, ring });
                self.sources.len() - 1
            }
        };
        Ok(self.sources.get_mut(place))
    }

    /// Whether there is space for the records of a READ, or for half of the ring, where it is longer.
    pub fn has_space(
        &mut self,
        by: Accessor<'_, F>,
        attributes: PageAttributes,
        length: u64,
    ) -> AccessResult<()> {
        let data = match attributes.effect(AccessKind::Read).logging {
            Logging::None | Logging::Fault => return Ok(()),
            Logging::Metadata => 0,
            Logging::Data => length as usize,
        };
        let Some(source) = self.source(by, attributes.user_domain)? else { return Ok(()) };
        let most = source.ring.max_data() / 2;
        match source.ring.has_space_for(data.min(most)) {
            true => Ok(()),
            false => Err(AccessError::Wait(Reason::LogFull)),
        }
    }

    /// The first piece of an access to pages of a region, in one record: its attributes, and its length.
    pub fn first_piece(
        &mut self,
        by: Accessor<'_, F>,
        table: Option<&AttributeTable<F::SharedMemory>>,
        kind: AccessKind,
        at: Segment,
    ) -> AccessResult<(PageAttributes, u64)> {
        let run = table.and_then(|table| table.runs(at.address, at.length).next());
        let (run, attributes) =
            run.unwrap_or((at.address..at.address.saturating_add(at.length), PageAttributes::ORDINARY));
        let mut length = run.end - run.start;
        if attributes.effect(kind).logging == Logging::Data {
            let source = self.source(by, attributes.user_domain)?;
            let most = source.map_or(RECORD_BYTES, |source| source.ring.max_data() as u64 / 2);
            length = length.min(RECORD_BYTES).min(most.max(8));
        }
        Ok((attributes, length))
    }

    /// Logs a piece as its attributes ask for, and makes the access. `access` is called with whether it reaches memory.
    pub fn log<T>(
        &mut self,
        by: Accessor<'_, F>,
        piece: &LoggedPiece,
        data: &[u8],
        access: impl FnOnce(bool) -> AccessResult<T>,
    ) -> AccessResult<T> {
        let effect = piece.attributes.effect(piece.operation.kind());
        if !effect.is_allowed {
            return Err(self.log_refused(by, piece));
        }
        let mut flags = piece.flags;
        flags.set(RecordFlags::REDIRECTED, !effect.reaches_memory);
        let record = piece.record(by.number, flags);
        let data = match effect.logging {
            Logging::None => return access(effect.reaches_memory),
            Logging::Fault => {
                let record = RecordHeader { stamp: by.services.fabric.now(), ..record };
                // An access that has to wait is tried again, and noted once.
                let made = access(effect.reaches_memory)?;
                by.services.interception.note_fault(record);
                return Ok(made);
            }
            Logging::Metadata => &[],
            Logging::Data => data,
        };
        let Some(source) = self.source(by, piece.attributes.user_domain)? else {
            return Self::log_without_reader(by, record, || access(true));
        };
        let reserved = source.ring.reserve(&record, data, || by.services.fabric.now());
        let reserved = reserved.map_err(|LogFull| AccessError::Wait(Reason::LogFull))?;
        let made = access(effect.reaches_memory)?;
        // A reader that has taken the record has reported that the access may have been made. What has reached nothing else was not, and is
        // made again.
        if reserved.publish().is_err() && !effect.reaches_memory {
            return Err(AccessError::Wait(Reason::LogFull));
        }
        source.ring.announce();
        Ok(made)
    }

    /// Nobody reads the log: the record goes to the fault log, and what would be redirected is refused.
    fn log_without_reader<T>(
        by: Accessor<'_, F>,
        mut record: RecordHeader,
        access: impl FnOnce() -> AccessResult<T>,
    ) -> AccessResult<T> {
        record.stamp = by.services.fabric.now();
        let is_redirected = record.flags.contains(RecordFlags::REDIRECTED);
        record.flags.set(RecordFlags::REFUSED, is_redirected);
        let made = if is_redirected { Err(AccessRefusal::Rights.into()) } else { access() };
        if !matches!(made, Err(AccessError::Wait(_))) {
            by.services.interception.note_fault(record);
        }
        made
    }

    /// Logs an access that is refused, if its attributes ask for that.
    pub fn log_refused(&mut self, by: Accessor<'_, F>, piece: &LoggedPiece) -> AccessError {
        let refused = AccessError::Refused(Cause::Region(AccessRefusal::Rights));
        let record = piece.record(by.number, piece.flags | RecordFlags::REFUSED);
        let now = || by.services.fabric.now();
        let source = match piece.attributes.effect(piece.operation.kind()).logging {
            Logging::None => return refused,
            Logging::Fault => Ok(None),
            Logging::Metadata | Logging::Data => self.source(by, piece.attributes.user_domain),
        };
        match source {
            Ok(Some(source)) => {
                // A reader that has taken the record before has reported it.
                let logged = source.ring.reserve(&record, &[], now).map(|reserved| reserved.publish());
                if logged == Err(LogFull) {
                    return AccessError::Wait(Reason::LogFull);
                }
                source.ring.announce();
            }
            Ok(None) => by.services.interception.note_fault(RecordHeader { stamp: now(), ..record }),
            Err(error) => return error,
        }
        refused
    }
}
