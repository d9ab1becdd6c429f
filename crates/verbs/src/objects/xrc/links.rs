//! Hands requests of one queue pair to another process, one after the other, and its answers back.

use super::frames::{Purpose, receive_outcome, send_request};
use super::sharing::CONNECT_TIME;
use pagewire_fabric::members::{MemberStream, SharedFile};
use pagewire_fabric::spawn;
use pagewire_nic::{Denial, RelayEnd, RelayOutcome, RelayRequest};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A request, and who waits for its end. A queue pair has few of them under way.
pub struct RelayJob {
    pub request: RelayRequest,
    pub end: RelayEnd,
}

/// A thread that has a connection to another process.
pub struct Link {
    jobs: Sender<RelayJob>,
    /// Requests that were handed over and have not ended.
    pending: Arc<AtomicUsize>,
    connection: Arc<Mutex<Connection>>,
}

#[derive(Default)]
struct Connection {
    stream: Option<Arc<MemberStream>>,
    is_given_up: bool,
}

impl Link {
    /// Starts the thread, for what comes to a queue pair and is for the process that listens at a name. It connects when it has a request.
    ///
    /// # Errors
    /// The kernel's.
    pub fn start(file: SharedFile, name: u32, queue_pair: u32) -> io::Result<(Link, JoinHandle<()>)> {
        let (jobs, taken) = channel();
        let connection = Arc::new(Mutex::new(Connection::default()));
        let pending = Arc::new(AtomicUsize::new(0));
        let (open, left) = (connection.clone(), pending.clone());
        let worker = LinkWorker { file, name, queue_pair, jobs: taken, pending: left, connection: open };
        let thread = spawn("pagewire-xrc", move || worker.run())?;
        Ok((Link { jobs, pending, connection }, thread))
    }

    /// Hands a request to the thread. One that nobody takes ends by itself.
    pub fn hand_over(&self, job: RelayJob) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        if self.jobs.send(job).is_err() {
            self.pending.fetch_sub(1, Ordering::AcqRel);
            log::debug!("a request by XRC came to a link that has ended");
        }
    }

    /// Whether nothing is under way, and the other process has ended.
    pub fn is_unused(&self) -> bool {
        let has_ended = |stream: &Arc<MemberStream>| stream.is_at_end();
        self.pending.load(Ordering::Acquire) == 0
            && self.connection.lock().stream.as_ref().is_none_or(has_ended)
    }

    /// Nothing more is handed over. What is under way ends when the other process does nothing for it any more.
    pub fn give_up(&self) {
        let mut connection = self.connection.lock();
        connection.is_given_up = true;
        if let Some(stream) = &connection.stream {
            stream.shut_down_sending();
        }
    }

    /// Ends at once, whatever the other process does.
    pub fn abandon(&self) {
        let mut connection = self.connection.lock();
        connection.is_given_up = true;
        if let Some(stream) = &connection.stream {
            stream.shut_down();
        }
    }
}

struct LinkWorker {
    file: SharedFile,
    name: u32,
    queue_pair: u32,
    jobs: Receiver<RelayJob>,
    pending: Arc<AtomicUsize>,
    connection: Arc<Mutex<Connection>>,
}

impl LinkWorker {
    fn run(self) {
        // It ends with the link.
        while let Ok(RelayJob { request, end }) = self.jobs.recv() {
            let outcome = self.relay(&request);
            // Before the end: who knows that finds the link unused.
            drop(request);
            self.pending.fetch_sub(1, Ordering::AcqRel);
            end.finish(outcome);
        }
    }

    fn relay(&self, request: &RelayRequest) -> RelayOutcome {
        let stream = match self.connect() {
            Ok(Some(stream)) => stream,
            // No process has the queue.
            Ok(None) => return RelayOutcome::Denied(Denial::InvalidRequest),
            Err(error) => {
                log::warn!("queue pair {}: a request by XRC is refused: {error}", self.queue_pair);
                return RelayOutcome::Denied(Denial::Operational);
            }
        };
        let answered = send_request(&stream, request).and_then(|()| receive_outcome(&stream));
        answered.unwrap_or_else(|error| {
            self.connection.lock().stream = None;
            match error.kind() {
                // The process has ended, and with it the queue, or the request was given up.
                io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                    RelayOutcome::Denied(Denial::InvalidRequest)
                }
                _ => {
                    log::warn!("queue pair {}: a request by XRC has failed: {error}", self.queue_pair);
                    RelayOutcome::Denied(Denial::Operational)
                }
            }
        })
    }

    /// The connection, which is made anew where the process of the former one has ended.
    fn connect(&self) -> io::Result<Option<Arc<MemberStream>>> {
        let mut connection = self.connection.lock();
        if connection.is_given_up {
            return Ok(None);
        }
        if let Some(stream) = connection.stream.take().filter(|stream| !stream.is_at_end()) {
            connection.stream = Some(stream.clone());
            return Ok(Some(stream));
        }
        drop(connection);
        // Without the lock, as the other process may be stopped.
        let Some(stream) = MemberStream::connect(self.file, self.name, CONNECT_TIME)? else {
            return Ok(None);
        };
        let stream = Arc::new(stream);
        Purpose::Relay { queue_pair: self.queue_pair }.send(&stream)?;
        let mut connection = self.connection.lock();
        if connection.is_given_up {
            return Ok(None);
        }
        connection.stream = Some(stream.clone());
        Ok(Some(stream))
    }
}
