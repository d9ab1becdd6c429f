//! Access statistics: what peers do to a region, by page and by source, from metadata alone (PAPERS AA-10). Peers just put and get.
//!
//! The counters lie in the memory of the owner, and end with it.

use crate::access::Access;
use crate::attributes::{AttributesOf, AttributesOfTokens, PageSetting};
use crate::log::{AccessLog, LogOptions, Logs};
use crate::serve::Serving;
use pagewire::access_log::{LoggedOperation, Source, Sources};
use pagewire::{Atomic, Kind, Node, Region, RemoteRegion, Result, Rights, Token};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a page.
const PAGE: u64 = 4096;
/// Words of the counters of one page.
const WORDS: usize = 8;
/// Bytes of the log for each source: some thousand records.
const LOG_BYTES: usize = 256 << 10;

/// What was counted of a page, of a source, or of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Counts {
    /// Puts that reached memory.
    pub puts: u64,
    /// Gets that were answered.
    pub gets: u64,
    /// Atomics that were executed.
    pub atomics: u64,
    /// Bytes of these puts and atomics.
    pub bytes_in: u64,
    /// Bytes of these gets.
    pub bytes_out: u64,
    /// Puts and atomics that were refused: the caller got a remote access error.
    pub refused_puts: u64,
    /// Gets that were refused.
    pub refused_gets: u64,
    /// Of the puts: nobody knows whether they were made, as their source has died in their midst.
    pub unsure: u64,
}

impl Counts {
    /// Accesses of all kinds, those that were refused too.
    pub fn accesses(&self) -> u64 {
        self.puts + self.gets + self.atomics + self.refused()
    }

    /// Accesses that were refused.
    pub fn refused(&self) -> u64 {
        self.refused_puts + self.refused_gets
    }

    fn from_words(words: [u64; WORDS]) -> Counts {
        let [puts, gets, atomics, bytes_in, bytes_out, refused_puts, refused_gets, unsure] = words;
        Counts { puts, gets, atomics, bytes_in, bytes_out, refused_puts, refused_gets, unsure }
    }

    fn to_words(self) -> [u64; WORDS] {
        let Counts { puts, gets, atomics, bytes_in, bytes_out, refused_puts, refused_gets, unsure } = self;
        [puts, gets, atomics, bytes_in, bytes_out, refused_puts, refused_gets, unsure]
    }

    /// What a record adds. `times`: 1, or 0 where its message was counted before.
    fn of(access: &Access<'_>, bytes: u64, times: u64) -> Counts {
        let mut counts = Counts::default();
        match (access.operation(), access.was_refused()) {
            (LoggedOperation::Read, true) => counts.refused_gets = times,
            (_, true) => counts.refused_puts = times,
            (LoggedOperation::Read, false) => (counts.gets, counts.bytes_out) = (times, bytes),
            (LoggedOperation::Write, false) => (counts.puts, counts.bytes_in) = (times, bytes),
            (_, false) => (counts.atomics, counts.bytes_in) = (times, bytes),
        }
        counts.unsure = if access.may_have_written() { times } else { 0 };
        counts
    }

    fn add(&mut self, other: Counts) {
        let mut words = self.to_words();
        words.iter_mut().zip(other.to_words()).for_each(|(word, add)| *word += add);
        *self = Counts::from_words(words);
    }
}

/// What is counted, and what is refused. Made by [`AccessStatistics::of`] and [`AccessStatistics::of_token`].
#[must_use = "nothing is counted until `start` is called"]
pub struct AccessStatisticsOptions<'r> {
    node: &'r Node,
    address: u64,
    bytes: u64,
    pages: PageSetting<'r>,
    counts: [bool; 2],
}

impl AccessStatisticsOptions<'_> {
    /// Counts puts and atomics only. Gets cost nothing then.
    pub fn puts_only(mut self) -> Self {
        self.counts = [true, false];
        self
    }

    /// Counts gets only. Puts and atomics cost nothing then.
    pub fn gets_only(mut self) -> Self {
        self.counts = [false, true];
        self
    }

    /// Refuses puts and atomics: callers get a remote access error, and it is counted that they tried (W=0, WL=1, WLD=0).
    pub fn refuse_puts(mut self) -> Self {
        self.pages = self.pages.refuse_puts();
        self
    }

    /// Refuses gets, and atomics with them: callers get a remote access error (R=0, RL=1, RLD=0).
    pub fn refuse_gets(mut self) -> Self {
        self.pages = self.pages.refuse_gets();
        self
    }

    /// Begins to count. This sets the attributes of all pages.
    ///
    /// # Errors
    /// As those of [`Node::make_access_log`], [`Region::set_attributes`], [`Node::words`] and [`AccessLog::serve`].
    pub fn start(self) -> Result<AccessStatistics> {
        let AccessStatisticsOptions { node, address, bytes, mut pages, counts } = self;
        let count = bytes.div_ceil(PAGE) as usize;
        let words = node.words(count * WORDS)?;
        let (sums, peers) = (Mutex::default(), node.sources());
        let counters = Arc::new(Counters { address, pages: count, words, sums, peers });
        // The order of counts is of no importance.
        let options = LogOptions { is_ordered: false, ..LogOptions::new(LOG_BYTES) };
        let log = node.access_log_with(&options)?;
        let counted = counters.clone();
        let serving = log.serve(move |access| counted.count(&access))?;
        if counts[0] {
            pages = pages.log_puts();
        }
        if counts[1] {
            pages = pages.log_gets();
        }
        pages.to(&log)?;
        Ok(AccessStatistics { counters, log, _serving: serving })
    }
}

/// Counts what peers do to a region.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Node, Rights};
/// use pagewire_active::AccessStatistics;
/// let node = Node::alone()?;
/// let table = node.zeroed::<u64>(4 * 512)?; // four pages
/// let statistics = AccessStatistics::of(&node, &table).start()?;
///
/// // Any process that has the token:
/// let remote = node.open(&table.export(Rights::all())?)?;
/// remote.put_value(8, 7u64).wait()?;
/// remote.get::<u64>(2 * 4096, 100)?.wait()?;
///
/// let total = statistics.total();
/// assert_eq!((total.puts, total.gets, total.bytes_in, total.bytes_out), (1, 1, 8, 800));
/// assert_eq!(statistics.hottest(9).len(), 2); // pages 0 and 2
/// assert_eq!(statistics.page(2).gets, 1);
/// # Ok(())
/// # }
/// ```
///
/// A forked child finds that nothing was counted.
///
/// Dropped, it counts no more. The attributes stay: what would have been refused is, and nothing else is.
pub struct AccessStatistics {
    counters: Arc<Counters>,
    log: AccessLog,
    _serving: Serving,
}

struct Counters {
    /// Of the region.
    address: u64,
    pages: usize,
    /// [`WORDS`] for each page.
    words: Region<u64, Atomic>,
    sums: Mutex<Sums>,
    peers: Sources,
}

#[derive(Default)]
struct Sums {
    total: Counts,
    sources: HashMap<u64, SourceCounts>,
}

#[derive(Default)]
struct SourceCounts {
    /// `None`: nobody is known by its number.
    peer: Option<Source>,
    counts: Counts,
    /// Of puts and of gets, whose records may come by turns: the message of the last record, and its last page. The next record of the message may go on
    /// in it.
    last: [Option<(u32, usize)>; 2],
}

impl AccessStatistics {
    /// Describes statistics of a region: puts, gets and atomics are counted, and reach memory.
    pub fn of<'r, T, K: Kind>(node: &'r Node, region: &'r Region<T, K>) -> AccessStatisticsOptions<'r> {
        let (address, bytes, pages) = (region.address(), region.bytes(), region.attributes(..));
        AccessStatisticsOptions { node, address, bytes, pages, counts: [true; 2] }
    }

    /// Describes statistics of the accesses by a token: of memory that is exported by its address (`pagewire::raw`), as C programs do it.
    pub fn of_token<'r>(node: &'r Node, token: &Token) -> AccessStatisticsOptions<'r> {
        let ((address, _), bytes, pages) = (token.memory(), token.length(), node.attributes_of(token, ..));
        AccessStatisticsOptions { node, address, bytes, pages, counts: [true; 2] }
    }

    /// Counts what has been logged: whatever had ended at its caller before this call is counted when it returns.
    /// Counts what has come, and gives the sums. `None`: this is a forked child, where a thread of the parent may hold their lock.
    fn catch_up(&self) -> Option<MutexGuard<'_, Sums>> {
        self.log.check_owner().ok()?;
        self.log.drain(|access| self.counters.count(&access));
        Some(self.counters.sums.lock())
    }

    /// All that was counted.
    pub fn total(&self) -> Counts {
        self.catch_up().map_or_else(Counts::default, |sums| sums.total)
    }

    /// What was counted of a page: zeros for one that the region does not have. An access of several pages counts in each.
    pub fn page(&self, page: usize) -> Counts {
        drop(self.catch_up());
        self.counters.page(page)
    }

    /// The pages that were accessed most, and no page that was not: the first one most, of equal ones the lower.
    pub fn hottest(&self, most: usize) -> Vec<(usize, Counts)> {
        drop(self.catch_up());
        let pages = (0..self.counters.pages).map(|page| (page, self.counters.page(page)));
        let mut pages: Vec<_> = pages.filter(|(_, counts)| counts.accesses() > 0).collect();
        pages.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.accesses()));
        pages.truncate(most);
        pages
    }

    /// What each peer did, by the number of a source of its, which is one of its connections: see [`Node::sources`]. They are in the order of these
    /// numbers.
    pub fn sources(&self) -> Vec<(u64, Counts)> {
        let Some(sums) = self.catch_up() else { return Vec::new() };
        let mut numbers: Vec<_> = sums.sources.iter().collect();
        // The latest connections have the highest numbers, mostly.
        numbers.sort_unstable_by_key(|(number, _)| std::cmp::Reverse(**number));
        let mut peers: Vec<(Option<Source>, u64, Counts)> = Vec::new();
        let mut known = HashMap::new();
        for (number, SourceCounts { peer, counts, .. }) in numbers {
            match peer.and_then(|peer| known.get(&peer).copied()) {
                Some(place) => {
                    let (_, _, sum): &mut (_, _, Counts) = &mut peers[place];
                    sum.add(*counts);
                }
                None => {
                    known.extend(peer.map(|peer| (peer, peers.len())));
                    peers.push((*peer, *number, *counts));
                }
            }
        }
        peers.into_iter().rev().map(|(_, number, counts)| (number, counts)).collect()
    }

    /// Sets all counters to zero, and gives the total that there was. What ends at its caller later is counted anew.
    pub fn reset(&self) -> Counts {
        let Some(mut sums) = self.catch_up() else { return Counts::default() };
        let before = std::mem::take(&mut *sums).total;
        self.counters.words.words().iter().for_each(|word| word.store(0, Ordering::Relaxed));
        before
    }

    /// A token by which peers read the counters of pages with plain gets: see [`RemoteAccessStatistics`]. Who counts is not delayed.
    ///
    /// # Errors
    /// As those of [`Region::export`].
    pub fn export(&self) -> Result<Token> {
        self.counters.words.export(Rights::READ)
    }
}

impl Counters {
    fn page(&self, page: usize) -> Counts {
        let words = self.words.words();
        let Some(words) = page.checked_mul(WORDS).and_then(|at| words.get(at..)?.get(..WORDS)) else {
            return Counts::default();
        };
        Counts::from_words(std::array::from_fn(|index| words[index].load(Ordering::Relaxed)))
    }

    fn count(&self, access: &Access<'_>) {
        // The caller has got once.
        if access.was_repeated() {
            return;
        }
        let Some(offset) = access.offset_from(self.address) else { return };
        let (first, end) = (offset, offset.saturating_add(access.length() as u64));
        let end = end.min(self.pages as u64 * PAGE);
        let mut sums = self.sums.lock();
        let sum = Counts::of(access, access.length() as u64, u64::from(access.is_first()));
        sums.total.add(sum);
        let source = sums.sources.entry(access.source()).or_insert_with(|| SourceCounts {
            peer: self.peers.find(access.source()),
            ..SourceCounts::default()
        });
        source.counts.add(sum);
        let former = &mut source.last[usize::from(access.operation() == LoggedOperation::Read)];
        let went_on = former.filter(|(message, _)| *message == access.message() && !access.is_first());
        let last = (end.max(first.saturating_add(1)) - 1) / PAGE;
        for page in first / PAGE..=last {
            let bytes = end.min((page + 1).saturating_mul(PAGE)).saturating_sub(first.max(page * PAGE));
            let is_new = went_on.is_none_or(|(_, last)| last as u64 != page);
            self.add(page as usize, Counts::of(access, bytes, u64::from(is_new)));
        }
        *former = Some((access.message(), last as usize));
    }

    fn add(&self, page: usize, counts: Counts) {
        let words: &[AtomicU64] = self.words.words();
        let Some(words) = words.get(page * WORDS..(page + 1) * WORDS) else { return };
        for (word, add) in words.iter().zip(counts.to_words()) {
            if add > 0 {
                word.fetch_add(add, Ordering::Relaxed);
            }
        }
    }
}

/// The counters of another process, by its token. They may lag behind by what its thread has not counted yet.
pub struct RemoteAccessStatistics {
    words: RemoteRegion,
}

impl RemoteAccessStatistics {
    /// Opens what [`AccessStatistics::export`] has made.
    ///
    /// # Errors
    /// As those of [`Node::open`].
    pub fn open(node: &Node, token: &Token) -> Result<RemoteAccessStatistics> {
        Ok(RemoteAccessStatistics { words: node.open(token)? })
    }

    /// What was counted of each page.
    ///
    /// # Errors
    /// Those of a get.
    pub fn pages(&self) -> Result<Vec<Counts>> {
        let pages = self.words.length() as usize / (8 * WORDS);
        let counts = self.words.get::<[u64; WORDS]>(0, pages)?.wait()?;
        Ok(counts.into_iter().map(Counts::from_words).collect())
    }
}
