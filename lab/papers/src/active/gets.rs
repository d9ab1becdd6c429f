//! Gets that are logged at their target (sections 5.2.3 and 5.2.4): what one takes.

use crate::unit_costs::ActiveCosts;

/// Bytes that the sort moves: 1 GB (5.2.4).
const SORTED: u64 = 1_000_000_000;

/// Who logs the data of a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logging {
    /// Nobody: no fault tolerance.
    None,
    /// The IOMMU of the target.
    Aa,
    /// The caller sends them back in a message, which the target handles.
    Am,
    /// The caller has an atomic reserve space in a log at the target, puts them there, and flushes: assumption; the text has only the put.
    Rma,
}

impl Logging {
    /// All, as the paper names them.
    pub const ALL: [(&'static str, Logging); 4] =
        [("No-FT", Logging::None), ("AA", Logging::Aa), ("AM", Logging::Am), ("RMA", Logging::Rma)];

    /// Nanoseconds of a get of so many bytes, of a process that makes one and is the target of one.
    pub fn time(self, costs: &ActiveCosts, bytes: u64) -> u64 {
        let data = bytes * 1_000 / costs.bandwidth();
        let get = costs.round_trip() + data;
        match self {
            Logging::None => get,
            // A record and its data; the copy goes on beside the transfer.
            Logging::Aa => get + costs.iommu() + 2 * costs.memory(),
            Logging::Am => get + costs.message() + data + costs.look() + costs.extract() + costs.memory(),
            Logging::Rma => get + costs.round_trip() + get + costs.round_trip(),
        }
    }

    /// Bytes that a network card sends and receives of a get, with the headers of its messages.
    pub fn bytes(self, costs: &ActiveCosts, bytes: u64) -> u64 {
        let header = costs.header();
        let get = 2 * header + bytes;
        match self {
            Logging::None | Logging::Aa => get,
            Logging::Am => get + header + bytes,
            // The atomic, the put with its acknowledgement, and the flush.
            Logging::Rma => get + 2 * (header + 8) + header + bytes + header + 2 * header,
        }
    }

    /// Gets of 8 bytes a second of so many processes.
    pub fn rate(self, costs: &ActiveCosts, processes: usize) -> f64 {
        processes as f64 * 1e9 / self.time(costs, 8) as f64
    }

    /// Seconds in which so many processes sort 1 GB by gets of so many bytes, as far as they communicate.
    pub fn sort(self, costs: &ActiveCosts, processes: usize, bytes: u64) -> f64 {
        let gets = SORTED as f64 / bytes as f64 / processes as f64;
        gets * self.time(costs, bytes) as f64 / 1e9
    }
}
