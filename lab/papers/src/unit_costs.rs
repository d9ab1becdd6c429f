//! All that the models are given, each with its source: unit costs and sizes that the papers state; what the frames of Ethernet
//! cost by its standard; one cost that another paper states, and what no paper states, which is marked as an assumption.
//!
//! No result of a paper is given to a model, and nothing is fitted. Where the text gives no unit cost, the model has none, and the
//! report says what is missing. What the papers counted of applications, which do not run here, stands apart: [`APPLICATIONS`].
//! Times are in nanoseconds.

mod active;
mod frrwp;
mod inputs;
mod reuse;

pub use active::ActiveCosts;
pub use frrwp::FrrwpCosts;
pub use inputs::{Input, Source, all_inputs};
pub use reuse::ReuseCosts;

use crate::translation::{Eviction, Geometry, WalkerLimits};

/// Bytes of a page in both papers.
pub const PAGE: u64 = 4_096;

/// PART's testbed (papers/part: the section behind each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartCosts {
    /// Bytes of a block, which is acknowledged and sent again as a whole: 16 KB (4.2).
    pub block: u64,
    /// Bytes of a packet: 256 (4.2).
    pub packet: u64,
    /// Blocks outstanding of one transfer: 2 (4.2).
    pub outstanding: usize,
    /// The co-processor's initiation of a transfer: about 3 us (4.2).
    pub initiation: u64,
    /// Network and engines, end to end: "below 1 us" (4.2), of which this is the upper bound; with the initiation it makes the base
    /// latency of about 4 us (4.1, fig 10).
    pub network: u64,
    /// Bits a microsecond of the link: 10 Gb/s, 3.2 us a page (6.1.1, 6.1.2). The text has [`PartCosts::BOARD_LINK`], too.
    pub link: u64,
    /// A run of the SMMU's interrupt handler: 1 us (5.2).
    pub handler: u64,
    /// A read of one entry of the NI FIFO: a load from the programmable logic, 120 to 150 ns (4.2), of which this is the middle.
    pub fifo_read: u64,
    /// `get_user_pages`, each call: about 6 us (5.3).
    pub page_in_call: u64,
    /// `get_user_pages`, each page that was not in memory: about 3 us (5.3).
    pub page_in_page: u64,
    /// The kernel's part of the Netlink message of a page: 7 us (5.2).
    pub netlink: u64,
    /// All else that the tasklet does for a page, such as packing what the message says: 4 us (5.2), of which the reads of the page's
    /// 16 FIFO entries are counted by themselves.
    pub packing: u64,
    /// The explicit retransmission request (ERR) in user space: about 1 us (5.2).
    pub err: u64,
    /// From an ERR until the page that it asked for is there: 6 us for one page (5.2).
    pub sent_again: u64,
    /// The SMMU's buffers: 128 entries fully associative, 2,048 in sets of 4 (4.3). Assumption: the entry used longest ago makes room.
    pub buffers: Geometry,
    /// Its walker: three levels for addresses of 39 bits, 16 walks, 256 accesses (4.3), about 600 ns for all levels (2). Assumption: 8
    /// entries, a cache line, in the cache of each upper level. Its cache of what the tables of the last level say and its buffer of
    /// prefetched entries (4.3) are not modelled: the text gives neither a size nor what they save.
    pub walker: WalkerLimits,
    /// Whether accesses go on while others of their process wait for a page (HUPCF): yes (3.3, 4.3; PAPERS PART-4).
    pub hit_under_fault: bool,
    /// Absent pages that the NI FIFO holds. Assumption: what the SMMU can have outstanding, 256 (4.3); the text has no depth. No more
    /// pages than those of the blocks outstanding fail at once, 8, so that it never is full. The "up to 16 read commands" of section
    /// 5.2 are the packets of the one page there: that a tasklet run reads no more would contradict section 6.1.1, where one run
    /// resolves the four pages of a block, 64 packets.
    pub fifo: usize,
    /// The user's own touch of a page in memory, at least and at most: around 100 ns (5.1), approximately 100 to 200 ns (5.4).
    pub touch_present: (u64, u64),
    /// The user's own touch of a page that is absent: 3 us (5.1).
    pub touch_absent: u64,
    /// `mlock` of pages that are absent, each call: 3 us of the 6 us for a page (2).
    pub pin_call: u64,
    /// `mlock`, each absent page: the other 3 us (2).
    pub pin_page: u64,
    /// The timeout that the paper uses where it says nothing else: 1 ms (4.2).
    pub timeout: u64,
}

impl PartCosts {
    /// Those of the paper.
    pub const PAPER: PartCosts = PartCosts {
        block: 16 << 10,
        packet: 256,
        outstanding: 2,
        initiation: 3_000,
        network: 1_000,
        link: 10_000,
        handler: 1_000,
        fifo_read: 135,
        page_in_call: 6_000,
        page_in_page: 3_000,
        netlink: 7_000,
        packing: 4_000 - 16 * 135,
        err: 1_000,
        sent_again: 6_000,
        buffers: Geometry {
            first_entries: 128,
            first_ways: 128,
            second_entries: 2_048,
            second_ways: 4,
            eviction: Eviction::LeastRecentlyUsed,
        },
        walker: WalkerLimits { levels: 3, walks: 16, accesses: 256, cache_entries: 8, read_time: 200 },
        hit_under_fault: true,
        fifo: 256,
        touch_present: (100, 200),
        touch_absent: 3_000,
        pin_call: 3_000,
        pin_page: 3_000,
        timeout: 1_000_000,
    };

    /// Bits a microsecond of the links between the four FPGAs of a board: 17 Gb/s (4.1). Which link was measured the text does not say;
    /// it computes with 10 Gb/s.
    pub const BOARD_LINK: u64 = 17_000;

    /// Nanoseconds that the link takes for so many bytes.
    pub fn wire(&self, bytes: u64) -> u64 {
        (bytes * 8 * 1_000 + self.link() / 2) / self.link()
    }

    /// Of [`PartCosts::sent_again`] what is neither the link's time for the page nor the network's latency.
    pub fn resume(&self) -> u64 {
        self.sent_again().saturating_sub(self.wire(PAGE) + self.network())
    }
}

/// JBMT's testbed (papers/onloaded-dynamic-pinning: the section behind each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JbmtCosts {
    /// Bytes of a section at most: 1 MB (4.4).
    pub section: u64,
    /// The helper threads' processing of one local and one remote section: 3 us (4.1). Assumptions: pinning and releasing one page on
    /// either side is within it; half of it is each side's, and of the initiator's half one half before the request.
    pub processing: u64,
    /// A short VNIC message, as the control message of a section request: 7 us (4.1).
    pub message: u64,
    /// Pinning and releasing a page after the first of a section: a stand-in, and no cost of this testbed. Figure 7 shows the
    /// testbed's, the text does not give it; this is the registration of a page, without its release, 0.77 us, that another paper cites
    /// from the testbed of a third (papers/frrwp, T = 0.77 p + 7.42 us). The figures that hold it say so, and of the numbers of the text
    /// none is decided by it.
    pub pin_page: u64,
    /// Bits a microsecond of the Ethernet: 1 Gb/s (4).
    pub link: u64,
    /// Bytes of user data in a frame: an MTU of 1,500 (IEEE 802.3) less 20 for IPv4 and 20 for TCP, over which the VNIC runs (2.2).
    pub payload: u64,
    /// Bytes around the user data on the wire: 40 for IPv4 and TCP, 18 for Ethernet's header and check, 8 for the preamble, 12 for the
    /// gap (IEEE 802.3).
    pub overhead: u64,
    /// Registration, of whatever size: 1.32 us (table 1).
    pub register: u64,
    /// Deregistration, of whatever size: 0.25 us (table 1).
    pub deregister: u64,
}

impl JbmtCosts {
    /// Those of the paper.
    pub const PAPER: JbmtCosts = JbmtCosts {
        section: 1 << 20,
        processing: 3_000,
        message: 7_000,
        pin_page: 770,
        link: 1_000,
        payload: 1_460,
        overhead: 78,
        register: 1_320,
        deregister: 250,
    };

    /// Nanoseconds that a data message of so many bytes takes. Assumption: a shortest one is a short message as the control message is,
    /// whose time holds that of its frame.
    pub fn data(&self, bytes: u64) -> u64 {
        self.message() + self.wire(bytes) - self.wire(1)
    }

    /// Nanoseconds that the wire takes for so many bytes of user data, in frames.
    pub fn wire(&self, bytes: u64) -> u64 {
        let frames = bytes.div_ceil(self.payload());
        // The data of an Ethernet frame are 46 bytes at least, of which 40 are IPv4's and TCP's headers.
        let last = bytes % self.payload();
        let padding = if last > 0 && last < 6 { 6 - last } else { 0 };
        (bytes + padding + frames * self.overhead()) * 8 * 1_000 / self.link()
    }
}

/// What JBMT's two nodes have (PAPERS JBMT-4 to JBMT-6). The text has these limits, and no number for any: all are assumptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JbmtLimits {
    /// Gets under way at once: "a window" (4.2).
    pub window: usize,
    /// Local sections under way at once (3.3).
    pub local_credits: usize,
    /// Control messages of the other side that this one has room for (3.3): one for each remote section. A local section reserves so
    /// many as it may be answered by, which is one for each page, and those of the pages that have come are given back.
    pub control_credits: u64,
    /// Local sections that the other side serves at once (3.3).
    pub remote_credits: usize,
    /// Pages that either side may pin at once (3.1).
    pub pinnable: u64,
    /// Threads of either side that bring pages in: "several" (3.4).
    pub fault_threads: usize,
    /// Pages from an absent one on that one request to a fault thread covers: "a small portion of the accessed user buffer" (3.4).
    pub fault_portion: u64,
    /// Nanoseconds that one page takes to come in (3.4).
    pub swap_in: u64,
    /// Nanoseconds until a section that was refused or absent is tried again: "a timer" (3.3).
    pub retry: u64,
}

impl JbmtLimits {
    /// Plenty of all, so that no number of the text is decided by them.
    pub const PLENTY: JbmtLimits = JbmtLimits {
        window: 16,
        local_credits: 16,
        control_credits: 16 * 256,
        remote_credits: 16,
        pinnable: 1 << 20,
        fault_threads: 4,
        fault_portion: 16,
        swap_in: 0,
        retry: 100_000,
    };
}

/// What PART's authors counted of an application on 16 nodes: a result. No model is given it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Application {
    /// Its name.
    pub name: &'static str,
    /// Runs of the SMMU's handler.
    pub handler_runs: f64,
    /// ERRs.
    pub errs: f64,
}

/// Counts of the paper, for two estimates alone: how much longer an application takes if each handler run that was counted costs what
/// the model says of one fault, and how many ERRs as many handler runs send. LAMMPS (6.2.2); HPL and HPCG (6.2.3).
pub const APPLICATIONS: [Application; 3] = [
    Application { name: "LAMMPS", handler_runs: 1_489.0, errs: 239.0 },
    Application { name: "HPL", handler_runs: 1_497.0, errs: 220.0 },
    Application { name: "HPCG", handler_runs: 318.0, errs: 48.0 },
];

impl Application {
    /// Reads the handler runs; the read is recorded.
    pub(crate) fn handler_runs(&self) -> f64 {
        crate::computed::read(inputs::COUNTS);
        self.handler_runs
    }
}

/// Reads the seconds of LAMMPS on 16 nodes without page faults; the read is recorded.
pub(crate) fn lammps_seconds() -> f64 {
    crate::computed::read(inputs::COUNTS + 1);
    let [.., (_, without, _)] = LAMMPS_SECONDS;
    without
}

/// For the first of these: processes, and seconds of the loop of LAMMPS without page faults and with them (table 2). The text has no
/// run time of the others.
pub const LAMMPS_SECONDS: [(u64, f64, f64); 5] =
    [(1, 76.47, 76.44), (2, 79.37, 79.21), (4, 84.74, 84.55), (8, 90.21, 90.43), (16, 98.88, 99.95)];

/// What FRRWP's table 1 has: KB, and microseconds of fast and of ordinary registration in the kernel. A result: no model is given it.
pub const FAST_REGISTRATION_TABLE: [(u64, f64, f64); 6] = [
    (4, 0.506637, 40.08733),
    (8, 0.513922, 40.32209),
    (16, 0.561122, 40.18301),
    (32, 0.626815, 40.32764),
    (64, 0.785199, 40.22049),
    (128, 1.026974, 40.44059),
];
