//! Whether a peer from which nothing comes is still there.

use pagewire::{Failure, Operation, RemoteRegion};
use std::time::{Duration, Instant};

/// A peer from which nothing has come for so long gets a question.
const INTERVAL: Duration = Duration::from_millis(100);

/// Gets a word of a peer now and then, without a wait, so that who waits for it briefly learns of its death, too.
pub struct Probe {
    remote: RemoteRegion,
    /// Where the word is.
    at: u64,
    /// When something has come, or the last get was started.
    last: Instant,
    pending: Option<Operation<Vec<u64>>>,
    failure: Option<Failure>,
}

impl Probe {
    pub fn new(remote: RemoteRegion, at: u64) -> Probe {
        Probe { remote, at, last: Instant::now(), pending: None, failure: None }
    }

    /// Something has come from the peer.
    pub fn note_sign(&mut self) {
        self.last = Instant::now();
    }

    /// Why the peer is gone. `None`: nobody knows that it is.
    pub fn failure(&mut self) -> Option<&Failure> {
        match self.pending.take() {
            None if self.failure.is_none() && self.last.elapsed() > INTERVAL => {
                self.last = Instant::now();
                self.pending = Some(self.remote.get_into(self.at, vec![0u64]));
            }
            None => {}
            Some(get) => match get.try_wait() {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => self.failure = Some(error.failure),
                Err(get) => self.pending = Some(get),
            },
        }
        self.failure.as_ref()
    }
}
