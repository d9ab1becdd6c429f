//! What the model of Active Access is given (papers/active-access: the section behind each). Times are in nanoseconds.

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
    /// Elements of a volume: 2^21 (5.2.1).
    pub elements: u64,
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
}

/// An input that no text gives: its name, and the costs with another value of it, in percent.
pub type Assumed = (&'static str, fn(&ActiveCosts, u64) -> ActiveCosts);

/// All of them.
#[rustfmt::skip]
pub const ASSUMED: [Assumed; 7] = [
    ("message", |costs, percent| ActiveCosts { message: costs.message * percent / 100, ..*costs }),
    ("latency", |costs, percent| ActiveCosts { latency: costs.latency * percent / 100, ..*costs }),
    ("look", |costs, percent| ActiveCosts { look: costs.look * percent / 100, ..*costs }),
    ("extract", |costs, percent| ActiveCosts { extract: costs.extract * percent / 100, ..*costs }),
    ("insert", |costs, percent| ActiveCosts { insert: costs.insert * percent / 100, ..*costs }),
    ("card", |costs, percent| ActiveCosts { card: costs.card * percent / 100, ..*costs }),
    ("interval", |costs, percent| ActiveCosts { interval: costs.interval * percent / 100, ..*costs }),
];

impl ActiveCosts {
    /// Those of the paper, and what is assumed beside them.
    pub const PAPER: ActiveCosts = ActiveCosts {
        interrupt: 3_000,
        memory: 70,
        scratchpad: 15,
        iommu: 5,
        node: 32,
        elements: 1 << 21,
        message: 1_000,
        latency: 1_500,
        look: 200,
        extract: 1_000,
        insert: 300,
        card: 200,
        interval: 5_000,
    };

    /// Further remote operations of an insert that collides: 6 (5.2.1).
    pub const COLLISION_OPERATIONS: u64 = 6;

    /// Levels of the IOMMU's page table, each an access to memory: assumption, as of x86-64.
    pub const LEVELS: u64 = 4;

    /// Bytes of a cell, an element and a pointer of 8 bytes each: assumption.
    pub const CELL: u64 = 16;

    /// An insert into the own volume that collides: listing 3 accesses memory four times more.
    pub const fn collided(&self) -> u64 {
        self.insert + 4 * self.memory
    }

    /// A remote operation that is waited for.
    pub const fn round_trip(&self) -> u64 {
        self.message + 2 * self.latency + self.card
    }

    /// What a walk of the page table takes.
    pub const fn walk(&self) -> u64 {
        ActiveCosts::LEVELS * self.memory
    }

    /// These costs, and those with each assumed input halved and doubled.
    pub fn variants(&self) -> Vec<ActiveCosts> {
        let others = ASSUMED.iter().flat_map(|(_, with)| [with(self, 50), with(self, 200)]);
        std::iter::once(*self).chain(others).collect()
    }
}
