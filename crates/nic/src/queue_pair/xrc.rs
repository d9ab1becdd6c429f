//! The shared receive queues that requests of extended reliable connections name.

use crate::queue_pair::relay::XrcSharing;
use crate::queue_pair::shared_receive::SharedReceiveQueue;
use crate::types::error::Result;
use derive_where::derive_where;
use pagewire_fabric::Fabric;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// Numbers of shared receive queues have so many bits.
const NUMBER_MASK: u32 = 0xFF_FFFF;

/// Those of an XRC domain, by their numbers.
#[derive_where(Default)]
pub struct XrcQueues<F: Fabric> {
    own: Mutex<HashMap<u32, Arc<SharedReceiveQueue<F>>>>,
    /// Of a domain that other processes may have, too.
    shared: OnceLock<SharedDomain>,
}

/// What an XRC domain has that processes share.
pub struct SharedDomain {
    pub sharing: Arc<dyn XrcSharing>,
    /// Has the queue pair with a number run.
    pub wake: Arc<dyn Fn(u32) + Send + Sync>,
}

impl<F: Fabric> XrcQueues<F> {
    /// A number that no queue of these has, and none of another process that shares the domain. Without such processes it is random: what a
    /// peer means for a queue of another domain finds none here.
    ///
    /// # Errors
    /// Those of [`XrcSharing::free_number`].
    pub(crate) fn free_number(&self, random: impl Fn() -> u64) -> Result<u32> {
        let queues = self.own.lock();
        if let Some(shared) = self.shared() {
            return shared.sharing.free_number(&|number| queues.contains_key(&number));
        }
        loop {
            let number = random() as u32 & NUMBER_MASK;
            if number != 0 && !queues.contains_key(&number) {
                return Ok(number);
            }
        }
    }

    pub(crate) fn insert(&self, number: u32, queue: Arc<SharedReceiveQueue<F>>) {
        self.own.lock().insert(number, queue);
    }

    pub(crate) fn remove(&self, number: u32) {
        self.own.lock().remove(&number);
    }

    /// The queue of a number.
    pub(crate) fn get(&self, number: u32) -> Option<Arc<SharedReceiveQueue<F>>> {
        self.own.lock().get(&number).cloned()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.own.lock().is_empty()
    }

    /// Other processes may have the domain from now on.
    pub(crate) fn share(&self, shared: SharedDomain) {
        // Once, at the creation of the domain.
        let _ = self.shared.set(shared);
    }

    /// How the processes that share the domain are reached. `None`: the domain is one of this process alone.
    pub(crate) fn shared(&self) -> Option<&SharedDomain> {
        self.shared.get()
    }
}
