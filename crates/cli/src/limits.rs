//! Every bound of the command.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes read of one process's answer to `pagewire explain`: 65,536 connections of 1 KB each.
pub const EXPLAIN_BYTES: u64 = 64 << 20;

/// How long a process may take to answer `pagewire explain`.
pub const EXPLAIN_PATIENCE: Duration = Duration::from_secs(2);
/// How long a process may take to save its regions.
pub const CHECKPOINT_PATIENCE: Duration = Duration::from_secs(600);

/// Pause between two rounds of `pagewire explain --watch`.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Processes that `pagewire top` asks at the same time.
pub const TOP_ASKED_AT_ONCE: usize = 64;

/// How far back the charts of `pagewire top` go.
pub const TOP_HISTORY: Duration = Duration::from_secs(60);

/// How long the display of `pagewire top` waits for a key before it looks for answers and signals.
pub const TOP_TICK: Duration = Duration::from_millis(50);

/// Seconds between two looks of `pagewire top`.
pub const TOP_INTERVAL: RangeInclusive<f64> = 0.1..=3600.0;

/// Bytes read of a statistics file.
pub const STATISTICS_BYTES: u64 = 64 << 20;

/// Bytes kept of what one program of a pair prints; the rest is read and dropped.
pub const OUTPUT_BYTES: usize = 1 << 20;

/// How long the output of programs that were killed is waited for: one that left their process group may keep it open.
pub const OUTPUT_PATIENCE: Duration = Duration::from_secs(1);

/// How long a server may take until it listens.
pub const LISTEN_PATIENCE: Duration = Duration::from_secs(60);

/// How long the two hosts of a demonstration may take to come up.
pub const HOSTS_PATIENCE: Duration = Duration::from_secs(10);

/// How long one real try of `pagewire doctor` may take.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// When a step of `pagewire demo`, which takes a second, is given up: late enough for a machine that has much else to do.
pub const DEMO_STEP: Duration = Duration::from_secs(60);

/// How often each step of `pagewire demo` is run at most; the median counts.
pub const DEMO_ROUNDS: usize = 3;

/// A step of `pagewire demo` that has taken so long is not run again.
pub const DEMO_REPEATED: Duration = Duration::from_secs(2);

/// Times of runs of one step of `pagewire demo` that lie so far apart show nothing of Pagewire.
pub const DEMO_SPREAD: f64 = 30.0;

/// After this time `pagewire demo` starts no further step.
pub const DEMO_TOTAL: Duration = Duration::from_secs(50);

/// Files that one `pagewire serve` has.
pub const SERVED_FILES: usize = 1000;

/// Bytes of the name of a served file: as of a name in a directory (`NAME_MAX`).
pub const SERVED_NAME: usize = 255;

/// Addresses of this host at which clients of one `pagewire serve` may come, where it listens at all of them.
pub const SERVED_ADDRESSES: usize = 16;

/// Clients that `pagewire serve` answers at a time. One more makes the oldest go that has not said what it wants; if all have, it is refused.
pub const SERVED_CLIENTS: usize = 64;

/// Bytes of a request to `pagewire serve`.
pub const REQUEST_BYTES: u64 = 8 << 10;

/// Bytes of one of its answers: names of [`SERVED_FILES`] in JSON, where a byte may become six.
pub const REPLY_BYTES: u64 = 4 << 20;

/// How long a client of `pagewire serve` may take to say what it wants, and the server to say anything.
pub const SERVE_PATIENCE: Duration = Duration::from_secs(10);

/// How often `pagewire serve` says how far a checksum is, and looks whether anybody still waits for it.
pub const CHECKSUM_TICK: Duration = Duration::from_millis(500);

/// Checksums that `pagewire serve` computes at a time; the others wait.
pub const CHECKSUMS: usize = 4;

/// Bytes that are read at once for a checksum.
pub const CHECKSUM_PIECE: usize = 1 << 20;

/// Bytes of one operation of `pagewire get` and `put`.
pub const TRANSFER_PIECE: usize = 1 << 20;

/// Operations of one file that are under way at a time.
pub const TRANSFER_WINDOW: usize = 8;

/// Buffers of [`TRANSFER_PIECE`] that one file has: those under way, and some that are written and summed.
pub const TRANSFER_BUFFERS: usize = TRANSFER_WINDOW + 4;

/// Files that are transferred at a time.
pub const TRANSFERS: usize = 4;

/// How long an operation of a transfer may take. What the engine does itself with a peer that is gone takes less.
pub const TRANSFER_PATIENCE: Duration = Duration::from_secs(30);

/// How often a transfer looks whether it was interrupted, while nothing comes.
pub const TRANSFER_TICK: Duration = Duration::from_millis(100);

/// How often `pagewire put` tells the server how far it is.
pub const PUT_NOTE: Duration = Duration::from_secs(1);

/// Seconds that one run of `pagewire fail-each` may be given.
pub const FAIL_EACH_LIMIT: RangeInclusive<f64> = 0.1..=3600.0;

/// The least limit of a run where none is given, and how many times as long as the first run it is.
pub const FAIL_EACH_DEFAULT_LIMIT: (Duration, u32) = (Duration::from_secs(5), 10);

/// What a run gets that is repeated because it reached its limit: so many times the limit, and so many times the first run at least. A busy
/// machine hangs no program.
pub const FAIL_EACH_SECOND_LIMIT: (u32, u32) = (4, 20);

/// How long the first run may take, if its limit is not more.
pub const FAIL_EACH_FIRST_LIMIT: Duration = Duration::from_secs(60);

/// How long the peers of a process that has given up may go on.
pub const FAIL_EACH_GRACE: Duration = Duration::from_millis(100);

/// How long the processes that a run leaves may take to end after SIGKILL. If some do not, the command ends with an error that names them.
pub const FAIL_EACH_END_LIMIT: Duration = Duration::from_secs(30);

/// Processes of a scenario.
pub const FAIL_EACH_PROCESSES: usize = 256;

/// Pause between two looks at the processes of a run.
pub const FAIL_EACH_TICK: Duration = Duration::from_millis(2);

/// Bytes kept of what a process of a run prints: the last ones.
pub const FAIL_EACH_OUTPUT_BYTES: usize = 4096;
