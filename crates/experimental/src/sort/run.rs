//! The sorted run of one process, as another one sees it: each key is one get of 8 bytes. If its process dies, whoever takes its place goes on.

use super::error::SortError;
use super::files::Files;
use super::got::get_log;
use super::{RunToken, SortStatistics};
use pagewire::{Error, Failure, Node, RemoteRegion};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Gets that are under way at once.
const WINDOW: usize = 256;
/// How often it is looked for a token.
const PAUSE: Duration = Duration::from_millis(5);

/// The run of a process.
pub struct Run<'s> {
    node: &'s Node,
    files: &'s Files,
    /// Whose it is, and who gets.
    rank: usize,
    own: usize,
    patience: Duration,
    token: Option<RunToken>,
    remote: Option<RemoteRegion>,
    /// Keys that are known already, by index: from the logs, or from searches.
    known: HashMap<u64, u64>,
    pub statistics: SortStatistics,
}

impl<'s> Run<'s> {
    pub fn new(node: &'s Node, files: &'s Files, rank: usize, own: usize, patience: Duration) -> Self {
        let statistics = SortStatistics::default();
        Run { node, files, rank, own, patience, token: None, remote: None, known: HashMap::new(), statistics }
    }

    /// Connects, when the process is there, and takes what its log has of gets of this process's predecessor.
    pub fn connect(&mut self) -> Result<(), SortError> {
        let begin = Instant::now();
        loop {
            let token =
                self.files.read("token", self.rank)?.and_then(|bytes| RunToken::find(&bytes, self.own));
            if let Some(token) = token.filter(|token| Some(token) != self.token.as_ref()) {
                if let Ok(remote) = self.node.open(&token.run) {
                    if let Ok(known) = self.node.open(&token.got).and_then(|log| get_log(&log)) {
                        self.statistics.from_logs += known.len() as u64;
                        self.known.extend(known);
                        (self.token, self.remote) = (Some(token), Some(remote));
                        return Ok(());
                    }
                }
            }
            if begin.elapsed() > self.patience {
                return Err(SortError::NotThere { rank: self.rank, after: self.patience });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// How many keys it has.
    pub fn length(&self) -> u64 {
        self.token.map_or(0, |token| token.count)
    }

    /// The process is gone: waits for who takes its place. Another failure is given back.
    fn recover(&mut self, failure: Failure) -> Result<(), SortError> {
        match failure {
            Failure::PeerLost { .. } | Failure::Refused { .. } => {
                self.statistics.peers_lost += 1;
                if matches!(failure, Failure::PeerLost { .. }) {
                    // It may be the connection alone that is lost: a process that is there still is as good as who takes its place.
                    self.token = None;
                }
                self.connect()
            }
            other => Err(SortError::Memory(Error::Failed(other))),
        }
    }

    /// One key.
    pub fn key(&mut self, index: u64) -> Result<u64, SortError> {
        if let Some(key) = self.known.get(&index) {
            return Ok(*key);
        }
        loop {
            let Some(remote) = &self.remote else {
                self.connect()?;
                continue;
            };
            match remote.get_into(8 * index, vec![0u64]).wait() {
                Ok(word) => {
                    self.statistics.gets += 1;
                    self.known.insert(index, word[0]);
                    return Ok(word[0]);
                }
                Err(error) => self.recover(error.failure)?,
            }
        }
    }

    /// Keys from one index to another: a get for each that is not known.
    pub fn keys(&mut self, from: u64, to: u64) -> Result<Vec<u64>, SortError> {
        let mut keys = Vec::with_capacity((to - from) as usize);
        while from + (keys.len() as u64) < to {
            let at = from + keys.len() as u64;
            if let Some(key) = self.known.get(&at) {
                keys.push(*key);
                continue;
            }
            let end = (at..to.min(at + WINDOW as u64)).find(|index| self.known.contains_key(index));
            let end = end.unwrap_or(to.min(at + WINDOW as u64));
            let Some(remote) = &self.remote else {
                self.connect()?;
                continue;
            };
            let mut lost = None;
            for got in remote.get_batch((at..end).map(|index| (8 * index, vec![0u64]))) {
                match got.wait() {
                    // Those behind one that failed are got again.
                    Ok(word) if lost.is_none() => keys.push(word[0]),
                    Ok(_) => {}
                    Err(error) => _ = lost.get_or_insert(error.failure),
                }
            }
            self.statistics.gets += from + keys.len() as u64 - at;
            if let Some(failure) = lost {
                self.recover(failure)?;
            }
        }
        Ok(keys)
    }

    /// How many keys are below a value (or equal to it, with `or_equal`).
    pub fn count_below(&mut self, value: u64, or_equal: bool) -> Result<u64, SortError> {
        let (mut low, mut high) = (0, self.length());
        while low < high {
            let middle = low + (high - low) / 2;
            let key = self.key(middle)?;
            if key < value || or_equal && key == value { low = middle + 1 } else { high = middle }
        }
        Ok(low)
    }
}
