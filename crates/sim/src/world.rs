//! The world: hosts, the processes on them, and the links between them, as a test handles them.

use crate::address_space::AddressSpace;
use crate::fabric::SimFabric;
use crate::network::{HostId, LinkFaults, NetworkCounters};
use crate::notes::Notes;
use crate::ports::PortLimits;
use crate::process::{ProcessId, SiteTally, VirtualProcess};
use crate::state::{SharedWorld, SimChannel};
use crate::words::{Array, SimWords};
use pagewire_iommu::words::Site;
use pagewire_nic::device::{Device, Gid, Mtu};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A world. One seed decides everything that happens in it.
#[derive(Clone)]
pub struct World(Arc<SharedWorld>);

impl World {
    /// A world without hosts, whose links do what `faults` says.
    pub fn new(seed: u64, faults: LinkFaults) -> Self {
        World(Arc::new(SharedWorld::new(seed, faults)))
    }

    /// Adds a host with an address of its own.
    pub fn host(&self) -> HostId {
        self.0.state.lock().add_host()
    }

    /// Starts a process on a host; gives its name and the fabric for its engine.
    pub fn process(&self, host: HostId) -> (ProcessId, SimFabric) {
        let mut state = self.0.state.lock();
        let id = ProcessId(state.members.len());
        let process = VirtualProcess::new(id, host, self.0.clock.clone(), self.0.deaths.clone());
        let member = state.add_member(process.clone());
        let tables = SimWords::new(member.tables.clone(), process.clone());
        let mailbox = SimWords::new(member.mailbox.clone(), process.clone());
        (id, SimFabric::new(self.0.clone(), process, tables, mailbox, member.instance))
    }

    /// A process by name.
    pub fn get(&self, id: ProcessId) -> Arc<VirtualProcess> {
        self.0.state.lock().members[id.0].process.clone()
    }

    /// The one device of a process's host.
    pub fn device(&self, id: ProcessId) -> Device {
        let state = self.0.state.lock();
        let host = state.members[id.0].process.host;
        Device {
            name: "pagewire0".into(),
            index: 0,
            guid: 0x0200_00FF_FE00_0001 + host.0 as u64,
            interface: "sim0".into(),
            interface_index: 1,
            interface_mtu: 4200,
            mtu: Mtu::fitting(4200),
            is_active: true,
            gids: state.hosts[host.0].iter().map(|address| Gid { address: *address, interface: 0 }).collect(),
            speed: Some(40_000),
        }
    }

    /// The channels that a process holds, and who is at the other end: for a test that writes to them what no engine writes.
    pub fn channels(&self, of: ProcessId) -> Vec<(ProcessId, SimChannel)> {
        let state = self.0.state.lock();
        state.members[of.0].channels.iter().map(|held| (held.peer, held.channel.clone())).collect()
    }

    /// Forbids others to touch a process's memory (as a non-dumpable process does), before anybody connects.
    pub fn forbid_touching(&self, id: ProcessId, reason: &str) {
        self.0.state.lock().members[id.0].untouchable = Some(reason.to_owned());
    }

    /// Has a process live at a limit of memory where there is swap, before anybody connects.
    pub fn limit_memory(&self, id: ProcessId) {
        self.0.state.lock().members[id.0].swaps_at_a_limit = true;
    }

    /// Has a process be one that knows nothing of Pagewire's own packets: it sends none, and what comes is dropped.
    pub fn make_standard(&self, id: ProcessId) {
        self.get(id).standard.store(true, Ordering::Release);
    }

    /// Gives up the memory of a process that has ended, when nobody looks at it any more.
    pub fn forget(&self, id: ProcessId) {
        let process = self.get(id);
        assert!(!process.is_alive(), "only of the dead");
        *process.space.lock() = AddressSpace::default();
        let mut state = self.0.state.lock();
        let member = &mut state.members[id.0];
        (member.tables, member.mailbox) = (Array::new(0), Array::new(0));
        member.events.clear();
    }

    /// Ends all processes and gives their memory up.
    pub fn end(&self) {
        let all = self.0.state.lock().members.len();
        for id in (0..all).map(ProcessId) {
            self.get(id).kill();
            self.forget(id);
        }
    }

    /// Maps memory in a process.
    pub fn map(&self, id: ProcessId, address: u64, length: u64) {
        self.get(id).space.lock().map(address, length);
    }

    /// Unmaps pages of a process.
    pub fn unmap(&self, id: ProcessId, address: u64, length: u64) {
        self.get(id).space.lock().unmap(address, length);
    }

    /// Lets pages of a process be absent.
    pub fn evict(&self, id: ProcessId, address: u64, length: u64) {
        self.get(id).space.lock().evict(address, length);
    }

    /// Lets pages of a process be absent, so that a touch brings them at once.
    pub fn evict_cheaply(&self, id: ProcessId, address: u64, length: u64) {
        self.get(id).space.lock().evict_cheaply(address, length);
    }

    /// Lets no absent page of a process come in before `time`, unless it touches the page itself. Others cannot bring it in, as
    /// where userfaultfd(2) serves the faults of user mode only.
    pub fn withhold_pages(&self, id: ProcessId, time: u64) {
        self.get(id).pages_from.store(time, Ordering::Relaxed);
    }

    /// Changes memory of a process behind everybody's back.
    pub fn poke(&self, id: ProcessId, address: u64, bytes: &[u8]) {
        self.get(id).space.lock().poke(address, bytes);
    }

    /// Reads memory of a process, absent pages of which come in. False: a page is not mapped.
    pub fn peek(&self, id: ProcessId, address: u64, into: &mut [u8]) -> bool {
        let process = self.get(id);
        let mut space = process.space.lock();
        let found = space.touch(address, into.len() as u64);
        found.map(|(bytes, _)| into.copy_from_slice(bytes)).is_ok()
    }

    /// What a range of a process's memory held when it was last made persistent. `None`: some of it never was.
    pub fn synced(&self, id: ProcessId, address: u64, length: u64) -> Option<Vec<u8>> {
        self.get(id).space.lock().synced(address, length)
    }

    /// Ends a process.
    pub fn kill(&self, id: ProcessId) {
        self.get(id).kill();
        self.0.deliver();
    }

    /// The time, without letting any pass.
    pub fn now(&self) -> u64 {
        self.0.clock.now()
    }

    /// When something will happen by itself next.
    pub fn next_due(&self) -> Option<u64> {
        self.0.state.lock().next_due()
    }

    /// Lets time pass until something happens by itself or `deadline`, whichever is sooner. False: there is neither.
    pub fn advance(&self, deadline: Option<u64>) -> bool {
        let next = self.next_due().into_iter().chain(deadline).min();
        if let Some(next) = next {
            self.0.clock.advance_to(next);
        }
        next.is_some()
    }

    /// Gives each host one port, which all that it sends and receives shares.
    pub fn give_ports(&self, limits: PortLimits) {
        self.0.state.lock().network.give_ports(limits);
    }

    /// Gives each host a processor of its own, which [`run_at`](Self::run_at) then tells the time. Nobody may wait for a time in a
    /// loop.
    pub fn give_processors(&self) {
        self.0.clock.make_even();
    }

    /// Has what runs next run at `time`, which may be before the time of another that ran already: each host has a processor of its own.
    /// What is due later does not happen meanwhile, though looks at the clock let it go on.
    pub fn run_at(&self, time: u64) {
        self.0.horizon.store(time, Ordering::Relaxed);
        self.0.clock.set(time);
    }

    /// Makes everything happen that is due by `time`, and moves the processes that got a packet or an event to `ready`.
    pub fn deliver_until(&self, time: u64, ready: &mut Vec<ProcessId>) {
        self.run_at(time);
        self.0.deliver();
        self.0.state.lock().take_ready(ready);
    }

    /// Whether packets or events wait for a process.
    pub fn has_input(&self, id: ProcessId) -> bool {
        self.0.state.lock().has_input(id)
    }

    /// Packets that came to a host or a port, and events that happened by themselves.
    pub fn happened(&self) -> u64 {
        self.0.state.lock().happened
    }

    /// What happened on the links.
    pub fn network_counters(&self) -> NetworkCounters {
        self.0.state.lock().network.counters
    }

    /// Writes down what becomes of each packet.
    pub fn keep_notes(&self, notes: Notes) {
        self.0.state.lock().notes = Some(notes);
    }

    /// Changes what links do.
    pub fn set_faults(&self, faults: LinkFaults) {
        self.0.state.lock().network.faults = faults;
    }

    /// Stores and crashes at each site, over all processes.
    pub fn tally(&self) -> BTreeMap<Site, SiteTally> {
        let mut all: BTreeMap<Site, SiteTally> = BTreeMap::new();
        for member in &self.0.state.lock().members {
            for (site, tally) in member.process.tally() {
                let sum = all.entry(site).or_default();
                sum.stores += tally.stores;
                sum.crashes += tally.crashes;
            }
        }
        all
    }
}
