//! Deaths that a message may not tell of: of siblings whose heir is killed itself, and of processes of this host that nobody is the heir of.
//!
//! Where many processes are killed at once an heir may be among them. So a sibling that leaves the last words of another to an heir looks
//! once more, a little later, and the heir shows until then that they are said. Last, each process looks itself whether the processes of this host
//! are there with which it has connections.

use pagewire_fabric::{SaidMark, Sibling};
use std::collections::VecDeque;
use std::time::Duration;

/// Siblings, and marks, at most: each takes descriptors.
const BOUND: usize = 32;
/// After so long a sibling looks whether an heir has said the last words that it was left.
const HEIR_TIME: Duration = Duration::from_millis(500);
/// For so long the heir shows it.
const MARK_TIME: Duration = Duration::from_millis(1500);
/// Between two looks whether peers of this host are there.
const PEER_TIME: Duration = Duration::from_secs(1);

/// See the module. All queues are in the order of their times.
#[derive(Debug, Default)]
pub struct Deaths {
    left_to_heirs: VecDeque<(Duration, Sibling)>,
    marks: VecDeque<(Duration, SaidMark)>,
    next_look_at_peers: Option<Duration>,
}

impl Deaths {
    /// When something here is due.
    pub fn deadline(&self) -> Option<Duration> {
        let left = self.left_to_heirs.front().map(|(at, _)| *at);
        let mark = self.marks.front().map(|(at, _)| *at);
        [left, mark, self.next_look_at_peers].into_iter().flatten().min()
    }

    /// Another sibling says the last words of this one.
    pub fn leave_to_heir(&mut self, sibling: Sibling, now: Duration) {
        if self.left_to_heirs.len() == BOUND {
            self.left_to_heirs.pop_front();
        }
        self.left_to_heirs.push_back((now + HEIR_TIME, sibling));
    }

    /// The last words of a sibling are said.
    pub fn keep_mark(&mut self, mark: SaidMark, now: Duration) {
        if self.marks.len() == BOUND {
            self.marks.pop_front();
        }
        self.marks.push_back((now + MARK_TIME, mark));
    }

    /// A connection with a process of this host begins.
    pub fn watch_local_peers(&mut self, now: Duration) {
        self.next_look_at_peers.get_or_insert(now + PEER_TIME);
    }

    /// A sibling that was left to an heir, where it is time to look again.
    pub fn next_left(&mut self, now: Duration) -> Option<Sibling> {
        take_due(&mut self.left_to_heirs, now)
    }

    /// Ends marks that nobody looks for any more.
    pub fn end_marks(&mut self, now: Duration) {
        while take_due(&mut self.marks, now).is_some() {}
    }

    /// Whether it is time to look at the peers of this host. The next connection has that done again.
    pub fn begin_look_at_peers(&mut self, now: Duration) -> bool {
        self.next_look_at_peers.take_if(|at| *at <= now).is_some()
    }
}

/// Takes the first of a queue, if its time has come.
fn take_due<T>(queue: &mut VecDeque<(Duration, T)>, now: Duration) -> Option<T> {
    let is_due = queue.front().is_some_and(|(at, _)| *at <= now);
    if is_due { queue.pop_front().map(|(_, due)| due) } else { None }
}
