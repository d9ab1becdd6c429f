//! What a client does with one attempt of a transaction: a state machine without network and clock.

use super::words::{Notice, OwnerId, Priority, Request};

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Committed,
    /// Nothing of it was done.
    Aborted,
    /// The home was lost after it had been asked to commit.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Preparing,
    Deciding,
    /// Committed at the home; the others apply it.
    Applying,
    Ended(Outcome),
}

struct Participant {
    owner: OwnerId,
    /// It has voted, or applied: what the phase waits for.
    has_answered: bool,
    is_lost: bool,
}

/// An attempt as its client knows it. The first participant is the home.
pub struct Coordinator {
    priority: Priority,
    participants: Vec<Participant>,
    phase: Phase,
}

/// Requests to be sent, in this order.
pub type Requests = Vec<(OwnerId, Request)>;

impl Coordinator {
    pub fn new(priority: Priority) -> Self {
        Coordinator { priority, participants: Vec::new(), phase: Phase::Open }
    }

    /// How it ended; `None`: it has not.
    pub fn outcome(&self) -> Option<Outcome> {
        match self.phase {
            Phase::Ended(outcome) => Some(outcome),
            // What the home has decided holds, whatever becomes of the others.
            Phase::Applying if self.participants.iter().all(|one| one.has_answered || one.is_lost) => {
                Some(Outcome::Committed)
            }
            _ => None,
        }
    }

    /// The home has committed it.
    #[cfg(test)]
    pub fn is_committed(&self) -> bool {
        matches!(self.phase, Phase::Applying | Phase::Ended(Outcome::Committed))
    }

    /// The first access to an owner needs a request before it.
    pub fn access(&mut self, owner: OwnerId) -> Option<Request> {
        if self.phase != Phase::Open || self.participants.iter().any(|one| one.owner == owner) {
            return None;
        }
        self.participants.push(Participant { owner, has_answered: false, is_lost: false });
        Some(Request::Begin { priority: self.priority })
    }

    /// No more accesses follow, and what was done is to count.
    pub fn commit(&mut self) -> Requests {
        if self.phase != Phase::Open {
            return Vec::new();
        }
        let Some(home) = self.participants.first() else {
            self.phase = Phase::Ended(Outcome::Committed);
            return Vec::new();
        };
        self.phase = Phase::Preparing;
        let home = home.owner;
        self.participants.iter().map(|one| (one.owner, Request::Prepare { home })).collect()
    }

    /// Gives it up.
    pub fn abort(&mut self) -> Requests {
        match self.phase {
            Phase::Open | Phase::Preparing => {
                self.phase = Phase::Ended(Outcome::Aborted);
                self.participants.iter().map(|one| (one.owner, Request::Abort)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// An owner says something of this attempt.
    pub fn on_notice(&mut self, owner: OwnerId, notice: Notice) -> Requests {
        let Some(place) = self.participants.iter().position(|one| one.owner == owner) else {
            return Vec::new();
        };
        match (self.phase, notice) {
            (Phase::Open | Phase::Preparing, Notice::Invalidated | Notice::Vote { is_for: false }) => {
                self.abort()
            }
            (Phase::Preparing, Notice::Vote { is_for: true }) => {
                self.participants[place].has_answered = true;
                if !self.participants.iter().all(|one| one.has_answered) {
                    return Vec::new();
                }
                self.phase = Phase::Deciding;
                vec![(self.participants[0].owner, Request::Commit)]
            }
            (Phase::Deciding, Notice::Decided { commits }) if place == 0 => self.decided(commits),
            (Phase::Applying, Notice::Applied) => {
                self.participants[place].has_answered = true;
                let all = self.participants.iter().all(|one| one.has_answered);
                if all { vec![(self.participants[0].owner, Request::Forget)] } else { Vec::new() }
            }
            _ => Vec::new(),
        }
    }

    fn decided(&mut self, commits: bool) -> Requests {
        let others = self.participants[1..].iter().map(|one| one.owner);
        if !commits {
            let requests = others.map(|owner| (owner, Request::Abort)).collect();
            self.phase = Phase::Ended(Outcome::Aborted);
            return requests;
        }
        let mut requests: Requests = others.map(|owner| (owner, Request::Apply)).collect();
        if requests.is_empty() {
            requests.push((self.participants[0].owner, Request::Forget));
        }
        self.phase = Phase::Applying;
        self.participants.iter_mut().enumerate().for_each(|(place, one)| one.has_answered = place == 0);
        requests
    }

    /// The connection to an owner is gone.
    pub fn on_lost(&mut self, owner: OwnerId) -> Requests {
        let Some(place) = self.participants.iter().position(|one| one.owner == owner) else {
            return Vec::new();
        };
        self.participants[place].is_lost = true;
        match self.phase {
            Phase::Open | Phase::Preparing => self.abort(),
            Phase::Deciding if place == 0 => {
                // The others ask the home when it is back.
                self.phase = Phase::Ended(Outcome::Unknown);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }
}
