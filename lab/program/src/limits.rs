//! Every bound of measurements.

use std::time::Duration;

/// How long one run of a benchmark may take.
pub const BENCH_RUN: Duration = Duration::from_secs(30);

/// Accesses of a process of a benchmark, or keys that it sorts, at most: all are verified.
pub const BENCH_ACCESSES: u64 = 1 << 24;
/// For each operation of a benchmark by several processes, besides: on a busy machine 10^8 of them take long.
pub const JOB_OPERATION: Duration = Duration::from_micros(20);

/// How often each benchmark and its peer are run, in turn; the median counts.
pub const BENCH_ROUNDS: u32 = 3;

/// How often each run of `pagewire reproduce --live` is made, in turn; the median counts. The least and the most of seven runs hold the median of
/// all that there could be with 98 %.
pub const LIVE_ROUNDS: u32 = 7;

/// For how long the processors are watched before each round of `pagewire reproduce --live`, while nothing of it runs.
pub const LIVE_WATCH: Duration = Duration::from_millis(300);

/// The percentage of the processors that others may use before a machine counts as busy.
pub const BUSY_PERCENT: f64 = 10.0;

/// How often `pagewire reproduce --applications` makes each run. Of twenty values the sixth and the fifteenth hold the median of all that there could
/// be with 95 %.
pub const APPLICATION_PAIRS: u32 = 20;

/// The longest budget of `pagewire reproduce --applications`: a week, in minutes.
pub const MOST_MINUTES: f64 = 10_080.0;

/// How long one run of an application may take.
pub const APPLICATION_RUN: Duration = Duration::from_secs(120);

/// The MTU between the two hosts of applications: that of networks with jumbo frames.
pub const HOSTS_MTU: u32 = 9000;

/// How long one host of an application may go on after the other has ended.
pub const OTHER_HOST: Duration = Duration::from_secs(5);

/// How long compiling an application or a library for it may take.
pub const APPLICATION_BUILD: Duration = Duration::from_secs(600);
