//! Energy of network cards and routers (section 5.2.5), by the bytes that pass them. The text has no number of it; that of No-FT is 1.

use super::gets::Logging;
use crate::unit_costs::ActiveCosts;

/// A network: its name, and the mean number of routers on a path between two of 4,096 endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// As in the paper.
    pub name: &'static str,
    /// One more than the links.
    pub routers: f64,
}

/// Those of the paper. Assumption: 4,096 endpoints and shortest paths. A torus of d dimensions of n has d n / 4 links, a hypercube half of its
/// dimensions, a flattened butterfly of 16 x 16 routers 2 x 15/16. Dragonfly, Long Hop and fat tree: nearly all pairs are as far as any.
pub const TOPOLOGIES: [Topology; 7] = [
    Topology { name: "Torus3D", routers: 13.0 },
    Topology { name: "Torus5D", routers: 7.6 },
    Topology { name: "Hypercube", routers: 7.0 },
    Topology { name: "Dragonfly", routers: 3.8 },
    Topology { name: "Flat. Butterfly", routers: 2.9 },
    Topology { name: "Long Hop", routers: 3.5 },
    Topology { name: "Fat tree", routers: 4.9 },
];

impl Topology {
    /// Energy of the routers, that of a byte at one router being 1, for each byte that the sort needs.
    pub fn energy(&self, costs: &ActiveCosts, logging: Logging, bytes: u64) -> f64 {
        self.routers * card(costs, logging, bytes)
    }
}

/// Energy of the network cards for each byte that is sorted, by gets of so many bytes.
pub(super) fn card(costs: &ActiveCosts, logging: Logging, bytes: u64) -> f64 {
    logging.bytes(costs, bytes) as f64 / bytes as f64
}
