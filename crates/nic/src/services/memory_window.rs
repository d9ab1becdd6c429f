//! Memory windows (`ibv_alloc_mw(3)`): keys for parts of regions, which requests of queue pairs make valid and invalid.
//!
//! A window that loses its key is drained: peers that were accessing it may go on for a moment, and what has ended it does not complete
//! before. Requests ask again in their turn; nobody else waits for them.

use crate::services::Services;
use crate::services::protection::{MemoryRegion, ProtectionDomain};
use crate::types::error::{Error, Result};
use crate::types::limits;
use crate::types::window::{WindowBinding, WindowWork};
use pagewire_fabric::{Fabric, PageInThreads};
use pagewire_iommu::hazards::Revoked;
use pagewire_iommu::{AccessScope, RegisteredRegion, Rights, WindowTarget};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// All of a key but its lowest byte, which who binds a window chooses.
const OWN_BITS: u32 = !0xFF;

/// Who may use a window, and how it is bound (InfiniBand specification, volume 1, section 10.6.7.2; values of `enum ibv_mw_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum WindowKind {
    /// All queue pairs of the protection domain; another bind takes its place.
    Type1 = 1,
    /// The queue pair by which it is bound (type 2B); it is invalidated before another bind.
    Type2 = 2,
}

/// A memory window.
pub struct MemoryWindow<F: Fabric> {
    domain: Arc<ProtectionDomain<F>>,
    kind: WindowKind,
    place: u32,
}

/// How a step of a request that binds or invalidates ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowStep {
    Done,
    /// Accesses by the key before are under way: ask again.
    Drains,
    Refused,
}

/// The windows of a process, by their places among the regions.
#[derive(Default)]
pub struct MemoryWindows {
    allocated: AtomicU32,
    windows: Mutex<HashMap<u32, WindowState>>,
}

struct WindowState {
    kind: WindowKind,
    domain: u32,
    /// The last that it had.
    key: u32,
    /// What it gives access to, or gave while it drains.
    target: Option<BindingTarget>,
    /// Since when it drains: its key is dead.
    drains_since: Option<u64>,
    /// Of which queue pair the request is that has begun the drain, and may have to ask again after its end.
    drained_for: Option<u32>,
    /// It is about to be deallocated.
    has_ended: bool,
}

impl WindowState {
    fn is_bound(&self) -> bool {
        self.target.is_some() && self.drains_since.is_none()
    }
}

#[derive(Clone, Copy)]
struct BindingTarget {
    /// Place of the region.
    region: u32,
    queue_pair: u32,
}

impl MemoryWindows {
    /// Whether there are any. What ends regions asks before it takes the lock, and again behind its fence.
    #[inline(always)] // Part of each deregistration.
    pub fn is_used(&self) -> bool {
        self.allocated.load(Ordering::SeqCst) != 0
    }
}

impl<F: Fabric> ProtectionDomain<F> {
    /// Makes a window, which gives access to nothing before it is bound (`ibv_alloc_mw(3)`).
    ///
    /// # Errors
    /// `NoMemory`: there are too many regions and windows.
    pub fn allocate_window(self: &Arc<Self>, kind: WindowKind) -> Result<MemoryWindow<F>> {
        let services = self.services();
        let key = services.regions.reserve_window(services.random_byte());
        let key = key.ok_or(Error::NoMemory("memory regions and windows"))?;
        let place = services.regions.place_of(key);
        services.memory_windows.allocated.fetch_add(1, Ordering::SeqCst);
        let state = WindowState {
            kind,
            domain: self.number(),
            key,
            target: None,
            drains_since: None,
            drained_for: None,
            has_ended: false,
        };
        services.memory_windows.windows.lock().insert(place, state);
        self.users.fetch_add(1, Ordering::AcqRel);
        Ok(MemoryWindow { domain: self.clone(), kind, place })
    }
}

impl<F: Fabric> MemoryWindow<F> {
    /// Whether a region is of its protection domain.
    pub fn is_in_domain_of(&self, region: &MemoryRegion<F>) -> bool {
        region.is_in(&self.domain)
    }

    /// Its type.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Its protection domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain<F>> {
        &self.domain
    }

    /// The key that it had last.
    pub fn key(&self) -> u32 {
        let windows = self.domain.services().memory_windows.windows.lock();
        windows.get(&self.place).map_or(0, |state| state.key)
    }

    /// Ends the window. When this returns no access by its key is under way and none will come (`ibv_dealloc_mw(3)`).
    ///
    /// # Errors
    /// `Busy`: an access does not end in time. The key is dead then, and the call may be repeated.
    pub fn deallocate(&self) -> Result<()> {
        let services = self.domain.services();
        if let Some(state) = services.memory_windows.windows.lock().get_mut(&self.place) {
            // No request binds it any more.
            state.has_ended = true;
        }
        services.unbind(self.place)?;
        let state = services.memory_windows.windows.lock().remove(&self.place);
        if let Some(state) = state {
            services.regions.release_window(state.key);
            services.memory_windows.allocated.fetch_sub(1, Ordering::SeqCst);
            self.domain.users.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(())
    }
}

impl<F: Fabric> MemoryRegion<F> {
    /// Refuses what would leave windows without their region.
    ///
    /// # Errors
    /// `Busy`.
    pub(crate) fn refuse_if_windows_are_bound(&self, key: u32) -> Result<()> {
        match self.services().has_windows(key) {
            true => Err(Error::Busy("memory windows are bound to the region")),
            false => Ok(()),
        }
    }
}

impl<F: Fabric> Services<F> {
    /// Executes a request that touches no wire, by the queue pair that has it.
    pub fn execute_window_work(&self, work: &WindowWork, by: AccessScope) -> WindowStep {
        match work {
            WindowWork::Bind(binding) => self.bind(binding, by),
            // The process itself may invalidate what any of its queue pairs has bound.
            WindowWork::Invalidate(key) => self.invalidate(*key, by, |state| state.domain == by.domain),
        }
    }

    /// Executes the rest of a request of a queue pair that ends, if the request has made a key invalid before; says whether it is
    /// done. It waits a bounded time for accesses that are under way, if it may.
    pub fn finish_window_work(&self, work: &WindowWork, by: AccessScope, may_wait: bool) -> bool {
        let key = match work {
            WindowWork::Bind(binding) => binding.key,
            WindowWork::Invalidate(key) => *key,
        };
        let place = self.regions.place_of(key);
        let has_begun = {
            let windows = self.memory_windows.windows.lock();
            windows.get(&place).is_some_and(|state| state.drained_for == Some(by.queue_pair))
        };
        has_begun
            && (!may_wait || self.wait_for_hazards(Revoked::Region(place)).is_ok())
            && self.execute_window_work(work, by) == WindowStep::Done
    }

    /// Invalidates the key of a window as a peer asks for it, by the queue pair that serves the peer (`IBV_WR_SEND_WITH_INV`).
    pub fn invalidate_for_peer(&self, key: u32, by: AccessScope) -> WindowStep {
        self.invalidate(key, by, |state| {
            let serves = state.target.is_none_or(|target| target.queue_pair == by.queue_pair);
            state.domain == by.domain && serves
        })
    }

    /// Whether windows are bound to the region of a key, or accesses by what was are under way.
    #[inline(always)] // Part of each deregistration.
    pub fn has_windows(&self, key: u32) -> bool {
        self.memory_windows.is_used() && self.is_parent(self.regions.place_of(key))
    }

    #[cold]
    fn is_parent(&self, region: u32) -> bool {
        let mut windows = self.memory_windows.windows.lock();
        windows.iter_mut().any(|(place, state)| {
            let is_meant = state.target.is_some_and(|target| target.region == region);
            if is_meant && state.drains_since.is_some() && !self.is_held(Revoked::Region(*place)) {
                self.end_drain(*place, state);
            }
            is_meant && state.target.is_some()
        })
    }

    /// Unbinds the windows that were bound to a region while it ended or lost rights, and waits until nobody accesses them.
    #[inline(always)] // Part of each deregistration.
    pub fn unbind_from_region(&self, region: u32) -> Result<()> {
        if self.memory_windows.is_used() { self.unbind_all(|target| target.region == region) } else { Ok(()) }
    }

    /// Unbinds the windows of type 2 of a queue pair, which has ended.
    pub fn unbind_from_queue_pair(&self, queue_pair: u32) -> Result<()> {
        match self.memory_windows.is_used() {
            true => self.unbind_all(|target| target.queue_pair == queue_pair),
            false => Ok(()),
        }
    }

    #[cold]
    fn unbind_all(&self, is_meant: impl Fn(&BindingTarget) -> bool) -> Result<()> {
        let windows = self.memory_windows.windows.lock();
        let meant = windows.iter().filter(|(_, state)| state.target.as_ref().is_some_and(&is_meant));
        let places: Vec<u32> = meant.map(|(place, _)| *place).collect();
        drop(windows);
        places.into_iter().try_for_each(|place| self.unbind(place))
    }

    /// Makes the key of a window invalid, if it is bound, and waits until nobody accesses it.
    fn unbind(&self, place: u32) -> Result<()> {
        let mut windows = self.memory_windows.windows.lock();
        if let Some(state) = windows.get_mut(&place).filter(|state| state.is_bound()) {
            self.end_binding(state, None);
            drop(windows);
            self.fabric.page_in().end_bring_in(place);
        } else {
            drop(windows);
        }
        self.wait_for_hazards(Revoked::Region(place))?;
        if let Some(state) = self.memory_windows.windows.lock().get_mut(&place) {
            // Another thread may have bound it anew meanwhile.
            if state.drains_since.is_some() {
                self.end_drain(place, state);
            }
        }
        Ok(())
    }

    fn end_binding(&self, state: &mut WindowState, drained_for: Option<u32>) {
        self.regions.revoke(state.key);
        (state.drains_since, state.drained_for) = (Some(self.fabric.now()), drained_for);
    }

    /// Nobody accesses what a window gave access to.
    fn end_drain(&self, place: u32, state: &mut WindowState) {
        self.page_faults.forget_region(place);
        (state.target, state.drains_since) = (None, None);
    }

    fn invalidate(&self, key: u32, by: AccessScope, may: impl Fn(&WindowState) -> bool) -> WindowStep {
        let place = self.regions.place_of(key);
        let mut windows = self.memory_windows.windows.lock();
        let is_meant =
            |state: &&mut WindowState| state.key == key && state.kind == WindowKind::Type2 && may(state);
        let Some(state) = windows.get_mut(&place).filter(is_meant) else { return WindowStep::Refused };
        if state.is_bound() {
            self.end_binding(state, Some(by.queue_pair));
            drop(windows);
            self.fabric.page_in().end_bring_in(place);
            return self.drain(place, by);
        }
        let goes_on = state.drains_since.is_some() || state.drained_for == Some(by.queue_pair);
        drop(windows);
        if goes_on { self.drain(place, by) } else { WindowStep::Refused }
    }

    /// Whether nobody accesses what was invalidated any more.
    fn drain(&self, place: u32, by: AccessScope) -> WindowStep {
        let is_held = self.is_held(Revoked::Region(place));
        let mut windows = self.memory_windows.windows.lock();
        let Some(state) = windows.get_mut(&place) else { return WindowStep::Refused };
        let own = state.drained_for == Some(by.queue_pair);
        let step = match state.drains_since {
            None => WindowStep::Done,
            Some(_) if !is_held => {
                self.end_drain(place, state);
                WindowStep::Done
            }
            Some(since) if self.fabric.now() > since + limits::REVOCATION_BOUND => WindowStep::Refused,
            Some(_) => return WindowStep::Drains,
        };
        if own {
            state.drained_for = None;
        }
        step
    }

    fn bind(&self, binding: &WindowBinding, by: AccessScope) -> WindowStep {
        let place = self.regions.place_of(binding.key);
        let mut windows = self.memory_windows.windows.lock();
        let is_meant = |state: &&mut WindowState| {
            (state.key ^ binding.key) & OWN_BITS == 0 && state.domain == by.domain && !state.has_ended
        };
        let Some(state) = windows.get_mut(&place).filter(is_meant) else { return WindowStep::Refused };
        let part = match binding.length {
            0 => None,
            _ => match self.part_for(binding, by) {
                Some(part) => Some(part),
                None => return WindowStep::Refused,
            },
        };
        let is_bound = state.is_bound();
        match state.kind {
            WindowKind::Type2 if is_bound || binding.length == 0 || binding.key == state.key => {
                return WindowStep::Refused;
            }
            WindowKind::Type1 if is_bound => self.end_binding(state, Some(by.queue_pair)),
            WindowKind::Type1 | WindowKind::Type2 => {}
        }
        if state.drains_since.is_some() {
            drop(windows);
            if is_bound {
                self.fabric.page_in().end_bring_in(place);
            }
            return match self.drain(place, by) {
                WindowStep::Done => self.bind(binding, by),
                step => step,
            };
        }
        (state.key, state.drained_for) = (binding.key, None);
        let Some(part) = part else { return WindowStep::Done };
        let queue_pair = match state.kind {
            WindowKind::Type1 => AccessScope::NO_QUEUE_PAIR,
            WindowKind::Type2 => by.queue_pair,
        };
        let region = self.regions.place_of(binding.region);
        state.target = Some(BindingTarget { region, queue_pair });
        self.regions.bind_window(binding.key, &WindowTarget { part, queue_pair });
        // Behind the fence: either this sees that the region has ended, or who ends it sees the window.
        if !self.regions.has_key(binding.region) || self.interception.table(region).is_some() {
            self.end_binding(state, None);
            return WindowStep::Refused;
        }
        WindowStep::Done
    }

    /// The part of a region that a window may give access to. `None`: its region is none of this domain, does not permit it, does not have
    /// these bytes, or has pages with attributes.
    fn part_for(&self, binding: &WindowBinding, by: AccessScope) -> Option<RegisteredRegion> {
        let region = self.regions.registered(binding.region)?;
        let rights = Rights::from_bits(binding.access)?;
        let writes = rights.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC);
        let permits = region.domain == by.domain
            && region.rights.contains(Rights::MEMORY_WINDOW_BIND)
            && (!writes || region.rights.contains(Rights::LOCAL_WRITE))
            && region.rights.contains(rights & Rights::FLUSH)
            && self.interception.table(self.regions.place_of(binding.region)).is_none();
        let offset = binding.address.checked_sub(region.iova)?;
        let is_inside = offset <= region.length && binding.length <= region.length - offset;
        let iova = if rights.contains(Rights::ZERO_BASED) { 0 } else { binding.address };
        let address = region.address.wrapping_add(offset);
        (permits && is_inside).then_some(RegisteredRegion {
            domain: by.domain,
            address,
            length: binding.length,
            iova,
            rights: rights & (Rights::REMOTE | Rights::FLUSH),
        })
    }
}
