//! Access logs, as their owner reads them, and the attributes of regions (PAPERS AA-2 to AA-5).

use crate::api::queue_pair::QueuePair;
use crate::progress::engine::Nic;
use crate::services::Services;
use crate::services::interception::SharedLog;
use crate::services::protection::MemoryRegion;
use crate::types::error::{Forked, Result};
use pagewire_fabric::Fabric;
use pagewire_iommu::access_log::{LogReader, Next, PublishedPositions, Receipt};
use pagewire_memory::fork::Owned;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// How an access log is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessLogInit {
    /// Queue pairs of peers that may have records in it at once: 1 to 4096.
    pub sources: usize,
    /// Bytes for each of them. A record takes 48, and its data.
    pub bytes: usize,
    /// A record whose access began after another one had ended is never read before it.
    pub is_ordered: bool,
}

/// An access log of this process, in its raw form: who reads it calls handlers. It has a user domain of its own, and one thread at a time
/// reads it.
///
/// A forked child finds a log of its parent [`Empty`](Next::Empty), and changes nothing there.
pub struct AccessLog<F: Fabric> {
    user_domain: u16,
    log: Owned<LogOwner<F>>,
}

/// The log in the process that made it.
struct LogOwner<F: Fabric> {
    services: Arc<Services<F>>,
    shared: Arc<SharedLog<F>>,
    reader: Mutex<LogReader<F::SharedMemory>>,
}

impl<F: Fabric> QueuePair<F> {
    /// The queue pair belongs to a caller. A flush of handlers by one of its queue pairs covers what was logged of all, also of those that have
    /// ended.
    pub fn set_caller(&self, caller: u64) {
        self.state.services.interception.enter_caller(self.number(), caller);
    }
}

impl<F: Fabric> AccessLog<F> {
    /// A log of the process that has an engine.
    ///
    /// # Errors
    /// `InvalidArgument`; `NoMemory`: the process has had 1,024 user domains; those of the kernel.
    pub fn of_nic(nic: &Nic<F>, init: &AccessLogInit) -> Result<AccessLog<F>> {
        AccessLog::new(&nic.services, init)
    }

    /// A log of the process that has a region.
    ///
    /// # Errors
    /// As those of [`of_nic`](Self::of_nic).
    pub fn of_region(region: &MemoryRegion<F>, init: &AccessLogInit) -> Result<AccessLog<F>> {
        AccessLog::new(region.services(), init)
    }

    fn new(services: &Arc<Services<F>>, init: &AccessLogInit) -> Result<AccessLog<F>> {
        let shared = services.make_log(init.sources, init.bytes)?;
        let user_domain = shared.user_domain();
        let reader = Mutex::new(LogReader::new(shared.log.clone(), init.is_ordered));
        let log = Owned::new(LogOwner { services: services.clone(), shared, reader });
        Ok(AccessLog { user_domain, log })
    }

    /// Refuses a forked child.
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_owner(&self) -> Result<(), Forked> {
        self.log.get().map(drop).ok_or(Forked)
    }

    /// The user domain of pages whose accesses are logged here.
    pub fn user_domain(&self) -> u16 {
        self.user_domain
    }

    /// Takes the next record, whose data take the place of what was in `data`. Tell of each that it was [handled](Self::handled).
    pub fn next(&self, data: &mut Vec<u8>) -> Next {
        let next = |log: &LogOwner<F>| log.reader.lock().next(log.services.fabric.now(), data);
        self.log.get().map_or(Next::Empty, next)
    }

    /// The handlers have returned for a record, and for all before it of its source.
    pub fn handled(&self, receipt: Receipt) {
        if let Some(log) = self.log.get() {
            log.reader.lock().handled(receipt);
        }
    }

    /// What sources have published by now. `None`: this is a forked child.
    pub fn published(&self) -> Option<PublishedPositions> {
        self.log.get().map(|log| log.reader.lock().published())
    }

    /// Whether all of that was taken. A forked child has nothing to take.
    pub fn has_read(&self, published: &PublishedPositions) -> bool {
        self.log.get().is_none_or(|log| log.reader.lock().has_read(published))
    }

    /// Sleeps until a source has so many records that were not taken, or little space left, or [`wake`](Self::wake) is called; for so long at
    /// most.
    pub fn sleep(&self, records: u64, at_most: Duration) {
        if let Some(log) = self.log.get() {
            log.reader.lock().free_places();
            log.shared.log.sleep(records, at_most);
        }
    }

    /// Whether a thread [sleeps](Self::sleep) until there are records.
    pub fn is_asleep(&self) -> bool {
        self.log.get().is_some_and(|log| log.shared.log.is_asleep())
    }

    /// Ends a sleep.
    pub fn wake(&self) {
        if let Some(log) = self.log.get() {
            log.shared.log.wake();
        }
    }
}

impl<F: Fabric> Drop for LogOwner<F> {
    fn drop(&mut self) {
        self.services.end_log(self.shared.user_domain());
    }
}
