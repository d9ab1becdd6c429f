//! Access logs of a node: what peers did to pages with attributes (PAPERS AA-3 to AA-5).

use crate::engine::Host;
use crate::error::{Result, refused};
use crate::node::Node;
pub use crate::sources::{Source, Sources};
pub use pagewire_nic::{
    AccessLogInit, LoggedOperation, Next, PageAttributes, PageFlags, Receipt, RecordFlags, RecordHeader,
};
use std::time::Duration;

/// An access log of this process, in its raw form: `pagewire_active` has handlers over it.
pub struct AccessLog(pagewire_nic::AccessLog<Host>);

impl Node {
    /// Makes an access log.
    ///
    /// # Errors
    /// `Engine`: it has no sources or too many, or less than 48 bytes for each; the process has had 1,024 logs; there is no memory.
    pub fn make_access_log(&self, init: &AccessLogInit) -> Result<AccessLog> {
        self.services().nic.make_access_log(init).map(AccessLog).map_err(refused("an access log"))
    }

    /// Takes the records of the fault log: accesses to pages whose metadata are logged and that have E not set. Also how many found no space
    /// there since the beginning of the process (PAPERS AA-4).
    pub fn take_logged_faults(&self) -> (Vec<RecordHeader>, u64) {
        self.services().nic.take_logged_faults()
    }
}

impl AccessLog {
    /// The user domain of pages whose accesses are logged here.
    pub fn user_domain(&self) -> u16 {
        self.0.user_domain()
    }

    /// Takes the next record, whose data take the place of what was in `data`. Tell of each that it was [handled](Self::handled).
    pub fn next(&self, data: &mut Vec<u8>) -> Next {
        self.0.next(data)
    }

    /// The handlers have returned for a record, and for all before it of its source.
    pub fn handled(&self, receipt: Receipt) {
        self.0.handled(receipt);
    }

    /// Sleeps until a source has so many records that were not taken, or little space left, or [`wake`](Self::wake) is called; for so long at
    /// most.
    pub fn sleep(&self, records: u64, at_most: Duration) {
        self.0.sleep(records, at_most);
    }

    /// Whether a thread [sleeps](Self::sleep) until there are records.
    pub fn is_asleep(&self) -> bool {
        self.0.is_asleep()
    }

    /// Ends a sleep.
    pub fn wake(&self) {
        self.0.wake();
    }
}
