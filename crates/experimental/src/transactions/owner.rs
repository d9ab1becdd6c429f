//! What an owner of cells does: a state machine without memory, network and clock.
//!
//! Accesses hold their cells until the attempt ends, as locks in two phases do. A conflict is found when the second access is handled:
//!
//! 1. Who has voted for its commit wins.
//! 2. Else the older attempt wins (`Priority`), and the other one is invalidated. Nobody waits, so there is no deadlock.
//!
//! A get reads memory before the owner sees it. So the log has what it returned, and a get that returned anything but the cell of today
//! invalidates its attempt.
//!
//! Commit has two phases. The home, one of the owners, decides; what it does not remember was aborted.

use super::words::{Attempt, Notice, OwnerId, OwnerMessage, Priority, Record, Request, Session};
use std::collections::{BTreeMap, BTreeSet};

/// What the transport is to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect<V> {
    /// Keep it in a file before anything that follows.
    Journal(Record<V>),
    /// Write the cell to memory.
    Install {
        cell: u32,
        version: u64,
        value: V,
        by: Attempt,
    },
    Notify(Attempt, Notice),
    Tell(OwnerId, Attempt, OwnerMessage),
}

#[derive(Debug, Clone)]
struct Cell<V> {
    version: u64,
    value: V,
    readers: BTreeSet<Attempt>,
    writer: Option<Attempt>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// It has voted for the commit.
    Prepared(OwnerId),
    Invalid,
}

#[derive(Debug)]
struct Held<V> {
    priority: Priority,
    phase: Phase,
    reads: BTreeSet<u32>,
    writes: BTreeMap<u32, V>,
}

/// An owner of cells.
#[derive(Debug)]
pub struct Owner<V> {
    id: OwnerId,
    cells: Vec<Cell<V>>,
    held: BTreeMap<Attempt, Held<V>>,
    /// As the home: what others may ask for. An abort is remembered until its client begins another attempt.
    decisions: BTreeMap<Attempt, bool>,
    /// Numbers of the attempts that sessions make now.
    current: BTreeMap<Session, u64>,
    effects: Vec<Effect<V>>,
    #[cfg(test)]
    pub fault: Fault,
}

/// Mistakes that the checker must find.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    None,
    /// Reads hold nothing.
    ReadsAreNotHeld,
    /// A get that returned an old value counts.
    StaleReadsCount,
    /// Nobody looks whether the attempt was invalidated.
    VotesForAll,
    /// A vote is not written to the journal.
    ForgetsVotes,
}

impl<V: Clone + PartialEq> Owner<V> {
    pub fn new(id: OwnerId, cells: usize, value: V) -> Self {
        let cell = Cell { version: 0, value, readers: BTreeSet::new(), writer: None };
        Owner {
            id,
            cells: vec![cell; cells],
            held: BTreeMap::new(),
            decisions: BTreeMap::new(),
            current: BTreeMap::new(),
            effects: Vec::new(),
            #[cfg(test)]
            fault: Fault::None,
        }
    }

    /// An owner as its journal has it. Attempts that it had voted for, and whose home it is, are aborted: their clients' connections are gone.
    pub fn recover(
        id: OwnerId,
        cells: usize,
        value: V,
        journal: impl IntoIterator<Item = Record<V>>,
    ) -> Self {
        let mut owner = Owner::new(id, cells, value);
        for record in journal {
            owner.replay(record);
        }
        owner.effects.clear();
        let undecided: Vec<Attempt> = owner
            .held
            .iter()
            .filter(|(_, held)| held.phase == Phase::Prepared(id))
            .map(|(attempt, _)| *attempt)
            .collect();
        undecided.into_iter().for_each(|attempt| owner.end(attempt, false));
        owner
    }

    fn replay(&mut self, record: Record<V>) {
        match record {
            Record::Prepared { attempt, home, writes } => {
                let priority = Priority { begun: 0, session: attempt.session };
                for (cell, _) in &writes {
                    if let Some(cell) = self.cells.get_mut(*cell as usize) {
                        cell.writer = Some(attempt);
                    }
                }
                let writes =
                    writes.into_iter().filter(|(cell, _)| (*cell as usize) < self.cells.len()).collect();
                let held = Held { priority, phase: Phase::Prepared(home), reads: BTreeSet::new(), writes };
                self.held.insert(attempt, held);
            }
            Record::Ended { attempt, commits, is_home } => {
                self.release(attempt, commits);
                // What is not remembered was aborted.
                if is_home && commits {
                    self.decisions.insert(attempt, commits);
                }
            }
            Record::Forgotten { attempt } => {
                self.decisions.remove(&attempt);
            }
            Record::Cell { cell, version, value } => {
                if let Some(cell) = self.cells.get_mut(cell as usize) {
                    (cell.version, cell.value) = (version, value);
                }
            }
        }
    }

    /// A journal that says the same, and no more.
    pub fn snapshot(&self) -> Vec<Record<V>> {
        let cells = self.cells.iter().enumerate().filter(|(_, cell)| cell.version > 0);
        let cells = cells.map(|(index, cell)| Record::Cell {
            cell: index as u32,
            version: cell.version,
            value: cell.value.clone(),
        });
        let committed = self.decisions.iter().filter(|(_, commits)| **commits);
        let ended =
            committed.map(|(attempt, _)| Record::Ended { attempt: *attempt, commits: true, is_home: true });
        let prepared = self.held.iter().filter_map(|(attempt, held)| match held.phase {
            Phase::Prepared(home) if !held.writes.is_empty() => Some(Record::Prepared {
                attempt: *attempt,
                home,
                writes: held.writes.clone().into_iter().collect(),
            }),
            _ => None,
        });
        cells.chain(ended).chain(prepared).collect()
    }

    /// What is to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect<V>> {
        std::mem::take(&mut self.effects)
    }

    pub fn cell(&self, cell: u32) -> Option<(u64, &V)> {
        self.cells.get(cell as usize).map(|cell| (cell.version, &cell.value))
    }

    /// The attempts that are open or wait for a decision here.
    pub fn attempts(&self) -> impl Iterator<Item = Attempt> + '_ {
        self.held.keys().copied()
    }

    /// The attempt that a session makes now.
    pub fn current(&self, session: Session) -> Option<Attempt> {
        self.current.get(&session).map(|number| Attempt { session, number: *number })
    }

    fn notify(&mut self, attempt: Attempt, notice: Notice) {
        self.effects.push(Effect::Notify(attempt, notice));
    }

    /// A get was logged, with what it returned.
    pub fn on_get(&mut self, session: Session, cell: u32, version: u64, value: &V) {
        let Some(attempt) = self.open(session) else { return };
        let Some(now) = self.cells.get(cell as usize) else { return };
        let is_current = (now.version, &now.value) == (version, value);
        #[cfg(test)]
        let is_current = is_current || self.fault == Fault::StaleReadsCount;
        if !is_current {
            return self.invalidate(attempt);
        }
        #[cfg(test)]
        if self.fault == Fault::ReadsAreNotHeld {
            return;
        }
        let rival = now.writer.filter(|writer| *writer != attempt);
        if self.wins(attempt, rival.as_slice()) {
            self.cells[cell as usize].readers.insert(attempt);
            if let Some(held) = self.held.get_mut(&attempt) {
                held.reads.insert(cell);
            }
        }
    }

    /// A put was redirected. Its value is held.
    pub fn on_put(&mut self, session: Session, cell: u32, value: V) {
        let Some(attempt) = self.open(session) else { return };
        let Some(now) = self.cells.get(cell as usize) else { return };
        let rivals: Vec<Attempt> =
            now.readers.iter().chain(&now.writer).filter(|rival| **rival != attempt).copied().collect();
        if self.wins(attempt, &rivals) {
            self.cells[cell as usize].writer = Some(attempt);
            if let Some(held) = self.held.get_mut(&attempt) {
                held.writes.insert(cell, value);
            }
        }
    }

    /// An access of a session was lost, or is none of a whole cell: what its attempt holds is not all that it has accessed.
    pub fn on_lost_access(&mut self, session: Session) {
        if let Some(attempt) = self.open(session) {
            self.invalidate(attempt);
        }
    }

    /// The attempt of a session, if it may go on.
    fn open(&self, session: Session) -> Option<Attempt> {
        let attempt = self.current(session)?;
        self.held.get(&attempt).is_some_and(|held| held.phase == Phase::Open).then_some(attempt)
    }

    /// Decides a conflict: all the rivals are invalidated, or the attempt is.
    fn wins(&mut self, attempt: Attempt, rivals: &[Attempt]) -> bool {
        let priority = |of: &Attempt| self.held.get(of).map(|held| (held.priority, held.phase));
        let own = priority(&attempt);
        let is_beaten = rivals.iter().filter_map(priority).any(|(rival, phase)| {
            matches!(phase, Phase::Prepared(_)) || own.is_none_or(|(own, _)| rival < own)
        });
        if is_beaten {
            self.invalidate(attempt);
        } else {
            rivals.iter().for_each(|rival| self.invalidate(*rival));
        }
        !is_beaten
    }

    /// Gives up what an attempt holds, and tells its client.
    fn invalidate(&mut self, attempt: Attempt) {
        self.unlock(attempt);
        if let Some(held) = self.held.get_mut(&attempt) {
            held.phase = Phase::Invalid;
            held.reads.clear();
            #[cfg(test)]
            if self.fault == Fault::VotesForAll {
                return;
            }
            held.writes.clear();
        }
        self.notify(attempt, Notice::Invalidated);
    }

    fn unlock(&mut self, attempt: Attempt) {
        let Some(held) = self.held.get(&attempt) else { return };
        for cell in held.reads.iter().chain(held.writes.keys()) {
            let cell = &mut self.cells[*cell as usize];
            cell.readers.remove(&attempt);
            cell.writer = cell.writer.filter(|writer| *writer != attempt);
        }
    }

    /// Installs what an attempt has written, or not, and gives up what it holds.
    fn release(&mut self, attempt: Attempt, commits: bool) {
        self.unlock(attempt);
        let Some(held) = self.held.remove(&attempt) else { return };
        if commits {
            for (cell, value) in held.writes {
                let now = &mut self.cells[cell as usize];
                (now.version, now.value) = (now.version + 1, value.clone());
                self.effects.push(Effect::Install { cell, version: now.version, value, by: attempt });
            }
        }
    }

    /// A client says something.
    pub fn on_request(&mut self, attempt: Attempt, request: Request) {
        match request {
            Request::Begin { priority } => self.begin(attempt, priority),
            Request::Prepare { home } => self.prepare(attempt, home),
            Request::Commit => self.commit(attempt),
            Request::Apply => {
                self.end(attempt, true);
                self.notify(attempt, Notice::Applied);
            }
            Request::Abort => self.end(attempt, false),
            Request::Forget => {
                if self.decisions.remove(&attempt).is_some() {
                    self.effects.push(Effect::Journal(Record::Forgotten { attempt }));
                }
            }
        }
    }

    fn begin(&mut self, attempt: Attempt, priority: Priority) {
        if let Some(before) = self.current(attempt.session) {
            // A client that begins anew has given up what it had not voted on.
            if self.held.get(&before).is_some_and(|held| !matches!(held.phase, Phase::Prepared(_))) {
                self.release(before, false);
            }
            if before.number >= attempt.number {
                return;
            }
        }
        // It will not ask for the commit of an earlier one any more.
        self.decisions.retain(|known, commits| {
            known.session != attempt.session || *commits || known.number >= attempt.number
        });
        self.current.insert(attempt.session, attempt.number);
        let held = Held { priority, phase: Phase::Open, reads: BTreeSet::new(), writes: BTreeMap::new() };
        self.held.insert(attempt, held);
    }

    fn prepare(&mut self, attempt: Attempt, home: OwnerId) {
        let refused = self.decisions.get(&attempt) == Some(&false);
        #[cfg(test)]
        let fault = self.fault;
        let held = self.held.get_mut(&attempt).filter(|held| {
            #[cfg(test)]
            if fault == Fault::VotesForAll {
                return true;
            }
            held.phase == Phase::Open
        });
        let Some(held) = held.filter(|_| !refused) else {
            self.release(attempt, false);
            return self.notify(attempt, Notice::Vote { is_for: false });
        };
        held.phase = Phase::Prepared(home);
        let writes: Vec<_> = held.writes.clone().into_iter().collect();
        // Nothing is to be remembered of reads: the attempt holds all that it will hold, so what it has read may change from now on.
        let is_kept = !writes.is_empty();
        #[cfg(test)]
        let is_kept = is_kept && fault != Fault::ForgetsVotes;
        if is_kept {
            self.effects.push(Effect::Journal(Record::Prepared { attempt, home, writes }));
        }
        self.notify(attempt, Notice::Vote { is_for: true });
    }

    /// As the home.
    fn commit(&mut self, attempt: Attempt) {
        let is_prepared = |held: &Held<V>| held.phase == Phase::Prepared(self.id);
        let commits = match self.decisions.get(&attempt) {
            Some(commits) => *commits,
            None => self.held.get(&attempt).is_some_and(is_prepared),
        };
        self.end(attempt, commits);
        self.notify(attempt, Notice::Decided { commits });
    }

    /// Ends an attempt as it was decided.
    fn end(&mut self, attempt: Attempt, commits: bool) {
        let Some(held) = self.held.get(&attempt) else { return };
        let Phase::Prepared(home) = held.phase else {
            // It has not voted, so nobody has decided to commit it.
            return self.release(attempt, false);
        };
        let is_home = home == self.id;
        if is_home || !held.writes.is_empty() {
            self.effects.push(Effect::Journal(Record::Ended { attempt, commits, is_home }));
        }
        if is_home {
            self.decisions.insert(attempt, commits);
        }
        self.release(attempt, commits);
    }

    /// The connection of a client is gone, behind all that it had sent.
    pub fn on_session_lost(&mut self, session: Session) {
        self.current.remove(&session);
        let all: Vec<Attempt> =
            self.held.keys().filter(|attempt| attempt.session == session).copied().collect();
        for attempt in all {
            match self.held.get(&attempt).map(|held| held.phase) {
                Some(Phase::Prepared(home)) if home != self.id => {}
                _ => self.end(attempt, false),
            }
        }
    }

    /// An attempt holds cells for too long: its client may be stopped. It is given up, unless another store decides.
    pub fn expire(&mut self, attempt: Attempt) {
        match self.held.get(&attempt).map(|held| held.phase) {
            Some(Phase::Open) => self.invalidate(attempt),
            Some(Phase::Prepared(home)) if home == self.id => self.end(attempt, false),
            _ => {}
        }
    }

    /// Asks the homes of attempts that wait for a decision.
    pub fn inquire(&mut self) {
        for (attempt, held) in &self.held {
            match held.phase {
                Phase::Prepared(home) if home != self.id => {
                    self.effects.push(Effect::Tell(home, *attempt, OwnerMessage::Inquire));
                }
                _ => {}
            }
        }
    }

    /// Another owner says something.
    pub fn on_owner(&mut self, from: OwnerId, attempt: Attempt, message: OwnerMessage) {
        let commits = match message {
            OwnerMessage::Decision { commits } => return self.end(attempt, commits),
            OwnerMessage::Inquire => match (self.decisions.get(&attempt), self.held.get(&attempt)) {
                (Some(commits), _) => *commits,
                // Its client is there, and will decide.
                (None, Some(Held { phase: Phase::Prepared(_), .. })) => return,
                // It must not be committed later.
                (None, _) => {
                    self.release(attempt, false);
                    self.decisions.insert(attempt, false);
                    false
                }
            },
        };
        self.effects.push(Effect::Tell(from, attempt, OwnerMessage::Decision { commits }));
    }
}
