//! Errors of the bootstrap. Each says what failed, where, and how to mend it.

use std::fmt;
use std::time::Duration;

use super::limits::MAX_LISTED_RANKS;

/// What the processes of a job do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// They find each other.
    Join,
    /// Each gives bytes, and each gets the bytes of all.
    AllGather,
    /// One gives bytes, and each gets them.
    Broadcast {
        /// The rank that gives them.
        root: usize,
    },
    /// They wait for each other.
    Barrier,
}

/// One operation of a job: its kind, and its number from 1 on. All processes call the same operations in the same order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What the processes do.
    pub kind: OperationKind,
    /// Operations of this process up to this one; 0 for [`OperationKind::Join`].
    pub number: u64,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            OperationKind::Join => return write!(f, "join"),
            OperationKind::AllGather => write!(f, "all_gather")?,
            OperationKind::Broadcast { root } => write!(f, "broadcast from rank {root}")?,
            OperationKind::Barrier => write!(f, "barrier")?,
        }
        write!(f, " (operation {})", self.number)
    }
}

/// Some ranks of a job: the first ones by name, and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    listed: Vec<usize>,
    count: usize,
}

impl Ranks {
    pub(super) fn from_parts(listed: Vec<usize>, count: usize) -> Self {
        // No name, no count: a message of another process may say anything.
        let count = if listed.is_empty() { 0 } else { count.max(listed.len()) };
        Self { listed: listed.into_iter().take(MAX_LISTED_RANKS).collect(), count }
    }

    /// The lowest ranks, at most 16 of them.
    pub fn listed(&self) -> &[usize] {
        &self.listed
    }

    /// How many ranks there are. 0: it is not known which ranks.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl FromIterator<usize> for Ranks {
    fn from_iter<I: IntoIterator<Item = usize>>(ranks: I) -> Self {
        let mut all: Vec<usize> = ranks.into_iter().collect();
        all.sort_unstable();
        let count = all.len();
        Self::from_parts(all, count)
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.listed.iter().map(usize::to_string).collect();
        match (self.count, self.count - self.listed.len()) {
            (0, _) => write!(f, "some process (the launcher does not say which)"),
            (1, _) => write!(f, "rank {}", names[0]),
            (_, 0) => write!(f, "ranks {}", names.join(", ")),
            (_, more) => write!(f, "ranks {} and {more} more", names.join(", ")),
        }
    }
}

/// Why rank 0 does not let a process join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The proof was made with another `PAGEWIRE_JOB`.
    #[error(
        "it belongs to another job; give all processes of a job the same PAGEWIRE_JOB, and each job its own address"
    )]
    AnotherJob,
    /// The two processes do not agree on the size.
    #[error("it expects another number of processes; give all processes the same PAGEWIRE_SIZE")]
    AnotherSize,
    /// Another process has this rank.
    #[error("another process has this rank already; give each process its own PAGEWIRE_RANK")]
    RankTaken,
}

/// Why a process could not join its job, or an operation of the job failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// This process was forked from the one that has joined the job.
    #[error("this process was forked from the one that has joined the job, which stays the parent's")]
    Forked,
    /// A variable of the environment has a value that means nothing.
    #[error("{name} is {value:?}: {rule}")]
    BadVariable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: String,
    },
    /// A variable is not set although another one needs it.
    #[error("{name} is not set, but {needed_by} is: set {name} to {expected}, or unset {needed_by}")]
    MissingVariable {
        /// The variable that is not set.
        name: &'static str,
        /// The one that is.
        needed_by: &'static str,
        /// What it must be.
        expected: &'static str,
    },
    /// Processes did not take part in an operation in time.
    #[error(
        "{operation}: {ranks} did not answer at {place} within {seconds} s; see whether the process runs and calls the same \
         operation, or set PAGEWIRE_JOB_TIMEOUT to more seconds"
    )]
    Absent {
        /// The operation.
        operation: Operation,
        /// Who did not come.
        ranks: Ranks,
        /// Where this process waits.
        place: String,
        /// How long it waited.
        seconds: u64,
    },
    /// A process left the job, or its connection broke.
    #[error("{operation}: rank {rank} has left the job at {place} ({reason}); see its output for the cause")]
    Lost {
        /// The operation.
        operation: Operation,
        /// Who left.
        rank: usize,
        /// Where.
        place: String,
        /// How this process knows.
        reason: String,
    },
    /// Another process calls another operation.
    #[error(
        "{operation}: rank {rank} calls another operation; all processes must call the same ones in the same order"
    )]
    Mismatch {
        /// The operation of this process.
        operation: Operation,
        /// The process that calls another one.
        rank: usize,
    },
    /// Too many bytes.
    #[error(
        "{operation}: {bytes} bytes from {origin} exceed the limit of {limit}; send large data with put, not with the job"
    )]
    TooLarge {
        /// The operation.
        operation: Operation,
        /// Who gives the bytes.
        origin: String,
        /// How many.
        bytes: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The process at the rendezvous address did not let this one join.
    #[error("the process at {place} refuses this one: {reason}")]
    Refused {
        /// The address.
        place: String,
        /// Why.
        reason: Refusal,
    },
    /// What is at the given place does not belong to this job.
    #[error("{place} does not belong to this job: {reason}")]
    WrongPlace {
        /// The address or path.
        place: String,
        /// What is wrong, and how to mend it.
        reason: String,
    },
    /// The system refused a call.
    #[error("cannot {action} {place}: {error}; {mend}")]
    System {
        /// What was to be done.
        action: &'static str,
        /// The address or path.
        place: String,
        /// What the system says.
        error: String,
        /// What helps.
        mend: &'static str,
    },
    /// The PMIx library is missing, or is of a version whose structures are not known.
    #[error("PMIX_NAMESPACE is set, so a launcher offers PMIx, but {problem}; {mend}")]
    PmixLibrary {
        /// What is wrong.
        problem: String,
        /// What helps.
        mend: &'static str,
    },
    /// A call of PMIx failed.
    #[error(
        "{operation}: {call} fails with {status} ({name}); see the launcher's output, it may have ended the job"
    )]
    Pmix {
        /// The operation.
        operation: Operation,
        /// The call.
        call: &'static str,
        /// Its status.
        status: i32,
        /// The status by name.
        name: String,
    },
    /// This process has joined its PMIx job already. A process does so once in its life, also if it has left since.
    #[error("this process has joined its PMIx job already, and can do so once; keep the node, and share it")]
    AlreadyJoined,
    /// A rank that the job, or the part of it, does not have.
    #[error("there is no rank {root}: ranks are 0 to {}", size - 1)]
    NoSuchRank {
        /// The root.
        root: usize,
        /// The size of the job.
        size: usize,
    },
    /// The caller's own time is over. The operation goes on: the next call of it waits on ([`Job::barrier_for`](super::Job::barrier_for)).
    #[error("{operation}: it has not ended within {after:?}, and goes on: call it again to wait on")]
    TimedOut {
        /// The operation.
        operation: Operation,
        /// The time.
        after: Duration,
    },
    /// An operation that its caller did not wait for to its end is still under way, and this is another one.
    #[error(
        "{operation} goes on since its time was over: call it again, with the same arguments, before any other operation"
    )]
    Unfinished {
        /// The one that is under way.
        operation: Operation,
    },
    /// An operation of this job failed before. The processes no longer agree on what comes next, so the job ended with it.
    #[error("the job ended with an earlier failure: {0}")]
    Ended(Box<JobError>),
}

/// Result of the bootstrap.
pub type Result<T> = std::result::Result<T, JobError>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_list_is_bounded() {
        assert_eq!(Ranks::from_iter([3]).to_string(), "rank 3");
        assert_eq!(Ranks::from_iter([3, 1]).to_string(), "ranks 1, 3");
        assert_eq!(Ranks::default().to_string(), "some process (the launcher does not say which)");
        let many = Ranks::from_iter(0..20);
        assert_eq!(many.count(), 20);
        assert_eq!(many.listed().len(), MAX_LISTED_RANKS);
        assert!(many.to_string().ends_with("15 and 4 more"), "{many}");
    }
}
