//! WRITEs, READs and atomics that the initiator executes itself in pages with attributes of a local peer: it obeys the published attributes, and
//! writes the records into the owner's log (PAPERS AA-2 to AA-4).
//!
//! It moves a message piece by piece: each has one record, and lies in pages with equal attributes. What is refused, or goes to the fault log, goes
//! as packets to the owner.

use crate::access::intercepted::{Around, LoggedPiece, operands_of};
use crate::access::{AccessRequest, Accesses};
use crate::path::initiator_copy::{InitiatorBytes, InitiatorTransfer, LocalPath, RemoteHint, TransferPlan};
use crate::types::limits::RECORD_BYTES;
use crate::types::outcome::{AccessError, AccessResult, Cause};
use crate::types::sge::{ScatterGather, slice_of};
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use pagewire_iommu::access_log::{
    AccessLog, LogFull, LogSource, LoggedOperation, RecordFlags, RecordHeader, RecordTaken, flushed_domain,
};
use pagewire_iommu::layout::{LOG_WORDS, LOGS};
use pagewire_iommu::limits::USER_DOMAINS;
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{
    AccessEffect, AccessKind, AttributeTable, Logging, PageAttributes, RegionLife, RegionWindow, Rights,
};
use pagewire_memory::{ApplicationMemory, AtomicOperation, CopySource, MemoryError, RemoteMemory, Segment};
use pagewire_transport::{Reason, RemoteAddress, WorkId};
use smallvec::SmallVec;

/// What one queue pair knows of its peer's attributes, and its rings in the peer's logs.
#[derive_where(Default)]
pub struct PeerLogs<F: Fabric> {
    /// Of the region that was accessed last.
    table: Option<(RegionLife, AttributeTable<F::SharedMemory>)>,
    sources: SmallVec<[PeerLog<F>; 1]>,
    /// Messages so far.
    sequence: u32,
    /// The request of the send queue that is executed; `None`: it is executed at its post. Only the first one in the queue comes again until it is
    /// done, so only that may be moved in part.
    pub request: Option<WorkId>,
    open: Option<OpenMessage>,
}

struct PeerLog<F: Fabric> {
    user_domain: u16,
    ring: LogSource<F::SharedMemory>,
}

/// A message of several records that has begun. It goes on where it stopped.
#[derive(Clone, Copy)]
struct OpenMessage {
    request: WorkId,
    sequence: u32,
    /// Bytes that were moved, and logged.
    done: u64,
}

/// A message, as it is moved.
struct MessageCopy {
    hint: RemoteHint,
    need: Rights,
    key: u32,
    operation: LoggedOperation,
    sequence: u32,
    /// All of it, at the peer.
    whole: Segment,
}

/// A piece of a message, on pages with equal attributes.
struct MessagePiece {
    plan: TransferPlan,
    key: u32,
    operation: LoggedOperation,
    sequence: u32,
    flags: RecordFlags,
    attributes: PageAttributes,
    effect: AccessEffect,
}

impl MessagePiece {
    /// Its record in the log of a peer, which knows the source by its own queue pair.
    fn record(&self, peer: u32) -> RecordHeader {
        let mut flags = self.flags;
        flags.set(RecordFlags::REDIRECTED, !self.effect.reaches_memory);
        let [segment] = self.plan.there;
        // The messages that the owner logs have numbers of their own.
        let (operation, sequence) = (self.operation, self.sequence | BY_INITIATOR);
        let (key, attributes) = (self.key, self.attributes);
        LoggedPiece { operation, sequence, flags, key, segment, attributes }.record(peer, flags)
    }

    /// Whether the attributes are still those that it was planned by. Asked behind a claim: a change waits for that.
    fn obeys<W: SharedWords>(
        &self,
        table: Option<&(RegionLife, AttributeTable<W>)>,
        there: &[Segment],
    ) -> bool {
        let (Some((_, table)), [there]) = (table, there) else { return false };
        let run = table.runs(there.address, there.length).next();
        run.is_some_and(|(run, attributes)| {
            attributes == self.attributes && run.end - run.start == there.length
        })
    }

    fn length(&self) -> u64 {
        self.plan.there[0].length
    }

    fn data(&self) -> usize {
        if self.effect.logging == Logging::Data { self.length() as usize } else { 0 }
    }
}

/// The bytes of a piece: where they come from, or go to.
enum Moved<'b> {
    Put(&'b [u8]),
    Get(&'b mut [u8]),
    /// An atomic, and its operands as they are logged.
    Atomic(AtomicOperation, &'b [u8]),
}

/// In the number of a message that the initiator has executed.
const BY_INITIATOR: u32 = 1 << 31;

/// Bytes for which no memory is asked for.
const SHORT: usize = 64;

/// It goes as packets.
const AS_PACKETS: AccessError = AccessError::Refused(Cause::PeerUnreadable);

impl<F: Fabric> PeerLogs<F> {
    /// A message is done, or goes as packets.
    pub fn end_message(&mut self) {
        self.open = None;
    }

    /// Whether the handlers of the peer have handled all that this side has logged: in the log of a user domain, or in all. Where they have not,
    /// they are to begin.
    fn is_handled(&self, user_domain: Option<u16>) -> bool {
        let concerned = |log: &&PeerLog<F>| user_domain.is_none_or(|domain| log.user_domain == domain);
        let mut waits = self.sources.iter().filter(concerned).filter(|log| !log.ring.is_handled()).peekable();
        let is_handled = waits.peek().is_none();
        waits.for_each(|log| log.ring.await_handling());
        is_handled
    }
}

impl<F: Fabric, R: RemoteMemory> LocalPath<'_, F, R> {
    /// Executes a transfer for which the plain rights did not suffice.
    #[cold]
    #[inline(never)] // Its caller is part of each transfer.
    pub fn execute_intercepted(
        &mut self,
        transfer: &InitiatorTransfer,
        bytes: InitiatorBytes<'_>,
    ) -> AccessResult<()> {
        let InitiatorTransfer { remote, length, reads } = *transfer;
        let operation = if reads { LoggedOperation::Read } else { LoggedOperation::Write };
        let message = self.intercepted_message(remote, length.into(), operation)?;
        let services = self.services;
        let first = self.next_piece(&message)?;
        self.prepare(&first)?;
        match (reads, bytes) {
            (false, InitiatorBytes::Inline(bytes)) => {
                self.move_message(&message, first, |offset, piece, this| {
                    this.make(piece, Moved::Put(&bytes[offset as usize..(offset + piece.length()) as usize]))
                })
            }
            (reads, InitiatorBytes::Segments(pieces)) => {
                let need = if reads { Rights::LOCAL_WRITE } else { Rights::empty() };
                let request = AccessRequest { by: self.by, pieces, domain: self.domain, need, write: reads };
                let here = Accesses(services).begin(&request, self.waits)?;
                self.move_segments(&message, first, &here.segments)
            }
            (_, InitiatorBytes::Held(here)) => self.move_segments(&message, first, here),
            (true, InitiatorBytes::Inline(_)) => Err(AS_PACKETS),
        }?;
        Accesses(services).end_wait_if_any(self.waits);
        self.announce_rts(message.hint.place);
        Ok(())
    }

    /// Runs an atomic for which the plain rights did not suffice, and gives what was there. `pieces`: where that is written to.
    #[cold]
    #[inline(never)]
    pub fn execute_atomic_intercepted(
        &mut self,
        remote: RemoteAddress,
        operation: AtomicOperation,
        pieces: Option<&[ScatterGather]>,
    ) -> AccessResult<u64> {
        let (logged, operands) = operands_of(operation);
        let message = self.intercepted_message(remote, 8, logged)?;
        if message.whole.address % 8 != 0 || !self.remote.takes_atomics(message.whole) {
            return Err(AS_PACKETS);
        }
        let piece = self.next_piece(&message)?;
        let services = self.services;
        self.prepare(&piece)?;
        let memory = services.fabric.memory();
        let request = pieces.map(|pieces| {
            let (need, write) = (Rights::LOCAL_WRITE, true);
            AccessRequest { by: self.by, pieces, domain: self.domain, need, write }
        });
        let here = request.map(|request| Accesses(services).begin(&request, self.waits)).transpose()?;
        if let Some(here) = &here {
            // Where nothing can be written nothing is to be done there: it goes as a packet, whose answer tells that.
            memory.write(&[0; 8], &here.segments, true)?;
        }
        let original = self.make(&piece, Moved::Atomic(operation, &operands))?;
        if let Some(here) = &here
            && let Err(error) = memory.write(&original.to_ne_bytes(), &here.segments, true)
        {
            // It is done.
            log::debug!("an atomic has no place any more for what was there: {error:?}");
        }
        Accesses(services).end_wait_if_any(self.waits);
        self.announce_rts(message.hint.place);
        Ok(original)
    }

    /// Where a message goes, if this side may execute all of it. One that has begun goes on.
    fn intercepted_message(
        &mut self,
        remote: RemoteAddress,
        length: u64,
        operation: LoggedOperation,
    ) -> AccessResult<MessageCopy> {
        let kind = operation.kind();
        let need = match kind {
            AccessKind::Read => Rights::REMOTE_READ,
            AccessKind::Write => Rights::REMOTE_WRITE,
            AccessKind::Atomic => Rights::REMOTE_ATOMIC,
        };
        let of_region = need.intercepted(true);
        let hint = match self.known_hint(remote.key, of_region) {
            Some(hint) => hint,
            None => self.find(remote.key, need, of_region)?,
        };
        let window = *hint.mr_entry.window();
        let granted = window.locate(remote.address, length)?;
        let whole = Segment { address: granted.address, length };
        let (request, open) = (self.peer_logs.request, self.peer_logs.open);
        let open = open.filter(|open| Some(open.request) == request);
        let Some(table) = self.table_of(&window) else {
            return Err(self.flush_or_packets(&window, remote.address));
        };
        let is_allowed = |(_, attributes): (_, PageAttributes)| {
            let effect = attributes.effect(kind);
            effect.is_allowed && effect.logging != Logging::Fault
        };
        // A message is refused as a whole, by the owner. One that has begun was permitted.
        if open.is_none() && !table.runs(whole.address, length).all(is_allowed) {
            return Err(AS_PACKETS);
        }
        let logs = &mut *self.peer_logs;
        logs.open = open;
        if open.is_none() {
            logs.sequence = logs.sequence.wrapping_add(1);
        }
        let sequence = open.map_or(logs.sequence, |open| open.sequence);
        Ok(MessageCopy { hint, need, key: remote.key, operation, sequence, whole })
    }

    /// Bytes of a message that were moved before.
    fn done(&self) -> u64 {
        self.peer_logs.open.map_or(0, |open| open.done)
    }

    /// The piece of a message that comes next.
    fn next_piece(&mut self, message: &MessageCopy) -> AccessResult<MessagePiece> {
        let (done, whole) = (self.done(), message.whole);
        let rest = whole.part(done, whole.length - done);
        let table = self.peer_logs.table.as_ref().map(|(_, table)| table);
        let run = table.and_then(|table| table.runs(rest.address, rest.length.min(RECORD_BYTES)).next());
        let (run, attributes) = run.ok_or(AS_PACKETS)?;
        let effect = attributes.effect(message.operation.kind());
        if !effect.is_allowed || effect.logging == Logging::Fault {
            // Pages that were set meanwhile: the owner refuses the message.
            return Err(AS_PACKETS);
        }
        let mut length = (run.end - run.start).min(RECORD_BYTES);
        if effect.logging == Logging::Data {
            let most = self.ring(attributes.user_domain)?.max_data() as u64;
            if length < whole.length || length > most {
                length = length.min((most / 2).max(8));
            }
        }
        if length < whole.length && self.peer_logs.request.is_none() {
            // It is kept, and executed when it is the first one.
            return Err(AccessError::Wait(Reason::NoClaim));
        }
        let table = self.peer_logs.table.as_ref().map(|(_, table)| table);
        let (around, there) = (Around { before: done, behind: rest.length - length }, rest.part(0, length));
        let flags = around.flags(table, message.operation.kind(), attributes, there);
        let MessageCopy { hint, need, key, operation, sequence, .. } = *message;
        let plan = TransferPlan { hint, need, there: [there] };
        Ok(MessagePiece { plan, key, operation, sequence, flags, attributes, effect })
    }

    /// Whether the memory of a piece is there, and its log has space.
    fn prepare(&mut self, piece: &MessagePiece) -> AccessResult<()> {
        if piece.effect.reaches_memory {
            self.reach(&piece.plan, self.services.fabric.memory().moment())?;
        }
        self.open_log(piece)
    }

    /// Moves a message piece by piece, the first of which is prepared. `move_piece` gets where the piece begins. What has begun and has to wait goes on where it stopped.
    fn move_message(
        &mut self,
        message: &MessageCopy,
        first: MessagePiece,
        mut move_piece: impl FnMut(u64, &MessagePiece, &mut Self) -> AccessResult<u64>,
    ) -> AccessResult<()> {
        let before = self.done();
        let mut piece = first;
        loop {
            let done = self.done();
            match move_piece(done, &piece, self) {
                Ok(_) => {}
                // Its attributes or its pages may be others by now. What makes no progress goes as packets, with what was moved before.
                Err(AccessError::Refused(_)) if done > before => {
                    return Err(AccessError::Wait(Reason::NoClaim));
                }
                Err(error) => return Err(error),
            }
            let (done, sequence) = (done + piece.length(), message.sequence);
            let is_last = done == message.whole.length;
            let request = self.peer_logs.request.filter(|_| !is_last);
            self.peer_logs.open = request.map(|request| OpenMessage { request, sequence, done });
            if is_last {
                return Ok(());
            }
            piece = self.next_piece(message)?;
            self.prepare(&piece)?;
        }
    }

    /// A region without attributes for peers is that of flushes, or the owner knows more of it.
    fn flush_or_packets(&self, window: &RegionWindow, address: u64) -> AccessError {
        match self.peer_logs.is_handled(flushed_domain(address.wrapping_sub(window.iova()))) {
            true => AS_PACKETS,
            false => AccessError::Wait(Reason::Handlers),
        }
    }

    /// The attributes of a region of the peer, mapped here.
    fn table_of(&mut self, window: &RegionWindow) -> Option<&AttributeTable<F::SharedMemory>> {
        let is_known = matches!(&self.peer_logs.table, Some((life, _)) if *life == window.life());
        if !is_known {
            let at = self.channel.peer_regions.attributes_of(window)?;
            let (process, length) = (&self.channel.channel.process, at.words as usize);
            let words = self.services.fabric.open_words(process, at.file, length, false);
            let words = words
                .inspect_err(|error| log::debug!("the attributes of a peer cannot be mapped: {error}"))
                .ok()?;
            // Whatever the peer says of its length, pages behind its end are ordinary.
            let table = AttributeTable::new(words, at.base..u64::MAX);
            self.peer_logs.table = Some((window.life(), table));
        }
        self.peer_logs.table.as_ref().map(|(_, table)| table)
    }

    /// The ring of this side in a log of the peer.
    fn ring(&mut self, user_domain: u16) -> AccessResult<&mut LogSource<F::SharedMemory>> {
        let known = self.peer_logs.sources.iter().position(|log| log.user_domain == user_domain);
        let place = match known {
            Some(place) => place,
            None => {
                let log = self.map_log(user_domain).ok_or(AS_PACKETS)?;
                // The owner knows the source by its own queue pair.
                let ring = log.claim_source(self.peer.into()).ok_or(AccessError::Wait(Reason::LogFull))?;
                self.peer_logs.sources.push(PeerLog { user_domain, ring });
                self.peer_logs.sources.len() - 1
            }
        };
        let sources = &mut self.peer_logs.sources;
        if sources[place].ring.is_damaged() {
            // The owner says so, and has another ring from then on.
            if sources[place].ring.is_lost() {
                sources.swap_remove(place);
            }
            return Err(AS_PACKETS);
        }
        if sources[place].ring.is_closed() {
            // Its file stays mapped for nobody.
            sources.swap_remove(place);
            return Err(AS_PACKETS);
        }
        Ok(&mut sources[place].ring)
    }

    /// Has space for the record of a piece, if it has one.
    fn open_log(&mut self, piece: &MessagePiece) -> AccessResult<()> {
        if piece.effect.logging == Logging::None {
            return Ok(());
        }
        match self.ring(piece.attributes.user_domain)?.has_space_for(piece.data()) {
            true => Ok(()),
            false => Err(AccessError::Wait(Reason::LogFull)),
        }
    }

    fn map_log(&self, user_domain: u16) -> Option<AccessLog<F::SharedMemory>> {
        let (tables, domain) = (&self.channel.channel.tables, usize::from(user_domain));
        let at = LOGS + domain * LOG_WORDS;
        let number =
            if domain < USER_DOMAINS { tables.load(at).checked_sub(1)? as u32 } else { return None };
        let shape = tables.load(at + 1);
        let (sources, ring) = ((shape >> 32) as usize, shape as u32 as usize);
        let length = AccessLog::<F::SharedMemory>::words_for(sources, ring)?;
        let words = self.services.fabric.open_words(&self.channel.channel.process, number, length, true);
        let words = words
            .inspect_err(|error| log::debug!("an access log of a peer cannot be mapped: {error}"))
            .ok()?;
        AccessLog::new(words, sources, ring)
    }

    /// Moves a message to or from memory of this side.
    fn move_segments(
        &mut self,
        message: &MessageCopy,
        first: MessagePiece,
        here: &[Segment],
    ) -> AccessResult<()> {
        let memory = self.services.fabric.memory();
        let most = message.whole.length.min(RECORD_BYTES) as usize;
        let mut bytes: SmallVec<[u8; SHORT]> = SmallVec::from_elem(0, most);
        let reads = message.operation == LoggedOperation::Read;
        self.move_message(message, first, |offset, piece, this| {
            let bytes = &mut bytes[..piece.length() as usize];
            let here = slice_of(here, offset, piece.length());
            if !reads {
                memory.read(&here, bytes)?;
                return this.make(piece, Moved::Put(bytes));
            }
            let made = this.make(piece, Moved::Get(bytes))?;
            memory.write(bytes, &here, true)?;
            Ok(made)
        })
    }

    /// Makes an access, and its record if it has one, under a claim on the region. Gives what an atomic found.
    fn make(&mut self, piece: &MessagePiece, moved: Moved<'_>) -> AccessResult<u64> {
        let mut logs = std::mem::take(self.peer_logs);
        let (record, domain) = (piece.record(self.peer), piece.attributes.user_domain);
        let mut ring = match piece.effect.logging {
            Logging::None => None,
            _ => logs.sources.iter_mut().find(|log| log.user_domain == domain).map(|log| &mut log.ring),
        };
        let (fabric, mut original) = (&self.services.fabric, 0);
        let outcome = self.copy(&piece.plan, |remote, there| {
            if !piece.obeys(logs.table.as_ref(), there) {
                return Err(MemoryError::NotMapped);
            }
            // Read before they are logged: the record has what the caller gets.
            let (bytes, change) = match moved {
                Moved::Get(bytes) => {
                    remote.get_bytes(there, bytes)?;
                    (&*bytes, Change::None)
                }
                Moved::Put(bytes) if piece.effect.reaches_memory => (bytes, Change::Put(bytes)),
                Moved::Put(bytes) => (bytes, Change::None),
                Moved::Atomic(operation, operands) => (operands, Change::Atomic(operation)),
            };
            let mut access = || match change {
                Change::None => Ok(()),
                Change::Put(bytes) => remote.put(CopySource::Bytes(bytes), there, true),
                Change::Atomic(operation) => remote.atomic(there[0], operation).map(|found| original = found),
            };
            let Some(ring) = &mut ring else { return access() };
            let data = if piece.effect.logging == Logging::Data { bytes } else { &[] };
            // There was space a moment ago, and nobody else writes the ring.
            let reserved = ring.reserve(&record, data, || fabric.now());
            let reserved = reserved.map_err(|LogFull| MemoryError::NotMapped)?;
            if reserved.is_closed() {
                return Err(MemoryError::NotMapped);
            }
            let is_put = matches!(change, Change::Put(_));
            if let Err(error) = access() {
                // An atomic is made whole or not at all.
                if !is_put {
                    return Err(error);
                }
                // A part of it may have been written. A reader that has taken the record has reported so.
                let _ = reserved.publish_unsure();
                return Err(error);
            }
            // A reader that has taken the record has reported that the access may have been made. What has reached nothing else was not, and
            // is made again.
            match reserved.publish() {
                Err(RecordTaken) if !piece.effect.reaches_memory => Err(MemoryError::NotMapped),
                Ok(()) | Err(RecordTaken) => Ok(()),
            }
        });
        if let (Ok(()), Some(ring)) = (outcome, ring) {
            ring.announce();
        }
        *self.peer_logs = logs;
        outcome.map(|()| original)
    }
}

/// What an access does to the memory of the peer.
#[derive(Clone, Copy)]
enum Change<'b> {
    None,
    Put(&'b [u8]),
    Atomic(AtomicOperation),
}
