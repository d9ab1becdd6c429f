//! Paths: how a queue pair's packets reach its peer. Chosen once, with the reason kept.

pub mod initiator_copy;
pub mod intercepted_copy;
pub mod local;
pub mod receiver_read;
pub mod ring;
pub mod ring_ack;
pub mod send_record_format;

use crate::services::Services;
use crate::services::fabric_event_queue::{EventOf, ProcessOf};
pub use crate::services::wake_request;
use crate::types::options::Options;
use crate::types::path_choice::PathChoice;
use derive_where::derive_where;
use local::{LocalChannel, RxPosition};
use pagewire_fabric::{
    Channel, ChannelId, Fabric, FabricEvent, QUEUE_PAIRS_PER_BLOCK, ROCE_PORT, Route, SPECIAL_BLOCK,
    StreamId, StreamState, port_of,
};
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Nanoseconds for which a refused connection is not tried again.
const REFUSAL_HOLDS: u64 = 100_000_000;
/// Nanoseconds for which nobody is taken to hold numbers that nobody held: the next process may lease them at any time.
const ABSENCE_HOLDS: u64 = 1_000_000;
/// Nanoseconds that datagrams wait for the answer of a process that has not given one before: it may be stopped, and others wait
/// behind them.
pub const CONNECT_WAIT: u64 = 20_000_000;
/// Nanoseconds for which a process that should take a stream may get no processor, where only a stream will do.
pub(crate) const STREAM_PATIENCE: u64 = 30_000_000_000;
/// Nanoseconds that datagrams wait where only the local path may carry them, and giving up loses them.
const LOCAL_CONNECT_WAIT: u64 = 50 * CONNECT_WAIT;

/// What is known of the process that leases a block of queue pair numbers on this host.
pub enum BlockState<F: Fabric> {
    /// It was asked, then; these queue pairs wait for the answer. `before`: why it could not be reached when it was last asked.
    Connecting { waiting: Vec<u32>, since: u64, before: Option<String> },
    /// It can be reached, memory and all.
    Open(Arc<LocalChannel<F>>),
    /// It cannot; the reason, for the user, whether that is that there is none, and until when that is believed.
    Refused { reason: String, absent: bool, until: u64 },
}

impl<F: Fabric> BlockState<F> {
    /// It said no, or is not there.
    pub fn refused(reason: String, absent: bool, now: u64) -> Self {
        let until = now + if absent { ABSENCE_HOLDS } else { REFUSAL_HOLDS };
        BlockState::Refused { reason, absent, until }
    }

    /// Whether this is a refusal that holds no more; only for one the clock is looked at.
    pub fn is_out_of_date(&self, now: impl FnOnce() -> u64) -> bool {
        matches!(self, BlockState::Refused { until, .. } if now() >= *until)
    }

    /// Whether this knowledge rests on a channel.
    pub fn uses(&self, id: ChannelId) -> bool {
        matches!(self, BlockState::Open(channel) if channel.channel.id == id)
    }
}

/// Why nobody touches the other's memory on a local path.
const BOUNCE_ONLY: &str =
    "one of the processes is at a limit of memory where there is swap: bytes go through the rings";

/// Why this side does not touch the peer's memory on a local path any more.
const DENIED: &str = "the kernel does not let this process access the peer any more (one of them has changed its user, or is not \
                      dumpable): bytes go through the rings";

/// How a queue pair, or one datagram, reaches its peer.
#[derive_where(Default)]
pub enum Path<F: Fabric> {
    /// No peer yet.
    #[derive_where(default)]
    None,
    /// The process that should hold the peer is being asked.
    Connecting {
        route: Route,
        peer: u32,
    },
    Local(Arc<LocalChannel<F>>),
    /// As datagrams, or by the stream that the route names.
    Network {
        route: Route,
        reason: String,
    },
    /// The path asked for cannot be had: packets are lost.
    Dead {
        reason: String,
    },
}

impl<F: Fabric> Path<F> {
    /// The stream that packets travel in.
    pub fn stream(&self) -> Option<StreamId> {
        match self {
            Path::Network { route, .. } => route.stream,
            Path::None | Path::Connecting { .. } | Path::Local(_) | Path::Dead { .. } => None,
        }
    }

    /// The path's name.
    pub fn name(&self) -> &'static str {
        match self {
            Path::None => "none",
            Path::Connecting { .. } => "connecting",
            Path::Local(_) => "local",
            Path::Network { .. } if self.is_stream() => "tcp",
            Path::Network { .. } => "udp",
            Path::Dead { .. } => "dead",
        }
    }

    /// Whether packets travel in a stream.
    pub fn is_stream(&self) -> bool {
        self.stream().is_some()
    }

    /// A word for the process or host at the other end, most probably another one for each.
    pub fn peer(&self) -> u64 {
        match self {
            Path::Local(channel) => channel.channel.instance,
            Path::Network { route, .. } | Path::Connecting { route, .. } => {
                let mut hasher = DefaultHasher::new();
                route.destination.hash(&mut hasher);
                hasher.finish()
            }
            Path::None | Path::Dead { .. } => 0,
        }
    }

    /// Why it is not a better one.
    pub fn reason(&self) -> &str {
        match self {
            Path::Network { reason, .. } | Path::Dead { reason } => reason,
            Path::Local(channel) if channel.channel.bounce_only => BOUNCE_ONLY,
            Path::Local(channel) if channel.is_denied() => DENIED,
            Path::None | Path::Connecting { .. } | Path::Local(_) => "",
        }
    }
}

/// How a datagram to queue pair 1 of another host travels.
pub enum ManagementPath {
    Datagram,
    Stream(StreamId),
    /// A stream is being opened: this is to be asked again soon.
    Opening,
    /// Only a stream may carry it, and there is none, for this reason.
    Dead(String),
}

/// How a datagram to queue pair 1 of another host may travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManagementTransport {
    /// By a stream, unless there is none.
    Best,
    /// As [`Best`](Self::Best), but by no stream that has to be waited for, if datagrams may be sent: the process ends.
    AtOnce,
    /// As a datagram: it answers one. Whoever sends datagrams opens no streams here.
    Datagram,
}

/// The channels of a process, and what it knows of others.
pub struct Paths<F: Fabric> {
    services: Arc<Services<F>>,
    pub channels: RwLock<Vec<Arc<LocalChannel<F>>>>,
    pub blocks: Mutex<HashMap<u32, BlockState<F>>>,
    /// Queue pairs that wait for a stream.
    stream_waiters: Mutex<Vec<u32>>,
    /// Held while events are taken and their channels adopted, so that these are known in their order.
    adopting: Mutex<()>,
}

/// What follows from events of the fabric, once their channels are known.
#[derive(Default)]
pub struct Followups {
    /// Channels whose peers have ended.
    pub departed: Vec<ChannelId>,
    /// Queue pairs that waited for an answer.
    pub waiting: Vec<u32>,
    /// The words of page-ins that have ended.
    pub brought_in: Vec<u64>,
    /// Network devices or their addresses have changed.
    pub devices_changed: bool,
    /// Streams stand otherwise than before.
    pub streams_changed: bool,
}

impl<F: Fabric> Paths<F> {
    /// No channel yet.
    pub fn new(services: Arc<Services<F>>) -> Arc<Self> {
        let (channels, blocks, stream_waiters, adopting) = Default::default();
        Arc::new(Paths { services, channels, blocks, stream_waiters, adopting })
    }

    /// Takes the events that were noted; channels are known before anything is done with them.
    pub fn take_events(&self) -> Followups {
        let mut followups = Followups::default();
        let _guard = self.adopting.lock();
        for event in self.services.fabric_events.take() {
            self.take_event(event, &mut followups);
        }
        followups
    }

    fn take_event(&self, event: EventOf<F>, followups: &mut Followups) {
        match event {
            FabricEvent::Connected { block, channel } => {
                let state = match self.adopt(channel) {
                    Ok(channel) => BlockState::Open(channel),
                    Err(reason) => BlockState::refused(reason, false, self.services.fabric.now()),
                };
                followups.waiting.extend(self.finish_connect(block, state));
            }
            FabricEvent::Accepted { channel } => {
                if let Err(reason) = self.adopt(channel) {
                    log::debug!("a channel was not taken: {reason}");
                }
            }
            FabricEvent::Refused { block, reason, absent } => {
                let state = BlockState::refused(reason, absent, self.services.fabric.now());
                followups.waiting.extend(self.finish_connect(block, state));
            }
            FabricEvent::Departed { channel } => followups.departed.push(channel),
            FabricEvent::BroughtIn { token } => followups.brought_in.push(token),
            FabricEvent::DevicesChanged => followups.devices_changed = true,
            FabricEvent::StreamsChanged => {
                followups.waiting.extend(std::mem::take(&mut *self.stream_waiters.lock()));
                followups.streams_changed = true;
            }
        }
    }

    fn adopt(&self, channel: Channel<F::SharedMemory, ProcessOf<F>>) -> Result<Arc<LocalChannel<F>>, String> {
        let mut channels = self.channels.write();
        if let Some(known) = channels.iter().find(|known| known.channel.id == channel.id) {
            return Ok(known.clone());
        }
        let adopted = LocalChannel::new(channel).ok_or("the peer's tables are of another version")?;
        channels.push(adopted.clone());
        Ok(adopted)
    }

    /// The answer to a question for the process behind a block; gives the queue pairs that waited for it.
    fn finish_connect(&self, block: u32, state: BlockState<F>) -> Vec<u32> {
        let mut blocks = self.blocks.lock();
        // Whoever asks once more asks the fabric: nothing is lost, and those who have gone leave nothing behind.
        blocks.retain(|_, known| !known.is_out_of_date(|| self.services.fabric.now()));
        match blocks.insert(block, state) {
            Some(BlockState::Connecting { waiting, .. }) => waiting,
            _ => Vec::new(),
        }
    }

    /// The channel with this id.
    pub fn channel(&self, id: ChannelId) -> Option<Arc<LocalChannel<F>>> {
        self.channels.read().iter().find(|channel| channel.channel.id == id).cloned()
    }

    /// The peer has ended, and everything that it sent is read.
    pub fn forget(&self, id: ChannelId) {
        self.channels.write().retain(|channel| channel.channel.id != id);
        self.services.fabric_events.forget(id);
    }

    /// Nothing goes over the channel any more.
    pub fn close(&self, channel: &LocalChannel<F>) {
        channel.set_gone();
        self.blocks.lock().retain(|_, state| !state.uses(channel.channel.id));
    }

    /// What a process has sent over its channels and nobody has taken.
    pub fn unread_from(&self, instance: u64) -> SmallVec<[RxPosition; 2]> {
        let channels = self.channels.read();
        let from = channels.iter().filter(|channel| channel.channel.instance == instance);
        from.filter_map(|channel| channel.unread()).collect()
    }

    /// Chooses the path from one of this process's queue pairs to its peer. `Connecting`: not known yet; the queue pair is
    /// driven when the engine has heard from the process, and asks again.
    pub fn choose_path(&self, queue_pair: u32, route: &Route, peer: u32) -> Path<F> {
        self.choose(queue_pair, route, peer, None)
    }

    /// The path of a queue pair whose peer sends plain RoCE while this side waits for an answer: such a peer has no stream.
    pub fn choose_udp(&self, route: &Route, peer: u32) -> Option<Path<F>> {
        let may = self.services.options.path == PathChoice::Auto
            && !self.services.options.is_encrypted
            && self.services.fabric.is_local(route.destination) == Ok(false);
        let reason = "the peer sends datagrams".to_owned();
        may.then(|| Path::Network { route: Route { port: port_of(peer), ..*route }, reason })
    }

    /// Chooses the path of one datagram. It waits for [`CONNECT_WAIT`] at most ([`LOCAL_CONNECT_WAIT`] where the local path was asked
    /// for), and not at all where the last answer was a refusal.
    pub fn choose_datagram_path(&self, queue_pair: u32, route: &Route, peer: u32) -> Path<F> {
        let patience = match self.services.options.path {
            PathChoice::Local => LOCAL_CONNECT_WAIT,
            PathChoice::Auto | PathChoice::Tcp | PathChoice::Udp => CONNECT_WAIT,
        };
        self.choose(queue_pair, route, peer, Some(patience))
    }

    fn choose(&self, queue_pair: u32, route: &Route, peer: u32, patience: Option<u64>) -> Path<F> {
        let is_encrypted = self.services.options.is_encrypted;
        let udp = |reason: String| Path::Network { route: Route { port: port_of(peer), ..*route }, reason };
        let stream = |reason: &str| {
            let chosen = self.choose_stream(queue_pair, route, peer, reason);
            chosen.unwrap_or_else(|reason| Path::Dead { reason })
        };
        let refused = |reason: String| match self.services.options.path {
            PathChoice::Local => Path::Dead { reason },
            _ if is_encrypted => stream(&reason),
            PathChoice::Auto | PathChoice::Tcp | PathChoice::Udp => udp(reason),
        };
        if route.destination.is_multicast() {
            let reason = "the destination is a multicast group";
            if is_encrypted {
                return Path::Dead { reason: format!("{reason}, and only streams are encrypted") };
            }
            return Path::Network { route: Route { port: ROCE_PORT, ..*route }, reason: reason.into() };
        }
        match self.services.options.path {
            PathChoice::Udp if is_encrypted => {
                return Path::Dead { reason: "asked for, and datagrams are not encrypted".into() };
            }
            PathChoice::Udp => return udp("asked for".into()),
            PathChoice::Tcp => return stream("asked for"),
            PathChoice::Auto | PathChoice::Local => {}
        }
        match self.services.fabric.is_local(route.destination) {
            Ok(true) => {}
            Ok(false) => {
                let reason = format!("{} is not an address of this host", route.destination);
                // A datagram goes to somebody else each time.
                if self.services.options.path == PathChoice::Local || patience.is_some() || is_encrypted {
                    return refused(reason);
                }
                return self
                    .choose_stream(queue_pair, route, peer, &reason)
                    .unwrap_or_else(|no_stream| udp(format!("{reason}; {no_stream}")));
            }
            Err(reason) => return refused(reason),
        }
        let block = peer / QUEUE_PAIRS_PER_BLOCK;
        let now = || self.services.fabric.now();
        let mut blocks = self.blocks.lock();
        let before = match blocks.get_mut(&block) {
            Some(BlockState::Open(channel)) => return Path::Local(channel.clone()),
            Some(BlockState::Refused { reason, until, .. }) if now() < *until => {
                return refused(reason.clone());
            }
            Some(BlockState::Refused { reason, absent: false, .. }) => Some(reason.clone()),
            Some(BlockState::Refused { .. }) | None => None,
            Some(BlockState::Connecting { waiting, since, before }) => {
                return match (before, patience) {
                    (Some(reason), Some(_)) => refused(reason.clone()),
                    (None, Some(patience)) if now().saturating_sub(*since) >= patience => {
                        refused("the process that holds the peer has not answered yet".into())
                    }
                    _ => {
                        if !waiting.contains(&queue_pair) {
                            waiting.push(queue_pair);
                        }
                        Path::Connecting { route: *route, peer }
                    }
                };
            }
        };
        let known_refusal = before.clone().filter(|_| patience.is_some());
        let waiting = if known_refusal.is_some() { Vec::new() } else { vec![queue_pair] };
        blocks.insert(block, BlockState::Connecting { waiting, since: now(), before });
        drop(blocks);
        self.services.fabric.connect(block);
        known_refusal.map_or(Path::Connecting { route: *route, peer }, refused)
    }

    /// Chooses how a datagram to queue pair 1 of another host travels.
    pub fn choose_management_path(&self, route: &Route, transport: ManagementTransport) -> ManagementPath {
        let Options { path, is_encrypted, .. } = self.services.options;
        let sends_datagrams = matches!(path, PathChoice::Local | PathChoice::Udp);
        if !is_encrypted && (sends_datagrams || transport == ManagementTransport::Datagram) {
            return ManagementPath::Datagram;
        }
        let waits = transport != ManagementTransport::AtOnce || is_encrypted || path == PathChoice::Tcp;
        // A direct port has the number of its block.
        let block = if route.port == ROCE_PORT { SPECIAL_BLOCK } else { route.port.into() };
        // The answers come from any process of that host.
        match self.stream_to(route, (SPECIAL_BLOCK, block)) {
            (stream, StreamState::Open) => ManagementPath::Stream(stream),
            (_, StreamState::Connecting) if waits => ManagementPath::Opening,
            (_, StreamState::Connecting) => ManagementPath::Datagram,
            (_, StreamState::EncryptedOnly(reason)) => ManagementPath::Dead(reason),
            (_, StreamState::Refused(reason)) if is_encrypted || path == PathChoice::Tcp => {
                ManagementPath::Dead(reason)
            }
            (_, StreamState::Refused(_)) => ManagementPath::Datagram,
        }
    }

    fn stream_to(&self, route: &Route, blocks: (u32, u32)) -> (StreamId, StreamState) {
        let patience = match self.services.options.path {
            // There is nothing else.
            PathChoice::Tcp => STREAM_PATIENCE,
            _ if self.services.options.is_encrypted => STREAM_PATIENCE,
            PathChoice::Auto | PathChoice::Local | PathChoice::Udp => 0,
        };
        self.services.fabric.stream_to(route, blocks, patience)
    }

    /// The stream to the process that leases the peer; `reason`: why it is not a better path. An error says why there is no stream.
    fn choose_stream(
        &self,
        queue_pair: u32,
        route: &Route,
        peer: u32,
        reason: &str,
    ) -> Result<Path<F>, String> {
        // Before the look: who waits from now on is told of an answer.
        let mut waiters = self.stream_waiters.lock();
        let blocks = (queue_pair / QUEUE_PAIRS_PER_BLOCK, peer / QUEUE_PAIRS_PER_BLOCK);
        let (stream, state) = self.stream_to(route, blocks);
        match state {
            StreamState::Open => {
                let route = Route { port: port_of(peer), stream: Some(stream), ..*route };
                let reason = match self.services.options.is_encrypted {
                    true => format!("{reason}; encrypted"),
                    false => reason.to_owned(),
                };
                Ok(Path::Network { route, reason })
            }
            StreamState::Connecting => {
                if !waiters.contains(&queue_pair) {
                    waiters.push(queue_pair);
                }
                Ok(Path::Connecting { route: *route, peer })
            }
            StreamState::Refused(reason) => Err(reason),
            StreamState::EncryptedOnly(reason) => Ok(Path::Dead { reason }),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Nic, Options};
    use pagewire_fabric::{HostFabric, ROCE_PORT};
    use std::net::{IpAddr, Ipv4Addr};
    use std::time::{Duration, Instant};

    /// The way to this very host.
    pub(crate) fn route_to_this_host() -> Route {
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Route {
            source: here,
            interface: 0,
            source_port: 0xC000,
            destination: here,
            port: ROCE_PORT,
            traffic_class: 0,
            hop_limit: 64,
            stream: None,
        }
    }

    /// A process that gets no processor answers late. Datagrams take the network meanwhile, where they may.
    #[test]
    fn datagrams_wait_longer_where_nothing_else_can_carry_them() {
        let (route, peer) = (route_to_this_host(), 0xEE00 * QUEUE_PAIRS_PER_BLOCK);
        for path in [PathChoice::Auto, PathChoice::Local] {
            let nic = Nic::new(HostFabric::new().unwrap(), Options { path, ..Options::default() });
            // Nobody takes what the fabric learns, as if no answer came.
            let asked = nic.fabric().now();
            assert!(matches!(nic.paths.choose_datagram_path(1, &route, peer), Path::Connecting { .. }));
            std::thread::sleep(Duration::from_nanos(CONNECT_WAIT));
            let chosen = nic.paths.choose_datagram_path(1, &route, peer);
            let waited = nic.fabric().now() - asked;
            match path {
                PathChoice::Local if waited < LOCAL_CONNECT_WAIT => {
                    assert!(
                        matches!(chosen, Path::Connecting { .. }),
                        "{}: {}",
                        chosen.name(),
                        chosen.reason()
                    )
                }
                PathChoice::Local => {}
                PathChoice::Auto | PathChoice::Tcp | PathChoice::Udp => {
                    assert!(matches!(chosen, Path::Network { .. }))
                }
            }
        }
    }

    /// Processes come and go: what was once known of their numbers must not stay for ever.
    #[test]
    fn refusals_that_hold_no_more_are_forgotten() {
        let nic =
            Nic::new(HostFabric::new().unwrap(), Options { path: PathChoice::Local, ..Options::default() });
        let route = route_to_this_host();
        let ask = |block: u32| {
            let limit = Instant::now() + Duration::from_secs(30);
            while matches!(
                nic.paths.choose_path(1, &route, block * QUEUE_PAIRS_PER_BLOCK),
                Path::Connecting { .. }
            ) {
                nic.progress();
                assert!(Instant::now() < limit, "block {block} is not answered for");
            }
        };
        for block in 0xEE00..0xEE20 {
            ask(block);
        }
        std::thread::sleep(Duration::from_nanos(REFUSAL_HOLDS));
        ask(0xEE20);
        assert_eq!(nic.paths.blocks.lock().len(), 1);
        // Somebody may have leased it since.
        std::thread::sleep(Duration::from_nanos(ABSENCE_HOLDS));
        assert!(matches!(
            nic.paths.choose_path(1, &route, 0xEE20 * QUEUE_PAIRS_PER_BLOCK),
            Path::Connecting { .. }
        ));
    }
}
