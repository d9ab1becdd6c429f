//! Conditional writes: the caller opens them, the owner releases them. Each write and each release has one end, and no byte of a write lands behind
//! its cancel.

use crate::workload::driver::Workload;
use crate::workload::native::{
    CALLER, Conditional, DATA, NativeConnection, OWNER, Of, Permit, RECEIVES, SLOT, Write,
};
use crate::workload::{Violation, WorkloadStage, pattern};
use pagewire::tables::{
    ConditionalMessage, Ending, NotHeld, OpenOutcome, Opening, Outgoing, Release, ReleaseArrival,
};
use pagewire::{Direction, Tag, Token};
use pagewire_fabric::Fabric;
use pagewire_nic::{Completion, Data, ScatterGather, SendOperation};
use std::collections::HashSet;
use std::time::Duration;

/// Tags in use.
const TAGS: u64 = 4;
/// Longest time of a held write, in nanoseconds.
const LONGEST: u64 = 50_000_000;
/// Releases that wait for a write to be opened.
const UNMATCHED: usize = 2;

/// The bytes of a write.
fn content(serial: u64, length: u64) -> Vec<u8> {
    pattern::of(serial ^ 0xC0_4D17, length as usize)
}

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// The caller's program opens a write, or cancels one. True: it did.
    pub(super) fn writer_acts(&mut self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        if self.native_random.u32(0..4) > 0 {
            let tag = self.native_random.u64(0..TAGS);
            return self.conditional_write(native, tag);
        }
        let held = native.conditional.writer.open.iter().filter(|(_, write)| !write.is_posted);
        let mut serials: Vec<u64> = held.map(|(serial, _)| *serial).collect();
        // A map has no order that a seed decides.
        serials.sort_unstable();
        let Some(serial) = self.native_random.choice(serials) else { return Ok(false) };
        let (tag, now) = (native.conditional.writer.open[&serial].tag, self.virtual_time());
        let key = (native.conditional.nodes[OWNER], tag);
        match native.conditional.writer.table.take(&key, serial, now) {
            Some(_) => self.withdraw(native, serial)?,
            None => {
                return Err(self.native_violation(native, format!("write {serial} is not held, nor posted")));
            }
        }
        Ok(true)
    }

    fn conditional_write(&mut self, native: &mut NativeConnection<F>, tag: Tag) -> Result<bool, Violation> {
        let Some(slot) = native.slots[CALLER].take(&mut self.native_random) else { return Ok(false) };
        native.conditional.writer.serial += 1;
        let serial = native.conditional.writer.serial;
        let length = self.native_random.u64(0..=DATA);
        let deadline = self.virtual_time() + Duration::from_nanos(self.native_random.u64(1..LONGEST));
        self.fill_slot(native, CALLER, (slot, 0), &content(serial, length));
        let key = (native.conditional.nodes[OWNER], tag);
        let held = native.conditional.writer.table.hold(key, serial, serial);
        let early = match held {
            Ok(early) => early,
            Err((NotHeld::TagInUse, _)) if native.conditional.holds(tag) => {
                native.slots[CALLER].give_back(slot);
                return Ok(false);
            }
            Err((why, _)) => {
                return Err(self.native_violation(native, format!("a write is refused: {why:?}")));
            }
        };
        let write = Write { tag, slot, length, deadline, is_posted: false };
        native.conditional.writer.open.insert(serial, write);
        self.tell(
            native,
            CALLER,
            &ConditionalMessage::Open { tag, serial, length, direction: Direction::Write },
        )?;
        match early {
            Some((serial, release)) => self.post_write(native, serial, &release)?,
            None => native.conditional.writer.table.set_deadline(&key, serial, deadline),
        }
        Ok(true)
    }

    /// A held write ends without its release: its buffer is the program's again, which writes something else there.
    fn withdraw(&mut self, native: &mut NativeConnection<F>, serial: u64) -> Result<(), Violation> {
        let Some(write) = native.conditional.writer.open.remove(&serial).filter(|write| !write.is_posted)
        else {
            return Err(self.native_violation(native, format!("write {serial} ends twice")));
        };
        native.conditional.withdrawn.insert(serial);
        self.fill_slot(native, CALLER, (write.slot, 0), &pattern::of(!serial, DATA as usize));
        native.slots[CALLER].give_back(write.slot);
        self.report.withdrawn += 1;
        self.tell(
            native,
            CALLER,
            &ConditionalMessage::Ended { serial, release: None, ending: Ending::Withdrawn },
        )
    }

    /// A write is released: its bytes go out, and behind them what tells their end.
    fn post_write(
        &mut self,
        native: &mut NativeConnection<F>,
        serial: u64,
        release: &Release,
    ) -> Result<(), Violation> {
        let token = release.token();
        let (Some(write), Ok(token)) = (native.conditional.writer.open.get_mut(&serial), token) else {
            return Err(self.native_violation(native, format!("write {serial} is released, and is not held")));
        };
        write.is_posted = true;
        let Write { slot, length, .. } = *write;
        if native.conditional.posted.insert(release.number, serial).is_some() {
            return Err(
                self.native_violation(native, format!("release {} starts two writes", release.number))
            );
        }
        let ((here, local), (address, key)) = (self.place_of(native, CALLER, slot), token.memory());
        let bytes = [ScatterGather { address: here, length: length as u32, key: local }];
        let operation = SendOperation::Write { address, key };
        self.post_native(
            native,
            CALLER,
            (operation, Data::Segments(&bytes)),
            Of::Write { serial, is_last: false },
        )?;
        let (told, end) = (length.to_be_bytes(), SendOperation::SendImmediate(release.number));
        self.post_native(native, CALLER, (end, Data::Inline(&[&told])), Of::Write { serial, is_last: true })
    }

    /// A write is done.
    pub(super) fn write_done(
        &mut self,
        native: &mut NativeConnection<F>,
        serial: u64,
    ) -> Result<(), Violation> {
        let Some(write) = native.conditional.writer.open.remove(&serial) else {
            return Err(self.native_violation(native, format!("write {serial} ends twice")));
        };
        self.fill_slot(native, CALLER, (write.slot, 0), &pattern::of(!serial, DATA as usize));
        native.slots[CALLER].give_back(write.slot);
        (self.report.natives, self.report.held_writes) =
            (self.report.natives + 1, self.report.held_writes + 1);
        Ok(())
    }

    /// The owner's program releases a write, or declines one. True: it did.
    pub(super) fn owner_acts(&mut self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        let owner = &mut native.conditional.owner;
        owner.taken.extend(owner.table.take());
        let choice = self.native_random.u32(0..10);
        if choice < 7 {
            let Some(opening) =
                self.native_random.choice(0..owner.taken.len()).map(|at| owner.taken.swap_remove(at))
            else {
                return Ok(false);
            };
            if choice == 0 {
                let Opening { peer, tag, serial, .. } = opening;
                owner.table.close(&peer, serial);
                self.tell(native, OWNER, &ConditionalMessage::Decline { tag, serial, is_full: false })?;
                return Ok(true);
            }
            return self.permit(native, opening.tag, Some(opening));
        }
        let blind = native.conditional.owner.open.values().filter(|permit| permit.is_blind).count();
        if blind >= UNMATCHED {
            return Ok(false);
        }
        let tag = self.native_random.u64(0..TAGS);
        self.permit(native, tag, None)
    }

    /// Permits a write: that of an opening, or that of a tag, of this peer or of any.
    fn permit(
        &mut self,
        native: &mut NativeConnection<F>,
        tag: Tag,
        opening: Option<Opening>,
    ) -> Result<bool, Violation> {
        let Some(slot) = native.slots[OWNER].take(&mut self.native_random) else {
            native.conditional.owner.taken.extend(opening);
            return Ok(false);
        };
        let (address, _) = self.place_of(native, OWNER, slot);
        let region = match self.parties[native.parties[OWNER]].register(address, DATA) {
            Ok(region) => region,
            Err(error) => {
                return Err(self.native_violation(native, format!("no region for a release: {error}")));
            }
        };
        let (id, now, [writer, own]) = (native.number(), self.virtual_time(), native.conditional.nodes);
        let token = Token::of_memory(own, region.rkey(), address, DATA);
        let any = self.native_random.bool();
        let table = &mut native.conditional.owner.table;
        let released = match opening {
            Some(opening) => table.release_opening(&opening, token, id).map(Some),
            None if any => table.release_any(tag, token, (id, now)),
            None => table.release(writer, tag, token, (id, now)).map(Some),
        };
        let is_blind = match &released {
            Ok(Some(outgoing)) => outgoing.serial.is_none(),
            Ok(None) => true,
            Err(_) => false,
        };
        native.conditional.owner.open.insert(id, Permit { tag, slot, region, is_blind });
        match released {
            Ok(Some(outgoing)) => self.send_release(native, &outgoing)?,
            Ok(None) => {}
            // It has ended meanwhile, or one of this tag waits for its write.
            Err((_, id)) => self.release_ended(native, id, None)?,
        }
        Ok(true)
    }

    fn send_release(
        &mut self,
        native: &mut NativeConnection<F>,
        outgoing: &Outgoing,
    ) -> Result<(), Violation> {
        self.tell(native, OWNER, &ConditionalMessage::Release(Release::new(outgoing)))
    }

    /// A release has ended: its memory holds what the write has brought, or what it held before.
    fn release_ended(
        &mut self,
        native: &mut NativeConnection<F>,
        id: u64,
        written: Option<(u32, u64)>,
    ) -> Result<(), Violation> {
        let Some(permit) = native.conditional.owner.open.remove(&id) else {
            return Err(self.native_violation(native, format!("release {id} ends twice")));
        };
        let Permit { slot, region, .. } = permit;
        let ended = self.patiently(native.parties[OWNER], || region.deregister());
        if let Err(error) = ended {
            return Err(self.native_violation(native, format!("the region of a release stays: {error}")));
        }
        let memory = self.slot(native, OWNER, slot);
        let mut wanted = native.shadow[slot].clone();
        if let Some((number, length)) = written {
            let Some(serial) = native.conditional.posted.remove(&number) else {
                return Err(self.native_violation(native, format!("release {number} was written by nobody")));
            };
            if native.conditional.withdrawn.contains(&serial) {
                return Err(
                    self.native_violation(native, format!("write {serial} was written and withdrawn"))
                );
            }
            wanted[..length as usize].copy_from_slice(&content(serial, length));
        } else {
            self.report.withdrawn += 1;
        }
        self.same(native, &memory, &wanted, &format!("what release {id} has left, written: {written:?},"))?;
        native.shadow[slot] = wanted;
        native.slots[OWNER].give_back(slot);
        self.report.natives += 1;
        self.report.bytes_checked += SLOT;
        Ok(())
    }

    fn tell(
        &mut self,
        native: &mut NativeConnection<F>,
        side: usize,
        message: &ConditionalMessage,
    ) -> Result<(), Violation> {
        let bytes = message.encode();
        self.post_native(native, side, (SendOperation::Send, Data::Inline(&[&bytes])), Of::Message)
    }

    /// A message has come to a side.
    pub(super) fn message_came(
        &mut self,
        native: &mut NativeConnection<F>,
        side: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let index = completion.wr_id - RECEIVES;
        let bytes = self.native_message(native, side, (index, completion.byte_length));
        self.post_native_receive(native, side, index)?;
        if let Some(number) = completion.immediate {
            let writer = native.conditional.nodes[CALLER];
            let length = <[u8; 8]>::try_from(&bytes[..]).map(u64::from_be_bytes);
            return match (native.conditional.owner.table.end(&writer, number), length) {
                (Some(id), Ok(length)) => self.release_ended(native, id, Some((number, length))),
                _ => Err(self.native_violation(native, format!("the end of release {number} came twice"))),
            };
        }
        match (ConditionalMessage::decode(&bytes), side) {
            (Some(message), OWNER) => self.owner_takes(native, message),
            (Some(message), _) => self.writer_takes(native, message),
            (None, _) => Err(self.native_violation(native, format!("{bytes:02x?} is no message"))),
        }
    }

    fn owner_takes(
        &mut self,
        native: &mut NativeConnection<F>,
        message: ConditionalMessage,
    ) -> Result<(), Violation> {
        let writer = native.conditional.nodes[CALLER];
        let owner = &mut native.conditional.owner;
        match message {
            ConditionalMessage::Open { tag, serial, length, direction } => {
                match owner.table.open(Opening { peer: writer, tag, serial, length, direction }) {
                    OpenOutcome::Released(outgoing) => self.send_release(native, &outgoing),
                    OpenOutcome::Queued | OpenOutcome::Known => Ok(()),
                    OpenOutcome::Full => {
                        self.tell(native, OWNER, &ConditionalMessage::Decline { tag, serial, is_full: true })
                    }
                }
            }
            ConditionalMessage::Ended { serial, release, .. } => {
                owner.table.close(&writer, serial);
                owner.taken.retain(|opening| opening.serial != serial);
                match release.and_then(|number| owner.table.end(&writer, number)) {
                    Some(id) => self.release_ended(native, id, None),
                    None => Ok(()),
                }
            }
            other => Err(self.native_violation(native, format!("the owner got {other:?}"))),
        }
    }

    fn writer_takes(
        &mut self,
        native: &mut NativeConnection<F>,
        message: ConditionalMessage,
    ) -> Result<(), Violation> {
        let (owner, now) = (native.conditional.nodes[OWNER], self.virtual_time());
        match message {
            ConditionalMessage::Release(release) => {
                self.run_timers(native)?;
                let ending = match native.conditional.writer.table.release(owner, &release, now) {
                    ReleaseArrival::Start(serial) => return self.post_write(native, serial, &release),
                    ReleaseArrival::Kept => return Ok(()),
                    ReleaseArrival::Withdrawn => Ending::Withdrawn,
                    ReleaseArrival::Full => Ending::Full,
                };
                let (serial, release) = (release.serial.unwrap_or_default(), Some(release.number));
                self.tell(native, CALLER, &ConditionalMessage::Ended { serial, release, ending })
            }
            ConditionalMessage::Decline { tag, serial, .. } => {
                match native.conditional.writer.table.take(&(owner, tag), serial, now) {
                    // The owner has forgotten it, and takes no harm from being told so again.
                    Some(serial) => self.withdraw(native, serial),
                    None => Ok(()),
                }
            }
            other => Err(self.native_violation(native, format!("the caller got {other:?}"))),
        }
    }

    /// Ends what has run out. True: something has.
    pub(super) fn run_timers(&mut self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        let now = self.virtual_time();
        let mut expired = native.conditional.writer.table.expire(now);
        let mut late = native.conditional.owner.table.expire(now);
        // The tables have no order that a seed decides.
        expired.writes.sort_unstable_by_key(|(_, serial)| *serial);
        expired.releases.sort_unstable_by_key(|(_, number)| *number);
        late.sort_unstable();
        let some = !(expired.writes.is_empty() && expired.releases.is_empty() && late.is_empty());
        for (_, serial) in expired.writes {
            self.withdraw(native, serial)?;
        }
        for (_, number) in expired.releases {
            let (release, ending) = (Some(number), Ending::NoWrite);
            self.tell(native, CALLER, &ConditionalMessage::Ended { serial: 0, release, ending })?;
        }
        for id in late {
            self.release_ended(native, id, None)?;
        }
        Ok(some)
    }

    /// Nothing more is to begin: writes are opened for releases that wait for one. True: one was.
    pub(super) fn match_releases(&mut self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        let conditional = &native.conditional;
        let waiting = conditional.owner.open.values().filter(|permit| permit.is_blind);
        let mut tags: Vec<Tag> =
            waiting.map(|permit| permit.tag).filter(|tag| !conditional.holds(*tag)).collect();
        tags.sort_unstable();
        match tags.first() {
            Some(tag) => self.conditional_write(native, *tag),
            None => Ok(false),
        }
    }

    /// A party is dead: everything ends, once. What a write that was posted has brought before that is old or new, byte by byte.
    pub(super) fn conditional_lost(&mut self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        let [writer, owner] = native.conditional.nodes;
        let conditional = &mut native.conditional;
        let lost = conditional.writer.table.lose(&owner);
        let is_held =
            |serial: &u64| conditional.writer.open.get(serial).is_some_and(|write| !write.is_posted);
        let held = conditional.writer.open.keys().filter(|serial| is_held(serial)).count();
        if lost.len() != held || !lost.iter().all(is_held) {
            return Err(
                self.native_violation(native, format!("{held} writes were held, and {lost:?} are lost"))
            );
        }
        let ended: HashSet<u64> = conditional.owner.table.lose(&writer).into_iter().collect();
        let left = conditional.owner.table.drain();
        if ended.iter().chain(&left).any(|id| !conditional.owner.open.contains_key(id)) {
            return Err(self.native_violation(native, "a release ends twice, when its peer is lost".into()));
        }
        let permits: Vec<Permit<F>> = conditional.owner.open.drain().map(|(_, permit)| permit).collect();
        let party = native.parties[OWNER];
        for permit in permits.iter().filter(|_| self.stage.is_alive(party)) {
            if let Err(error) = self.patiently(party, || permit.region.deregister()) {
                return Err(self.native_violation(native, format!("the region of a release stays: {error}")));
            }
        }
        // Both nodes begin anew.
        native.conditional = Conditional::new(native.parties);
        Ok(())
    }
}
