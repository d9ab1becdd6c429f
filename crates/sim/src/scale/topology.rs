//! Who is connected with whom.

use std::ops::Range;

/// Pairs of hosts. Each pair has one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// The first host is connected with all others.
    Star { hosts: usize },
    /// Each host is connected with those that stand so far from it on a circle.
    Circle { hosts: usize, distances: Vec<usize> },
}

impl Topology {
    /// The first of `hosts` hosts is connected with all others.
    pub fn star(hosts: usize) -> Self {
        Topology::Star { hosts }
    }

    /// Each of `hosts` hosts has `peers` peers, or one more where the number must be even, at distances that the seed draws. One of
    /// them is 1, so that no host is cut off.
    pub fn circle(hosts: usize, peers: usize, seed: u64) -> Self {
        let peers = peers.min(hosts - 1);
        if peers == hosts - 1 {
            return Topology::Circle { hosts, distances: (1..hosts).collect() };
        }
        let half: Range<usize> = 2..hosts.div_ceil(2);
        let wanted = peers.div_ceil(2).saturating_sub(1).min(half.len());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut distances = random.choose_multiple(half, wanted);
        distances.push(1);
        let others: Vec<usize> = distances.iter().map(|distance| hosts - distance).collect();
        distances.extend(others);
        distances.sort_unstable();
        distances.dedup();
        Topology::Circle { hosts, distances }
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        match self {
            Topology::Star { hosts } | Topology::Circle { hosts, .. } => *hosts,
        }
    }

    /// Number of peers of a host.
    pub fn peers(&self, host: usize) -> usize {
        match self {
            Topology::Star { hosts } if host == 0 => hosts - 1,
            Topology::Star { .. } => 1,
            Topology::Circle { distances, .. } => distances.len(),
        }
    }

    /// A peer of a host by its index.
    pub fn peer(&self, host: usize, index: usize) -> usize {
        match self {
            Topology::Star { .. } if host == 0 => index + 1,
            Topology::Star { .. } => 0,
            Topology::Circle { hosts, distances } => (host + distances[index]) % hosts,
        }
    }

    /// The index of `host` among the peers of its peer `of`.
    pub fn index_at(&self, host: usize, of: usize) -> usize {
        match self {
            Topology::Star { .. } => host.saturating_sub(1),
            Topology::Circle { hosts, distances } => {
                let distance = (host + hosts - of) % hosts;
                distances.binary_search(&distance).unwrap_or_else(|_| {
                    panic!("hosts {host} and {of} of {hosts} are not connected");
                })
            }
        }
    }

    /// Queue pairs of all hosts.
    pub fn queue_pairs(&self) -> u64 {
        (0..self.hosts()).map(|host| self.peers(host) as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_is_the_peer_of_its_peers() {
        let all = [
            Topology::star(7),
            Topology::circle(7, 6, 1),
            Topology::circle(20, 5, 3),
            Topology::circle(9, 8, 3),
        ];
        for topology in all {
            for host in 0..topology.hosts() {
                let peers = (0..topology.peers(host)).map(|index| topology.peer(host, index));
                let peers: Vec<usize> = peers.collect();
                assert_eq!(peers.iter().collect::<BTreeSet<_>>().len(), peers.len(), "{topology:?}");
                for peer in peers {
                    assert_ne!(peer, host, "{topology:?}");
                    assert_eq!(topology.peer(peer, topology.index_at(host, peer)), host, "{topology:?}");
                }
            }
        }
    }

    #[test]
    fn a_circle_has_as_many_peers_as_asked_for() {
        for (hosts, peers, found) in
            [(10, 9, 9), (1000, 8, 8), (1000, 7, 8), (10, 2, 2), (2, 1, 1), (3, 2, 2)]
        {
            assert_eq!(Topology::circle(hosts, peers, 5).peers(0), found, "{peers} of {hosts}");
        }
    }
}
