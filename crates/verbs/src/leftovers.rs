//! What a context still holds when it is closed. A kernel ends the queue pairs and regions of a device file that is closed; programs
//! rely on it, above all for memory that they then use for other things.

use crate::engine::Host;
use pagewire_nic::{MemoryRegion, QueuePair};
use parking_lot::Mutex;
use slab::Slab;
use std::sync::Arc;

/// The queue pairs and regions of a context, each under a number.
#[derive(Default)]
pub struct Leftovers {
    queue_pairs: Mutex<Slab<Arc<QueuePair<Host>>>>,
    regions: Mutex<Slab<Arc<MemoryRegion<Host>>>>,
}

impl Leftovers {
    /// Notes a queue pair; gives its number.
    pub fn add_queue_pair(&self, queue_pair: &Arc<QueuePair<Host>>) -> usize {
        self.queue_pairs.lock().insert(queue_pair.clone())
    }

    /// A queue pair was destroyed.
    pub fn remove_queue_pair(&self, number: usize) {
        self.queue_pairs.lock().try_remove(number);
    }

    /// Notes a region; gives its number.
    pub fn add_region(&self, region: &Arc<MemoryRegion<Host>>) -> usize {
        self.regions.lock().insert(region.clone())
    }

    /// A region was deregistered.
    pub fn remove_region(&self, number: usize) {
        self.regions.lock().try_remove(number);
    }

    /// Ends what is left.
    pub fn end(&self) {
        for queue_pair in self.queue_pairs.lock().drain() {
            // Closing does not wait for the program (ibv_close_device(3)).
            queue_pair.async_events().abandon();
            if let Err(error) = queue_pair.destroy() {
                log::warn!("queue pair {} outlives its context: {error}", queue_pair.number());
            }
        }
        for region in self.regions.lock().drain() {
            if let Err(error) = region.deregister() {
                log::warn!("the region with key {:#x} outlives its context: {error}", region.rkey());
            }
        }
    }
}
