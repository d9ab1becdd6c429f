//! Signals: words of 8 bytes that peers set or add to behind their puts, and that the owner waits for.

use crate::error::{Error, Result};
use crate::limits::{FOREVER, SIGNAL_SLEEP, SPIN};
use crate::nodes::completions::Completions;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
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
/// let count = inbox.signal(120)?.wait_until(|count| count >= 1)?;
/// assert_eq!((count, inbox.get(0)?), (1, 5));
/// put.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct Signal<'r> {
    pub(crate) completions: &'r Completions,
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

    /// Its value. What was put before the signal was set to it is visible behind this call. In a forked child of the owner it is 0.
    pub fn value(&self) -> u64 {
        if self.completions.is_forked() {
            // The child may not have the page.
            return 0;
        }
        self.word.load(Ordering::Acquire)
    }

    /// Sets it, for instance before it is used again. A forked child of the owner sets nothing.
    pub fn set(&self, value: u64) {
        if !self.completions.is_forked() {
            self.word.store(value, Ordering::Release);
        }
    }

    /// Waits until the value is as wished, and gives it. There is no bound: see [`wait_until_within`](Self::wait_until_within).
    ///
    /// # Errors
    /// `Forked`.
    pub fn wait_until(&self, wished: impl Fn(u64) -> bool) -> Result<u64> {
        let mut value = 0;
        let holds = || {
            value = self.value();
            wished(value)
        };
        self.completions.wait_for(FOREVER, holds)?;
        Ok(value)
    }

    /// Waits until the value is as wished, and gives it.
    ///
    /// # Errors
    /// `Timeout`; `Forked`.
    pub fn wait_until_within(&self, patience: Duration, wished: impl Fn(u64) -> bool) -> Result<u64> {
        let mut value = 0;
        let holds = || {
            value = self.value();
            wished(value)
        };
        if self.completions.wait_for(patience, holds)? {
            return Ok(value);
        }
        Err(late(patience))
    }

    /// [`wait_until`](Self::wait_until) for tasks of any executor: a future of the value that is as wished. At first it looks at each poll, later a thread
    /// of the node wakes the task every [`SIGNAL_SLEEP`](crate::limits::SIGNAL_SLEEP), as nobody else does. Dropping or forgetting the future
    /// changes nothing.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, Rights};
    /// # let node = Node::alone()?;
    /// # let table = node.zeroed::<u64>(16)?;
    /// # let remote = node.open(&table.export(Rights::all())?)?;
    /// let run = async {
    ///     let put = remote.put_signal(0, vec![5u64], remote.signal(8).add(1));
    ///     assert_eq!(table.signal(8)?.reaches(|count| count >= 1).await?, 1);
    ///     put.await?;
    ///     Ok::<u64, pagewire::Error>(table.get(0)?)
    /// };
    /// assert_eq!(async_io::block_on(run)?, 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Forked`.
    pub async fn reaches(&self, wished: impl Fn(u64) -> bool) -> Result<u64> {
        let mut value = 0;
        let holds = || {
            value = self.value();
            wished(value)
        };
        self.completions.reach(FOREVER, holds).await?;
        Ok(value)
    }

    /// [`wait_until_within`](Self::wait_until_within) for tasks, as [`reaches`](Self::reaches).
    ///
    /// # Errors
    /// `Timeout`; `Forked`.
    pub async fn reaches_within(&self, patience: Duration, wished: impl Fn(u64) -> bool) -> Result<u64> {
        let mut value = 0;
        let holds = || {
            value = self.value();
            wished(value)
        };
        if self.completions.reach(patience, holds).await? {
            return Ok(value);
        }
        Err(late(patience))
    }
}

fn late(after: Duration) -> Error {
    Error::Timeout { what: "the wished value of a signal", after }
}

impl Completions {
    /// Polls for a while, then sleeps between looks, until `holds` does. False: it did not within the time.
    ///
    /// # Errors
    /// `Forked`: nobody sets the signal here.
    pub(crate) fn wait_for(&self, patience: Duration, mut holds: impl FnMut() -> bool) -> Result<bool> {
        let start = Instant::now();
        loop {
            if self.is_forked() {
                return Err(Error::Forked);
            }
            if holds() {
                return Ok(true);
            }
            let waited = start.elapsed();
            let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Ok(false);
            };
            // What this process has started goes on meanwhile.
            self.poll();
            if waited >= SPIN {
                self.stop_polling();
                std::thread::sleep(pause(waited).min(left));
            }
        }
    }

    /// [`wait_for`](Self::wait_for) for tasks.
    ///
    /// # Errors
    /// `Forked`.
    pub(crate) async fn reach(&self, patience: Duration, mut holds: impl FnMut() -> bool) -> Result<bool> {
        let start = Instant::now();
        poll_fn(|context| {
            // The task may have been forked between two polls.
            if self.is_forked() {
                return Poll::Ready(Err(Error::Forked));
            }
            if holds() {
                return Poll::Ready(Ok(true));
            }
            let waited = start.elapsed();
            let Some(left) = patience.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Poll::Ready(Ok(false));
            };
            self.poll();
            if waited < SPIN {
                context.waker().wake_by_ref();
            } else {
                self.stop_polling();
                self.ticks.wake_after(pause(waited).min(left), context.waker());
            }
            Poll::Pending
        })
        .await
    }
}

/// A tenth of what it has waited: whoever comes soon is seen soon.
fn pause(waited: Duration) -> Duration {
    (waited / 10).min(SIGNAL_SLEEP)
}
