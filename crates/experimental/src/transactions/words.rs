//! What owners and clients of transactions say to each other.

/// A client, by a random number that it draws once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Session(pub u64);

/// An owner of cells, by its place in the list of stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub u32);

/// One attempt of a transaction. Numbers of a session grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    pub session: Session,
    pub number: u64,
}

/// Who wins a conflict: the lower one. An attempt that is made again keeps the priority of the first, so it wins in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority {
    pub begun: u64,
    pub session: Session,
}

/// From a client to an owner. Accesses are no messages: they are plain gets and puts, which the owner's log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Accesses that follow belong to this attempt.
    Begin {
        priority: Priority,
    },
    /// No more accesses follow. `home` decides.
    Prepare {
        home: OwnerId,
    },
    /// To the home: all have voted for it.
    Commit,
    /// To the others: the home has decided so.
    Apply,
    Abort,
    /// To the home: all have applied it.
    Forget,
}

/// From an owner to a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A conflict: whatever the attempt has read may be out of date, and it cannot commit.
    Invalidated,
    Vote {
        is_for: bool,
    },
    /// From the home.
    Decided {
        commits: bool,
    },
    Applied,
}

/// From an owner to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerMessage {
    /// To the home: what has been decided?
    Inquire,
    Decision {
        commits: bool,
    },
}

/// What an owner has to remember across its own death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<V> {
    /// It has voted for an attempt that writes here.
    Prepared { attempt: Attempt, home: OwnerId, writes: Vec<(u32, V)> },
    /// It has committed or given up an attempt. `is_home`: others may ask.
    Ended { attempt: Attempt, commits: bool, is_home: bool },
    /// Nobody will ask any more.
    Forgotten { attempt: Attempt },
    /// A cell as it stood when the journal was written anew.
    Cell { cell: u32, version: u64, value: V },
}
