//! Bounds of the NIC; `ibv_query_device` reports them.

use pagewire_iommu::limits as iommu;
use std::time::Duration;

/// Queue pairs of one process.
pub use iommu::{MAX_QUEUE_PAIRS, MAX_REGION_LENGTH, MAX_REGIONS};
/// Queue pair numbers have 24 bits.
pub const MAX_QUEUE_PAIR_NUMBER: u32 = 0xFF_FFFF;
/// Blocks of queue pair numbers that a process leases at once.
pub const MAX_BLOCKS_AT_ONCE: usize = 32;
/// Work requests of one queue.
pub const MAX_WORK_REQUESTS: u32 = 32_768;
/// Scatter-gather elements of one work request.
pub const MAX_SEGMENTS: u32 = 32;
/// Scatter-gather elements of one advice (`ibv_advise_mr(3)`): as many as the kernel's uverbs interface takes.
pub const MAX_ADVISED_SEGMENTS: usize = 4095;
/// Completion queues of one process.
pub const MAX_COMPLETION_QUEUES: u32 = 65_536;
/// Completion counters of one process.
pub const MAX_COMPLETION_COUNTERS: u32 = 65_536;
/// Entries of one completion queue.
pub const MAX_COMPLETIONS: u32 = 1 << 20;
/// Nanoseconds after which a completion queue that was armed with completions in it raises its event, if they still wait: the program
/// sleeps then, as those that poll after they armed do so sooner.
pub const LEFT_PATIENCE: u64 = 50_000;
/// Nanoseconds of [`LEFT_PATIENCE`] for a program that has slept in `ibv_get_cq_event(3)`, which tells of it: only a sleep in poll(2) needs the timer, and an event
/// for completions that are being polled ends its next sleep for nothing (perftest's `-e` takes that for a failure).
pub const LEFT_PATIENCE_OF_SLEEPERS: u64 = 100_000_000;
/// Nanoseconds after which its owner brings in a page that a peer's thread was asked for: that thread may wait in the kernel for somebody
/// who never answers, and is not woken where the page is unmapped.
pub const PEER_PAGE_PATIENCE: u64 = 100_000_000;
/// Thread domains of one process.
pub const MAX_THREAD_DOMAINS: u32 = 65_536;
/// Protection domains of one process, parent domains among them.
pub const MAX_PROTECTION_DOMAINS: u32 = 65_536;
/// Shared receive queues of one process.
pub const MAX_SHARED_RECEIVE_QUEUES: u32 = 65_536;
/// Bytes of a SEND or WRITE by XRC for a shared receive queue of another process.
pub const MAX_RELAYED: u64 = 64 << 20;
/// Bytes of a READ that are fetched ahead from another process.
pub const RELAYED_READ: u32 = 64 << 10;
/// Multicast groups to which queue pairs of a process can be attached. Each takes a descriptor.
pub const MAX_GROUPS: usize = 1024;

/// Queue pairs that can be attached to one group.
pub const MAX_GROUP_MEMBERS: usize = 1024;

/// Address handles of one process.
pub const MAX_ADDRESS_HANDLES: u32 = 1 << 20;
/// Outstanding READs and atomics of one queue pair, each way.
pub const MAX_READ_ATOMIC: u8 = 16;
/// Bytes of inline data.
pub const MAX_INLINE: u32 = 1024;
/// Bytes of a message that travel inside a ring record; longer ones are pulled by the receiver.
pub const RING_INLINE: u32 = 4096;
/// Longest message.
pub use pagewire_transport::limits::MAX_MESSAGE;
const _: () = assert!(iommu::NULL_MEMORY_LENGTH >= MAX_MESSAGE as u64);
const _: () = assert!(iommu::NULL_MEMORY_LENGTH == pagewire_memory::limits::NULL_PAGES as u64);
/// Packets that wait at each half of a queue pair for a page or its turn; more are dropped, and sent again by their
/// source where it is reliable.
pub const MAX_INBOX_PACKETS: usize = 1024;
/// Bytes that these hold at most.
pub const MAX_INBOX_BYTES: usize = 16 << 20;
/// Nanoseconds that `dereg` and the like wait for an access under way before they answer EBUSY.
pub const REVOCATION_BOUND: u64 = 2_000_000_000;
/// How long a report about all queue pairs waits for those that other threads drive.
pub const EXPLAIN_PATIENCE: Duration = Duration::from_millis(50);
/// Accesses of this process's own threads under way at once.
pub const OWN_HAZARDS: usize = 64;
/// Times an absent page is brought in for one access before the access is simply made, whatever it waits for.
pub const BRING_IN_TRIES: u32 = 8;
/// Bytes of the longest access whose pages are brought in before it is made where they are cheap; those of longer ones come while it is.
pub const RESOLVE_NOW_BYTES: u64 = 256 << 10;

/// Nanoseconds, besides one for each byte, from which on pages that were brought in at once were not cheap: the machine is
/// short of memory, or what was known of the memory is out of date.
pub const EXPENSIVE: u64 = 50_000;

/// Times in a row from which on that is believed.
pub const EXPENSIVE_TIMES: u32 = 3;

/// Nanoseconds after that for which threads bring in all pages.
pub const EXPENSIVE_REST: u64 = 10_000_000;

/// Bytes of a section for which one helper is asked where pages are slow.
pub const BYTES_OF_A_HELPER: u64 = 256 << 10;

/// Nanoseconds after which an access that waits for a page is tried once more: the memory, or the region, may have gone. From the
/// first to the second, a quarter of the time that it has waited: many that wait for ever cost little.
pub const PAGE_LOOK: u64 = 10_000_000;
/// See [`PAGE_LOOK`].
pub const MOST_PAGE_LOOK: u64 = 1_000_000_000;
/// Packets looked at in one round of progress from each source.
pub const ROUND: usize = 64;
/// Datagrams looked at in one round: two rows as long as the kernel cuts them out of one send, which are acknowledged together.
pub const NETWORK_ROUND: usize = 128;
/// Polls after which a peer is told what was taken, if nothing that is sent there tells it before.
pub const POLLS_TO_PUBLISH: u32 = 8;
/// Asynchronous events that wait to be read in one context; more are dropped and logged.
pub const MAX_ASYNC_EVENTS: usize = 65_536;
/// Completion events that wait to be read in one channel; more are dropped and logged.
pub const MAX_COMPLETION_EVENTS: usize = 1 << 20;
/// Payload bytes that all RC queue pairs of a process have under way on the network at most: what one may have.
pub const SEND_BUDGET: u64 = pagewire_transport::limits::MAX_IN_FLIGHT as u64;
/// The least of it that is given to a queue pair that has waited for it.
pub const SEND_BUDGET_LEAST: u64 = 32 << 10;
/// Nanoseconds of a lease: what is under way and does not change counts until the next one ends.
pub const SEND_BUDGET_LEASE: u64 = 20_000_000;

/// Stretches of memory that helpers bring in for the accesses of one purpose while these say how far they have come themselves.
pub const STRETCHES: usize = 8;

/// Waits of one purpose that are told apart.
pub const WAIT_BITS: u32 = 16;

/// Bytes behind an access of which it is asked at once whether they are resident: the next packets mostly go there.
pub const LOOK_AHEAD: u64 = 32 << 10;
/// Records of the fault log; those that find no space are dropped and counted (PAPERS AA-4).
pub const FAULT_LOG_RECORDS: usize = 4096;
/// Bytes of an access that one record of an access log has at most.
pub const RECORD_BYTES: u64 = 64 << 10;
