//! Access logs of a node: what peers did to pages with attributes (PAPERS AA-3 to AA-5).

use crate::error::{Error, Result, refused};
use crate::nodes::engine::Host;
use crate::nodes::node::Node;
pub use crate::nodes::sources::{Source, Sources};
use pagewire_memory::fork::Owned;
pub use pagewire_nic::{
    AccessLogInit, LoggedOperation, Next, PageAttributes, PageFlags, Receipt, RecordFlags, RecordHeader,
};
use std::time::Duration;

/// An access log of this process, in its raw form: `pagewire_active` has handlers over it.
pub struct AccessLog {
    log: Owned<pagewire_nic::AccessLog<Host>>,
    user_domain: u16,
}

impl Node {
    /// Makes an access log.
    ///
    /// # Errors
    /// `Engine`: it has no sources or too many, or less than 48 bytes for each; the process has had 1,024 logs; there is no memory.
    pub fn make_access_log(&self, init: &AccessLogInit) -> Result<AccessLog> {
        self.services().check_owner()?;
        let log =
            pagewire_nic::AccessLog::of_nic(&self.services().nic, init).map_err(refused("an access log"))?;
        Ok(AccessLog { user_domain: log.user_domain(), log: Owned::new(log) })
    }

    /// Takes the records of the fault log: accesses to pages whose metadata are logged and that have E not set. Also how many found no space
    /// there since the beginning of the process (PAPERS AA-4).
    pub fn take_logged_faults(&self) -> (Vec<RecordHeader>, u64) {
        if self.services().is_forked() {
            return (Vec::new(), 0);
        }
        self.services().nic.take_logged_faults()
    }
}

impl AccessLog {
    /// Refuses a forked child, which finds a log of its parent [`Empty`](Next::Empty).
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, access_log::AccessLogInit};
    /// # let node = Node::alone()?;
    /// let log = node.make_access_log(&AccessLogInit { sources: 4, bytes: 1 << 16, is_ordered: true })?;
    /// log.check_owner()?; // this process has made it
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Forked`.
    pub fn check_owner(&self) -> Result<()> {
        self.log.get().map(drop).ok_or(Error::Forked)
    }

    /// The user domain of pages whose accesses are logged here.
    pub fn user_domain(&self) -> u16 {
        self.user_domain
    }

    /// Takes the next record, whose data take the place of what was in `data`. Tell of each that it was [handled](Self::handled).
    pub fn next(&self, data: &mut Vec<u8>) -> Next {
        self.log.get().map_or(Next::Empty, |log| log.next(data))
    }

    /// The handlers have returned for a record, and for all before it of its source.
    pub fn handled(&self, receipt: Receipt) {
        if let Some(log) = self.log.get() {
            log.handled(receipt);
        }
    }

    /// Sleeps until a source has so many records that were not taken, or little space left, or [`wake`](Self::wake) is called; for so long at
    /// most.
    pub fn sleep(&self, records: u64, at_most: Duration) {
        if let Some(log) = self.log.get() {
            log.sleep(records, at_most);
        }
    }

    /// Whether a thread [sleeps](Self::sleep) until there are records.
    pub fn is_asleep(&self) -> bool {
        self.log.get().is_some_and(|log| log.is_asleep())
    }

    /// Ends a sleep.
    pub fn wake(&self) {
        if let Some(log) = self.log.get() {
            log.wake();
        }
    }
}
