//! Every bound of the command.

use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes read of one process's answer to `pagewire explain`: 65,536 connections of 1 KB each.
pub const EXPLAIN_BYTES: u64 = 64 << 20;

/// How long a process may take to answer `pagewire explain`.
pub const EXPLAIN_PATIENCE: Duration = Duration::from_secs(2);

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
pub const LISTEN_PATIENCE: Duration = Duration::from_secs(10);

/// How long the two hosts of a demonstration may take to come up.
pub const HOSTS_PATIENCE: Duration = Duration::from_secs(10);

/// How long one real try of `pagewire doctor` may take.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(3);

/// How long one step of `pagewire demo` may take.
pub const DEMO_STEP: Duration = Duration::from_secs(8);

/// How often each step of `pagewire demo` is run at most; the median counts.
pub const DEMO_ROUNDS: usize = 3;

/// A step of `pagewire demo` that has taken so long is not run again.
pub const DEMO_REPEATED: Duration = Duration::from_secs(2);

/// Times of runs of one step of `pagewire demo` that lie so far apart show nothing of Pagewire.
pub const DEMO_SPREAD: f64 = 30.0;

/// After this time `pagewire demo` starts no further step.
pub const DEMO_TOTAL: Duration = Duration::from_secs(50);

/// How long one run of a benchmark may take.
pub const BENCH_RUN: Duration = Duration::from_secs(30);

/// How often each benchmark and its peer are run, in turn; the median counts.
pub const BENCH_ROUNDS: u32 = 3;

/// How often each run of `pagewire reproduce --live` is made, in turn; the median counts.
pub const LIVE_ROUNDS: u32 = 3;

/// What all rounds of `pagewire reproduce --live` may take, as far as the rounds before tell.
pub const LIVE_TOTAL: Duration = Duration::from_secs(170);
