//! All that the models are given: unit costs and sizes, each with its source. Whatever else they say is predicted.
//!
//! A result of the papers is never an input. Where a paper's text gives no unit cost, the model has none, and the report says what
//! is missing. Times are in nanoseconds.

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
    /// Bits a microsecond of the link: 10 Gb/s, 3.2 us a page (6.1.1, 6.1.2).
    pub link: u64,
    /// A run of the SMMU's interrupt handler: 1 us (5.2).
    pub handler: u64,
    /// A read of one entry of the NI FIFO: a load from the programmable logic, 120 to 150 ns (4.2).
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
    /// From an ERR until the page that it asked for is there: 6 us for one page (5.2); here without the link's time for the page and
    /// the network's latency, which are counted by themselves.
    pub resume: u64,
    /// Reads of one page-table entry: about 600 ns for all levels (2), three of them (4.3).
    pub walk_read: u64,
    /// Absent pages that the NI FIFO holds. Its depth is not given; this is what the SMMU can have outstanding, 256 (4.3). No more pages
    /// than those of the blocks outstanding fail at once, 8, so that it never is full. The "up to 16 read commands" of section 5.2
    /// are the packets of the one page there: that a tasklet run reads no more would contradict section 6.1.1, where one run resolves
    /// the four pages of a block, 64 packets.
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
        resume: 6_000 - 3_277 - 1_000,
        walk_read: 200,
        fifo: 256,
        touch_present: (100, 200),
        touch_absent: 3_000,
        pin_call: 3_000,
        pin_page: 3_000,
        timeout: 1_000_000,
    };

    /// Nanoseconds that the link takes for so many bytes.
    pub const fn wire(&self, bytes: u64) -> u64 {
        (bytes * 8 * 1_000 + self.link / 2) / self.link
    }
}

/// JBMT's testbed (papers/onloaded-dynamic-pinning: the section behind each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JbmtCosts {
    /// Bytes of a section at most: 1 MB (4.4).
    pub section: u64,
    /// The helper threads' processing of one local and one remote section, pinning and releasing a page on either side included:
    /// 3 us (4.1); half of it for each side.
    pub processing: u64,
    /// A short VNIC message, as the control message of a section request: 7 us (4.1).
    pub message: u64,
    /// Pinning and releasing a page after the first of a section: a stand-in, and no cost of this testbed. Figure 7 shows the
    /// testbed's, the text does not give it; this is the registration of a page, 0.77 us, that another paper cites from the testbed
    /// of a third (papers/frrwp, T = 0.77 p + 7.42 us). The curves that hold it are labelled so, and of the numbers of the text none
    /// is decided by it.
    pub pin_page: u64,
    /// Bits a microsecond of the Ethernet: 1 Gb/s (4).
    pub link: u64,
    /// Bytes of user data in a frame: an MTU of 1,500 less 20 for IPv4 and 20 for TCP, over which the VNIC runs (2.2).
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

    /// Nanoseconds that the wire takes for so many bytes of user data, in frames.
    pub const fn wire(&self, bytes: u64) -> u64 {
        let frames = bytes.div_ceil(self.payload);
        (bytes + frames * self.overhead) * 8 * 1_000 / self.link
    }
}
