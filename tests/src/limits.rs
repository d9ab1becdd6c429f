//! Every bound of the end-to-end tests.

use std::time::Duration;

/// What one pair of programs may take before it counts as hanging; the machine may be slow and busy. perftest's latency
/// tests measure the processor's clock anew for each size: with `-a` that alone takes 100 s on a very busy machine.
pub const RUN: Duration = Duration::from_secs(200);

/// What the survivor of a killed peer may take to see it: the largest time-out that perftest sets by default (14, so
/// 67 ms, with 7 retries, and the retry of a receiver that is not ready) with ample room.
pub const SURVIVOR: Duration = Duration::from_secs(30);

/// What a short run of the death harness may take.
pub const DEATH: Duration = Duration::from_secs(400);

/// Rounds of random deaths in a short run.
pub const KILLS: u64 = 40;

/// Instructions of an operation after which it counts as one that does not end.
pub const INSTRUCTIONS: u64 = 1_000_000;

/// Instructions from one death to the next in a short run on the local path.
pub const STRIDE: u64 = 997;
/// Instructions from one death to the next on the local path, where the victim is stopped: revocation may take two seconds each time.
pub const STRIDE_STOPPED: u64 = 1499;
/// Instructions from one death to the next in a short run on the network, where a peer's silence lasts half a second before it
/// counts. Stepping through a long message lasts longer than that: these are left to the command.
pub const STRIDE_NETWORK: u64 = 9973;

/// The link's MTU: packets of 4,096 bytes fit in one frame.
pub const LINK_MTU: u32 = 9000;

/// The largest message of the pingpong tests.
pub const LARGEST_PINGPONG: u64 = 8 << 20;

/// What a run of memory in motion may take; the program gives itself 300 s (`LIMIT_SECONDS` of `motion.h` and more).
pub const MOTION: Duration = Duration::from_secs(360);

/// What a run with absent pages may take; a program that hangs sees it itself after 100 s.
pub const FAULTS: Duration = Duration::from_secs(400);

/// What a run with much more memory than may be resident may take: disks are slow.
pub const PRESSURE: Duration = Duration::from_secs(3600);

/// What compiling a test's program may take.
pub const COMPILE: Duration = Duration::from_secs(300);
