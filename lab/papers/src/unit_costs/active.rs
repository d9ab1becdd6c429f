//! What the model of Active Access is given (papers/active-access: the section behind each). Times are in nanoseconds.

use super::inputs::ASSUMED;
#[cfg(test)]
use super::inputs::Source;
use crate::computed::InputSet;

/// The paper's testbed: nodes of 32 processes on a Cray XE6, and two machines in a simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActiveCosts {
    /// An interrupt: 3 us (5.2).
    pub interrupt: u64,
    /// An access to memory, such as one to a log: about 70 ns (5.1, 5.2).
    pub memory: u64,
    /// An access to the scratchpad: about 15 ns (5.2).
    pub scratchpad: u64,
    /// The IOMMU's own work: 5 ns (5.1).
    pub iommu: u64,
    /// Processes of a node: 32 (5.2).
    pub node: usize,
    /// Bits a microsecond of the Ethernet of section 5.1: 1 Gb/s.
    pub link: u64,
    /// Elements of a volume: 2^21 (5.2.1).
    pub elements: u64,
    /// Further remote operations of an insert that collides: 6 (5.2.1).
    pub collision_operations: u64,
    /// Processes of 32 that handle, which the paper found best for AM-Onload: 11 (5.2.1). A result: no model of their best number reads it.
    pub onloaded: usize,
    /// Assumption: what a process spends to send a message, 1 us.
    pub message: u64,
    /// Assumption: a message from network card to network card, 1.5 us.
    pub latency: u64,
    /// Assumption: a look for a message, 200 ns.
    pub look: u64,
    /// Assumption: taking a message out of the receive buffer and finding its handler, 1 us.
    pub extract: u64,
    /// Assumption: an insert into the own volume, 300 ns.
    pub insert: u64,
    /// Assumption: a network card's work for a remote operation, 200 ns.
    pub card: u64,
    /// Assumption: time between two looks of AM, and the least of AM-Exp, 5 us.
    pub interval: u64,
    /// Assumption: messages of one process that are not handled yet, at most. One more waits (AM schemes; puts are pushed back by a full log alone).
    pub window: u64,
    /// Assumption: AM-Exp doubles its interval so often at most.
    pub doublings: u32,
    /// Assumption, as of x86-64: levels of the IOMMU's page table, each an access to memory.
    pub levels: u64,
    /// Assumption: bytes of a cell, an element and a pointer of 8 bytes each.
    pub cell: u64,
    /// Assumption: accesses between two Allreduces of the counters.
    pub between_sums: u64,
    /// Assumption: bytes a microsecond of one process, of a node's 5 GB/s.
    pub bandwidth: u64,
    /// Assumption: bytes of the header of a message.
    pub header: u64,
    /// Assumption: bytes of a get of the sort, as many as a record of a log holds at most.
    pub piece: u64,
    /// Assumption: bytes of a packet of the generator. The numbers have all sizes of Ethernet, too.
    pub packet: u64,
    /// Assumption: bytes of a message of the UDP stream. The numbers have messages of up to 64 KB, too.
    pub datagram: u64,
}

impl ActiveCosts {
    /// Those of the paper, and what is assumed beside them.
    pub const PAPER: ActiveCosts = ActiveCosts {
        interrupt: 3_000,
        memory: 70,
        scratchpad: 15,
        iommu: 5,
        node: 32,
        link: 1_000,
        elements: 1 << 21,
        collision_operations: 6,
        onloaded: 11,
        message: 1_000,
        latency: 1_500,
        look: 200,
        extract: 1_000,
        insert: 300,
        card: 200,
        interval: 5_000,
        window: 64,
        doublings: 6,
        levels: 4,
        cell: 16,
        between_sums: 16,
        bandwidth: 160,
        header: 32,
        piece: 4_096,
        packet: 512,
        datagram: 64,
    };

    /// The numbers of two sizes that are assumed.
    pub(crate) const PACKET: u32 = ActiveCosts::FIRST + 23;
    /// As [`ActiveCosts::PACKET`].
    pub(crate) const DATAGRAM: u32 = ActiveCosts::FIRST + 24;

    /// An insert into the own volume that collides: listing 3 accesses memory four times more.
    pub fn collided(&self) -> u64 {
        self.insert() + 4 * self.memory()
    }

    /// A remote operation that is waited for.
    pub fn round_trip(&self) -> u64 {
        self.message() + 2 * self.latency() + self.card()
    }

    /// What a walk of the page table takes.
    pub fn walk(&self) -> u64 {
        self.levels() * self.memory()
    }

    /// These costs with each assumed input of a set halved and doubled.
    pub(crate) fn variants(&self, inputs: InputSet) -> Vec<(u32, ActiveCosts)> {
        let assumed = ASSUMED.iter().filter(|(number, _)| inputs.has(*number));
        assumed.flat_map(|(number, with)| [(*number, with(self, 50)), (*number, with(self, 200))]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each assumed input is halved and doubled by itself, and no given one is.
    #[test]
    fn variants_differ_in_one_assumed_input_each() {
        let costs = ActiveCosts::PAPER;
        let all = (0..u128::BITS).map(InputSet::of).fold(InputSet::EMPTY, InputSet::with);
        let variants: Vec<ActiveCosts> =
            costs.variants(all).into_iter().map(|(_, variant)| variant).collect();
        assert_eq!(variants.len(), 2 * ASSUMED.len());
        let given =
            |costs: &ActiveCosts| (costs.interrupt, costs.memory, costs.scratchpad, costs.iommu, costs.node);
        for (index, variant) in variants.iter().enumerate() {
            assert_ne!(*variant, costs);
            assert_eq!(given(variant), given(&costs));
            assert!(variants[index + 1..].iter().all(|other| other != variant));
        }
        assert!(costs.variants(InputSet::EMPTY).is_empty());
    }

    /// What no text gives is varied; what the text gives is not.
    #[test]
    fn assumed_inputs_are_those_that_are_varied() {
        let sizes = ["packet of the generator", "message of the UDP stream"];
        for (number, input) in (ActiveCosts::FIRST..).zip(ActiveCosts::INPUTS) {
            let is_varied = ASSUMED.iter().any(|(assumed, _)| *assumed == number);
            let is_assumed = input.source == Source::Assumption && !sizes.contains(&input.name);
            assert_eq!(is_varied, is_assumed, "{}", input.name);
        }
    }
}
