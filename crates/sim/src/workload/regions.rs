//! Regions that come and go while requests through them are under way.

use super::connection::{Phase, Temporary};
use super::driver::Workload;
use super::party::{Zone, ZoneUse};
use super::space::RequestRange;
use super::{Violation, WorkloadStage};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::QpState;
use pagewire_nic::memory_window::{MemoryWindow, WindowKind};
use pagewire_nic::{MemoryRegion, Reregistration, Rights, WindowBinding};

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Registers a region that a few requests of one end will use.
    pub(super) fn begin_temporary(&mut self, connection: usize, side: usize) -> Result<(), Violation> {
        let party = self.connections[connection].ends[1 - side].party;
        let length = self.random.u64(4096..=128 << 10);
        let Some(range) = self.parties[party].take(&mut self.random, ZoneUse::Temporary, length, false)
        else {
            return Ok(());
        };
        // What binds it is a request of the memory's owner.
        let by_window = self.random.bool() && self.connections[connection].sends_at(1 - side);
        let registered = match by_window {
            true => self.parties[party].register_for_windows(range.address, range.length),
            false => self.parties[party].register(range.address, range.length),
        };
        let region = match registered {
            Ok(region) => region,
            Err(_) if !self.stage.is_alive(party) => return Ok(()),
            Err(error) => return Err(self.violation(format!("registration failed: {error}"))),
        };
        let (key, window) = match by_window {
            true => match self.bind_window(connection, 1 - side, &region, &range)? {
                Some((key, window)) => (key, Some(window)),
                None => return Ok(()),
            },
            false => (region.rkey(), None),
        };
        let requests = self.random.u32(1..12);
        let is_usable = window.is_none();
        let region = Some(region);
        self.connections[connection].temporary =
            Some(Temporary { region, window, is_usable, range, side, key, cursor: 8, requests });
        Ok(())
    }

    /// Makes a window and posts a request of an end that binds it to a region; gives it with the key that it will have. `None`: the request was
    /// not posted, and nothing is left.
    fn bind_window(
        &mut self,
        connection: usize,
        owner: usize,
        region: &MemoryRegion<F>,
        range: &RequestRange,
    ) -> Result<Option<(u32, MemoryWindow<F>)>, Violation> {
        let party = self.connections[connection].ends[owner].party;
        let kind = if self.random.bool() { WindowKind::Type1 } else { WindowKind::Type2 };
        let window = match self.parties[party].domain.allocate_window(kind) {
            Ok(window) => window,
            Err(_) if !self.stage.is_alive(party) => return Ok(None),
            Err(error) => return Err(self.violation(format!("a window cannot be made: {error}"))),
        };
        let key = window.key() ^ self.random.u32(1..=0xFF);
        let binding = WindowBinding {
            key,
            region: region.lkey(),
            access: (Rights::REMOTE_WRITE | Rights::REMOTE_READ | Rights::FLUSH_GLOBAL).bits(),
            address: range.address,
            length: range.length,
        };
        if self.post_bind(connection, owner, binding)? {
            self.report.binds += 1;
            return Ok(Some((key, window)));
        }
        let ended = self.patiently(party, || window.deallocate().and_then(|()| region.deregister()));
        self.parties[party].give_back(range);
        match ended {
            Err(error) if self.stage.is_alive(party) => {
                Err(self.violation(format!("an unused window does not end: {error}")))
            }
            _ => Ok(None),
        }
    }

    /// A request that binds a window has succeeded.
    pub(super) fn bound(&mut self, connection: usize, owner: usize) {
        if let Some(temporary) = &mut self.connections[connection].temporary {
            temporary.is_usable |= temporary.side == 1 - owner;
        }
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
        let window = temporary.window.take();
        let party = self.connections[connection].ends[1 - side].party;
        self.report.deregistrations += 1;
        if let Some(window) = window {
            // While it is bound its region stays.
            let is_bound = self.connections[connection].temporary.as_ref().is_some_and(|it| it.is_usable);
            if is_bound && self.stage.is_alive(party) && region.deregister().is_ok() {
                return Err(self.violation("a region ended before its window".to_owned()));
            }
            let ended = self.patiently(party, || window.deallocate());
            if let (Err(error), true) = (ended, self.stage.is_alive(party)) {
                return Err(self.violation(format!("a window does not end: {error}")));
            }
        }
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
                .filter(|index| self.connections[*index].kind.is_reliable())
                .filter(|index| {
                    self.connections[*index].phase == Phase::Running && !self.connections[*index].may_fail
                })
                .flat_map(|index| [(index, 0), (index, 1)])
                .filter(|(index, side)| {
                    let link = &self.connections[*index];
                    link.ends[1 - side].party == party
                        && link.sends_at(*side)
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
