//! What happens in a world, and when: the processes in it, the packets on its links, and the channels between its processes.

use crate::clock::Clock;
use crate::limits;
use crate::memory::SimProcess;
use crate::network::{HostId, LinkFaults, PacketArrival, SimNetwork};
use crate::notes::Notes;
use crate::packet::{self, SimDatagram};
use crate::process::{ProcessId, VirtualProcess};
use crate::streams::{SimStreams, StreamPacket, StreamSent};
use crate::words::{Array, SimWords};
use pagewire_fabric::{
    Channel, ChannelEnd, ChannelId, FabricEvent, GroupMembership, RegionPart, Route, StreamId, StreamState,
    SyncOutcome, SyncRequest,
};
use pagewire_iommu::RegionView;
use pagewire_memory::Segment;
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An event for the engine of a simulated process.
pub type SimEvent = FabricEvent<SimWords, SimProcess>;
/// A channel between two simulated processes.
pub type SimChannel = Channel<SimWords, SimProcess>;

/// The address of the first host.
const FIRST_ADDRESS: u32 = Ipv4Addr::new(10, 0, 0, 1).to_bits();

enum Due {
    Datagram {
        from: HostId,
        to: ProcessId,
        datagram: SimDatagram,
    },
    /// A packet comes to the port of its receiver, which others may use.
    AtPort {
        from: HostId,
        to: ProcessId,
        datagram: SimDatagram,
    },
    StreamPacket {
        packet: StreamPacket,
        datagram: SimDatagram,
    },
    /// An attempt to open a stream ends.
    StreamAnswer {
        stream: StreamId,
    },
    Departed {
        to: ProcessId,
        channel: ChannelId,
    },
    /// Pages of `of` are there, for which `to` waits.
    PagesIn {
        of: ProcessId,
        to: ProcessId,
        /// Those of `of`.
        regions: RegionView<SimWords>,
        parts: Vec<RegionPart>,
        token: Option<u64>,
    },
    /// Memory of a process is persistent, for which it waits.
    Synced {
        of: ProcessId,
        request: Arc<SyncRequest>,
        token: u64,
    },
    Connect {
        from: ProcessId,
        block: u32,
    },
}

struct ScheduleEntry {
    at: u64,
    sequence: u64,
    due: Due,
}

impl PartialEq for ScheduleEntry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for ScheduleEntry {}

impl PartialOrd for ScheduleEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ScheduleEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

/// A channel that a process holds, and who is at its other end.
pub struct HeldChannel {
    pub peer: ProcessId,
    pub channel: SimChannel,
}

/// A process in the world.
pub struct WorldMember {
    pub process: Arc<VirtualProcess>,
    pub instance: u64,
    pub tables: Arc<Array>,
    pub mailbox: Arc<Array>,
    pub channels: Vec<HeldChannel>,
    pub events: VecDeque<SimEvent>,
    inbox: VecDeque<SimDatagram>,
    next_channel: u32,
    /// Why its memory may not be touched by others.
    pub untouchable: Option<String>,
    /// It lives at a limit of memory where there is swap.
    pub swaps_at_a_limit: bool,
    /// It takes the network only.
    refuses_channels: bool,
    buried: bool,
    /// It is among those that have input.
    is_ready: bool,
}

pub struct WorldState {
    random: fastrand::Rng,
    pub network: SimNetwork,
    pub hosts: Vec<Vec<IpAddr>>,
    host_of: HashMap<IpAddr, HostId>,
    pub members: Vec<WorldMember>,
    /// Deaths that peers have been or will be told of.
    buried: u64,
    blocks: HashMap<(HostId, u32), ProcessId>,
    streams: SimStreams,
    /// How often a process has joined a multicast group.
    groups: BTreeMap<(IpAddr, ProcessId), u32>,
    pub notes: Option<Notes>,
    due: BinaryHeap<Reverse<ScheduleEntry>>,
    sequence: u64,
    /// Processes that got a packet or an event since they were last [taken](Self::take_ready).
    ready: Vec<ProcessId>,
    /// Entries of the schedule that have happened.
    pub happened: u64,
}

/// What the processes of a world share.
pub struct SharedWorld {
    pub clock: Arc<Clock>,
    /// Processes that have ended.
    pub deaths: Arc<AtomicU64>,
    /// Nothing that is due later happens, whatever the clock says: the processor that has the clock may be ahead of others.
    pub horizon: AtomicU64,
    pub state: Mutex<WorldState>,
}

impl SharedWorld {
    /// A world without hosts, whose links do what `faults` says.
    pub fn new(seed: u64, faults: LinkFaults) -> Self {
        let state = WorldState {
            random: fastrand::Rng::with_seed(seed),
            network: SimNetwork::new(faults),
            hosts: Vec::new(),
            host_of: HashMap::new(),
            members: Vec::new(),
            buried: 0,
            blocks: HashMap::new(),
            streams: SimStreams::default(),
            groups: BTreeMap::new(),
            notes: None,
            due: BinaryHeap::new(),
            sequence: 0,
            ready: Vec::new(),
            happened: 0,
        };
        let (clock, deaths) = (Arc::new(Clock::default()), Arc::new(AtomicU64::new(0)));
        SharedWorld { clock, deaths, horizon: AtomicU64::new(u64::MAX), state: Mutex::new(state) }
    }

    /// Has a process take the network only, before anybody connects.
    pub fn refuse_channels(&self, id: ProcessId) {
        self.state.lock().members[id.0].refuses_channels = true;
    }

    /// Makes everything happen that is due.
    pub fn deliver(&self) {
        let now = self.clock.now();
        self.deliver_to(&mut self.state.lock(), now);
    }

    fn deliver_to(&self, state: &mut WorldState, now: u64) {
        if self.deaths.load(Ordering::Acquire) != state.buried {
            state.bury_the_dead();
        }
        state.deliver(now.min(self.horizon.load(Ordering::Relaxed)));
    }

    /// A packet was dropped for its ICRC.
    pub fn bad_icrc(&self) {
        self.state.lock().network.counters.bad_icrc += 1;
    }

    pub fn has_events(&self, of: ProcessId) -> bool {
        let now = self.clock.now();
        let mut state = self.state.lock();
        self.deliver_to(&mut state, now);
        !state.members[of.0].events.is_empty()
    }

    pub fn take_events(&self, of: ProcessId, into: &mut Vec<SimEvent>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        self.deliver_to(&mut state, now);
        into.extend(state.members[of.0].events.drain(..));
    }

    pub fn take_datagrams(&self, of: ProcessId, limit: usize) -> Vec<SimDatagram> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        self.deliver_to(&mut state, now);
        let inbox = &mut state.members[of.0].inbox;
        let count = inbox.len().min(limit);
        inbox.drain(..count).collect()
    }

    /// Leases blocks that follow each other, at most `count`; none where the host has none left.
    pub fn lease_blocks(&self, process: &VirtualProcess, count: usize) -> Vec<u32> {
        let mut state = self.state.lock();
        let start = state.random.u32(1..limits::HOST_BLOCKS);
        let is_free = |state: &WorldState, block: u32| !state.blocks.contains_key(&(process.host, block));
        let all = (start..limits::HOST_BLOCKS).chain(1..start);
        let from_first_free = all.skip_while(|block| !is_free(&state, *block));
        let leased: Vec<u32> =
            from_first_free.take_while(|block| is_free(&state, *block)).take(count).collect();
        for block in &leased {
            state.blocks.insert((process.host, *block), process.id);
        }
        leased
    }

    pub fn is_local(&self, host: HostId, address: IpAddr) -> bool {
        self.state.lock().hosts[host.0].contains(&address)
    }

    pub fn connect(&self, from: ProcessId, block: u32) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let at = now + state.random.u64(limits::CONNECT_TIME.0..=limits::CONNECT_TIME.1);
        state.schedule(at, Due::Connect { from, block });
    }

    /// Pages of `of` come in after a while, as far as their regions are then what they were.
    pub fn bring_in(
        &self,
        of: ProcessId,
        to: ProcessId,
        regions: &RegionView<SimWords>,
        parts: &[RegionPart],
        token: Option<u64>,
    ) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let at = now + state.random.u64(limits::PAGE_TIME.0..=limits::PAGE_TIME.1);
        let pages_from = state.members[of.0].process.pages_from.load(Ordering::Relaxed);
        // Other processes cannot have them brought in before.
        let (at, parts) =
            if of == to || at >= pages_from { (at.max(pages_from), parts) } else { (at, &[][..]) };
        let is_asked_for = state.due.iter().any(|Reverse(entry)| {
            matches!(&entry.due, Due::PagesIn { of: whose, to: other, parts: theirs, token: word, .. }
                if (*whose, *other, &theirs[..], *word) == (of, to, parts, token))
        });
        if !is_asked_for {
            let (regions, parts) = (regions.clone(), parts.to_vec());
            state.schedule(at, Due::PagesIn { of, to, regions, parts, token });
        }
    }

    /// Memory of a process is persistent after a while.
    pub fn sync(&self, of: ProcessId, request: &Arc<SyncRequest>, token: u64) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let at = now + state.random.u64(limits::PAGE_TIME.0..=limits::PAGE_TIME.1);
        state.schedule(at, Due::Synced { of, request: request.clone(), token });
    }

    pub fn random(&self) -> u64 {
        self.state.lock().random.u64(..)
    }

    /// The stream to the process that leases a block at the end of a route.
    pub fn stream_to(&self, from: &VirtualProcess, route: &Route, block: u32) -> (StreamId, StreamState) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let WorldState { random, streams, host_of, network, .. } = &mut *state;
        let host = host_of.get(&route.destination).copied();
        let (Some(host), Some(_)) = (host, network.faults.streams.filter(|_| !from.is_standard())) else {
            let reason = "the simulated links carry no streams".to_owned();
            return (StreamId::default(), StreamState::Refused(reason));
        };
        let (stream, found, opens) = streams.find(random, now, from.id, (host, block));
        if let Some(at) = opens {
            state.schedule(at, Due::StreamAnswer { stream });
        }
        (stream, found)
    }

    pub fn stream_openings(&self, stream: StreamId) -> u32 {
        self.state.lock().streams.openings(stream)
    }

    pub fn is_blocked(&self, stream: StreamId) -> bool {
        self.state.lock().streams.is_blocked(stream)
    }

    /// Puts a packet on its link.
    pub fn send(&self, from: &VirtualProcess, route: &Route, bytes: Vec<u8>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if let Some(stream) = route.stream {
            return state.send_by_stream(now, from, stream, route, bytes);
        }
        if route.destination.is_multicast() {
            return state.send_to_group(now, from, route, &bytes);
        }
        let Some(host) = state.host_of.get(&route.destination).copied() else {
            state.network.counters.unknown += 1;
            return;
        };
        let WorldState { random, network, .. } = &mut *state;
        let [first, second] = network.send(random, now, from.host, host, bytes.len());
        state.note(now, from, &bytes, [first, second]);
        let datagram = SimDatagram::new(route, bytes);
        if let Some(arrival) = second {
            state.carry(from.host, host, arrival, datagram.clone());
        }
        if let Some(arrival) = first {
            state.carry(from.host, host, arrival, datagram);
        }
    }
}

/// What keeps a process in a multicast group.
struct JoinedGroup {
    shared: Arc<SharedWorld>,
    member: (IpAddr, ProcessId),
}

impl Drop for JoinedGroup {
    fn drop(&mut self) {
        let groups = &mut self.shared.state.lock().groups;
        if let Some(joined) = groups.get_mut(&self.member) {
            *joined -= 1;
            if *joined == 0 {
                groups.remove(&self.member);
            }
        }
    }
}

/// A process joins a multicast group.
pub fn join_group(shared: &Arc<SharedWorld>, process: ProcessId, group: IpAddr) -> GroupMembership {
    let member = (group, process);
    *shared.state.lock().groups.entry(member).or_default() += 1;
    GroupMembership::new(JoinedGroup { shared: shared.clone(), member })
}

impl WorldState {
    /// Adds a host with an address of its own.
    pub fn add_host(&mut self) -> HostId {
        let id = HostId(self.hosts.len());
        // 10.0.0.1 and those that follow.
        let address = IpAddr::V4(Ipv4Addr::from_bits(FIRST_ADDRESS + id.0 as u32));
        self.hosts.push(vec![address]);
        self.host_of.insert(address, id);
        id
    }

    /// Adds a process.
    pub fn add_member(&mut self, process: Arc<VirtualProcess>) -> &WorldMember {
        let at = self.members.len();
        self.members.push(WorldMember {
            instance: self.random.u64(1..),
            tables: Array::new(pagewire_fabric::limits::TABLE_WORDS),
            mailbox: Array::new(pagewire_fabric::limits::MAILBOX_WORDS),
            channels: Vec::new(),
            events: VecDeque::new(),
            inbox: VecDeque::new(),
            next_channel: 0,
            untouchable: None,
            swaps_at_a_limit: false,
            refuses_channels: false,
            buried: false,
            is_ready: false,
            process,
        });
        &self.members[at]
    }

    /// When something will happen by itself next.
    pub fn next_due(&self) -> Option<u64> {
        self.due.peek().map(|next| next.0.at)
    }

    /// Brings a packet to the process that its number names when it arrives.
    fn carry(&mut self, from: HostId, to: HostId, arrival: PacketArrival, mut datagram: SimDatagram) {
        if arrival.corrupted {
            datagram.corrupt(&mut self.random);
        }
        let owner = datagram.block().and_then(|block| self.blocks.get(&(to, block)).copied());
        match owner {
            Some(to) if self.network.has_ports() => {
                self.schedule(arrival.at, Due::AtPort { from, to, datagram });
            }
            Some(owner) => self.schedule(arrival.at, Due::Datagram { from, to: owner, datagram }),
            None => {
                self.network.counters.unknown += 1;
                self.network.left(from, to);
            }
        }
    }

    /// Writes down a packet and what becomes of it, if anybody wants to know.
    fn note(&self, now: u64, from: &VirtualProcess, bytes: &[u8], arrivals: [Option<PacketArrival>; 2]) {
        let Some(notes) = &self.notes else { return };
        let fate = match arrivals {
            [None, _] => "lost".to_owned(),
            [Some(one), None] => format!("arrives {one}"),
            [Some(one), Some(other)] => format!("arrives {one} and {other}"),
        };
        packet::note(notes, now, from.id, bytes, &fate);
    }

    /// Brings a packet to each process that has joined its group, the sender's, too. Each copy has a fate of its own.
    fn send_to_group(&mut self, now: u64, from: &VirtualProcess, route: &Route, bytes: &[u8]) {
        let group = route.destination;
        let of_group = (group, ProcessId(0))..=(group, ProcessId(usize::MAX));
        let members: Vec<ProcessId> = self.groups.range(of_group).map(|((_, member), _)| *member).collect();
        for to in members {
            let host = self.members[to.0].process.host;
            let arrivals = self.network.send(&mut self.random, now, from.host, host, bytes.len());
            self.note(now, from, bytes, arrivals);
            for arrival in arrivals.into_iter().flatten() {
                let mut datagram = SimDatagram::new(route, bytes.to_vec());
                if arrival.corrupted {
                    datagram.corrupt(&mut self.random);
                }
                self.schedule(arrival.at, Due::Datagram { from: from.host, to, datagram });
            }
        }
    }

    /// Puts a packet into a stream.
    fn send_by_stream(
        &mut self,
        now: u64,
        from: &VirtualProcess,
        stream: StreamId,
        route: &Route,
        bytes: Vec<u8>,
    ) {
        let WorldState { random, network, streams, .. } = self;
        network.counters.sent += 1;
        network.counters.streamed += 1;
        let Some(faults) = network.faults.streams else { return };
        let delay = network.faults.delay.0 + bytes.len() as u64 * network.faults.byte_time / 1024;
        let (packet, opens) = match streams.send(random, faults, (now, delay), stream) {
            StreamSent::Lost => (None, None),
            StreamSent::OnItsWay(packet) => (Some(packet), None),
            StreamSent::Broke(packet, opens) => (Some(packet), Some(opens)),
        };
        if let Some(notes) = &self.notes {
            let fate = match (packet, opens) {
                (None, _) => "lost with its stream".to_owned(),
                (Some(packet), None) => format!("arrives by a stream at {}", packet.at),
                (Some(_), Some(opens)) => format!("its stream breaks, and opens at {opens}"),
            };
            packet::note(notes, now, from.id, &bytes, &fate);
        }
        let Some(packet) = packet else {
            self.network.counters.lost += 1;
            return;
        };
        if let Some(at) = opens {
            self.network.counters.broken_streams += 1;
            self.schedule(at, Due::StreamAnswer { stream });
        }
        self.schedule(packet.at, Due::StreamPacket { packet, datagram: SimDatagram::new(route, bytes) });
    }

    /// An attempt to open a stream ends.
    fn answer_stream(&mut self, now: u64, stream: StreamId) {
        let Some((from, to)) = self.streams.opening(stream) else { return };
        let refused = self.network.faults.streams.map_or(1.0, |faults| faults.refused);
        let owner = self.blocks.get(&to).copied().filter(|owner| {
            let process = &self.members[owner.0].process;
            process.is_alive() && !process.is_standard()
        });
        // One that was open is not refused by chance: the queue pairs on it have no other path.
        let is_taken = self.streams.openings(stream) > 0 || self.random.f64() >= refused;
        self.streams.open(stream, owner.filter(|_| is_taken), now);
        self.members[from.0].events.push_back(FabricEvent::StreamsChanged);
        self.mark_ready(from);
    }

    fn schedule(&mut self, at: u64, due: Due) {
        self.sequence += 1;
        self.due.push(Reverse(ScheduleEntry { at, sequence: self.sequence, due }));
    }

    fn deliver(&mut self, now: u64) {
        while self.due.peek().is_some_and(|next| next.0.at <= now) {
            if let Some(Reverse(entry)) = self.due.pop() {
                self.happened += 1;
                self.happen(entry.due, entry.at);
            }
        }
    }

    /// A process got a packet or an event.
    fn mark_ready(&mut self, id: ProcessId) {
        let member = &mut self.members[id.0];
        if !member.is_ready {
            member.is_ready = true;
            self.ready.push(id);
        }
    }

    /// Moves those that got a packet or an event since the last time to `into`.
    pub fn take_ready(&mut self, into: &mut Vec<ProcessId>) {
        for id in &self.ready {
            self.members[id.0].is_ready = false;
        }
        into.append(&mut self.ready);
    }

    /// Whether packets or events wait for a process.
    pub fn has_input(&self, id: ProcessId) -> bool {
        let member = &self.members[id.0];
        !member.inbox.is_empty() || !member.events.is_empty()
    }

    fn happen(&mut self, due: Due, now: u64) {
        match due {
            Due::StreamPacket { packet, datagram } => {
                let member = &mut self.members[packet.to.0];
                if self.streams.arrives(packet) && member.process.is_alive() {
                    self.network.counters.delivered += 1;
                    member.inbox.push_back(datagram);
                    self.mark_ready(packet.to);
                } else {
                    self.network.counters.lost += 1;
                }
            }
            Due::StreamAnswer { stream } => self.answer_stream(now, stream),
            Due::Datagram { from, to, datagram } => {
                let member = &mut self.members[to.0];
                self.network.arrived(from, member.process.host);
                if member.process.is_alive() {
                    member.inbox.push_back(datagram);
                    self.mark_ready(to);
                }
            }
            Due::AtPort { from, to, datagram } => {
                let host = self.members[to.0].process.host;
                if let Some(at) = self.network.enter_port(now, host, datagram.length()) {
                    self.schedule(at, Due::Datagram { from, to, datagram });
                }
            }
            Due::Departed { to, channel } => {
                let member = &mut self.members[to.0];
                member.channels.retain(|held| held.channel.id != channel);
                member.events.push_back(FabricEvent::Departed { channel });
                self.mark_ready(to);
            }
            Due::PagesIn { of, to, regions, parts, token } => {
                let open = parts.iter().filter(|part| regions.lives(&part.region));
                let segments: Vec<Segment> = open.map(|part| part.segment).collect();
                self.members[of.0].process.space.lock().bring_in(&segments);
                let told = token.map(|token| FabricEvent::BroughtIn { token });
                self.members[to.0].events.extend(told);
                self.mark_ready(to);
            }
            Due::Synced { of, request, token } => {
                let synced = self.members[of.0].process.space.lock().sync(&request.segment);
                request.end(SyncOutcome::Ended(synced));
                self.members[of.0].events.push_back(FabricEvent::BroughtIn { token });
                self.mark_ready(of);
            }
            Due::Connect { from, block } => {
                let event = self.connect(from, block);
                self.members[from.0].events.push_back(event);
                self.mark_ready(from);
            }
        }
    }

    /// A process that ended gives up its blocks, and its peers will hear of it.
    fn bury_the_dead(&mut self) {
        for index in 0..self.members.len() {
            let member = &mut self.members[index];
            if member.buried || member.process.is_alive() {
                continue;
            }
            member.buried = true;
            self.buried += 1;
            let ended = member.process.ended_at().unwrap_or(0);
            let id = ProcessId(index);
            member.inbox.clear();
            member.channels.clear();
            self.blocks.retain(|_, owner| *owner != id);
            self.groups.retain(|(_, member), _| *member != id);
            for (stream, at) in self.streams.end(&mut self.random, ended, id) {
                self.schedule(at, Due::StreamAnswer { stream });
            }
            let (from, to) = limits::DEPARTURE_TIME;
            for peer in 0..self.members.len() {
                let told: Vec<ChannelId> = self.members[peer]
                    .channels
                    .iter()
                    .filter(|held| held.peer == id)
                    .map(|held| held.channel.id)
                    .collect();
                for channel in told {
                    let at = ended + self.random.u64(from..=to);
                    self.schedule(at, Due::Departed { to: ProcessId(peer), channel });
                }
            }
        }
    }

    fn connect(&mut self, from: ProcessId, block: u32) -> SimEvent {
        let host = self.members[from.0].process.host;
        let Some(to) = self.blocks.get(&(host, block)).copied() else {
            let reason = "no process of this host leases these queue pair numbers".to_owned();
            return FabricEvent::Refused { block, reason, absent: true };
        };
        if let Some(held) = self.members[from.0].channels.iter().find(|held| held.peer == to) {
            return FabricEvent::Connected { block, channel: held.channel.clone() };
        }
        if let Some(reason) = self.refusal(from, to) {
            return FabricEvent::Refused { block, reason, absent: false };
        }
        if self.members[from.0].channels.len() >= limits::CHANNELS
            || self.members[to.0].channels.len() >= limits::CHANNELS
        {
            let reason = "too many channels".to_owned();
            return FabricEvent::Refused { block, reason, absent: false };
        }
        let words = Array::new(pagewire_fabric::limits::CHANNEL_WORDS);
        let opened = self.end(from, to, ChannelEnd::Opened, words.clone());
        let accepted = self.end(to, from, ChannelEnd::Accepted, words);
        self.members[from.0].channels.push(HeldChannel { peer: to, channel: opened.clone() });
        if from != to {
            self.members[to.0].channels.push(HeldChannel { peer: from, channel: accepted.clone() });
        }
        self.members[to.0].events.push_back(FabricEvent::Accepted { channel: accepted });
        self.mark_ready(to);
        FabricEvent::Connected { block, channel: opened }
    }

    /// Why two processes make no channel.
    fn refusal(&self, from: ProcessId, to: ProcessId) -> Option<String> {
        let (own, other) = (&self.members[from.0], &self.members[to.0]);
        if other.refuses_channels {
            return Some("the peer takes the network only (--path udp)".into());
        }
        let here = |reason| format!("this process may not touch the peer's memory: {reason}");
        let there = |reason| format!("the peer may not touch this process's memory: {reason}");
        other.untouchable.as_ref().map(here).or_else(|| own.untouchable.as_ref().map(there))
    }

    fn end(&mut self, holder: ProcessId, peer: ProcessId, side: ChannelEnd, words: Arc<Array>) -> SimChannel {
        let id = ChannelId(self.members[holder.0].next_channel);
        self.members[holder.0].next_channel += 1;
        let (own, other) = (&self.members[holder.0], &self.members[peer.0]);
        let process = own.process.clone();
        Channel {
            id,
            side,
            instance: other.instance,
            words: SimWords::new(words, process.clone()),
            tables: SimWords::read_only(other.tables.clone(), process.clone()),
            mailbox: SimWords::new(other.mailbox.clone(), process),
            process: SimProcess(other.process.clone()),
            bounce_only: own.swaps_at_a_limit || other.swaps_at_a_limit,
        }
    }
}
