//! What happened lately in a world, for whoever looks for the cause of a violation.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotePlace {
    /// A connection of the workload.
    Connection(usize),
    /// A queue pair number that a packet is for.
    QueuePair(u32),
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimNote {
    /// Nanoseconds.
    pub at: u64,
    pub place: NotePlace,
    pub what: String,
}

/// The latest notes, up to a number that is asked for.
#[derive(Clone)]
pub struct Notes(Arc<Mutex<VecDeque<SimNote>>>, usize);

impl Notes {
    /// None as yet; of all that come the last `most` stay.
    pub fn new(most: usize) -> Self {
        Notes(Arc::default(), most)
    }

    /// Adds one.
    pub fn add(&self, at: u64, place: NotePlace, what: String) {
        let mut notes = self.0.lock();
        if notes.len() >= self.1 {
            notes.pop_front();
        }
        notes.push_back(SimNote { at, place, what });
    }

    /// The last `count` about any of these places; without any, about all.
    pub fn last(&self, places: &[NotePlace], count: usize) -> Vec<SimNote> {
        let notes = self.0.lock();
        let mut last: Vec<SimNote> = notes
            .iter()
            .rev()
            .filter(|note| places.is_empty() || places.contains(&note.place))
            .take(count)
            .cloned()
            .collect();
        last.reverse();
        last
    }
}
