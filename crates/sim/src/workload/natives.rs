//! Native operations beside verbs (`crates/pagewire`): put, get, put with signal, and conditional writes.
//!
//! A [`NativeConnection`] is an RC queue pair at a caller and one at an owner, and memory that nothing else uses. Conditional writes go by the tables of `crates/pagewire` themselves; their messages are SENDs on the
//! simulated network. Start at [`Workload::go_on_with_natives`].

mod conditional;
mod link;
pub(super) mod logged;
mod transfers;

use super::driver::Workload;
use super::native::{CALLER, NativeConnection, OWNER, Of, RECEIVES};
use super::{Violation, WorkloadStage};
use logged::LoggedRegion;
use pagewire_fabric::Fabric;
use pagewire_nic::{Completion, Status};
use std::collections::HashMap;
use std::time::Duration;

/// Requests of a side under way beyond which its program begins nothing. What messages and timers add to that fits the send queue.
const MOST_REQUESTS: usize = 64;
/// Native connections for each party, at most.
const MOST_FOR_EACH: usize = 4;

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Chooses who has native connections: processes that know Pagewire's own packets. Their sides are counted among the ends.
    pub(super) fn draw_natives(&mut self, standard: &[bool]) -> Vec<NativeConnection<F>> {
        let able: Vec<usize> = (0..standard.len()).filter(|party| !standard[*party]).collect();
        if able.len() < 2 {
            return Vec::new();
        }
        let count = self.plan.natives.min(able.len() * MOST_FOR_EACH);
        let mut natives = Vec::new();
        for _ in 0..count {
            let caller = self.native_random.usize(0..able.len());
            let owner = (caller + self.native_random.usize(1..able.len())) % able.len();
            let parties = [able[caller], able[owner]];
            let places = parties.map(|party| self.ends_of[party].natives);
            parties.iter().for_each(|party| self.ends_of[*party].natives += 1);
            natives.push(NativeConnection::new(parties, places));
        }
        natives
    }

    /// Everybody looks at native connections; `posting`: and starts something. True: something happened.
    pub(super) fn go_on_with_natives(&mut self, posting: bool) -> Result<bool, Violation> {
        let mut natives = std::mem::take(&mut self.natives);
        let mut outcome = Ok(false);
        for native in &mut natives {
            let went_on = self.go_on_with(native, posting);
            outcome = match (outcome, went_on) {
                (Ok(before), Ok(now)) => Ok(before || now),
                // What a process that has ended left is nobody's fault.
                (Ok(before), Err(_)) if !self.lives(native) => Ok(before),
                (Ok(_), Err(violation)) => Err(violation),
                (failed, _) => failed,
            };
        }
        self.natives = natives;
        outcome
    }

    fn lives(&self, native: &NativeConnection<F>) -> bool {
        native.parties.iter().all(|party| !self.parties[*party].dead && self.stage.is_alive(*party))
    }

    fn go_on_with(&mut self, native: &mut NativeConnection<F>, posting: bool) -> Result<bool, Violation> {
        if !self.lives(native) {
            if native.link.is_some() {
                self.lose(native)?;
            }
            return Ok(false);
        }
        if native.link.is_none() {
            self.connect(native)?;
            return Ok(true);
        }
        let mut active = false;
        // The network may hold everything up for a while.
        let has_space = native.requests.iter().all(|requests| requests.len() < MOST_REQUESTS);
        for side in [CALLER, OWNER] {
            active |= self.poll_native(native, side)?;
            if !self.lives(native) {
                return Ok(active);
            }
        }
        active |= self.read_log(native)?;
        self.look_at_signals(native)?;
        active |= self.run_timers(native)?;
        if posting && has_space && self.native_random.bool() {
            active |= self.start_something(native)?;
        } else if !posting && has_space {
            active |= self.match_releases(native)?;
        }
        Ok(active)
    }

    fn start_something(&mut self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        match self.native_random.u32(0..10) {
            0..5 => self.start_transfer(native),
            5..8 => self.writer_acts(native),
            _ => self.owner_acts(native),
        }
    }

    /// Takes the completions of one side. True: there were some.
    fn poll_native(&mut self, native: &mut NativeConnection<F>, side: usize) -> Result<bool, Violation> {
        let Some(link) = &native.link else { return Ok(false) };
        let mut completions = Vec::new();
        link.sides[side].queue.poll(64, &mut |completion| completions.push(*completion));
        for completion in &completions {
            if !self.lives(native) {
                return Ok(true);
            }
            self.native_completed(native, side, completion)?;
        }
        Ok(!completions.is_empty())
    }

    fn native_completed(
        &mut self,
        native: &mut NativeConnection<F>,
        side: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        if let Some(logged) = &mut native.logged {
            logged.ended(completion.wr_id, completion.status != Status::Flushed);
        }
        if completion.status != Status::Success {
            return self.native_failed(native, side, completion);
        }
        if completion.wr_id >= RECEIVES {
            return self.message_came(native, side, completion);
        }
        match native.requests[side].remove(&completion.wr_id) {
            Some(Of::Message) => Ok(()),
            Some(Of::Transfer { id, is_last }) if is_last => self.transfer_ended(native, id),
            Some(Of::Write { serial, is_last }) if is_last => self.write_done(native, serial),
            Some(_) => Ok(()),
            None => {
                Err(self.native_violation(native, format!("request {} completed twice", completion.wr_id)))
            }
        }
    }

    /// A request has failed. Between Pagewires that live RC gives nothing up: only what is refused fails, alone.
    fn native_failed(
        &mut self,
        native: &mut NativeConnection<F>,
        side: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let of = native.requests[side].remove(&completion.wr_id);
        if let Some(Of::Transfer { id, is_last }) = of {
            if self.transfer_failed(native, id, completion.status)? {
                return if is_last { self.refused_ended(native, id) } else { Ok(()) };
            }
        }
        Err(self.native_violation(native, format!("side {side} has {completion:?} of {of:?}")))
    }

    fn native_violation(&self, native: &NativeConnection<F>, what: String) -> Violation {
        self.violation(format!("native connection of parties {:?}: {what}", native.parties))
    }

    /// The other party is dead: everything under way ends, once, and what came of it at the owner counts.
    fn lose(&mut self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        let Some(link) = native.link.take() else { return Ok(()) };
        // The engine of a dead process is taken apart by its successor.
        for side in link.sides.iter().filter(|side| self.stage.is_alive(side.party)) {
            if let Err(error) = self.patiently(side.party, || side.queue_pair.destroy()) {
                return Err(
                    self.native_violation(native, format!("a queue pair cannot be destroyed: {error}"))
                );
            }
        }
        self.drop_logged(native)?;
        self.conditional_lost(native)?;
        native.transfers.clear();
        native.requests = [HashMap::new(), HashMap::new()];
        Ok(())
    }

    /// Compares the slots of the owners that no operation changes.
    pub(super) fn audit_natives(&mut self) -> Result<(), Violation> {
        let mut natives = std::mem::take(&mut self.natives);
        let found = natives.iter_mut().try_for_each(|native| {
            if native.link.is_some() && self.lives(native) {
                self.audit_log(native)?;
            }
            let native = &*native;
            let free = native.slots[OWNER].free();
            free.into_iter().filter(|_| native.link.is_some() && self.lives(native)).try_for_each(|slot| {
                let memory = self.slot(native, OWNER, slot);
                self.same(native, &memory, &native.shadow[slot], &format!("slot {slot}, which is free,"))
            })
        });
        self.natives = natives;
        found
    }

    /// Some connections have a logged region.
    pub(super) fn make_logged(&mut self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        if !self.native_random.bool() {
            return Ok(());
        }
        let (address, _) = self.place_of(native, OWNER, 0);
        let party = native.parties[OWNER];
        match LoggedRegion::new(&self.parties[party], address) {
            Ok(logged) => native.logged = Some(logged),
            Err(error) if self.stage.is_alive(party) => {
                return Err(self.native_violation(native, format!("a log cannot be made: {error}")));
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// The owner reads the log of a connection.
    pub(super) fn read_log(&self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        let read = native.logged.as_mut().map_or(Ok(false), LoggedRegion::read);
        read.map_err(|what| self.native_violation(native, what))
    }

    /// The log of a connection has each access once.
    pub(super) fn audit_log(&self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        let compared = native.logged.as_mut().map_or(Ok(()), LoggedRegion::compare);
        compared.map_err(|what| self.native_violation(native, what))
    }

    /// The connection has ended: what is counted of it is over.
    pub(super) fn drop_logged(&self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        let Some(logged) = native.logged.take() else { return Ok(()) };
        let party = native.parties[OWNER];
        if !self.stage.is_alive(party) || self.parties[party].dead {
            return Ok(());
        }
        self.patiently(party, || logged.deregister())
            .map_err(|error| self.native_violation(native, format!("a region cannot end: {error}")))
    }

    /// Whether bytes are what they must be.
    fn same(
        &self,
        native: &NativeConnection<F>,
        found: &[u8],
        wanted: &[u8],
        what: &str,
    ) -> Result<(), Violation> {
        match super::pattern::difference(found, wanted) {
            None => Ok(()),
            Some(place) => Err(self.native_violation(native, format!("byte {place} of {what} is wrong"))),
        }
    }

    fn virtual_time(&self) -> Duration {
        Duration::from_nanos(self.stage.now())
    }
}
