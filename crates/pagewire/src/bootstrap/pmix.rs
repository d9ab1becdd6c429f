//! A job by PMIx: the launcher runs a server on each host, and the processes exchange values through it.
//!
//! For each operation a process puts values under keys of this operation, commits them, waits at a fence, and gets the values of
//! the others. The first value begins with a head: what operation it belongs to, and how many bytes follow in all.
//!
//! Calls of PMIx block without a bound. So a thread of its own makes them, and the caller waits for it within its timeout.
//! After a timeout the thread stays in its call. The job has ended then, and nobody waits for the thread.
//!
//! A fence does not say who is absent. After a timeout, a search asks the server which ranks have put their values.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use super::error::{JobError, Operation, OperationKind, Result};
use super::limits::{
    MARKED_BARRIERS, MAX_CONTRIBUTION, MAX_LISTED_RANKS, MAX_PMIX_BYTES, MAX_PROCESSES, PMIX_LEAVE_TIME,
    PMIX_SEARCH_SECONDS, PMIX_SEARCH_TIME, PMIX_VALUE,
};
use super::message::{FrameHeader, FrameKind, HEADER};
use super::pmix_ffi::{LIBRARY, Library, LoadError, PmixFailure, PmixProcess};
use super::{Exchange, Joined, Ranks, Wait, check_sum, too_large};

const JOIN: Operation = Operation { kind: OperationKind::Join, number: 0 };
const PLACE: &str = "the launcher's PMIx server";

/// The library is loaded once.
static LOADED: OnceLock<std::result::Result<Library, LoadError>> = OnceLock::new();
/// A process joins once in its life. OpenPMIx 4.2.2 does not reliably let one that has left join again.
static HAS_JOINED: AtomicBool = AtomicBool::new(false);

fn load() -> Result<Library> {
    LOADED.get_or_init(Library::load).clone().map_err(|error| {
        let mend = match error {
            LoadError::Missing(_) => {
                "install libpmix2, or put the directory of the launcher's libpmix.so.2 into LD_LIBRARY_PATH"
            }
            LoadError::Symbol(_) | LoadError::Version(_) => {
                "put the directory of a libpmix.so.2 of version 3 to 5 into LD_LIBRARY_PATH, or use PAGEWIRE_RENDEZVOUS \
                 after unsetting PMIX_NAMESPACE"
            }
        };
        JobError::PmixLibrary { problem: error.to_string(), mend }
    })
}

pub(super) fn join(rank: usize, wait: Wait) -> Result<Joined> {
    let library = load()?;
    if HAS_JOINED.swap(true, Ordering::AcqRel) {
        return Err(JobError::AlreadyJoined);
    }
    let (requests, inbox) = channel();
    let (greet, greeting) = channel();
    let (end, ended) = channel();
    let leaving = Leaving { library, has_left: Arc::default() };
    let own_leaving = leaving.clone();
    let worker = thread::Builder::new().name("pagewire-pmix".to_string());
    let spawned = worker.spawn(move || {
        serve(&own_leaving, &greet, &inbox);
        drop(end);
    });
    spawned.map_err(|error| JobError::System {
        action: "start a thread for",
        place: LIBRARY.to_string(),
        error: error.to_string(),
        mend: "raise the limit of threads (ulimit -u)",
    })?;
    // From here on, an error drops the requests, and the thread leaves the job.
    let (process, size) = receive(&greeting, JOIN, wait)?;
    if process.rank() as usize != rank || size > MAX_PROCESSES {
        return Err(JobError::BadVariable {
            name: "PMIX_RANK",
            value: rank.to_string(),
            rule: format!("the PMIx server knows this process as rank {} of {size}", process.rank()),
        });
    }
    let started_by =
        format!("{} (PMIx, namespace {}, {})", launcher(), process.namespace(), library.version());
    let exchange =
        Pmix { leaving, process, size, requests: Some(requests), ended, given: 0, is_broken: false };
    Ok(Joined { rank, size, started_by, exchange: Box::new(exchange) })
}

/// The launcher by name, as far as its variables tell.
fn launcher() -> &'static str {
    let is_set = |name| std::env::var_os(name).is_some();
    if is_set("OMPI_COMM_WORLD_SIZE") {
        "mpirun"
    } else if is_set("SLURM_PROCID") {
        "srun"
    } else {
        "a launcher"
    }
}

/// An exchange that the thread makes. The thread leaves the job and ends when no more requests can come.
struct ExchangeRequest {
    operation: Operation,
    bytes: Vec<u8>,
    reply: Sender<Result<Vec<Vec<u8>>>>,
}

struct Pmix {
    leaving: Leaving,
    process: PmixProcess,
    size: usize,
    requests: Option<Sender<ExchangeRequest>>,
    /// Disconnected once the thread has left the job.
    ended: Receiver<Infallible>,
    /// Bytes given to the server by this job.
    given: usize,
    /// Whether the thread stays in a call that did not return in time.
    is_broken: bool,
}

fn receive<T>(inbox: &Receiver<Result<T>>, operation: Operation, wait: Wait) -> Result<T> {
    match inbox.recv_timeout(wait.left()) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(wait.absent(operation, Ranks::default(), PLACE)),
        Err(RecvTimeoutError::Disconnected) => Err(JobError::Lost {
            operation,
            rank: 0,
            place: PLACE.to_string(),
            reason: "the thread that calls PMIx has ended".to_string(),
        }),
    }
}

impl Exchange for Pmix {
    fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
        self.given += bytes.len() + HEADER;
        if self.given > MAX_PMIX_BYTES && !bytes.is_empty() {
            return Err(too_large(operation, "this process since it joined", self.given, MAX_PMIX_BYTES));
        }
        let (reply, inbox) = channel();
        let request = ExchangeRequest { operation, bytes: bytes.to_vec(), reply };
        let requests = self.requests.as_ref().expect("requests end only when the job is dropped");
        // A thread that has ended drops the request, which `receive` notices.
        let _ = requests.send(request);
        let result = receive(&inbox, operation, wait);
        match result {
            Err(JobError::Absent { .. }) => {
                self.is_broken = true;
                let ranks = if has_mark(operation) { self.search(operation) } else { Ranks::default() };
                Err(wait.absent(operation, ranks, PLACE))
            }
            other => other,
        }
    }
}

impl Pmix {
    /// Asks the server which ranks have not put their values of an operation. Empty if it does not say so in time.
    fn search(&self, operation: Operation) -> Ranks {
        let (found, absent) = channel();
        let (library, process, size) = (self.leaving.library, self.process, self.size);
        let search = move || {
            let start = Instant::now();
            for rank in 0..size {
                let other = process.with_rank(as_rank(rank));
                let is_absent = library.get(&other, &key(operation, 0), Some(PMIX_SEARCH_SECONDS)).is_err();
                if is_absent && found.send(rank).is_err() || start.elapsed() > PMIX_SEARCH_TIME {
                    return;
                }
            }
        };
        // Without a thread, nobody can say who is absent.
        if thread::Builder::new().spawn(search).is_err() {
            return Ranks::default();
        }
        let wait = Wait::new(PMIX_SEARCH_TIME);
        let mut ranks = Vec::new();
        while ranks.len() < MAX_LISTED_RANKS {
            let Ok(rank) = absent.recv_timeout(wait.left()) else { break };
            ranks.push(rank);
        }
        Ranks::from_iter(ranks)
    }
}

/// The right to leave the job, once. The library counts its users, and this is one of them.
#[derive(Clone)]
struct Leaving {
    library: Library,
    has_left: Arc<AtomicBool>,
}

impl Leaving {
    fn leave(&self) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            // Nobody waits for the outcome: the job is over for this process.
            let _ = self.library.finalize();
        }
    }
}

impl Drop for Pmix {
    /// Leaves within a bound. A launcher takes a process that ends without leaving for a failed one, and ends the others.
    /// Open MPI 4.1.4 sometimes hangs then, if such a process was at a fence.
    fn drop(&mut self) {
        self.requests = None;
        if !self.is_broken {
            let _ = self.ended.recv_timeout(PMIX_LEAVE_TIME);
            return;
        }
        // The thread is at a fence, so another one leaves. Every call of PMIx may come from any thread.
        let leaving = self.leaving.clone();
        let (end, ended) = channel::<Infallible>();
        let leave = move || {
            leaving.leave();
            drop(end);
        };
        if thread::Builder::new().spawn(leave).is_ok() {
            let _ = ended.recv_timeout(PMIX_LEAVE_TIME);
        }
    }
}

fn as_rank(rank: usize) -> u32 {
    u32::try_from(rank).expect("ranks fit 32 bits")
}

/// Key of one value of an operation.
fn key(operation: Operation, part: usize) -> String {
    format!("pagewire.{}.{part}", operation.number)
}

/// Whether each rank puts a value. Barriers do so for a while only, because the server keeps all values.
fn has_mark(operation: Operation) -> bool {
    operation.kind != OperationKind::Barrier || operation.number <= MARKED_BARRIERS
}

/// The thread that calls PMIx: joins, makes the exchanges that are requested, and leaves.
fn serve(leaving: &Leaving, greet: &Sender<Result<(PmixProcess, usize)>>, inbox: &Receiver<ExchangeRequest>) {
    let library = leaving.library;
    let process = match library.init() {
        Ok(process) => process,
        Err(failure) => {
            // The caller may have given up waiting; its join has failed either way.
            let _ = greet.send(Err(job_error(failure, JOIN)));
            return;
        }
    };
    let size = library.job_size(&process).map(|size| size as usize);
    let caller = PmixCaller { library, process, size: size.as_ref().copied().unwrap_or(0) };
    let greeting = size.map(|size| (process, size)).map_err(|failure| job_error(failure, JOIN));
    let _ = greet.send(greeting);
    while let Ok(request) = inbox.recv() {
        // A caller that has given up has ended its job.
        let _ = request.reply.send(caller.run(&request));
    }
    leaving.leave();
}

struct PmixCaller {
    library: Library,
    process: PmixProcess,
    size: usize,
}

impl PmixCaller {
    fn run(&self, request: &ExchangeRequest) -> Result<Vec<Vec<u8>>> {
        let operation = request.operation;
        let calls = || {
            if has_mark(operation) {
                self.put(request)?;
                self.library.commit()?;
            }
            self.library.fence(operation.kind != OperationKind::Barrier)
        };
        calls().map_err(|failure| job_error(failure, operation))?;
        let mut all = vec![Vec::new(); self.size];
        let givers = match operation.kind {
            OperationKind::AllGather => 0..self.size,
            OperationKind::Broadcast { root } => root..root + 1,
            OperationKind::Barrier | OperationKind::Join => 0..0,
        };
        let mut sum = 0;
        for rank in givers {
            all[rank] = self.get(request, rank, sum)?;
            sum += all[rank].len();
        }
        Ok(all)
    }

    fn put(&self, request: &ExchangeRequest) -> std::result::Result<(), PmixFailure> {
        let ExchangeRequest { operation, bytes, .. } = request;
        let header = FrameHeader {
            kind: FrameKind::Data(operation.kind),
            number: operation.number,
            length: bytes.len(),
        };
        let (first, mut rest) = bytes.split_at(bytes.len().min(PMIX_VALUE - HEADER));
        self.library.put(&key(*operation, 0), &[&header.encode(), first].concat())?;
        for part in 1.. {
            if rest.is_empty() {
                break;
            }
            let (value, after) = rest.split_at(rest.len().min(PMIX_VALUE));
            self.library.put(&key(*operation, part), value)?;
            rest = after;
        }
        Ok(())
    }

    /// The bytes of one rank. The ranks before it gave `sum` bytes.
    fn get(&self, request: &ExchangeRequest, rank: usize, sum: usize) -> Result<Vec<u8>> {
        let operation = request.operation;
        let mismatch = || JobError::Mismatch { operation, rank };
        let other = self.process.with_rank(as_rank(rank));
        let get = |part| {
            let value = self.library.get(&other, &key(operation, part), None);
            value.map_err(|failure| job_error(failure, operation))
        };
        let first = get(0)?;
        let (head, start) = first.split_at_checked(HEADER).ok_or_else(mismatch)?;
        let header =
            FrameHeader::decode(head.try_into().expect("a header's length")).map_err(|_| mismatch())?;
        if header.kind != FrameKind::Data(operation.kind) || header.number != operation.number {
            return Err(mismatch());
        }
        if header.length > MAX_CONTRIBUTION {
            return Err(too_large(operation, &format!("rank {rank}"), header.length, MAX_CONTRIBUTION));
        }
        check_sum(operation, [sum, header.length].into_iter())?;
        let mut bytes = start.to_vec();
        for part in 1.. {
            if bytes.len() >= header.length {
                break;
            }
            let value = get(part)?;
            if value.is_empty() {
                return Err(mismatch());
            }
            bytes.extend(value);
        }
        if bytes.len() == header.length { Ok(bytes) } else { Err(mismatch()) }
    }
}

fn job_error(PmixFailure { call, status, name }: PmixFailure, operation: Operation) -> JobError {
    JobError::Pmix { operation, call, status, name }
}
