//! A second region on an owner's memory, whose pages have attributes: accesses by its key are logged or refused, and the log counts each once,
//! whatever the network does (PAPERS AA-2 to AA-4, AA-10).

use crate::workload::party::{NATIVE, Party};
use pagewire_fabric::Fabric;
use pagewire_nic::{
    AccessLog, AccessLogInit, Error, LoggedOperation, MemoryRegion, Next, PageAttributes, PageFlags,
    RecordFlags, SendOperation,
};
use std::collections::HashMap;
use std::sync::Arc;

const PAGE: u64 = 4096;
/// From here on accesses by the key are refused. Before it all are permitted.
pub const REFUSING: u64 = NATIVE - PAGE;
/// Bytes of the ring of a source: shorter than what is under way, so that accesses wait for the reader.
const RING: usize = 4096;

/// An access as the log tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LoggedAccess {
    operation: LoggedOperation,
    is_refused: bool,
}

/// Accesses, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct AccessTally {
    accesses: u64,
    bytes: u64,
}

/// The region, its log, and what was counted.
pub struct LoggedRegion<F: Fabric> {
    region: Arc<MemoryRegion<F>>,
    log: AccessLog<F>,
    address: u64,
    /// Requests under way by its key, and how many bytes each accesses.
    requests: HashMap<u64, (LoggedAccess, u64)>,
    expected: HashMap<LoggedAccess, AccessTally>,
    seen: HashMap<LoggedAccess, AccessTally>,
}

impl<F: Fabric> LoggedRegion<F> {
    /// On the memory of a native connection, at this address of its owner.
    pub fn new(owner: &Party<F>, address: u64) -> Result<LoggedRegion<F>, Error> {
        let region = owner.register(address, NATIVE)?;
        let log = pagewire_nic::AccessLog::of_region(
            &region,
            &AccessLogInit { sources: 2, bytes: RING, is_ordered: true },
        )?;
        let table = region.make_attributes(address..address + NATIVE)?;
        let logs = PageFlags::LOG_READ | PageFlags::LOG_WRITE | PageFlags::TO_ACCESS_LOG;
        for (pages, flags) in
            [(0..REFUSING, PageFlags::READ | PageFlags::WRITE | logs), (REFUSING..NATIVE, logs)]
        {
            let attributes = PageAttributes { flags, user_domain: log.user_domain() };
            let set = table.set(pages, attributes);
            set.map_err(|_| Error::InvalidArgument("the attributes cannot be set"))?;
        }
        region.set_attributes(Some(&table))?;
        let (requests, expected, seen) = Default::default();
        Ok(LoggedRegion { region, log, address, requests, expected, seen })
    }

    pub fn key(&self) -> u32 {
        self.region.rkey()
    }

    /// Notes a request by this key.
    pub fn note(&mut self, request: u64, operation: &SendOperation, length: u64) {
        let (operation, address, length) = match *operation {
            SendOperation::Read { address, key } if key == self.key() => {
                (LoggedOperation::Read, address, length)
            }
            SendOperation::Write { address, key } if key == self.key() => {
                (LoggedOperation::Write, address, length)
            }
            SendOperation::FetchAdd { address, key, .. } if key == self.key() => {
                (LoggedOperation::FetchAdd, address, 8)
            }
            _ => return,
        };
        let is_refused = address >= self.address + REFUSING;
        self.requests.insert(request, (LoggedAccess { operation, is_refused }, length));
    }

    /// A request has completed: done or refused, or flushed behind one that was.
    pub fn ended(&mut self, request: u64, is_executed: bool) {
        let Some((access, bytes)) = self.requests.remove(&request) else { return };
        if is_executed {
            add(&mut self.expected, access, 1, bytes);
        }
    }

    /// Reads the log.
    pub fn read(&mut self) -> Result<bool, String> {
        let (mut data, mut active) = (Vec::new(), false);
        loop {
            match self.log.next(&mut data) {
                Next::Record(record, receipt) => {
                    self.log.handled(receipt);
                    active = true;
                    if record.flags.contains(RecordFlags::REPEATED) {
                        continue;
                    }
                    if record.flags.contains(RecordFlags::MAY_HAVE_WRITTEN) {
                        return Err(format!("a living source left {record:?}"));
                    }
                    let is_refused = record.flags.contains(RecordFlags::REFUSED);
                    let access = LoggedAccess { operation: record.operation, is_refused };
                    let begins = u64::from(record.flags.contains(RecordFlags::FIRST));
                    add(&mut self.seen, access, begins, record.length.into());
                }
                Next::Corrupt(source) => return Err(format!("the ring of source {source} is damaged")),
                Next::Empty | Next::InFlight => return Ok(active),
            }
        }
    }

    /// Compares what the log has with what has ended, once nothing is under way.
    pub fn compare(&mut self) -> Result<(), String> {
        self.read()?;
        match self.requests.is_empty() && self.seen != self.expected {
            true => Err(format!("its log has {:?} of {:?}", self.seen, self.expected)),
            false => Ok(()),
        }
    }

    /// Ends the region.
    pub fn deregister(&self) -> Result<(), Error> {
        self.region.deregister()
    }
}

fn add(to: &mut HashMap<LoggedAccess, AccessTally>, access: LoggedAccess, accesses: u64, bytes: u64) {
    let counts = to.entry(access).or_default();
    counts.accesses += accesses;
    // A refused access has moved none: its record says what was asked for, as far as it is in the page.
    counts.bytes += if access.is_refused { 0 } else { bytes };
}
