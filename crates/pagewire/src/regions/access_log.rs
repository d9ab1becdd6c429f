//! Access logs of a node: what peers did to pages with attributes (PAPERS AA-3 to AA-5).

use crate::error::{Result, refused};
use crate::nodes::engine::Host;
use crate::nodes::node::Node;
pub use crate::nodes::sources::{Source, Sources};
pub use pagewire_nic::{
    AccessLogInit, Forked, LoggedOperation, Next, PageAttributes, PageFlags, Receipt, RecordFlags,
    RecordHeader,
};

/// An access log of this process, in its raw form: `pagewire_active` has handlers over it.
pub type AccessLog = pagewire_nic::AccessLog<Host>;

impl Node {
    /// Makes an access log.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire::{Node, access_log::{AccessLogInit, Next}};
    /// # let node = Node::alone()?;
    /// let log = node.make_access_log(&AccessLogInit { sources: 4, bytes: 1 << 16, is_ordered: true })?;
    /// log.check_owner()?; // this process has made it
    /// assert!(matches!(log.next(&mut Vec::new()), Next::Empty)); // no page names its user domain
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Engine`: it has no sources or too many, or less than 48 bytes for each; the process has had 1,024 logs; there is no memory.
    pub fn make_access_log(&self, init: &AccessLogInit) -> Result<AccessLog> {
        self.services().check_owner()?;
        AccessLog::of_nic(&self.services().nic, init).map_err(refused("an access log"))
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
