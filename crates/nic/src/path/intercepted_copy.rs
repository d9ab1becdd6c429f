//! WRITEs and READs that the initiator executes itself in pages with attributes of a local peer: it obeys the published attributes, and writes the
//! record into the owner's log (PAPERS AA-2 to AA-4).
//!
//! That is for what is short and lies in pages with equal attributes: one record, and an access that is made whole or not at all. Everything
//! else, and what is refused, goes as packets to the owner.

use crate::access::AccessRequest;
use crate::access::intercepted::LoggedPiece;
use crate::path::initiator_copy::{Bytes, LocalPath, Plan, Transfer};
use crate::words::limits::RECORD_BYTES;
use crate::words::outcome::{Cause, Outcome, Withheld};
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use pagewire_iommu::access_log::{
    AccessLog, LogFull, LogSource, LoggedOperation, RecordFlags, RecordHeader, Taken, flushed_domain,
};
use pagewire_iommu::layout::{LOG_WORDS, LOGS};
use pagewire_iommu::limits::USER_DOMAINS;
use pagewire_iommu::words::SharedWords;
use pagewire_iommu::{
    AccessKind, AttributeTable, Effect, Logging, PageAttributes, RegionLife, Rights, Window,
};
use pagewire_memory::{ApplicationMemory, MemoryError, RemoteMemory, Segment, Source};
use pagewire_transport::Reason;
use smallvec::SmallVec;

/// What one queue pair knows of its peer's attributes, and its rings in the peer's logs.
#[derive_where(Default)]
pub struct PeerLogs<F: Fabric> {
    /// Of the region that was accessed last.
    table: Option<(RegionLife, AttributeTable<F::Words>)>,
    sources: SmallVec<[PeerLog<F>; 1]>,
    /// Messages so far.
    sequence: u32,
}

struct PeerLog<F: Fabric> {
    user_domain: u16,
    ring: LogSource<F::Words>,
}

/// One access, on pages with equal attributes.
struct Access {
    plan: Plan,
    key: u32,
    reads: bool,
    attributes: PageAttributes,
    effect: Effect,
}

impl Access {
    /// Its record in the log of a peer, which knows the source by its own queue pair.
    fn record(&self, peer: u32, sequence: u32) -> RecordHeader {
        let mut flags = RecordFlags::FIRST | RecordFlags::LAST;
        flags.set(RecordFlags::REDIRECTED, !self.effect.reaches_memory);
        let [segment] = self.plan.there;
        let operation = if self.reads { LoggedOperation::Read } else { LoggedOperation::Write };
        // The messages that the owner logs have numbers of their own.
        let sequence = sequence | BY_INITIATOR;
        let (key, attributes) = (self.key, self.attributes);
        LoggedPiece { operation, sequence, flags, key, segment, attributes }.record(peer, flags)
    }

    /// Whether the attributes are still those that it was planned by. Asked behind a claim: a change waits for that.
    fn obeys<W: SharedWords>(
        &self,
        table: Option<&(RegionLife, AttributeTable<W>)>,
        there: &[Segment],
    ) -> bool {
        match (table, there) {
            (Some((_, table)), [there]) => table.at(there.address) == self.attributes,
            _ => false,
        }
    }
}

/// The bytes of an access: where they come from, or go to.
enum Moved<'b> {
    Put(&'b [u8]),
    Get(&'b mut [u8]),
}

/// In the number of a message that the initiator has executed.
const BY_INITIATOR: u32 = 1 << 31;

/// Bytes for which no memory is asked for.
const SHORT: usize = 64;

/// It goes as packets.
const AS_PACKETS: Withheld = Withheld::Refused(Cause::PeerUnreadable);

impl<F: Fabric> PeerLogs<F> {
    /// Whether the handlers of the peer have handled all that this side has logged: in the log of a user domain, or in all.
    fn is_handled(&self, user_domain: Option<u16>) -> bool {
        let concerned = |log: &&PeerLog<F>| user_domain.is_none_or(|domain| log.user_domain == domain);
        self.sources.iter().filter(concerned).all(|log| log.ring.is_handled())
    }
}

impl<F: Fabric, R: RemoteMemory> LocalPath<'_, F, R> {
    /// Executes a transfer for which the plain rights did not suffice.
    #[cold]
    #[inline(never)] // Its caller is part of each transfer.
    pub fn execute_intercepted(&mut self, transfer: &Transfer, bytes: Bytes<'_>) -> Outcome<()> {
        let access = self.intercepted_access(transfer)?;
        let services = self.services;
        let moment = services.fabric.memory().moment();
        if access.effect.reaches_memory {
            self.reach(&access.plan, moment)?;
        }
        let length = u64::from(transfer.length);
        let data = if access.effect.logging == Logging::Data { length as usize } else { 0 };
        if access.effect.logging != Logging::None {
            self.open_log(access.attributes.user_domain, data)?;
        }
        match (access.reads, bytes) {
            (false, Bytes::Inline(bytes)) => self.make(&access, Moved::Put(bytes))?,
            (reads, Bytes::Segments(pieces)) => {
                let need = if reads { Rights::LOCAL_WRITE } else { Rights::empty() };
                let request = AccessRequest { by: self.by, pieces, domain: self.domain, need, write: reads };
                let here = services.begin(&request, self.waits)?;
                self.move_intercepted(&access, &here.segments)?;
            }
            (_, Bytes::Held(here)) => self.move_intercepted(&access, here)?,
            (true, Bytes::Inline(_)) => return Err(AS_PACKETS),
        }
        services.end_wait_if_any(self.waits);
        self.announce_rts(access.plan.hint.place);
        Ok(())
    }

    /// Where a transfer goes, and what becomes of it there.
    fn intercepted_access(&mut self, transfer: &Transfer) -> Outcome<Access> {
        let Transfer { remote, length, reads } = *transfer;
        let need = if reads { Rights::REMOTE_READ } else { Rights::REMOTE_WRITE };
        let of_region = need.intercepted(true);
        let hint = match self.known_hint(remote.key, of_region) {
            Some(hint) => hint,
            None => self.find(remote.key, need, of_region)?,
        };
        let window = *hint.mr_entry.window();
        let granted = window.locate(remote.address, length.into())?;
        let segment = Segment { address: granted.address, length: length.into() };
        let is_short = segment.length <= RECORD_BYTES;
        let Some(table) = self.table_of(&window) else {
            return Err(self.flush_or_packets(&window, remote.address));
        };
        if !is_short {
            return Err(AS_PACKETS);
        }
        let kind = if reads { AccessKind::Read } else { AccessKind::Write };
        let attributes = match table.runs(segment.address, segment.length).next() {
            Some((run, attributes)) if run.end - run.start == segment.length => attributes,
            _ => return Err(AS_PACKETS),
        };
        let effect = attributes.effect(kind);
        if !effect.is_allowed || effect.logging == Logging::Fault {
            return Err(AS_PACKETS);
        }
        let plan = Plan { hint, need, there: [segment] };
        Ok(Access { plan, key: remote.key, reads, attributes, effect })
    }

    /// A region without attributes for peers is that of flushes, or the owner knows more of it.
    fn flush_or_packets(&self, window: &Window, address: u64) -> Withheld {
        match self.peer_logs.is_handled(flushed_domain(address.wrapping_sub(window.iova()))) {
            true => AS_PACKETS,
            false => Withheld::Wait(Reason::Handlers),
        }
    }

    /// The attributes of a region of the peer, mapped here.
    fn table_of(&mut self, window: &Window) -> Option<&AttributeTable<F::Words>> {
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

    /// Has a ring in a log of the peer, with space for one record.
    fn open_log(&mut self, user_domain: u16, data: usize) -> Outcome<()> {
        let sources = &mut self.peer_logs.sources;
        let place = match sources.iter().position(|log| log.user_domain == user_domain) {
            Some(place) => place,
            None => {
                let log = self.map_log(user_domain).ok_or(AS_PACKETS)?;
                // The owner knows the source by its own queue pair.
                let ring = log.claim_source(self.peer.into()).ok_or(Withheld::Wait(Reason::LogFull))?;
                self.peer_logs.sources.push(PeerLog { user_domain, ring });
                self.peer_logs.sources.len() - 1
            }
        };
        let PeerLog { ring, .. } = &mut self.peer_logs.sources[place];
        if ring.is_damaged() {
            // The owner says so.
            return Err(AS_PACKETS);
        }
        if ring.is_closed() {
            // Its file stays mapped for nobody.
            self.peer_logs.sources.swap_remove(place);
            return Err(AS_PACKETS);
        }
        if data > ring.max_data() {
            return Err(AS_PACKETS);
        }
        match ring.has_space_for(data) {
            true => Ok(()),
            false => Err(Withheld::Wait(Reason::LogFull)),
        }
    }

    fn map_log(&self, user_domain: u16) -> Option<AccessLog<F::Words>> {
        let (tables, domain) = (&self.channel.channel.tables, usize::from(user_domain));
        let at = LOGS + domain * LOG_WORDS;
        let number =
            if domain < USER_DOMAINS { tables.load(at).checked_sub(1)? as u32 } else { return None };
        let shape = tables.load(at + 1);
        let (sources, ring) = ((shape >> 32) as usize, shape as u32 as usize);
        let length = AccessLog::<F::Words>::words_for(sources, ring)?;
        let words = self.services.fabric.open_words(&self.channel.channel.process, number, length, true);
        let words = words
            .inspect_err(|error| log::debug!("an access log of a peer cannot be mapped: {error}"))
            .ok()?;
        AccessLog::new(words, sources, ring)
    }

    /// Makes an access to or from memory of this side.
    fn move_intercepted(&mut self, access: &Access, here: &[Segment]) -> Outcome<()> {
        let memory = self.services.fabric.memory();
        let length = access.plan.there[0].length as usize;
        let mut bytes: SmallVec<[u8; SHORT]> = SmallVec::from_elem(0, length);
        if access.reads {
            self.make(access, Moved::Get(&mut bytes))?;
            memory.write(&bytes, here, true)?;
        } else {
            memory.read(here, &mut bytes)?;
            self.make(access, Moved::Put(&bytes))?;
        }
        Ok(())
    }

    /// Makes an access, and its record if it has one, under a claim on the region.
    fn make(&mut self, access: &Access, moved: Moved<'_>) -> Outcome<()> {
        let mut logs = std::mem::take(self.peer_logs);
        logs.sequence = logs.sequence.wrapping_add(1);
        let record = access.record(self.peer, logs.sequence);
        let domain = access.attributes.user_domain;
        let mut ring = match access.effect.logging {
            Logging::None => None,
            _ => logs.sources.iter_mut().find(|log| log.user_domain == domain).map(|log| &mut log.ring),
        };
        let fabric = &self.services.fabric;
        let outcome = self.copy(&access.plan, |remote, there| {
            if !access.obeys(logs.table.as_ref(), there) {
                return Err(MemoryError::NotMapped);
            }
            // Read before they are logged: the record has what the caller gets.
            let bytes = match moved {
                Moved::Get(bytes) => {
                    remote.get_bytes(there, bytes)?;
                    bytes
                }
                Moved::Put(bytes) => bytes,
            };
            let put = || match access.effect.reaches_memory && !access.reads {
                true => remote.put(Source::Bytes(bytes), there, true),
                false => Ok(()),
            };
            let Some(ring) = &mut ring else { return put() };
            let data = if access.effect.logging == Logging::Data { bytes } else { &[] };
            // There was space a moment ago, and nobody else writes the ring.
            let reserved = ring.reserve(&record, data, || fabric.now());
            let reserved = reserved.map_err(|LogFull| MemoryError::NotMapped)?;
            if reserved.is_closed() {
                return Err(MemoryError::NotMapped);
            }
            put()?;
            // A reader that has taken the record has reported that the access may have been made. What has reached nothing else was not, and
            // is made again.
            match reserved.publish() {
                Err(Taken) if !access.effect.reaches_memory => Err(MemoryError::NotMapped),
                Ok(()) | Err(Taken) => Ok(()),
            }
        });
        if let (Ok(()), Some(ring)) = (outcome, ring) {
            ring.announce();
        }
        *self.peer_logs = logs;
        outcome
    }
}
