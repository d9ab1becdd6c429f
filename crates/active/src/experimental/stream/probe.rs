//! Whether a peer that says nothing is still there.

use pagewire::{Failure, Operation, RemoteRegion};
use std::time::{Duration, Instant};

/// A peer that has said nothing for so long is asked.
const AFTER: Duration = Duration::from_millis(200);

/// Asks a peer now and then, without a wait, so that callers with short patience learn of its death, too.
pub struct Probe {
    remote: RemoteRegion,
    /// Where a word can be got.
    at: u64,
    /// When it was heard of, or asked.
    heard: Instant,
    asked: Option<Operation<Vec<u64>>>,
    failure: Option<Failure>,
}

impl Probe {
    pub fn new(remote: RemoteRegion, at: u64) -> Probe {
        Probe { remote, at, heard: Instant::now(), asked: None, failure: None }
    }

    /// The peer has said something.
    pub fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// Why the peer is gone, as far as one knows.
    pub fn failure(&mut self) -> Option<&Failure> {
        match self.asked.take() {
            None if self.failure.is_none() && self.heard.elapsed() > AFTER => {
                self.heard = Instant::now();
                self.asked = Some(self.remote.get_into(self.at, vec![0u64]));
            }
            None => {}
            Some(asked) => match asked.try_wait() {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => self.failure = Some(error.failure),
                Err(asked) => self.asked = Some(asked),
            },
        }
        self.failure.as_ref()
    }
}
