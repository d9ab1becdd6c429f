//! Which tests run at the same time: each borrows two hosts that no other test uses meanwhile, and there are only so many.
//!
//! Two ends that poll want a processor each, so tests of that kind follow one another. Tests that mostly wait, for a timer, a
//! pager or a compiler, run beside them. What tests share is the installation and the directory that it may be copied to.

use crate::ground::Ground;
use anyhow::Result;
use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a test does most of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// It polls in two processes.
    Polls,
    /// It waits.
    Waits,
}

impl Load {
    /// How many tests of this kind may run at the same time.
    const fn limit(self) -> usize {
        match self {
            Load::Polls => 1,
            Load::Waits => 3,
        }
    }
}

/// The grounds of one kind of tests.
#[derive(Debug, Default)]
struct Grounds {
    made: usize,
    free: Vec<Ground>,
}

/// All grounds. Each is made when a test first needs one more; all are gone with the pool.
#[derive(Debug)]
pub struct Pool {
    first: Ground,
    /// By [`Load`].
    grounds: [Mutex<Grounds>; 2],
    returned: [Condvar; 2],
}

impl Pool {
    /// A pool of an installation that can be tested.
    ///
    /// # Errors
    /// As [`Ground::prepare`].
    pub fn prepare() -> Result<Pool> {
        Ok(Pool { first: Ground::prepare()?, grounds: Default::default(), returned: Default::default() })
    }

    /// A ground for one test; waits while as many tests of its kind run as may.
    ///
    /// # Errors
    /// As [`Ground::prepare`], if there is none yet.
    pub fn borrow(&self, load: Load) -> Result<Borrowed<'_>> {
        let grounds = self.grounds(load);
        let all_in_use = |grounds: &mut Grounds| grounds.free.is_empty() && grounds.made == load.limit();
        let waited = self.returned[load as usize].wait_while(grounds, all_in_use);
        let mut grounds = waited.unwrap_or_else(PoisonError::into_inner);
        let ground = match grounds.free.pop() {
            Some(ground) => ground,
            None => self.first.with_other_hosts().inspect(|_| grounds.made += 1)?,
        };
        Ok(Borrowed { pool: self, load, ground: Some(ground) })
    }

    /// Grounds are pushed and popped whole: a thread that panicked meanwhile has left them right.
    fn grounds(&self, load: Load) -> MutexGuard<'_, Grounds> {
        self.grounds[load as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ground that belongs to one test until it is dropped.
#[derive(Debug)]
pub struct Borrowed<'a> {
    pool: &'a Pool,
    load: Load,
    /// `None` only while it is dropped.
    ground: Option<Ground>,
}

impl Deref for Borrowed<'_> {
    type Target = Ground;

    fn deref(&self) -> &Ground {
        self.ground.as_ref().unwrap_or(&self.pool.first)
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.pool.grounds(self.load).free.extend(self.ground.take());
        self.pool.returned[self.load as usize].notify_one();
    }
}
