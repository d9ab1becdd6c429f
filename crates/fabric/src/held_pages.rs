//! Pages that rules hold back. A thread waits for those that are late. No thread waits for those that are lost: what needs them is told when
//! their region ends, and nothing else stops.

use crate::fabric::RegionPart;
use crate::limits::{LOOK_AGAIN, LOST_PAGES};
use crate::waiters::{PageWaiters, Waiter};
use crate::words::MappedWords;
use pagewire_iommu::RegionView;
use pagewire_memory::HostProcess;
use parking_lot::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// What becomes of pages by a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageFate {
    /// They come after this time.
    Late(Duration),
    /// They never come, as where a pager has died.
    Lost,
}

/// Rules about pages that threads bring in.
pub trait PageRules: Send + Sync {
    /// What becomes of the pages that a task asks for; `None`: they come. Called once for each task whose pages are not held back already, under
    /// a lock: it asks for no pages.
    fn fate(&self) -> Option<PageFate>;
}

/// Pages of one region.
#[derive(Clone)]
pub struct RegionPages {
    /// Whose; `None`: this process's, also where it is its own peer.
    pub process: Option<HostProcess>,
    /// The regions of that process.
    pub regions: RegionView<MappedWords>,
    pub part: RegionPart,
}

impl RegionPages {
    fn has_ended(&self) -> bool {
        !self.regions.lives(&self.part.region)
    }

    /// Whether a page is in both, and in the same life of a region.
    fn overlaps(&self, other: &RegionPages) -> bool {
        let (own, its) = (&self.part.segment, &other.part.segment);
        self.process == other.process
            && self.part.region == other.part.region
            && own.address < its.address.saturating_add(its.length)
            && its.address < own.address.saturating_add(own.length)
    }
}

/// What one task asked for, and those who wait for it.
struct LostTask {
    pages: Vec<RegionPages>,
    waiters: PageWaiters,
}

impl LostTask {
    fn has_any(&self, pages: &[RegionPages]) -> bool {
        overlap(&self.pages, pages)
    }

    fn has_ended(&self) -> bool {
        self.pages.iter().any(RegionPages::has_ended)
    }
}

/// What one task waits for.
struct LateTask {
    pages: Vec<RegionPages>,
    due: Instant,
}

/// Whether a page of one list is in the other.
fn overlap(one: &[RegionPages], other: &[RegionPages]) -> bool {
    one.iter().any(|own| other.iter().any(|page| own.overlaps(page)))
}

#[derive(Default)]
struct HeldState {
    lost: Vec<LostTask>,
    late: Vec<LateTask>,
    is_stopped: bool,
}

impl HeldState {
    fn has_lost(&self, pages: &[RegionPages]) -> bool {
        self.lost.iter().any(|task| task.has_any(pages))
    }

    /// When the last of the pages comes that are late.
    fn due(&self, pages: &[RegionPages]) -> Option<Instant> {
        self.late.iter().filter(|task| overlap(&task.pages, pages)).map(|task| task.due).max()
    }

    fn task_of(&mut self, pages: &[RegionPages]) -> Option<&mut LostTask> {
        self.lost.iter_mut().find(|task| task.has_any(pages))
    }
}

/// The pages that are held back.
#[derive(Default)]
pub struct HeldPages {
    state: Mutex<HeldState>,
    /// A region has ended, or everything has.
    changed: Condvar,
}

impl HeldPages {
    /// Waits so long, or until a region of the pages ends, or everything.
    pub fn wait(&self, delay: Duration, pages: &[RegionPages]) {
        let due = Instant::now() + delay;
        let mut state = self.state.lock();
        while !state.is_stopped && !pages.iter().any(RegionPages::has_ended) {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            // Nobody tells of the end of a peer's region.
            self.changed.wait_for(&mut state, left.min(LOOK_AGAIN));
        }
        state.late.retain(|task| task.due > Instant::now() && !task.pages.iter().any(RegionPages::has_ended));
    }

    /// What becomes of the pages that a task asks for; `None`: they come. What is lost, or late, is so from now on, for every other task, until
    /// one of its regions ends, or the time is over.
    pub fn decide(&self, rules: &dyn PageRules, pages: &[RegionPages]) -> Option<PageFate> {
        let mut state = self.state.lock();
        if state.has_lost(pages) {
            return Some(PageFate::Lost);
        }
        if let Some(due) = state.due(pages) {
            return Some(PageFate::Late(due.saturating_duration_since(Instant::now())));
        }
        let fate = rules.fate();
        match fate {
            Some(PageFate::Lost) => {}
            Some(PageFate::Late(_)) if state.is_stopped => return None,
            Some(PageFate::Late(delay)) => {
                state.late.push(LateTask { pages: pages.to_vec(), due: Instant::now() + delay });
                return fate;
            }
            None => return None,
        }
        if state.lost.len() >= LOST_PAGES {
            log::warn!("{LOST_PAGES} tasks for pages are lost by rules: pages of further ones come");
            return None;
        }
        if !state.is_stopped {
            state.lost.push(LostTask { pages: pages.to_vec(), waiters: PageWaiters::begin() });
        }
        Some(PageFate::Lost)
    }

    /// Has those wait who waited for a task whose pages are lost; gives them back where its region has ended meanwhile.
    pub fn join_all(&self, pages: &[RegionPages], waiters: PageWaiters) -> Option<PageWaiters> {
        let mut state = self.state.lock();
        match state.task_of(pages).filter(|task| !task.has_ended()) {
            Some(task) => {
                task.waiters.add_all(waiters);
                None
            }
            None => Some(waiters),
        }
    }

    /// Whether one of the pages is lost.
    pub fn has_lost(&self, pages: &[RegionPages]) -> bool {
        self.state.lock().has_lost(pages)
    }

    /// Whether one of the pages is lost, or late.
    pub fn has_any(&self, pages: &[RegionPages]) -> bool {
        let state = self.state.lock();
        state.has_lost(pages) || state.due(pages).is_some_and(|due| due > Instant::now())
    }

    /// Has somebody wait for pages of which one is lost; false: none is.
    pub fn join(&self, pages: &[RegionPages], waiter: Waiter) -> bool {
        let mut state = self.state.lock();
        state.task_of(pages).map(|task| task.waiters.add(waiter)).is_some()
    }

    /// Gives those who wait for pages of a region that has ended.
    pub fn take_ended(&self) -> Vec<PageWaiters> {
        let mut state = self.state.lock();
        let ended = state.lost.extract_if(.., |task| task.has_ended()).map(|task| task.waiters).collect();
        drop(state);
        self.changed.notify_all();
        ended
    }

    /// Holds nothing back any more; gives all who wait.
    pub fn stop(&self) -> Vec<PageWaiters> {
        let mut state = self.state.lock();
        state.is_stopped = true;
        let ended = state.lost.drain(..).map(|task| task.waiters).collect();
        drop(state);
        self.changed.notify_all();
        ended
    }
}
