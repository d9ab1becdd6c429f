//! Bounds of the bootstrap.

use std::time::Duration;

/// Processes of one job.
pub const MAX_PROCESSES: usize = 65_536;
/// Bytes that one process gives to one operation (16 MiB).
pub const MAX_CONTRIBUTION: usize = 16 << 20;
/// Bytes that all processes give to one operation (256 MiB). Each process holds all of them.
pub const MAX_GATHERED: usize = 256 << 20;
/// Characters of `PAGEWIRE_JOB`.
pub const MAX_JOB_NAME: usize = 1024;
/// Ranks that an error names; it counts the others.
pub const MAX_LISTED_RANKS: usize = 16;

/// Time that an operation waits for the other processes, unless `PAGEWIRE_JOB_TIMEOUT` says otherwise.
pub const TIMEOUT: Duration = Duration::from_secs(300);
/// The longest time that `PAGEWIRE_JOB_TIMEOUT` may say (a week).
pub const MAX_TIMEOUT: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time that a member waits longer than rank 0, so that rank 0 can say which rank is absent.
pub const GRACE: Duration = Duration::from_secs(3);

/// Connections to rank 0 that have not proved yet that they belong to the job. The oldest makes place for a new one.
pub const MAX_PENDING: usize = 256;
/// Time that a connection has for its proof.
pub const PROOF_TIME: Duration = Duration::from_secs(5);
/// Time from one attempt to connect to the next.
pub const CONNECT_RETRY: Duration = Duration::from_millis(50);
/// Time that one attempt to connect may take.
pub const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Bytes read from a connection at a time. A peer that announces many bytes and sends few takes no more memory than this.
pub const READ_BYTES: usize = 64 << 10;

/// The shortest and the longest time from one look at the files of a job to the next.
pub const POLL_MIN: Duration = Duration::from_micros(200);
pub const POLL_MAX: Duration = Duration::from_millis(20);
/// Time from one test whether an awaited process still lives to the next.
pub const ALIVE_TEST_TIME: Duration = Duration::from_millis(500);

/// Bytes of one PMIx value. What is longer goes into several values.
pub const PMIX_VALUE: usize = 32 << 10;
/// Bytes that one process gives to the PMIx server in a job (64 MiB). The server keeps them until the job ends.
pub const MAX_PMIX_BYTES: usize = 64 << 20;
/// Operations up to this one let barriers leave a mark with the PMIx server, by which an error can name the absent rank.
pub const MARKED_BARRIERS: u64 = 100;
/// Seconds that PMIx may search for one rank's mark, once an operation has failed.
pub const PMIX_SEARCH_SECONDS: i32 = 1;
/// Time that the search for absent ranks may take in all.
pub const PMIX_SEARCH_TIME: Duration = Duration::from_secs(5);
/// Time that leaving a PMIx job may take.
pub const PMIX_LEAVE_TIME: Duration = Duration::from_secs(5);
