//! The shared receive queues that requests of extended reliable connections name.

use crate::queue_pair::shared_receive::SharedReceiveQueue;
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Numbers of shared receive queues have so many bits.
const NUMBER_MASK: u32 = 0xFF_FFFF;

/// Those of an XRC domain, by their numbers.
#[derive_where(Default)]
pub struct XrcQueues<F: Fabric>(Mutex<HashMap<u32, Arc<SharedReceiveQueue<F>>>>);

impl<F: Fabric> XrcQueues<F> {
    /// A number that no queue of these has. It is random: what a peer means for a queue of another process finds none here.
    pub(crate) fn free_number(&self, random: impl Fn() -> u64) -> u32 {
        let queues = self.0.lock();
        loop {
            let number = random() as u32 & NUMBER_MASK;
            if number != 0 && !queues.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn insert(&self, number: u32, queue: Arc<SharedReceiveQueue<F>>) {
        self.0.lock().insert(number, queue);
    }

    pub(crate) fn remove(&self, number: u32) {
        self.0.lock().remove(&number);
    }

    /// The queue of a number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<SharedReceiveQueue<F>>> {
        self.0.lock().get(&number).cloned()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}
