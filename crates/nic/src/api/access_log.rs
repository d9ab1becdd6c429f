//! Access logs, as their owner reads them, and the attributes of regions (PAPERS AA-2 to AA-5).

use crate::api::queue_pair::QueuePair;
use crate::progress::engine::Nic;
use crate::services::Services;
use crate::services::interception::{Attributes, SharedLog};
use crate::services::protection::MemoryRegion;
use crate::types::error::Result;
use pagewire_fabric::Fabric;
use pagewire_iommu::access_log::{LogReader, Next, Published, Receipt, RecordHeader};
use parking_lot::Mutex;
use std::ops::Range;
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

/// An access log of this process, which has a user domain of its own. One thread at a time reads it.
pub struct AccessLog<F: Fabric> {
    services: Arc<Services<F>>,
    shared: Arc<SharedLog<F>>,
    reader: Mutex<LogReader<F::Words>>,
}

impl<F: Fabric> Nic<F> {
    /// Makes an access log.
    ///
    /// # Errors
    /// `InvalidArgument`; `NoMemory`: the process has had 1,024 user domains; those of the kernel.
    pub fn make_access_log(&self, init: &AccessLogInit) -> Result<AccessLog<F>> {
        AccessLog::new(&self.services, init)
    }

    /// Attributes for the pages of a range of addresses, all of them ordinary at first.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make_attributes(&self, range: Range<u64>) -> Result<Arc<Attributes<F>>> {
        self.services.attribute_table(range)
    }

    /// Takes the records of the fault log: of accesses whose pages have metadata logged and E not set, or whose log has ended. Also how many
    /// found no space there since the beginning.
    pub fn take_logged_faults(&self) -> (Vec<RecordHeader>, u64) {
        self.services.interception.take_faults()
    }
}

impl<F: Fabric> QueuePair<F> {
    /// The queue pair belongs to a caller. A flush of handlers by one of its queue pairs covers what was logged of all, also of those that have
    /// ended.
    pub fn set_caller(&self, caller: u64) {
        self.state.services.interception.enter_caller(self.number(), caller);
    }
}

impl<F: Fabric> AccessLog<F> {
    fn new(services: &Arc<Services<F>>, init: &AccessLogInit) -> Result<AccessLog<F>> {
        let shared = services.make_log(init.sources, init.bytes)?;
        let reader = Mutex::new(LogReader::new(shared.log.clone(), init.is_ordered));
        Ok(AccessLog { services: services.clone(), shared, reader })
    }

    /// What pages name to have accesses logged here.
    pub fn user_domain(&self) -> u16 {
        self.shared.user_domain()
    }

    /// Takes the next record, whose data take the place of what was in `data`. What it gives is to be [handled](Self::handled).
    pub fn next(&self, data: &mut Vec<u8>) -> Next {
        self.reader.lock().next(self.services.fabric.now(), data)
    }

    /// The handlers have returned for a record and all before it of its source.
    pub fn handled(&self, receipt: Receipt) {
        self.reader.lock().handled(receipt);
    }

    /// What sources have published by now.
    pub fn published(&self) -> Published {
        self.reader.lock().published()
    }

    /// Whether all of that was taken.
    pub fn has_read(&self, published: &Published) -> bool {
        self.reader.lock().has_read(published)
    }

    /// Sleeps until a source has so many records that were not taken, or little space left, or [`wake`](Self::wake) is called; for so long at
    /// most.
    pub fn sleep(&self, records: u64, at_most: Duration) {
        self.reader.lock().free_places();
        self.shared.log.sleep(records, at_most);
    }

    /// Whether a thread [sleeps](Self::sleep) until there are records.
    pub fn is_asleep(&self) -> bool {
        self.shared.log.is_asleep()
    }

    /// Ends a sleep.
    pub fn wake(&self) {
        self.shared.log.wake();
    }
}

impl<F: Fabric> Drop for AccessLog<F> {
    fn drop(&mut self) {
        self.services.end_log(self.shared.user_domain());
    }
}

impl<F: Fabric> MemoryRegion<F> {
    /// As [`Nic::make_access_log`], of the NIC that has the region.
    ///
    /// # Errors
    /// Those of `Nic::make_access_log`.
    pub fn make_access_log(&self, init: &AccessLogInit) -> Result<AccessLog<F>> {
        AccessLog::new(self.services(), init)
    }

    /// As [`Nic::make_attributes`], of the NIC that has the region.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make_attributes(&self, range: Range<u64>) -> Result<Arc<Attributes<F>>> {
        self.services().attribute_table(range)
    }

    /// Has accesses of peers obey the attributes of a table, or no more those of any. When this returns, later accesses do, on all paths.
    ///
    /// # Errors
    /// `NotFound`: the region has ended; `Busy`: an access that was under way before does not end.
    pub fn set_attributes(&self, attributes: Option<&Arc<Attributes<F>>>) -> Result<()> {
        self.services().intercept_region(self.rkey(), attributes)
    }

    /// Waits until accesses that began before a table of its attributes was changed have ended.
    ///
    /// # Errors
    /// `Busy`: one does not end in time.
    pub fn await_accesses(&self) -> Result<()> {
        self.services().await_accesses(self.rkey())
    }

    /// Has READs of the region answered when handlers have handled what was logged of the reading queue pair: all at its first byte, and at
    /// the offset 8 * (user domain + 1) what is in that log. Other accesses are refused.
    ///
    /// # Errors
    /// `NotFound`: the region has ended.
    pub fn make_flush_region(&self) -> Result<()> {
        self.services().make_flush_region(self.rkey())
    }
}
