//! The threads that wait for pages, so that nobody else has to, and help with transfers that meet many absent ones.

use crate::counters::Counters;
use crate::fabric::Direction;
use crate::shared_move::{SharedMove, move_together};
use pagewire_memory::{ApplicationMemory, HostMemory, HostProcess, MemoryError, Segment};
use pagewire_paging::{Executor, Offer, Task};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// For whom threads help with transfers.
const MOVES: u64 = u64::MAX;

/// Says that the pages with this token are there, or turned out not to be mapped.
type Done = dyn Fn(u64) + Send + Sync;

/// Those who bring pages in.
pub struct Pages {
    executor: Arc<Executor<Errand>>,
    hands: Arc<Hands>,
}

/// What every errand needs.
struct Hands {
    memory: Arc<HostMemory>,
    done: Box<Done>,
}

/// What a thread is asked to do.
#[derive(PartialEq, Eq, Hash)]
enum What {
    /// Bring in pages of this process; for writing, or not.
    Own { write: bool, segments: Vec<Segment> },
    /// The same in a peer, for reading.
    Far { process: HostProcess, segments: Vec<Segment> },
    /// Help with a transfer.
    Move(Arc<SharedMove>),
}

/// The same, for whom, and the word for it, if somebody waits.
struct Errand {
    what: What,
    asker: u64,
    token: Option<u64>,
    hands: Arc<Hands>,
}

impl PartialEq for Errand {
    fn eq(&self, other: &Self) -> bool {
        (self.asker, self.token, &self.what) == (other.asker, other.token, &other.what)
    }
}

impl Eq for Errand {}

impl Hash for Errand {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.asker, self.token, &self.what).hash(state);
    }
}

impl Task for Errand {
    fn asker(&self) -> u64 {
        self.asker
    }

    fn run(&self) {
        let memory = &*self.hands.memory;
        // Where one is not mapped the access itself will find that out, and say so.
        let _ = match &self.what {
            What::Own { write, segments } => {
                segments.iter().try_for_each(|segment| memory.bring_in(segment, *write))
            }
            What::Far { process, segments } => {
                segments.iter().try_for_each(|segment| memory.bring_in_far(process, segment))
            }
            What::Move(shared) => {
                shared.work(memory);
                Ok(())
            }
        };
    }

    fn end(&self) {
        if let Some(token) = self.token {
            (self.hands.done)(token);
        }
        // What is learnt may spare the next ones a thread.
        let memory = &*self.hands.memory;
        match &self.what {
            What::Own { segments, .. } => segments.iter().take(1).for_each(|first| memory.learn(*first)),
            What::Far { process, segments } => {
                segments.iter().take(1).for_each(|first| memory.learn_far(process, *first));
            }
            What::Move(_) => {}
        }
    }
}

impl Pages {
    /// No thread yet. `done` is called with a token when its pages are there, or turned out not to be mapped.
    pub fn new(memory: Arc<HostMemory>, done: Box<Done>) -> Self {
        let spawn = |body| crate::threads::spawn("pagewire-pages", body).map(drop);
        Pages { executor: Executor::new(spawn), hands: Arc::new(Hands { memory, done }) }
    }

    /// Has pages of this process brought in. What is asked for again before there was an answer has one answer.
    pub fn own(&self, asker: u64, segments: &[Segment], write: bool, token: u64, counters: &Counters) {
        let what = What::Own { write, segments: segments.to_vec() };
        self.offer(what, asker, Some(token), counters);
    }

    /// The same in a peer.
    pub fn far(&self, process: &HostProcess, segments: &[Segment], token: u64, counters: &Counters) {
        let what = What::Far { process: process.clone(), segments: segments.to_vec() };
        self.offer(what, process.pid() as u64, Some(token), counters);
    }

    /// Pages of this process that will be needed soon. They take no thread from those that are needed now.
    pub fn ahead(&self, asker: u64, segment: Segment, write: bool, counters: &Counters) {
        self.offer(What::Own { write, segments: vec![segment] }, !asker, None, counters);
    }

    /// Moves bytes between this process and a peer, where many pages are absent.
    pub fn move_together(
        &self,
        direction: Direction,
        process: &HostProcess,
        segments: (&[Segment], &[Segment]),
        tail_last: bool,
    ) -> Result<(), MemoryError> {
        let memory = &self.hands.memory;
        move_together(memory, direction, process, segments, tail_last, |shared| {
            let (what, hands) = (What::Move(shared), self.hands.clone());
            // Without help it takes longer.
            let _ = self.executor.offer(Errand { what, asker: MOVES, token: None, hands });
        })
    }

    fn offer(&self, what: What, asker: u64, token: Option<u64>, counters: &Counters) {
        counters.brought_in.add(1);
        let hands = self.hands.clone();
        match self.executor.offer(Errand { what, asker, token, hands }) {
            Offer::Taken | Offer::Known => {}
            Offer::Full => {
                counters.bring_in_overflow.add(1);
                // The access will be tried, and will wait itself in the end.
                if let Some(token) = token {
                    (self.hands.done)(token);
                }
            }
        }
    }

    /// Has idle threads end; those that wait for a page end when it comes.
    pub fn stop(&self) {
        self.executor.stop();
    }
}
