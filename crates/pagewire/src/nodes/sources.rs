//! Who accesses this node: the peers behind the sources of access logs.

use crate::nodes::engine::Host;
use crate::regions::token::{NodeAddress, Peer};
use pagewire_memory::fork::Owner;
use pagewire_nic::Nic;
use parking_lot::RwLock;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

/// Connections that have ended and whose peers are known still: records of theirs may be read later.
const MAX_FORMER: usize = 1 << 16;

/// Who made an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Source {
    /// A node, by whichever of its connections.
    Node {
        /// Its name.
        peer: Peer,
        /// Its rank, if it belongs to the same job.
        rank: Option<usize>,
    },
    /// A queue pair of the verbs.
    QueuePair {
        /// The GID of its port.
        gid: [u8; 16],
        /// Its number there.
        number: u32,
    },
}

/// The peers of a node by the numbers of its sources. Clones are the same; a handler takes one along.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::Node;
/// use pagewire::access_log::Source;
/// let node = Node::alone()?;
/// let sources = node.sources();
/// // Within a handler: sources.find(access.source()).
/// assert_eq!(sources.find(12345), None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sources {
    nic: Weak<Nic<Host>>,
    known: Arc<KnownPeers>,
    ranks: Arc<HashMap<NodeAddress, usize>>,
    owner: Owner,
}

impl Sources {
    pub(crate) fn new(nic: &Arc<Nic<Host>>, known: &Arc<KnownPeers>, ranks: &[NodeAddress]) -> Sources {
        let ranks = ranks.iter().enumerate().map(|(rank, address)| (*address, rank)).collect();
        let (known, owner) = (known.clone(), Owner::this_process());
        Sources { nic: Arc::downgrade(nic), known, ranks: Arc::new(ranks), owner }
    }

    /// Who a source is, by the number that records give it. `None`: nobody is known by this number, or no more; or this is a
    /// forked child of the node's process.
    pub fn find(&self, number: u64) -> Option<Source> {
        // A thread of the parent may hold the locks.
        if !self.owner.is_this_process() {
            return None;
        }
        let number = u32::try_from(number).ok()?;
        if let Some(address) = self.known.find(number) {
            let rank = self.ranks.get(&address).copied();
            return Some(Source::Node { peer: Peer(address), rank });
        }
        let (gid, number) = self.nic.upgrade()?.peer_of(number)?;
        Some(Source::QueuePair { gid, number })
    }
}

/// The peers of connections, by the queue pairs of this side.
#[derive(Default)]
pub(crate) struct KnownPeers(RwLock<SourceTable>);

#[derive(Default)]
struct SourceTable {
    /// Each with the count of entries before it.
    peers: HashMap<u32, (NodeAddress, u64)>,
    entered: u64,
    /// Those that have ended, the oldest first.
    former: VecDeque<(u32, u64)>,
}

impl KnownPeers {
    /// A queue pair is of a connection of a peer.
    pub fn enter(&self, queue_pair: u32, peer: NodeAddress) {
        let mut table = self.0.write();
        table.entered += 1;
        let entered = table.entered;
        table.peers.insert(queue_pair, (peer, entered));
    }

    /// The connection has ended. Records of it may be read later.
    pub fn leave(&self, queue_pair: u32) {
        let mut table = self.0.write();
        let Some(&(_, entered)) = table.peers.get(&queue_pair) else { return };
        table.former.push_back((queue_pair, entered));
        if table.former.len() > MAX_FORMER
            && let Some((oldest, entered)) = table.former.pop_front()
            && table.peers.get(&oldest).is_some_and(|(_, at)| *at == entered)
        {
            table.peers.remove(&oldest);
        }
    }

    fn find(&self, queue_pair: u32) -> Option<NodeAddress> {
        self.0.read().peers.get(&queue_pair).map(|(peer, _)| *peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn former_connections_are_known_within_a_bound() {
        let address = |nonce| NodeAddress { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 1, nonce };
        let known = KnownPeers::default();
        known.enter(7, address(1));
        known.leave(7);
        assert_eq!(known.find(7), Some(address(1)));
        // The number is given again, and stays though its first owner is forgotten.
        known.enter(7, address(2));
        for number in 100..100 + MAX_FORMER as u32 {
            known.enter(number, address(3));
            known.leave(number);
        }
        assert_eq!((known.find(7), known.find(100)), (Some(address(2)), Some(address(3))));
        known.enter(8, address(4));
        known.leave(8);
        assert_eq!((known.find(100), known.find(101)), (None, Some(address(3))));
    }
}
