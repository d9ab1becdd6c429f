//! What happened lately in a world, for whoever looks for the cause of a violation.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a note is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A connection of the workload.
    Connection(usize),
    /// A queue pair number that a packet is for.
    QueuePair(u32),
}

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// Nanoseconds.
    pub at: u64,
    pub place: Place,
    pub what: String,
}

/// The latest notes, up to a number that is asked for.
#[derive(Clone)]
pub struct Notes(Arc<Mutex<VecDeque<Note>>>, usize);

impl Notes {
    /// None as yet; of all that come the last `most` stay.
    pub fn new(most: usize) -> Self {
        Notes(Arc::default(), most)
    }

    /// Adds one.
    pub fn add(&self, at: u64, place: Place, what: String) {
        let mut notes = self.0.lock();
        if notes.len() >= self.1 {
            notes.pop_front();
        }
        notes.push_back(Note { at, place, what });
    }

    /// The last `count` about any of these places; without any, about all.
    pub fn last(&self, places: &[Place], count: usize) -> Vec<Note> {
        let notes = self.0.lock();
        let mut last: Vec<Note> = notes
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
