//! A parallel sort with gets of 8 bytes that survives the death of its processes (PAPERS AA-12, after the sort of the CORAL benchmarks). Experimental.
//!
//! 1. Each process sorts its keys, saves the run in a file, and exports it. Gets of it are logged with their data.
//! 2. Each finds where its part of the result begins in every run, by gets.
//! 3. Each gets its parts of all runs, a key a get, merges them, and saves the result in a file.
//!
//! A process that dies is started again with the same folder. It takes its run from the file; what it had got is in the logs of the others, who go on when
//! it is back.
//!
//! ```
//! use pagewire_experimental::sort::{SortError, SortOptions, sort};
//!
//! fn main() -> Result<(), SortError> {
//!     let node = pagewire::Node::alone()?;
//!     let folder = std::env::temp_dir().join(format!("pagewire-sort-{}", std::process::id()));
//!     let made = std::fs::create_dir(&folder);
//!     made.map_err(|why| SortError::File { path: folder.clone(), why })?;
//!     let sorted = sort(&node, &SortOptions::new(&folder, 0, 1), || vec![3, 1, 2])?;
//!     assert_eq!(sorted.keys, [1, 2, 3]);
//!     std::fs::remove_dir_all(&folder).map_err(|why| SortError::File { path: folder, why })
//! }
//! ```

mod error;
mod files;
mod got;
mod run;
mod split;

pub use error::SortError;

use files::Files;
use got::GotLog;
use pagewire::{Node, Region, Rights, Token};
use pagewire_active::{AttributesOf, LogOptions, Logs, Serving};
use run::Run;
use split::{Counts, merge, split};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Processes of a sort.
pub const MAX_PROCESSES: usize = 256;
/// Space in the access log for each process that gets.
const LOG_BYTES: usize = 1 << 18;
/// Searches of a process in one run make fewer gets than this.
const SEARCH_GETS: usize = 1 << 14;
const PAUSE: Duration = Duration::from_millis(5);

/// Who sorts, and where its files lie.
#[derive(Debug, Clone)]
pub struct SortOptions {
    /// A folder that all processes of the sort share, empty at first.
    pub folder: PathBuf,
    pub rank: usize,
    pub size: usize,
    /// How long others are waited for: until they begin, end, or are started again.
    pub patience: Duration,
}

impl SortOptions {
    /// With a patience of five minutes.
    pub fn new(folder: &Path, rank: usize, size: usize) -> Self {
        SortOptions { folder: folder.to_owned(), rank, size, patience: Duration::from_secs(300) }
    }
}

/// What a process did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SortStatistics {
    /// Gets of 8 bytes.
    pub gets: u64,
    /// Keys that this process's predecessor had got, from the logs of others.
    pub from_logs: u64,
    /// Times that another process was lost.
    pub peers_lost: u64,
    /// The sorted run came from a file.
    pub run_was_saved: bool,
}

/// A part of the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorted {
    /// How many keys of all processes come before.
    pub position: u64,
    pub keys: Vec<u64>,
    pub statistics: SortStatistics,
}

/// What another process needs to get keys of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RunToken {
    run: Token,
    /// What the process has got of it, or its predecessor.
    got: Token,
    /// Keys of the run.
    count: u64,
}

impl RunToken {
    const LEN: usize = 2 * Token::LEN + 8;

    fn to_bytes(self) -> Vec<u8> {
        [&self.run.to_bytes()[..], &self.got.to_bytes(), &self.count.to_le_bytes()].concat()
    }

    /// That of a process, in the file that has one for each.
    fn find(file: &[u8], rank: usize) -> Option<RunToken> {
        let bytes = file.chunks_exact(Self::LEN).nth(rank)?;
        let ((run, rest), token) = (bytes.split_at(Token::LEN), |bytes: &[u8]| Token::from_bytes(bytes).ok());
        let (got, count) = rest.split_at(Token::LEN);
        Some(RunToken {
            run: token(run)?,
            got: token(got)?,
            count: count.try_into().map_or(0, u64::from_le_bytes),
        })
    }
}

/// Sorts the keys of all processes. Each gives its own keys, and gets a part of the result. A process that is started again in the place of another one
/// must give the same keys.
///
/// # Errors
/// See [`SortError`].
pub fn sort(
    node: &Node,
    options: &SortOptions,
    keys: impl FnOnce() -> Vec<u64>,
) -> Result<Sorted, SortError> {
    // Before a file is written.
    node.check_owner()?;
    let SortOptions { folder, rank, size, patience } = options;
    if rank >= size || *size > MAX_PROCESSES {
        return Err(SortError::Processes { rank: *rank, size: *size, most: MAX_PROCESSES });
    }
    let files = Files::new(folder);
    let saved = files.read_keys("run", *rank)?;
    let run_was_saved = saved.is_some();
    let run = match saved {
        Some(run) => run,
        None => {
            let mut run = keys();
            run.sort_unstable();
            files.write_keys("run", *rank, &run)?;
            run
        }
    };
    let _served = serve(node, &files, &run, *rank, *size)?;
    let mut statistics = SortStatistics { run_was_saved, ..SortStatistics::default() };
    // The position stands before the keys.
    let result = match files.read_keys("result", *rank)? {
        Some(result) => result,
        None => {
            let mut runs = Runs::connect(node, &files, options)?;
            let result = runs.result(*rank as u64, *size as u64)?;
            runs.0.iter().for_each(|run| statistics.add(&run.statistics));
            files.write_keys("result", *rank, &result)?;
            result
        }
    };
    wait_for_results(&files, *size, *patience)?;
    let Some((position, keys)) = result.split_first() else {
        unreachable!("a result begins with its position");
    };
    Ok(Sorted { position: *position, keys: keys.to_vec(), statistics })
}

impl SortStatistics {
    fn add(&mut self, other: &SortStatistics) {
        self.gets += other.gets;
        self.from_logs += other.from_logs;
        self.peers_lost += other.peers_lost;
    }
}

/// A run that others may get from, as long as this lives.
struct Served {
    _serving: Serving,
    _run: Region<u64>,
}

fn serve(node: &Node, files: &Files, run: &[u64], rank: usize, size: usize) -> Result<Served, SortError> {
    // A region has at least one word; the tokens say how many count.
    let region = node.zeroed::<u64>(run.len().max(1))?;
    region.write(0, run)?;
    let log = node.access_log_with(&LogOptions { sources: 4 * size, ..LogOptions::new(LOG_BYTES) })?;
    region.attributes(..).log_get_data().to(&log)?;
    let (mut tokens, mut logs) = (Vec::new(), Vec::new());
    for _ in 0..size {
        let got = GotLog::new(node, run.len() + SEARCH_GETS)?;
        // Each has a key of its own, which says in the records who it is.
        let token = region.export(Rights::READ)?;
        tokens.extend(RunToken { run: token, got: got.export()?, count: run.len() as u64 }.to_bytes());
        let (_, key) = token.memory();
        logs.push((key, got));
    }
    let address = region.address();
    let serving = log.serve(move |access| {
        if let Some((_, got)) = logs.iter_mut().find(|(key, _)| *key == access.key()) {
            got.note(&access, address);
        }
    })?;
    files.write("token", rank, &tokens)?;
    Ok(Served { _serving: serving, _run: region })
}

/// The runs of all processes.
struct Runs<'s>(Vec<Run<'s>>);

impl<'s> Runs<'s> {
    fn connect(node: &'s Node, files: &'s Files, options: &SortOptions) -> Result<Self, SortError> {
        let run = |rank| Run::new(node, files, rank, options.rank, options.patience);
        let mut runs = Runs((0..options.size).map(run).collect());
        runs.0.iter_mut().try_for_each(Run::connect)?;
        Ok(runs)
    }

    /// The position of a part of the result, and its keys.
    fn result(&mut self, part: u64, parts: u64) -> Result<Vec<u64>, SortError> {
        let total = self.0.iter().map(Run::length).sum::<u64>();
        let position = |part: u64| (u128::from(total) * u128::from(part) / u128::from(parts)) as u64;
        let (from, to) = (split(self, position(part))?, split(self, position(part + 1))?);
        let ranges = from.into_iter().zip(to);
        let parts = self.0.iter_mut().zip(ranges).map(|(run, (from, to))| run.keys(from, to));
        let mut result = vec![position(part)];
        result.extend(merge(&parts.collect::<Result<Vec<_>, _>>()?));
        Ok(result)
    }
}

impl Counts for Runs<'_> {
    type Error = SortError;

    fn below(&mut self, value: u64, or_equal: bool) -> Result<Vec<u64>, SortError> {
        self.0.iter_mut().map(|run| run.count_below(value, or_equal)).collect()
    }
}

/// Others may need the run of this process until they have their results.
fn wait_for_results(files: &Files, size: usize, patience: Duration) -> Result<(), SortError> {
    let begin = Instant::now();
    while let Some(rank) = (0..size).find(|rank| !files.is_there("result", *rank)) {
        if begin.elapsed() > patience {
            return Err(SortError::NotThere { rank, after: patience });
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// What a process had got before it died comes from the log of the other one, and is not got again; nothing of others is mixed with it.
    #[test]
    fn what_was_got_before_comes_from_the_log() {
        let folder = std::env::temp_dir().join(format!("pagewire-got-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Files::new(&folder);
        let owner = Node::alone().unwrap();
        let keys: Vec<u64> = (0..5000).map(|key| key * key).collect();
        let served = serve(&owner, &files, &keys, 0, 3).unwrap();
        let patience = Duration::from_secs(5);
        let getter = |node: &Node, own: usize, from: u64, to: u64| {
            let mut run = Run::new(node, &files, 0, own, patience);
            run.connect().unwrap();
            assert_eq!(run.keys(from, to).unwrap(), keys[from as usize..to as usize]);
            (run.statistics.gets, run.statistics.from_logs)
        };
        let (victim, other, heir) = (Node::alone().unwrap(), Node::alone().unwrap(), Node::alone().unwrap());
        assert_eq!(getter(&victim, 1, 1000, 3000), (2000, 0));
        assert_eq!(getter(&other, 2, 0, 10), (10, 0));
        drop(victim);
        // The handler may have some records to go.
        let mut before = HashSet::new();
        let start = Instant::now();
        while before.len() < 2000 {
            assert!(start.elapsed() < patience, "{} of 2000 gets were noted", before.len());
            let file = files.read("token", 0).unwrap().unwrap();
            let log = heir.open(&RunToken::find(&file, 1).unwrap().got).unwrap();
            before = got::get_log(&log).unwrap().into_keys().collect();
        }
        assert_eq!(getter(&heir, 1, 900, 3500), (600, 2000));
        drop(served);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
