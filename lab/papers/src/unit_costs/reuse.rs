//! What REUSE's model is given (papers/explicit-reuse: the section behind each). Times are in nanoseconds.
//!
//! The paper's curves are pictures, and its text has no unit cost of registration. Two numbers of each system stand for it: what registering 2 MiB
//! takes, and how much less 128 B take. They make T = a p + b. No other result is given to the model.

use super::PAGE;

/// One of REUSE's two systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReuseCosts {
    /// Its name.
    pub name: &'static str,
    /// malloc and registration of 2 MiB: "as much as" 883 and 311 us (VI.D), of which malloc is taken to be nothing.
    pub largest: u64,
    /// By how many tenths registering 2 MiB is dearer than 128 B: 90 and 4.4 times (VI.B).
    pub tenths: u64,
    /// A request that the allocator satisfies from registered memory takes less than 1 and 2.5 us (VI.D). Assumption: 50 ns at least.
    pub allocate: u64,
    /// Assumption: a short put, 2 us; it is varied from 1 to 20 us. The text has no time of a put.
    pub latency: u64,
    /// Assumption: bytes that the link moves in a microsecond, 10,000; varied from 5,000 to 12,500.
    pub link: u64,
    /// Assumption: bytes that a copy of a View moves in a microsecond, 5,000; varied from 1,000 to 10,000.
    pub copy: u64,
    /// Assumption: deregistration takes so many percent of registration; "generally" less (VI.B).
    pub deregister_percent: u64,
    /// Bytes that the allocator takes from the system at least: 1 MiB (III).
    pub slab: u64,
    /// What larger slabs are multiples of: 8 KiB (VI.C).
    pub unit: u64,
}

/// Pages of 2 MiB.
const MOST_PAGES: u64 = (2 << 20) / PAGE;

impl ReuseCosts {
    /// The Cray XC40.
    pub const MUTRINO: ReuseCosts = ReuseCosts {
        name: "Mutrino",
        largest: 883_000,
        tenths: 900,
        allocate: 1_000,
        latency: 2_000,
        link: 10_000,
        copy: 5_000,
        deregister_percent: 50,
        slab: 1 << 20,
        unit: 8 << 10,
    };
    /// The cluster with ConnectX-5.
    pub const STRIA: ReuseCosts =
        ReuseCosts { name: "Stria", largest: 311_000, tenths: 44, allocate: 2_500, ..ReuseCosts::MUTRINO };
    /// The least time of a request from registered memory. Assumption.
    pub const LEAST_ALLOCATE: u64 = 50;
    /// Trials of each size (VI.A).
    pub const TRIALS: u64 = 1_000;

    /// The numbers of inputs that the text only bounds or lacks.
    pub(crate) const ALLOCATE: u32 = ReuseCosts::FIRST + 2;
    /// As [`ReuseCosts::ALLOCATE`].
    pub(crate) const LATENCY: u32 = ReuseCosts::FIRST + 3;
    /// As [`ReuseCosts::ALLOCATE`].
    pub(crate) const LINK: u32 = ReuseCosts::FIRST + 4;
    /// As [`ReuseCosts::ALLOCATE`].
    pub(crate) const COPY: u32 = ReuseCosts::FIRST + 5;

    /// Registration of one page.
    fn smallest(&self) -> u64 {
        self.largest() * 10 / self.tenths()
    }

    /// Registration: T = a p + b, through both given numbers.
    pub fn register(&self, bytes: u64) -> u64 {
        let beyond = bytes.div_ceil(PAGE).saturating_sub(1);
        self.smallest() + (self.largest() - self.smallest()) * beyond / (MOST_PAGES - 1)
    }

    /// Deregistration.
    pub fn deregister(&self, bytes: u64) -> u64 {
        self.register(bytes) * self.deregister_percent() / 100
    }

    /// A put of registered memory.
    pub fn put(&self, bytes: u64) -> u64 {
        self.latency() + bytes * 1_000 / self.link()
    }

    /// Copying so many bytes.
    pub fn copied(&self, bytes: u64) -> u64 {
        bytes * 1_000 / self.copy()
    }
}
