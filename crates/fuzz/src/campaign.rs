//! Seeded inputs without end: any number of threads draw them one after the other and run them.
//!
//! A seed and the number of an execution decide its input, so that each can be had again alone. Where a target has inputs in
//! the corpus some are these, changed a little.

use crate::FuzzTarget;
use pagewire_sim::panics::caught;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An execution that takes longer does not come to an end.
const PATIENCE: Duration = Duration::from_secs(300);
/// Between two lines about the progress.
const REPORT: Duration = Duration::from_secs(10);
/// Between two looks at whether everything is done.
const LOOK: Duration = Duration::from_millis(50);
/// Of so many inputs one comes from the corpus.
const FROM_CORPUS: usize = 4;
/// Changes of such an input, at most.
const CHANGES: usize = 8;

/// Inputs of a target that are kept in the tree, with their names.
pub type Corpus = Vec<(String, Vec<u8>)>;

/// Reads the inputs of a target that are kept.
///
/// # Errors
/// Where the folder or a file cannot be read.
pub fn corpus(folder: &Path, target: FuzzTarget) -> std::io::Result<Corpus> {
    let mut inputs = Vec::new();
    for entry in std::fs::read_dir(folder.join(target.name()))? {
        let entry = entry?;
        inputs.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    inputs.sort();
    Ok(inputs)
}

/// The input of one execution.
pub fn input(target: FuzzTarget, seed: u64, execution: u64, corpus: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed ^ execution.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    if !corpus.is_empty() && random.usize(..FROM_CORPUS) == 0 {
        let mut bytes = corpus[random.usize(..corpus.len())].1.clone();
        for _ in 0..random.usize(1..=CHANGES) {
            change(&mut random, &mut bytes, corpus);
        }
        return bytes;
    }
    let mut bytes = vec![0; random.usize(target.length() / 2..=target.length())];
    random.fill(&mut bytes);
    bytes
}

fn change(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, corpus: &[(String, Vec<u8>)]) {
    let at = random.usize(..=bytes.len());
    match random.u8(..6) {
        0 => bytes.truncate(at),
        1 => {
            let other = &corpus[random.usize(..corpus.len())].1;
            bytes.truncate(at);
            bytes.extend_from_slice(&other[random.usize(..=other.len())..]);
        }
        2 => {
            let new: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(16).collect();
            bytes.splice(at..at, new);
        }
        3 => {
            let end = (at + 16).min(bytes.len());
            bytes.drain(at..end);
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = random.u8(..);
            }
        }
    }
}

/// What is run, and for how long. The first bound that is reached ends it.
pub struct Campaign {
    pub targets: Vec<(FuzzTarget, Corpus)>,
    pub seed: u64,
    /// The execution to begin with.
    pub first: u64,
    pub jobs: usize,
    pub time: Option<Duration>,
    pub executions: Option<u64>,
    pub packets: Option<u64>,
}

/// What was run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CampaignReport {
    pub executions: u64,
    /// Packets that were handed to a NIC or a connection.
    pub packets: u64,
}

/// An execution that broke a promise, or does not come to an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenPromise {
    pub target: FuzzTarget,
    pub execution: u64,
    pub what: String,
}

/// What the threads share.
struct CampaignProgress {
    next: AtomicU64,
    executions: AtomicU64,
    packets: AtomicU64,
    stop: AtomicBool,
    violation: Mutex<Option<BrokenPromise>>,
    /// Of each thread: the execution that it runs, and since when.
    running: Vec<Mutex<Option<(u64, Instant)>>>,
}

impl Campaign {
    /// Runs it.
    ///
    /// # Errors
    /// The first violation. One that does not come to an end leaves its thread behind: the process has to end.
    pub fn run(self, mut report: impl FnMut(CampaignReport)) -> Result<CampaignReport, BrokenPromise> {
        let campaign = std::sync::Arc::new(self);
        let progress = std::sync::Arc::new(CampaignProgress {
            next: AtomicU64::new(campaign.first),
            executions: AtomicU64::new(0),
            packets: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            violation: Mutex::new(None),
            running: (0..campaign.jobs).map(|_| Mutex::new(None)).collect(),
        });
        let threads: Vec<_> = (0..campaign.jobs)
            .map(|job| {
                let (campaign, progress) = (campaign.clone(), progress.clone());
                std::thread::spawn(move || campaign.work(job, &progress))
            })
            .collect();
        let (begun, mut told) = (Instant::now(), Instant::now());
        let count = || CampaignReport {
            executions: progress.executions.load(Ordering::Relaxed),
            packets: progress.packets.load(Ordering::Relaxed),
        };
        while !threads.iter().all(|thread| thread.is_finished()) {
            std::thread::sleep(LOOK);
            if campaign.time.is_some_and(|time| begun.elapsed() >= time) {
                progress.stop.store(true, Ordering::Relaxed);
            }
            if told.elapsed() >= REPORT {
                told = Instant::now();
                report(count());
            }
            for running in &progress.running {
                if let Some((execution, since)) = *lock(running) {
                    if since.elapsed() > PATIENCE {
                        let what = format!("does not end within {} s", PATIENCE.as_secs());
                        return Err(BrokenPromise {
                            target: campaign.target_of(execution).0,
                            execution,
                            what,
                        });
                    }
                }
            }
        }
        match lock(&progress.violation).take() {
            Some(violation) => Err(violation),
            None => Ok(count()),
        }
    }

    fn target_of(&self, execution: u64) -> &(FuzzTarget, Corpus) {
        &self.targets[(execution % self.targets.len() as u64) as usize]
    }

    fn work(&self, job: usize, progress: &CampaignProgress) {
        while !progress.stop.load(Ordering::Relaxed) {
            let execution = progress.next.fetch_add(1, Ordering::Relaxed);
            let enough = self.executions.is_some_and(|all| execution - self.first >= all)
                || self.packets.is_some_and(|all| progress.packets.load(Ordering::Relaxed) >= all);
            if enough {
                return;
            }
            *lock(&progress.running[job]) = Some((execution, Instant::now()));
            let (target, corpus) = self.target_of(execution);
            let input = input(*target, self.seed, execution, corpus);
            match caught(|| target.run(&input)) {
                Ok(packets) => {
                    progress.executions.fetch_add(1, Ordering::Relaxed);
                    progress.packets.fetch_add(packets, Ordering::Relaxed);
                }
                Err(what) => {
                    progress.stop.store(true, Ordering::Relaxed);
                    let violation = BrokenPromise { target: *target, execution, what };
                    lock(&progress.violation).get_or_insert(violation);
                }
            }
            *lock(&progress.running[job]) = None;
        }
    }
}

/// A lock that a panicking thread does not spoil: nothing here is changed in steps.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
