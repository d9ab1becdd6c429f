//! Operations of a job with a time of their own: the operation goes on in a thread where its caller waits no longer.
//!
//! No form of bootstrap can take an operation back: what this process gave may be with the others. So an operation that was begun stays begun, and
//! the next call of the same operation waits on for its end.

use super::error::{JobError, Operation, Result};
use super::{Exchange, Wait};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// What an operation ends with, and the form of bootstrap, which the next one needs.
type ExchangeEnd = (Box<dyn Exchange>, Result<Vec<Vec<u8>>>);

/// An operation that a thread makes.
pub(super) struct Unfinished {
    pub operation: Operation,
    pub bytes: Vec<u8>,
    end: Receiver<ExchangeEnd>,
}

impl Unfinished {
    /// Begins an operation. Without a thread for it this process has left the job.
    pub fn begin(
        mut exchange: Box<dyn Exchange>,
        operation: Operation,
        bytes: &[u8],
        wait: Wait,
    ) -> std::result::Result<Self, JobError> {
        let (report, end) = channel();
        let bytes = bytes.to_vec();
        let given = bytes.clone();
        let run = move || {
            let result = exchange.exchange(operation, &given, wait);
            // Nobody takes it where the job was dropped, which this thread then leaves.
            let _ = report.send((exchange, result));
        };
        match pagewire_fabric::spawn("pagewire-job", run) {
            Ok(_) => Ok(Unfinished { operation, bytes, end }),
            Err(error) => Err(JobError::System {
                action: "start a thread for",
                place: operation.to_string(),
                error: error.to_string(),
                mend: "raise the limit of threads (ulimit -u)",
            }),
        }
    }

    /// Waits for the end, for so long at most. `None`: it has not come.
    pub fn end(&self, time: Duration) -> Option<Result<ExchangeEnd>> {
        match self.end.recv_timeout(time) {
            Ok(end) => Some(Ok(end)),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(JobError::System {
                action: "finish",
                place: self.operation.to_string(),
                error: "its thread has failed".to_string(),
                mend: "see its message on the standard error output, and report it",
            })),
        }
    }
}
