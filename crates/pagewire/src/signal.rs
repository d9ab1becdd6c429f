//! Signals: words of 8 bytes that peers set or add to behind their puts, and that the owner waits for.

use crate::completions::Completions;
use crate::error::{Error, Result};
use crate::limits::{SIGNAL_SLEEP, SPIN};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A word of 8 bytes in a region of this process.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// use pagewire::{Node, Rights};
/// let node = Node::alone()?;
/// let inbox = node.zeroed::<u64>(16)?;
/// let remote = node.open(&inbox.export(Rights::WRITE | Rights::ATOMIC)?)?;
/// // The bytes first, then the word at 120.
/// let put = remote.put_signal(0, vec![5u64], remote.signal(120).add(1));
/// let count = inbox.signal(120)?.wait_until(|count| count >= 1);
/// assert_eq!((count, inbox.get(0)?), (1, 5));
/// put.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Signal<'r> {
    completions: &'r Completions,
    word: &'r AtomicU64,
}

impl<'r> Signal<'r> {
    pub(crate) fn new(completions: &'r Completions, word: &'r AtomicU64) -> Self {
        Signal { completions, word }
    }

    /// The word at `offset` of these, which are `length` bytes.
    pub(crate) fn at(
        completions: &'r Completions,
        words: &'r [AtomicU64],
        length: u64,
        offset: u64,
    ) -> Result<Self> {
        if offset % 8 != 0 {
            return Err(Error::Alignment { offset, align: 8 });
        }
        if offset.checked_add(8).is_none_or(|end| end > length) {
            return Err(Error::Range { offset, count: 8, length });
        }
        let index = (offset / 8) as usize;
        words.get(index).map(|word| Signal { completions, word }).ok_or(Error::Range {
            offset,
            count: 8,
            length,
        })
    }

    #[cfg(any(feature = "tokio", feature = "async-io"))]
    pub(crate) fn completions(&self) -> &'r Completions {
        self.completions
    }

    /// Its value. What was put before the signal was set to it is visible behind this call.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// assert_eq!(table.signal(8)?.value(), 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn value(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Sets it, for instance before it is used again.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let signal = table.signal(8)?;
    /// signal.set(3);
    /// assert_eq!(remote.fetch_add(8, 1).wait()?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&self, value: u64) {
        self.word.store(value, Ordering::Release);
    }

    /// Waits until the value is as wished, and gives it. There is no bound: see [`wait_until_within`](Self::wait_until_within).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let put = remote.put_signal(0, vec![5u64], remote.signal(8).add(1));
    /// assert_eq!(table.signal(8)?.wait_until(|count| count >= 1), 1);
    /// put.wait()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait_until(&self, wished: impl Fn(u64) -> bool) -> u64 {
        let mut value = 0;
        let holds = || {
            value = self.value();
            wished(value)
        };
        self.completions.wait_for(None, holds);
        value
    }

    /// Waits until the value is as wished, and gives it.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let patience = std::time::Duration::from_millis(1);
    /// let late = table.signal(8)?.wait_until_within(patience, |count| count >= 1);
    /// assert!(matches!(late, Err(pagewire::Error::Timeout { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Timeout`.
    pub fn wait_until_within(&self, patience: Duration, wished: impl Fn(u64) -> bool) -> Result<u64> {
        let mut value = 0;
        let holds = || {
            value = self.value();
            wished(value)
        };
        if self.completions.wait_for(Some(patience), holds) {
            return Ok(value);
        }
        Err(Error::Timeout { what: "the signal that was waited for", after: patience })
    }
}

/// Waits until one of the signals is as wished, and gives its place and value. `None`: there are no signals.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let signals = [table.signal(8)?, table.signal(16)?];
/// let put = remote.put_signal(0, vec![5u64], remote.signal(16).set(7));
/// assert_eq!(pagewire::wait_any(&signals, |value| value != 0), Some((1, 7)));
/// put.wait()?;
/// # Ok(())
/// # }
/// ```
pub fn wait_any(signals: &[Signal<'_>], wished: impl Fn(u64) -> bool) -> Option<(usize, u64)> {
    let completions = signals.first()?.completions;
    let mut found = None;
    completions.wait_for(None, || {
        found = signals.iter().map(Signal::value).enumerate().find(|(_, value)| wished(*value));
        found.is_some()
    });
    found
}

/// Waits until each of the signals is as wished at once.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let puts = [8, 16].map(|at| remote.signal_only(remote.signal(at).add(1)));
/// pagewire::wait_all(&[table.signal(8)?, table.signal(16)?], |count| count == 1);
/// for put in puts {
///     put.wait()?;
/// }
/// # Ok(())
/// # }
/// ```
pub fn wait_all(signals: &[Signal<'_>], wished: impl Fn(u64) -> bool) {
    if let Some(first) = signals.first() {
        first.completions.wait_for(None, || signals.iter().all(|signal| wished(signal.value())));
    }
}

impl Completions {
    /// Polls for a while, then sleeps between looks, until `holds` does. False: it did not within the time.
    fn wait_for(&self, patience: Option<Duration>, mut holds: impl FnMut() -> bool) -> bool {
        assert!(!self.is_forked(), "a signal of the parent is waited for in a forked child");
        let start = Instant::now();
        loop {
            if holds() {
                return true;
            }
            let waited = start.elapsed();
            if patience.is_some_and(|patience| waited >= patience) {
                return false;
            }
            // What this process has started goes on meanwhile.
            self.poll();
            if waited >= SPIN {
                self.stop_polling();
                // A tenth of what it has waited: whoever comes soon is seen soon.
                std::thread::sleep((waited / 10).min(SIGNAL_SLEEP));
            }
        }
    }
}
