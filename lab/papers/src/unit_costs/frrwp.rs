//! What FRRWP's model is given (papers/frrwp: the section behind each). Times are in nanoseconds.

use super::PAGE;

/// FRRWP's testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrrwpCosts {
    /// Registration of each page by fast registration: 0.77 us, which the text cites of another testbed (2.3).
    pub page: u64,
    /// Each registration with its deregistration: 7.42 us, of the same source (2.3).
    pub operation: u64,
    /// T1, making a completion and putting it into a queue: 4 us (4).
    pub completion: u64,
    /// T2 and T3, each a switch between driver and application: 5 us (4).
    pub crossing: u64,
    /// What ordinary registration takes to tell the card of a region: "about 40 us" (2.3).
    pub card: u64,
    /// Mapping, pinning and the switches of a registration in user space: as much as the card, "about half" (2.3).
    pub host: u64,
    /// Bytes up to which malloc gives contiguous memory: 32 KB (2.3).
    pub contiguous: u64,
    /// Assumption: what each further page adds in user space, as each is a region of its own in physical memory. The text has no such cost
    /// of its testbed; this is that of a page on the other one. Figure 1 has it ten times as large, too.
    pub separate: u64,
    /// Assumption: a short message from driver to driver, 4 us. The text has none. The figure of section 4 has 1 and 20 us, too.
    pub latency: u64,
    /// Bits a microsecond of the link: 20 Gb/s (2.2), of which 8 of 10 are data (InfiniBand specification, volume 2).
    pub link: u64,
    /// Entries of a card's table of pages: 1,024 (2.1, of Myrinet).
    pub table: u64,
    /// Assumption: bytes that a copy moves in a microsecond, 1,000. The figure of section 5 has 4,000, too.
    pub copy: u64,
    /// Assumption: of [`FrrwpCosts::operation`] the part of the deregistration, in percent. The text has only the sum; tests have none and all.
    pub deregistration_percent: u64,
    /// Assumption: deregistrations that are put together in one, 16.
    pub batch: u64,
    /// Assumption: pieces of a buffer of group registration, with a page between each two, 4.
    pub pieces: u64,
}

impl FrrwpCosts {
    /// Those of the paper.
    pub const PAPER: FrrwpCosts = FrrwpCosts {
        page: 770,
        operation: 7_420,
        completion: 4_000,
        crossing: 5_000,
        card: 40_000,
        host: 40_000,
        contiguous: 32 << 10,
        separate: 770,
        latency: 4_000,
        link: 16_000,
        table: 1_024,
        copy: 1_000,
        deregistration_percent: 50,
        batch: 16,
        pieces: 4,
    };

    /// The numbers of two inputs that are assumed.
    pub(crate) const SEPARATE: u32 = FrrwpCosts::FIRST + 7;
    /// As [`FrrwpCosts::SEPARATE`].
    pub(crate) const LATENCY: u32 = FrrwpCosts::FIRST + 8;

    /// T = a p + b (FRRWP-3), in user space, by fast registration.
    pub fn fast(&self, pages: u64) -> u64 {
        self.page() * pages + self.operation()
    }

    /// Ordinary registration of what malloc gave, in user space.
    pub fn ordinary(&self, bytes: u64) -> u64 {
        let separate = bytes.saturating_sub(self.contiguous()).div_ceil(PAGE);
        self.card() + self.host() + separate * self.separate()
    }

    /// T_c, what a conditional write spares: T1 + T2 + T3.
    pub fn conditional(&self) -> u64 {
        self.completion() + 2 * self.crossing()
    }

    /// From a message until the answer to it, without the answering application's own work.
    pub fn round_trip(&self) -> u64 {
        2 * self.latency() + self.completion() + self.crossing()
    }

    /// An RDMA write until its last byte is there.
    pub fn write(&self, bytes: u64) -> u64 {
        self.latency() + bytes * 8 * 1_000 / self.link()
    }

    /// Copying so many bytes.
    pub fn copied(&self, bytes: u64) -> u64 {
        bytes * 1_000 / self.copy()
    }
}
