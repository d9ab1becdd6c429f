//! Checking completions of send requests.

use super::connection::{PostedRequest, RequestKind};
use super::driver::Workload;
use super::receive::RECEIVE_IDS;
use super::space::RequestRange;
use super::{Violation, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::{Completion, Status};

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Checks one completion of a party.
    pub(super) fn completed(&mut self, party: usize, completion: &Completion) -> Result<(), Violation> {
        let at = self.at;
        self.report.completions += 1;
        let Some((connection, side)) = self.by_number.get(&(party, completion.queue_pair)).copied() else {
            return Err(self.violation(format!("a completion of a queue pair that is gone: {completion:?}")));
        };
        self.at = Some(connection);
        self.stage.note(connection, &|| format!("party {party} has {completion:?}"));
        if completion.wr_id >= RECEIVE_IDS {
            self.receive_completed(connection, side, completion)?;
        } else {
            self.send_completed(connection, side, completion)?;
        }
        self.at = at;
        Ok(())
    }

    fn send_completed(
        &mut self,
        connection: usize,
        side: usize,
        completion: &Completion,
    ) -> Result<(), Violation> {
        let posted = loop {
            let end = &mut self.connections[connection].ends[side];
            match end.sends.pop_front() {
                Some(posted) if posted.id == completion.wr_id => break posted,
                // What is not signaled and comes before a completion has succeeded.
                Some(posted) if !posted.signaled && !end.send_failed => {
                    self.succeeded(connection, side, posted)?
                }
                other => {
                    let what =
                        format!("{completion:?} is out of order or a second one; expected was {other:?}");
                    return Err(self.violation(what));
                }
            }
        };
        let failed = self.connections[connection].ends[side].send_failed;
        if completion.status == Status::Success {
            self.check_pause(connection, side, posted.id)?;
            let answers = matches!(posted.kind, RequestKind::Read | RequestKind::Atomic(_));
            let wrong = failed
                || posted.stale
                || !posted.signaled
                || completion.opcode != posted.opcode
                || answers && u64::from(completion.byte_length) != posted.length;
            if wrong {
                return Err(self.violation(format!(
                    "{completion:?} does not fit {posted:?} (after an error: {failed})"
                )));
            }
            return self.succeeded(connection, side, posted);
        }
        let link = &self.connections[connection];
        let possible = match completion.status {
            Status::Flushed => true,
            // The refusal, or the receiver's silence after the other end was stopped, or where it is no Pagewire and the refusal was lost.
            Status::RemoteAccess | Status::RetryExceeded => link.kind.is_reliable() && !failed,
            _ => false,
        };
        let given_up = completion.status == Status::RetryExceeded && self.may_be_given_up(connection);
        if !(link.may_fail || given_up) || !possible {
            return Err(self.violation(format!("{completion:?} of {posted:?} is not to be expected")));
        }
        let refusal = posted.stale && link.ends[1 - side].stopped.is_none() && !failed;
        let told = completion.status == Status::RemoteAccess || link.ends[side].stopped.is_some();
        let peer_alive = self.stage.is_alive(link.ends[1 - side].party);
        // A Pagewire repeats a refusal that was lost.
        let repeats = self.plan.exact || link.ends.iter().all(|end| !self.parties[end.party].standard);
        if refusal && repeats && !told && peer_alive && completion.status != Status::Flushed {
            return Err(self.violation(format!("{completion:?}, though the key was dead")));
        }
        self.report.errors += 1;
        self.report.given_up += u64::from(given_up && !link.ends[1 - side].failed);
        self.connections[connection].may_fail = true;
        let end = &mut self.connections[connection].ends[side];
        (end.failed, end.send_failed) = (true, true);
        // What a READ brought and is sent on may still be compared.
        let reuse = self.plan.reuse_flushed && posted.copied.is_none();
        if reuse && matches!(posted.kind, RequestKind::Send | RequestKind::Write) {
            let party = self.connections[connection].ends[side].party;
            for piece in &posted.pieces {
                let bytes = pattern::of(!posted.id, piece.length as usize);
                self.parties[party].program_writes(piece.address, &bytes);
            }
        }
        self.connections[connection].failed.push((side, posted));
        self.begin_failing(connection);
        Ok(())
    }

    /// Nobody fills gaps with a standard peer: so much may be lost that its requester, or that of its peer, gives up.
    pub(super) fn may_be_given_up(&self, connection: usize) -> bool {
        let link = &self.connections[connection];
        let standard = link.ends.iter().any(|end| self.parties[end.party].standard);
        standard && !self.plan.exact && link.kind.is_reliable()
    }

    /// A request has succeeded: everything must be where it should.
    pub(super) fn succeeded(
        &mut self,
        connection: usize,
        side: usize,
        posted: PostedRequest,
    ) -> Result<(), Violation> {
        let link = &self.connections[connection];
        let (from, to) = (link.ends[side].party, link.ends[1 - side].party);
        let peer_alive = self.stage.is_alive(to);
        if posted.stale {
            return Err(self.violation(format!("{posted:?} succeeded though its key was dead")));
        }
        if link.kind.is_reliable() && peer_alive {
            match posted.kind {
                RequestKind::Send => self.check_send_placed(connection, 1 - side, posted.id)?,
                RequestKind::Write => self.check_write(to, &posted)?,
                RequestKind::Flush(flush) if flush.persistent => self.check_synced(to, &posted)?,
                RequestKind::Read | RequestKind::Atomic(_) | RequestKind::Bind | RequestKind::Flush(_) => {}
            }
        }
        if posted.kind == RequestKind::Bind {
            self.bound(connection, side);
        }
        match (posted.kind, &posted.remote) {
            (RequestKind::Read, Some(range)) => {
                let expected = self.parties[to].expected(range.address, range.length).to_vec();
                let bytes = self.gathered(from, &posted);
                if let Some(place) = pattern::difference(&bytes, &expected) {
                    return Err(self.violation(format!("byte {place} of {posted:?} is wrong")));
                }
                self.report.bytes_checked += bytes.len() as u64;
            }
            (RequestKind::Atomic(atomic), Some(range)) => {
                let mut original = [0; 8];
                original.copy_from_slice(&self.gathered(from, &posted));
                let word = (range.address - self.parties[to].zones[0].address) / 8;
                self.chains[to][word as usize].answered(atomic, u64::from_ne_bytes(original));
                self.report.atomics += 1;
            }
            _ => {}
        }
        self.release(connection, side, posted)
    }

    /// The bytes in a request's own buffers.
    fn gathered(&self, party: usize, posted: &PostedRequest) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(posted.length as usize);
        for piece in &posted.pieces {
            bytes.extend_from_slice(&self.parties[party].memory(piece.address, piece.length));
        }
        bytes
    }

    fn check_write(&mut self, to: usize, posted: &PostedRequest) -> Result<(), Violation> {
        let Some(range) = &posted.remote else { return Ok(()) };
        let bytes = self.parties[to].memory(range.address, range.length);
        if let Some(place) = pattern::difference(&bytes, &posted.content()) {
            return Err(self.violation(format!("byte {place} of {posted:?} is not at its target")));
        }
        self.report.bytes_checked += bytes.len() as u64;
        Ok(())
    }

    /// A FLUSH has succeeded: what is persistent of its range is what others placed there before.
    fn check_synced(&mut self, to: usize, posted: &PostedRequest) -> Result<(), Violation> {
        let Some(range) = posted.remote.filter(|range| range.length > 0) else { return Ok(()) };
        let expected = self.parties[to].expected(range.address, range.length);
        let synced = self.stage.synced(to, range.address, range.length);
        if synced.as_deref() != Some(expected) {
            return Err(self.violation(format!("{posted:?} succeeded and is not persistent")));
        }
        self.report.bytes_checked += range.length;
        self.report.flushes += 1;
        Ok(())
    }

    /// A WRITE with immediate was announced to its receiver: its bytes must be there.
    pub(super) fn check_write_landed(
        &mut self,
        connection: usize,
        side: usize,
        id: u64,
    ) -> Result<(), Violation> {
        let link = &mut self.connections[connection];
        let to = link.ends[1 - side].party;
        let Some(place) = link.ends[side].sends.iter().position(|posted| posted.id == id) else {
            return Ok(());
        };
        // Taken out for the look, since looking needs the whole workload.
        let Some(posted) = link.ends[side].sends.remove(place) else { return Ok(()) };
        let outcome = self.check_write(to, &posted);
        self.connections[connection].ends[side].sends.insert(place, posted);
        outcome
    }

    /// A SEND succeeded: its receiver must have placed it, whether or not it has looked.
    fn check_send_placed(&mut self, connection: usize, to: usize, id: u64) -> Result<(), Violation> {
        let link = &self.connections[connection];
        let end = &link.ends[to];
        let Some(place) = end.expected.iter().position(|message| message.id == id) else { return Ok(()) };
        if end.shared {
            return Ok(());
        }
        let message = end.expected[place];
        // Completions of receives that nobody had polled are gone with a RESET; what was placed is still there.
        let given_back = || link.flushed.iter().filter(|(side, _)| *side == to).map(|(_, receive)| receive);
        let Some(receive) = end.receives.get(place).or_else(|| given_back().nth(place)) else {
            return Err(self.violation(format!("{message:?} succeeded without a receive")));
        };
        let bytes = self.received(end.party, receive, message.length);
        if bytes != pattern::of(id, message.length as usize) {
            return Err(self.violation(format!("{message:?} succeeded before its receiver had placed it")));
        }
        Ok(())
    }

    /// The memory that a request used may be used for other things; what it holds now is what it must hold.
    pub(super) fn release(
        &mut self,
        connection: usize,
        side: usize,
        posted: PostedRequest,
    ) -> Result<(), Violation> {
        let link = &self.connections[connection];
        let (from, to) = (link.ends[side].party, link.ends[1 - side].party);
        let pieces: &[RequestRange] = if posted.lends { &[] } else { &posted.pieces };
        self.check_guards(from, pieces)?;
        self.check_guards(to, posted.remote.as_slice())?;
        for piece in pieces {
            if matches!(posted.kind, RequestKind::Read | RequestKind::Atomic(_)) || posted.copied.is_some() {
                let bytes = self.parties[from].memory(piece.address, piece.length);
                self.parties[from].expect(piece.address, &bytes);
                self.parties[from].leave_flux(piece.address);
            }
            self.parties[from].give_back(piece);
        }
        self.thaw(from, pieces);
        if let Some(range) = posted.remote.filter(|_| !matches!(posted.kind, RequestKind::Atomic(_))) {
            if posted.kind == RequestKind::Write {
                let bytes = self.parties[to].memory(range.address, range.length);
                self.parties[to].expect(range.address, &bytes);
                self.parties[to].leave_flux(range.address);
            }
            self.parties[to].give_back(&range);
            self.thaw(to, &[range]);
        }
        Ok(())
    }

    /// Around ranges that are given up nothing was touched.
    pub(super) fn check_guards(&self, party: usize, ranges: &[RequestRange]) -> Result<(), Violation> {
        match ranges.iter().find_map(|range| self.parties[party].touched_guard(range)) {
            Some(address) => {
                Err(self.violation(format!("byte {address:#x} of party {party} is beyond any target")))
            }
            None => Ok(()),
        }
    }
}
