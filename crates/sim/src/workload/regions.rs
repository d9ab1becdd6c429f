//! Regions that come and go while requests through them are under way.

use super::connection::{Phase, Temporary};
use super::driver::Workload;
use super::party::{Zone, ZoneUse};
use super::{Violation, WorkloadStage};
use pagewire_fabric::Fabric;
use pagewire_nic::Reregistration;
use pagewire_nic::attributes::{QpState, QueuePairType};

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Registers a region that a few requests of one end will use.
    pub(super) fn begin_temporary(&mut self, connection: usize, side: usize) -> Result<(), Violation> {
        let party = self.connections[connection].ends[1 - side].party;
        let length = self.random.u64(4096..=128 << 10);
        let Some(range) = self.parties[party].take(&mut self.random, ZoneUse::Temporary, length, false)
        else {
            return Ok(());
        };
        let region = match self.parties[party].register(range.address, range.length) {
            Ok(region) => region,
            Err(_) if !self.stage.is_alive(party) => return Ok(()),
            Err(error) => return Err(self.violation(format!("registration failed: {error}"))),
        };
        let key = region.rkey();
        let requests = self.random.u32(1..12);
        self.connections[connection].temporary =
            Some(Temporary { region: Some(region), range, side, key, cursor: 8, requests });
        Ok(())
    }

    /// Deregisters it when it was used enough, whatever is under way, and goes on using it.
    pub(super) fn maybe_end_temporary(&mut self, connection: usize) -> Result<bool, Violation> {
        let link = &self.connections[connection];
        let due = link
            .temporary
            .as_ref()
            .is_some_and(|temporary| temporary.requests == 0 && temporary.region.is_some());
        if !due || link.phase != Phase::Running {
            return Ok(false);
        }
        self.connections[connection].may_fail = true;
        self.end_temporary(connection)?;
        if let Some(temporary) = &self.connections[connection].temporary {
            let (side, key) = (temporary.side, temporary.key);
            let address = temporary.range.address + self.random.u64(0..2048);
            if !self.post_stale(connection, side, address, key)? {
                // No room to show that the key is dead: down it goes all the same.
                self.stop(connection, side, QpState::Error)?;
            }
        }
        Ok(true)
    }

    pub(super) fn end_temporary(&mut self, connection: usize) -> Result<(), Violation> {
        let Some(temporary) = &mut self.connections[connection].temporary else { return Ok(()) };
        let (side, range) = (temporary.side, temporary.range);
        let Some(region) = temporary.region.take() else { return Ok(()) };
        let party = self.connections[connection].ends[1 - side].party;
        self.report.deregistrations += 1;
        let ended = self.patiently(party, || region.deregister());
        if let (Err(error), true) = (ended, self.stage.is_alive(party)) {
            return Err(self.violation(format!("deregistration failed: {error}")));
        }
        self.freeze(party, &range);
        if let Some(hook) = &mut self.hooks.deregistered {
            hook(party, range.address, range.length);
        }
        Ok(())
    }

    /// Begins to empty a data zone, so that it can be registered anew.
    pub(super) fn close_zone(&mut self, party: usize) {
        let zones = &mut self.parties[party].zones;
        if zones.iter().any(|zone| zone.closing) {
            return;
        }
        let index = self.random.usize(0..zones.len());
        zones[index].closing = zones[index].kind == ZoneUse::Data;
    }

    /// Registers zones anew that are empty. True: it did.
    pub(super) fn reregister(&mut self, party: usize) -> Result<bool, Violation> {
        let owner = &mut self.parties[party];
        let ready = |zone: &Zone<F>| zone.closing && zone.space.is_unused();
        let Some(index) = owner.zones.iter().position(ready) else { return Ok(false) };
        let (address, length) = (owner.zones[index].address, owner.zones[index].length);
        let Some(region) = owner.zones[index].region.take() else { return Ok(false) };
        let old = region.rkey();
        self.report.deregistrations += 1;
        let anew = self.random.bool();
        let ended = self.patiently(party, || match anew {
            true => region.deregister(),
            false => region.reregister(Reregistration {
                domain: None,
                translation: Some((address, length)),
                access: None,
            }),
        });
        let again = match anew {
            true => ended.and_then(|()| self.parties[party].register(address, length)),
            false => ended.map(|()| region),
        };
        let region = match again {
            Ok(region) => region,
            Err(_) if !self.stage.is_alive(party) => return Ok(false),
            Err(error) => return Err(self.violation(format!("a region cannot be registered anew: {error}"))),
        };
        let same = region.rkey() == old;
        let owner = &mut self.parties[party];
        owner.zones[index].region = Some(region);
        owner.zones[index].closing = false;
        if same {
            return Err(self.violation("a region came back with the key it had".to_owned()));
        }
        if self.random.bool() {
            let candidates: Vec<(usize, usize)> = (0..self.connections.len())
                .filter(|index| self.connections[*index].kind == QueuePairType::Rc)
                .filter(|index| {
                    self.connections[*index].phase == Phase::Running && !self.connections[*index].may_fail
                })
                .flat_map(|index| [(index, 0), (index, 1)])
                .filter(|(index, side)| {
                    let link = &self.connections[*index];
                    link.ends[1 - side].party == party
                        && link.ends[*side].sends.len() < 20
                        && !link.ends[*side].failed
                })
                .collect();
            if !candidates.is_empty() {
                let (connection, side) = candidates[self.random.usize(0..candidates.len())];
                let target = address + self.random.u64(0..length - 1024);
                if self.post_stale(connection, side, target, old)? {
                    return Ok(true);
                }
                self.stop(connection, side, QpState::Error)?;
            }
        }
        Ok(true)
    }
}
