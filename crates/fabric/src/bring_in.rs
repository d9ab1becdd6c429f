//! Pages that threads of their own wait for, so that nobody else has to.

use crate::counters::Counters;
use pagewire_memory::{ApplicationMemory, HostMemory, HostProcess, Segment};
use pagewire_paging::{Executor, Offer, Task};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// For whom pages are brought in that nobody has asked for yet. No peer has such a number.
const AHEAD: u64 = u64::MAX;

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

/// Whose pages.
#[derive(Clone, Debug)]
enum Whose {
    /// This process's; for writing, or not.
    Own {
        write: bool,
    },
    Far(HostProcess),
}

/// What is to be brought in, for whom, and the word for it, if somebody waits.
struct Errand {
    asker: u64,
    whose: Whose,
    segments: Vec<Segment>,
    token: Option<u64>,
    hands: Arc<Hands>,
}

impl Errand {
    fn key(&self) -> (u64, Option<u64>, i32, bool, &[Segment]) {
        let (pid, write) = match &self.whose {
            Whose::Own { write } => (0, *write),
            Whose::Far(process) => (process.pid(), false),
        };
        (self.asker, self.token, pid, write, &self.segments)
    }

    fn tell(&self) {
        if let Some(token) = self.token {
            (self.hands.done)(token);
        }
    }
}

impl PartialEq for Errand {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Errand {}

impl Hash for Errand {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl Task for Errand {
    fn asker(&self) -> u64 {
        self.asker
    }

    fn run(&self) {
        let memory = &self.hands.memory;
        // Where one is not mapped the access itself will find that out, and say so.
        let _ = self.segments.iter().try_for_each(|segment| match &self.whose {
            Whose::Own { write } => memory.bring_in(segment, *write),
            Whose::Far(process) => memory.bring_in_far(process, segment),
        });
        self.tell();
        // The next ones may not need a thread at all.
        if let Some(first) = self.segments.first() {
            match &self.whose {
                Whose::Own { .. } => memory.learn(*first),
                Whose::Far(process) => memory.learn_far(process, *first),
            }
        }
    }

    fn give_up(&self) {
        self.tell();
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
        self.offer(asker, Whose::Own { write }, segments, Some(token), counters);
    }

    /// The same in a peer.
    pub fn far(&self, process: &HostProcess, segments: &[Segment], token: u64, counters: &Counters) {
        self.offer(process.pid() as u64, Whose::Far(process.clone()), segments, Some(token), counters);
    }

    /// Pages of this process that will be needed soon.
    pub fn ahead(&self, segment: Segment, write: bool, counters: &Counters) {
        self.offer(AHEAD, Whose::Own { write }, &[segment], None, counters);
    }

    fn offer(&self, asker: u64, whose: Whose, segments: &[Segment], token: Option<u64>, counters: &Counters) {
        counters.brought_in.add(1);
        let (segments, hands) = (segments.to_vec(), self.hands.clone());
        match self.executor.offer(Errand { asker, whose, segments, token, hands }) {
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
