//! How the processes of a job find each other.
//!
//! A [`Job`] knows the rank of this process and the size of the job. It moves small data between all processes: keys and
//! addresses, so that they can put and get. It is no way for bulk data.
//!
//! [`Job::from_env`] takes the first of these that is set:
//!
//! | variables | what joins the processes |
//! |---|---|
//! | `PMIX_NAMESPACE`, `PMIX_RANK` | the launcher's PMIx server: `mpirun` of Open MPI, `srun --mpi=pmix` of Slurm |
//! | `PAGEWIRE_RENDEZVOUS=host:port`, `PAGEWIRE_RANK`, `PAGEWIRE_SIZE` | rank 0, which listens there (TCP) |
//! | `PAGEWIRE_JOB_FILE=directory`, `PAGEWIRE_SIZE`, optionally `PAGEWIRE_RANK` | files in a directory that all processes share |
//! | none of them | nothing: a job of one process |
//!
//! | variable | meaning |
//! |---|---|
//! | `PAGEWIRE_JOB` | name and secret of the job, the same in all its processes. A rendezvous outside the loopback needs it. |
//! | `PAGEWIRE_JOB_TIMEOUT` | seconds that an operation waits for other processes (300) |
//!
//! All processes call the same operations in the same order. An operation waits for all processes, at most for the timeout.
//! After a failure, the processes no longer agree on what comes next. So every later operation returns [`JobError::Ended`]. A time of the
//! caller's own that is over is no failure: see [`Job::barrier_for`].
//!
//! A process gives at most 16 MiB to one operation, and all processes together 256 MiB. A PMIx server keeps what it gets
//! until the job ends. So a process gives it at most 64 MiB in a job. Beyond a bound, operations return
//! [`JobError::TooLarge`]. A program that calls MPI, too, must use the same libpmix.so.2 for both.
//! A process joins a PMIx job once in its life.
//!
//! A reader starts at [`Job::from_env`], then at the trait `Exchange`, which each form implements with one function.

mod directory;
mod error;
pub(crate) mod limits;
mod link;
mod message;
mod pmix;
#[allow(unsafe_code)]
mod pmix_ffi;
mod rendezvous;
mod settings;
mod timed;

use pagewire_memory::fork::Owned;
use std::fmt;
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub use error::{JobError, Operation, OperationKind, Ranks, Refusal, Result};
use limits::{MAX_CONTRIBUTION, MAX_GATHERED};
use settings::{JobSettings, JobStart, Lookup};
use timed::Unfinished;

/// The processes that were started together, as one of them sees it.
///
/// Threads may share it. Where several call operations, they must agree on an order that all processes keep.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagewire::bootstrap::Job;
/// # let job = Job::alone();
/// assert_eq!(job.all_gather(b"mine")?, [b"mine"]);
/// job.barrier()?;
/// # Ok(())
/// # }
/// ```
pub struct Job {
    rank: usize,
    size: usize,
    started_by: String,
    timeout: Duration,
    /// A forked child shares sockets, locks and the process number at the launcher with its parent: it acts for it by none of them.
    state: Owned<Mutex<JobState>>,
}

struct JobState {
    /// `None`: a thread has it for an operation that was not waited for to its end.
    exchange: Option<Box<dyn Exchange>>,
    /// Operations that have begun.
    operations: u64,
    /// The one that a thread makes.
    unfinished: Option<Unfinished>,
    /// The first failure, which ended the job.
    failure: Option<JobError>,
}

/// What a form of bootstrap does. All operations are exchanges of bytes between all processes.
pub(crate) trait Exchange: Send {
    /// Gives `bytes`, and returns the bytes of every rank in order.
    ///
    /// In a broadcast and a barrier, only the root's bytes must be right in the result. The result always has one entry a rank.
    fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>>;
}

/// A form of bootstrap that has joined its job.
pub(crate) struct Joined {
    pub rank: usize,
    pub size: usize,
    pub started_by: String,
    pub exchange: Box<dyn Exchange>,
}

/// How long an operation waits for other processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    timeout: Duration,
    deadline: Instant,
}

impl Wait {
    fn new(timeout: Duration) -> Self {
        Self { timeout, deadline: Instant::now() + timeout }
    }

    pub(crate) fn longer(self, more: Duration) -> Self {
        Self { timeout: self.timeout, deadline: self.deadline + more }
    }

    pub(crate) fn left(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    pub(crate) fn is_over(self) -> bool {
        self.left().is_zero()
    }

    pub(crate) fn absent(self, operation: Operation, ranks: Ranks, place: &str) -> JobError {
        JobError::Absent { operation, ranks, place: place.to_string(), seconds: self.timeout.as_secs() }
    }
}

impl Job {
    /// Joins the job that the environment describes, and waits for its other processes.
    ///
    /// # Errors
    /// [`JobError`]: a variable that is missing or wrong, a process that does not come, or what the chosen form reports.
    /// Another form is never taken instead.
    pub fn from_env() -> Result<Self> {
        Self::from_variables(&|name| std::env::var_os(name))
    }

    /// Joins the job that the given variables describe, like [`Job::from_env`]. Programs have no need of it; tests do.
    ///
    /// # Errors
    /// Those of [`Job::from_env`].
    #[doc(hidden)]
    pub fn from_variables(lookup: Lookup<'_>) -> Result<Self> {
        let JobSettings { start, job, timeout } = JobSettings::read(lookup)?;
        let wait = Wait::new(timeout);
        let joined = match start {
            JobStart::Pmix { rank } => pmix::join(rank, wait)?,
            JobStart::Rendezvous { address, rank, size } => {
                rendezvous::join(&address, &job, rank, size, wait)?
            }
            JobStart::Directory { path, rank, size } => directory::join(&path, &job, rank, size, wait)?,
            JobStart::Alone { reason } => alone(&reason),
        };
        Ok(Self::of(joined, timeout))
    }

    /// A job of this process alone, whatever the environment says.
    pub fn alone() -> Self {
        // Nobody is waited for.
        Self::of(alone("the program asked for it"), Duration::ZERO)
    }

    pub(crate) fn of(joined: Joined, timeout: Duration) -> Self {
        let Joined { rank, size, started_by, exchange } = joined;
        let state = JobState { exchange: Some(exchange), operations: 0, unfinished: None, failure: None };
        let state = Owned::new(Mutex::new(state));
        Self { rank, size, started_by, timeout, state }
    }

    /// Number of this process, from 0 on.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What joined the processes, and where, for people to read.
    pub fn started_by(&self) -> &str {
        &self.started_by
    }

    /// Gives bytes and returns the bytes of all processes, by rank. Each process may give another number of bytes, also none.
    ///
    /// # Errors
    /// [`JobError::TooLarge`], [`JobError::Absent`], [`JobError::Lost`], and others by the form of the job.
    pub fn all_gather(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.run(OperationKind::AllGather, bytes, None)
    }

    /// [`Job::all_gather`] for so long at most. [`Job::barrier_for`] says what a late one leaves; it is continued with the same bytes.
    ///
    /// # Errors
    /// [`JobError::TimedOut`], [`JobError::Unfinished`], and those of [`Job::all_gather`].
    pub fn all_gather_for(&self, bytes: &[u8], time: Duration) -> Result<Vec<Vec<u8>>> {
        self.run(OperationKind::AllGather, bytes, Some(time))
    }

    /// Returns the bytes that `root` gives. What other ranks give is ignored.
    ///
    /// # Errors
    /// [`JobError::NoSuchRank`] if `root` is not below the size, and those of [`Job::all_gather`].
    pub fn broadcast(&self, root: usize, bytes: &[u8]) -> Result<Vec<u8>> {
        if root >= self.size {
            return Err(JobError::NoSuchRank { root, size: self.size });
        }
        let bytes = if root == self.rank { bytes } else { &[] };
        let mut all = self.run(OperationKind::Broadcast { root }, bytes, None)?;
        Ok(all.swap_remove(root))
    }

    /// Waits until all processes have called it.
    ///
    /// # Errors
    /// Those of [`Job::all_gather`].
    pub fn barrier(&self) -> Result<()> {
        self.run(OperationKind::Barrier, &[], None).map(drop)
    }

    /// [`Job::barrier`] for so long at most. A time of zero begins it, and looks.
    ///
    /// After [`JobError::TimedOut`] the barrier stays begun: for the other processes this one has come. The next `barrier` or `barrier_for` of this
    /// process is no new one, but waits on for this one. Until it has ended, each other operation gives [`JobError::Unfinished`] and does nothing.
    /// The timeout of the job counts from the beginning of the barrier, and ends it and the job.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use pagewire::bootstrap::{Job, JobError};
    /// # let job = Job::alone();
    /// while let Err(error) = job.barrier_for(std::time::Duration::from_secs(1)) {
    ///     let JobError::TimedOut { .. } = error else { return Err(error.into()) };
    ///     println!("some process has not come yet");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`JobError::TimedOut`], [`JobError::Unfinished`], and those of [`Job::all_gather`].
    pub fn barrier_for(&self, time: Duration) -> Result<()> {
        self.run(OperationKind::Barrier, &[], Some(time)).map(drop)
    }

    /// Time that an operation waits for the other processes.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    fn run(&self, kind: OperationKind, bytes: &[u8], time: Option<Duration>) -> Result<Vec<Vec<u8>>> {
        // A panic inside an exchange leaves it half done, so the poison is a failure, too.
        let mut state = self.state.get().ok_or(JobError::Forked)?.lock().expect("no exchange panics");
        if let Some(failure) = &state.failure {
            return Err(JobError::Ended(Box::new(failure.clone())));
        }
        if state.unfinished.is_none() {
            let operation = Operation { kind, number: state.operations + 1 };
            if bytes.len() > MAX_CONTRIBUTION {
                // Nothing was given yet: the job goes on, and this process may call again with less.
                return Err(too_large(operation, "this process", bytes.len(), MAX_CONTRIBUTION));
            }
            state.operations += 1;
            let mut exchange = state.exchange.take().expect("no operation is under way");
            let wait = Wait::new(self.timeout);
            if time.is_none() || self.size == 1 {
                let result = exchange.exchange(operation, bytes, wait);
                state.exchange = Some(exchange);
                return state.ended(result);
            }
            match Unfinished::begin(exchange, operation, bytes, wait) {
                Ok(begun) => state.unfinished = Some(begun),
                Err(failure) => return state.ended(Err(failure)),
            }
        }
        state.wait(kind, bytes, time.unwrap_or(Duration::MAX))
    }
}

impl JobState {
    /// Waits for the operation that a thread makes.
    fn wait(&mut self, kind: OperationKind, bytes: &[u8], time: Duration) -> Result<Vec<Vec<u8>>> {
        let unfinished = self.unfinished.as_ref().expect("an operation was begun");
        let operation = unfinished.operation;
        if operation.kind != kind || unfinished.bytes != bytes {
            return Err(JobError::Unfinished { operation });
        }
        match unfinished.end(time) {
            None => Err(JobError::TimedOut { operation, after: time }),
            Some(Ok((exchange, result))) => {
                (self.exchange, self.unfinished) = (Some(exchange), None);
                self.ended(result)
            }
            Some(Err(failure)) => self.ended(Err(failure)),
        }
    }

    /// Notes a failure, which ends the job.
    fn ended<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(failure) = &result {
            self.failure = Some(failure.clone());
        }
        result
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Job");
        shown.field("rank", &self.rank).field("size", &self.size).field("started_by", &self.started_by);
        shown.finish_non_exhaustive()
    }
}

pub(crate) fn too_large(operation: Operation, origin: &str, bytes: usize, limit: usize) -> JobError {
    JobError::TooLarge { operation, origin: origin.to_string(), bytes, limit }
}

/// Refuses what all processes give together, where it exceeds the bound.
pub(crate) fn check_sum(operation: Operation, lengths: impl Iterator<Item = usize>) -> Result<usize> {
    let sum = lengths.fold(0, usize::saturating_add);
    if sum > MAX_GATHERED {
        return Err(too_large(operation, "all processes", sum, MAX_GATHERED));
    }
    Ok(sum)
}

/// A job of one process.
struct Alone;

impl Exchange for Alone {
    fn exchange(&mut self, _: Operation, bytes: &[u8], _: Wait) -> Result<Vec<Vec<u8>>> {
        Ok(vec![bytes.to_vec()])
    }
}

fn alone(reason: &str) -> Joined {
    let started_by = format!("nothing: one process alone ({reason})");
    Joined { rank: 0, size: 1, started_by, exchange: Box::new(Alone) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alone() -> Job {
        Job::from_variables(&|_| None).expect("a job of one process")
    }

    #[test]
    fn a_process_alone_is_a_job() {
        let job = alone();
        assert_eq!((job.rank(), job.size()), (0, 1));
        assert_eq!(job.all_gather(b"ab").expect("gather"), [b"ab".to_vec()]);
        assert_eq!(job.broadcast(0, b"c").expect("broadcast"), b"c");
        job.barrier().expect("barrier");
        assert!(job.started_by().contains("PAGEWIRE_RENDEZVOUS"), "{job:?}");
        assert_eq!(job.broadcast(1, b""), Err(JobError::NoSuchRank { root: 1, size: 1 }));
    }

    #[test]
    fn too_many_bytes_are_refused_and_the_job_goes_on() {
        let job = alone();
        let error = job.all_gather(&vec![0; MAX_CONTRIBUTION + 1]).expect_err("too large");
        assert!(matches!(error, JobError::TooLarge { limit: MAX_CONTRIBUTION, .. }), "{error}");
        job.barrier().expect("barrier");
        job.all_gather(&vec![0; MAX_CONTRIBUTION]).expect("the limit itself");
    }

    /// Another process comes when it is told to.
    struct Slow(std::sync::mpsc::Receiver<()>);

    impl Exchange for Slow {
        fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
            match self.0.recv_timeout(wait.left()) {
                Ok(()) => Ok(vec![bytes.to_vec(), b"other".to_vec()]),
                Err(_) => Err(wait.absent(operation, Ranks::from_iter([1]), "nowhere")),
            }
        }
    }

    fn slow(timeout: Duration) -> (Job, std::sync::mpsc::Sender<()>) {
        let (come, comes) = std::sync::mpsc::channel();
        let exchange = Box::new(Slow(comes));
        (Job::of(Joined { rank: 0, size: 2, started_by: String::new(), exchange }, timeout), come)
    }

    #[test]
    fn late_barrier_stays_begun() {
        let (job, come) = slow(Duration::from_secs(60));
        let operation = Operation { kind: OperationKind::Barrier, number: 1 };
        for _ in 0..2 {
            let after = Duration::from_millis(2);
            assert_eq!(job.barrier_for(after), Err(JobError::TimedOut { operation, after }));
            assert_eq!(job.all_gather(b""), Err(JobError::Unfinished { operation }));
        }
        come.send(()).expect("the thread waits");
        job.barrier().expect("the same barrier");
        come.send(()).expect("the exchange is there");
        let gathered = job.all_gather_for(b"own", Duration::from_secs(60)).expect("the next operation");
        assert_eq!(gathered, [b"own".to_vec(), b"other".to_vec()]);
    }

    #[test]
    fn timeout_of_the_job_ends_a_late_barrier() {
        let (job, _come) = slow(Duration::from_millis(5));
        let late = job.barrier_for(Duration::ZERO);
        assert!(matches!(late, Err(JobError::TimedOut { .. })), "{late:?}");
        let failure = job.barrier_for(Duration::from_secs(60)).expect_err("nobody comes");
        assert!(matches!(failure, JobError::Absent { .. }), "{failure}");
        assert_eq!(job.barrier(), Err(JobError::Ended(Box::new(failure))));
    }

    #[test]
    fn a_failure_ends_the_job() {
        struct Failing;
        impl Exchange for Failing {
            fn exchange(&mut self, operation: Operation, _: &[u8], _: Wait) -> Result<Vec<Vec<u8>>> {
                Err(JobError::Mismatch { operation, rank: 1 })
            }
        }
        let job = alone();
        job.state.get().expect("own job").lock().expect("state").exchange = Some(Box::new(Failing));
        let first = job.barrier().expect_err("fails");
        assert_eq!(job.all_gather(b""), Err(JobError::Ended(Box::new(first))));
    }
}
