//! Bounds of this crate. Reaching one is an error that names it, or is said here.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A time without a bound.
pub const FOREVER: Duration = Duration::MAX;

/// Peers that a node may have operations under way to, and as many that may have such to it.
pub const MAX_PEERS: usize = 4096;

/// Work requests to one peer that the engine has at a time. Operations beyond that wait in the node, in order.
pub const SEND_DEPTH: u32 = 256;

/// Connections to one peer for flushes of handlers that wait, beside the one of everything else. One flush more is in order behind another one.
pub const FLUSH_CONNECTIONS: usize = 16;

/// Completions that fit between two polls: all that [`MAX_PEERS`] and [`SEND_DEPTH`] allow.
pub const COMPLETIONS: u32 = MAX_PEERS as u32 * SEND_DEPTH;

/// Completions that one poll takes.
pub const POLL: usize = 64;

/// Bytes of one operation, as of one message of the verbs.
pub const MAX_LENGTH: usize = 1 << 31;

/// For how long the other node may take to answer when a connection is made.
pub const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Pause between two questions whether a peer's host is still there, after as long a silence. Three without an answer, and it is gone.
pub const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// How often in a row a connection may be lost before anything was done by it. Then the peer counts as lost until its token is opened again.
pub const CONNECT_TRIES: u32 = 5;

/// The pause before a lost connection is made anew, for each time that it was lost in a row.
pub const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Compare-swaps of a swap that are tried as it is started.
pub const SWAP_TRIES: usize = 64;

/// How long a thread waits for an operation before it goes on with its other work ([`WhileWaiting`](crate::operations::waiting::WhileWaiting)).
pub const WORK_PAUSE: Duration = Duration::from_millis(1);

/// Time between two looks whether a connection is up that is being made anew.
pub const CONNECT_LOOK: Duration = Duration::from_millis(1);

/// Strangers that have connected and not yet said what they want. One more makes the oldest go.
pub const PENDING_HANDSHAKES: usize = 64;

/// How often the destruction of a queue pair is tried, each time for 2 s, while an access does not end.
pub const DESTROY_TRIES: u32 = 5;

/// For how long a thread that waits for an operation polls before it sleeps.
pub const SPIN: Duration = Duration::from_micros(200);

/// For how long the thread that polls for sleepers leaves completions to a thread of the program that has just polled.
pub const POLL_LINGER: Duration = Duration::from_micros(200);

/// Time between two looks of the thread that reads messages at what it has sent and written: at first, and if nothing ends for long.
pub const SWEEP: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_millis(100);

/// How long a thread that waits for a signal sleeps between two looks at most: the memory of a signal is written without a system
/// call, so nobody wakes it.
pub const SIGNAL_SLEEP: Duration = Duration::from_micros(200);

/// Conditional writes that a node holds until their release comes.
pub const MAX_HELD_WRITES: usize = 65_536;

/// Releases that a node keeps for writes that were not opened yet.
pub const MAX_EARLY_RELEASES: usize = 4096;

/// Conditional writes and reads that peers have opened and the program has not answered. One more is declined.
pub const MAX_OPENED: usize = 4096;

/// Releases of a node whose writes have not ended.
pub const MAX_RELEASES: usize = 65_536;

/// For how long a release waits for its write.
pub const RELEASE_PATIENCE: Duration = Duration::from_secs(60);

/// Time between two looks whether the queue pairs of held writes of verbs programs still send.
pub const DEFERRED_LOOK: Duration = Duration::from_millis(50);

/// Time between two looks whether the send queue of such a write, which was released, has a slot.
pub const FULL_QUEUE_LOOK: Duration = Duration::from_millis(1);

/// Messages of peers that come between two rounds of the thread that reads them. More of them wait at their senders.
pub const MESSAGES: u32 = 1024;

/// Bytes of such a message at most.
pub const MAX_MESSAGE: usize = 128;

/// Messages to one peer that wait to be sent. Beyond that answers to the peer are dropped.
pub const MAX_MESSAGES_WAITING: usize = 4096;
