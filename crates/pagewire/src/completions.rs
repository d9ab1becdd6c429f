//! The completion queue of a node, and the thread that polls it for those who sleep.

use crate::engine::Host;
use crate::error::{Result, refused, system};
use crate::limits::{COMPLETIONS, POLL};
use crate::node::Shared;
use pagewire_nic::{Completion, CompletionChannel, CompletionQueue, Context, Notifier};
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Completions of one poll.
pub(crate) type Batch = SmallVec<[Completion; 8]>;

/// For how long the thread sleeps at most before it looks whether its node is still there.
const LOOK: Duration = Duration::from_secs(1);

/// The completion queue of a node.
pub(crate) struct Completions {
    queue: Arc<CompletionQueue<Host>>,
    channel: Arc<CompletionChannel>,
    bell: Arc<Bell>,
}

/// What wakes the thread that polls for sleepers.
#[derive(Default)]
struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Default)]
struct BellState {
    /// Wakers of operations that have not ended. Below zero for a moment where one ends while its waker is being set.
    sleepers: isize,
    /// The completion queue has announced something.
    rung: bool,
    closed: bool,
}

impl Notifier for Bell {
    fn raise(&self) {
        self.state.lock().rung = true;
        self.changed.notify_all();
    }

    fn withdraw(&self) {}
}

impl Completions {
    pub fn new(context: &Arc<Context<Host>>) -> Result<Self> {
        let bell = Arc::new(Bell::default());
        let channel = context.create_channel(bell.clone());
        let queue =
            context.create_cq(COMPLETIONS, Some(channel.clone())).map_err(refused("a completion queue"))?;
        Ok(Completions { queue, channel, bell })
    }

    pub fn queue(&self) -> &Arc<CompletionQueue<Host>> {
        &self.queue
    }

    /// Takes what is complete; with nothing there the calling thread does the engine's work for a moment.
    pub fn take(&self) -> Batch {
        let mut batch = Batch::new();
        self.queue.poll(POLL, &mut |completion| batch.push(*completion));
        batch
    }

    /// So many more sleep until operations end, or fewer.
    pub fn add_sleepers(&self, more: isize) {
        self.bell.state.lock().sleepers += more;
        if more > 0 {
            self.bell.changed.notify_all();
        }
    }

    /// Ends the thread.
    pub fn close(&self) {
        self.bell.state.lock().closed = true;
        self.bell.changed.notify_all();
    }

    /// Starts the thread that polls for sleepers.
    pub fn serve_sleepers(&self, node: Weak<Shared>) -> Result<()> {
        let bell = self.bell.clone();
        pagewire_fabric::spawn("pagewire-wait", move || serve(&bell, &node))
            .map_err(system("a thread cannot start"))?;
        Ok(())
    }
}

fn serve(bell: &Bell, node: &Weak<Shared>) {
    loop {
        let mut state = bell.state.lock();
        while state.sleepers <= 0 && !state.closed {
            bell.changed.wait(&mut state);
        }
        if state.closed {
            return;
        }
        drop(state);
        let Some(node) = node.upgrade() else { return };
        // What is there when the queue is armed gives no event (`ibv_req_notify_cq(3)`): so it is polled behind that.
        node.completions.queue.arm(false);
        if node.poll() > 0 {
            continue;
        }
        let channel = node.completions.channel.clone();
        drop(node);
        let mut state = bell.state.lock();
        if !state.rung && !state.closed {
            bell.changed.wait_for(&mut state, LOOK);
        }
        state.rung = false;
        drop(state);
        while channel.next_event().is_some() {}
    }
}
