//! The schemes of a hash table that are measured: those of the product, and others to compare with.

use super::{Load, Operation};
use crate::native::comparison::{self, Looks};
use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use pagewire::Node;
use pagewire_active::hash_table::{Scheme, Service};
use pagewire_active::{Events, HashTable, TableOptions};
use std::sync::Arc;

/// Who changes the volume of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TableScheme {
    /// The caller where the memory is mapped, else the owner's handler
    Nearest,
    /// The owner's handler: one put an element
    Handler,
    /// The caller, by gets, puts and atomics
    Operations,
    /// Active puts: an event wakes a thread of the owner (as handler)
    AaInt,
    /// Active puts: the owner looks at its log between its own inserts
    AaPoll,
    /// Active puts: a thread of the owner looks at its log and never sleeps
    AaSp,
    /// For comparison: the caller, by atomics and puts as in listing 2 of the paper, mended
    Rma,
    /// For comparison: a message for each element, which the owner handles between its own inserts
    Am,
    /// For comparison: as am, but the owner looks half as often each time there was no message
    AmExp,
    /// For comparison: as am, but a thread of the owner handles messages and never sleeps
    AmOnload,
    /// For comparison: as am, but each message wakes a thread of the owner
    AmInts,
    /// For comparison: messages of 63 elements each
    AmAggregated,
}

/// How a scheme is made.
enum Made {
    Product(Scheme, Service),
    Compared(comparison::Scheme),
}

impl TableScheme {
    fn made(self, interval: u32) -> Made {
        let events = Service::Events(Events::default());
        match self {
            TableScheme::Nearest => Made::Product(Scheme::Nearest, events),
            TableScheme::Handler | TableScheme::AaInt => Made::Product(Scheme::Handler, events),
            TableScheme::Operations => Made::Product(Scheme::Operations, events),
            TableScheme::AaPoll => Made::Product(Scheme::Handler, Service::Owner),
            TableScheme::AaSp => Made::Product(Scheme::Handler, Service::Polling),
            TableScheme::Rma => Made::Compared(comparison::Scheme::Rma),
            TableScheme::Am => Made::Compared(comparison::Scheme::Am(Looks::Regularly(interval))),
            TableScheme::AmExp => Made::Compared(comparison::Scheme::Am(Looks::BacksOff(interval))),
            TableScheme::AmOnload => Made::Compared(comparison::Scheme::Am(Looks::Thread)),
            TableScheme::AmInts => Made::Compared(comparison::Scheme::Am(Looks::Events)),
            TableScheme::AmAggregated => Made::Compared(comparison::Scheme::Aggregated),
        }
    }
}

/// A table, by whichever scheme.
pub(super) enum Table {
    Product(HashTable),
    Compared { table: comparison::Table, owners: usize },
}

impl Table {
    pub fn join(node: &Arc<Node>, load: &Load) -> Result<Table> {
        let spare = usize::try_from(load.inserts)?.saturating_mul(2).saturating_add(1);
        match load.scheme.made(load.interval) {
            Made::Product(scheme, service) => {
                ensure!(
                    load.handlers == 0,
                    "processes that handle alone are of a scheme for comparison: take am"
                );
                let options = TableOptions { cells: load.cells, spare, value_bytes: 0, scheme };
                Ok(Table::Product(HashTable::join_served(node, &options, service)?))
            }
            Made::Compared(scheme) => {
                ensure!(
                    load.operation == Operation::Insert,
                    "a scheme for comparison has inserts alone: measure hashtable with it, or take another scheme for the other rows"
                );
                // All elements may have one owner.
                let spare = spare.saturating_mul(node.size());
                let table = comparison::Table::join(node, scheme, load.cells, spare)?;
                let owners = if load.handlers == 0 { node.size() } else { load.handlers };
                Ok(Table::Compared { table, owners })
            }
        }
    }

    pub fn insert(&self, key: u64) -> Result<()> {
        match self {
            Table::Product(table) => {
                table.insert(key, &[])?;
                table.poll();
                Ok(())
            }
            // Keys are random.
            Table::Compared { table, owners } => table.insert((key % *owners as u64) as usize, key),
        }
    }

    pub fn insert_batch(&self, keys: impl Iterator<Item = u64>) -> Result<()> {
        match self {
            Table::Product(table) => Ok(table.insert_batch(keys.map(|key| (key, &[][..])))?),
            Table::Compared { .. } => bail!("a scheme for comparison has no batches"),
        }
    }

    pub fn has(&self, key: u64) -> Result<bool> {
        match self {
            Table::Product(table) => Ok(table.lookup(key)?.is_some()),
            Table::Compared { .. } => bail!("a scheme for comparison has no lookups"),
        }
    }

    pub fn flush(&self) -> Result<()> {
        match self {
            Table::Product(table) => Ok(table.flush()?),
            Table::Compared { table, .. } => table.flush(),
        }
    }

    /// Handles what others have sent here, if no thread does.
    pub fn poll(&self) -> Result<()> {
        match self {
            Table::Product(table) => {
                if table.poll() == 0 {
                    std::thread::yield_now();
                }
                Ok(())
            }
            Table::Compared { table, .. } => table.poll(true),
        }
    }

    pub fn clear(&self) -> Result<()> {
        match self {
            Table::Product(table) => table.clear_volume()?,
            Table::Compared { table, .. } => table.clear(),
        }
        Ok(())
    }

    pub fn elements(&self) -> Result<u64> {
        match self {
            Table::Product(table) => Ok(table.statistics()?.elements as u64),
            Table::Compared { table, .. } => table.elements(),
        }
    }
}
