//! The access counter (section 5.2.2): what an access takes of a process that makes one and is the target of one.

use crate::unit_costs::ActiveCosts;

/// How accesses are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// The IOMMU logs each, and the owner counts records.
    AaPoll,
    /// The caller adds 1 to a remote counter.
    Rma,
    /// The owner's key-value store handles a message for each.
    AKv,
    /// The caller counts; sums are made together, after some accesses.
    Allreduce,
    /// Nobody counts.
    None,
}

impl Counting {
    /// All, as the paper names them.
    pub const ALL: [(&'static str, Counting); 5] = [
        ("AA-Poll", Counting::AaPoll),
        ("RMA", Counting::Rma),
        ("A-KV", Counting::AKv),
        ("Allreduce", Counting::Allreduce),
        ("No-Cnt", Counting::None),
    ];

    /// Accesses a second of so many processes.
    pub fn rate(self, costs: &ActiveCosts, processes: usize) -> f64 {
        let steps = u64::from(processes.next_power_of_two().trailing_zeros());
        let counted = match self {
            Counting::None => 0,
            Counting::AaPoll => costs.iommu() + 3 * costs.memory(),
            Counting::Rma => costs.round_trip(),
            Counting::AKv => costs.look() + costs.extract() + costs.memory(),
            Counting::Allreduce => {
                let step = costs.message() + costs.latency() + costs.extract();
                costs.memory() + steps * step / costs.between_sums()
            }
        };
        processes as f64 * 1e9 / (costs.message() + counted) as f64
    }
}
