//! New processes in the place of those that have ended.

use super::WorkloadStage;
use super::connection::{Phase, kind_at};
use super::driver::Workload;
use super::lifecycle::{EndGroups, create_end};
use super::party::PartyInit;
use pagewire_fabric::Fabric;
use pagewire_nic::Error;
use pagewire_nic::attributes::QueuePairType;

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Has processes join in the place of dead ones whose connections have come down everywhere. True: one did.
    pub(super) fn replace_the_dead(&mut self) -> bool {
        let mut joined = false;
        for party in 0..self.parties.len() {
            let gone = self.parties[party].dead
                && self
                    .connections
                    .iter()
                    .filter(|link| link.ends.iter().any(|end| end.party == party))
                    .all(|link| link.phase == Phase::Gone);
            let mut natives = self.natives.iter().filter(|native| native.parties.contains(&party));
            if !gone || natives.any(|native| native.link.is_some()) {
                continue;
            }
            let Some(init) = self.stage.successor(party) else { continue };
            // One that ends while it sets itself up is succeeded by the next.
            if self.succeed(party, init).is_ok() {
                self.report.successors += 1;
                joined = true;
            }
        }
        joined
    }

    fn succeed(&mut self, party: usize, init: PartyInit<F>) -> Result<(), Error> {
        let (successor, chains) = self.create_party(party, init)?;
        let before = std::mem::replace(&mut self.parties[party], successor);
        self.chains[party] = chains;
        self.by_number.retain(|(of, _), _| *of != party);
        self.frozen.retain(|(of, _), _| *of != party);
        for connection in 0..self.connections.len() {
            for side in 0..2 {
                if self.connections[connection].ends[side].party == party {
                    // It may have ended before it joined, or after it left.
                    let _ = self.connections[connection].ends[side].leave_group();
                    self.take_over(connection, side)?;
                }
            }
        }
        // The engine of the dead process is taken apart, or it would stay in memory.
        for queue_pair in pagewire_nic::QueuePair::all_of(&before.nic) {
            // It may seem to be busy: then it stays after all.
            let _ = queue_pair.destroy();
        }
        Ok(())
    }

    /// Gives an end of a connection that is gone to the new process in its party's place.
    fn take_over(&mut self, connection: usize, side: usize) -> Result<(), Error> {
        let link = &self.connections[connection];
        let (kind, party, peer) = (link.kind, link.ends[side].party, link.ends[1 - side].party);
        let groups = EndGroups { own: link.ends[side].group, peer: link.ends[1 - side].group };
        let shared = self.draw_shared(kind);
        let own = kind_at(kind, side);
        let mut end = create_end(&mut self.parties, &mut self.random, (party, peer), own, shared, groups)?;
        if kind == QueuePairType::Uc {
            end.window = Some(self.parties[party].take_window(self.random.u64(..)));
        }
        self.by_number.insert((party, end.queue_pair.number()), (connection, side));
        let quiet_time = self.stage.now() + self.plan.quiet_time;
        let link = &mut self.connections[connection];
        link.ends[side] = end;
        for end in &mut link.ends {
            end.expected.clear();
            end.history.clear();
        }
        // Where the other one is dead, too, its successor completes the connection.
        if !self.parties[peer].dead {
            self.connections[connection].phase = Phase::Cooling(quiet_time);
        }
        Ok(())
    }
}
