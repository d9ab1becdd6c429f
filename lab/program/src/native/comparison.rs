//! Hash tables to compare the product's with (PAPERS AA-9): by remote operations as listing 2 has them, and by active messages. They are no part of
//! the product, and have what a measurement needs: inserts of keys, and a count of what the chains hold.
//!
//! `volume` is the memory of one process, `messages` the rings by which inserts travel, `handling` who takes them out. Each process calls all
//! functions that wait with the same arguments, or another one waits for ever.

mod handling;
pub(super) mod messages;
mod volume;

use self::handling::Handling;
pub(super) use self::handling::INTERVAL;
use self::messages::{Inbox, Outbox};
use self::volume::{OwnVolume, RemoteVolume};
use anyhow::Result;
use pagewire::{Node, Rights, Token};
use std::sync::Arc;

/// Who changes the volume of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// The caller, by gets, puts and atomics.
    Rma,
    /// The owner, whom a message of each insert reaches; it looks after so many of its own inserts.
    Am(Looks),
    /// The owner, whom a message of many inserts reaches.
    Aggregated,
}

/// When the owner looks for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looks {
    /// Between its own inserts, after so many.
    Regularly(u32),
    /// Between its own inserts, after so many, and twice as many if there was none.
    BacksOff(u32),
    /// A thread does, and never sleeps.
    Thread,
    /// A thread does, which a message wakes.
    Events,
}

/// A table over the processes of a job.
pub(super) struct Table {
    own: Arc<OwnVolume>,
    /// By rank; `None`: this process.
    remote: Vec<Option<Remote>>,
    handling: Option<Handling>,
}

enum Remote {
    Volume(RemoteVolume),
    Owner(Outbox),
}

impl Table {
    /// Makes a table of so many cells a process, and as many for elements that collide as `spare` says.
    pub fn join(node: &Arc<Node>, scheme: Scheme, cells: usize, spare: usize) -> Result<Table> {
        let own = Arc::new(OwnVolume::make(node, cells, spare)?);
        let tokens = node.all_gather(&own.export()?)?;
        let others = |rank: usize| rank != node.rank();
        let Some(look) = (match scheme {
            Scheme::Rma => None,
            Scheme::Am(look) => Some(look),
            Scheme::Aggregated => Some(Looks::Regularly(handling::INTERVAL)),
        }) else {
            let open = |(rank, token): (usize, &Token)| -> Result<Option<Remote>> {
                if !others(rank) {
                    return Ok(None);
                }
                Ok(Some(Remote::Volume(RemoteVolume::open(node, token, cells, spare)?)))
            };
            let remote = tokens.iter().enumerate().map(open).collect::<Result<_>>()?;
            return Ok(Table { own, remote, handling: None });
        };
        let inbox = Arc::new(Inbox::make(node, messages::MOST_KEYS)?);
        let all = node.all_gather(&inbox.export(Rights::all())?)?;
        let keys = if scheme == Scheme::Aggregated { messages::MOST_KEYS } else { 1 };
        let has_events = look == Looks::Events;
        let open = |(rank, token): (usize, &Token)| -> Result<Option<Remote>> {
            if !others(rank) {
                return Ok(None);
            }
            Ok(Some(Remote::Owner(Outbox::open(node, token, inbox.clone(), (rank, keys, has_events))?)))
        };
        let remote = all.iter().enumerate().map(open).collect::<Result<_>>()?;
        let handling = Some(Handling::start(node, inbox, (own.clone(), &all), look)?);
        node.barrier()?;
        Ok(Table { own, remote, handling })
    }

    /// Inserts a key into the volume of its owner, or has it under way there.
    pub fn insert(&self, owner: usize, key: u64) -> Result<()> {
        match &self.remote[owner] {
            None => self.own.insert(key)?,
            Some(Remote::Volume(volume)) => volume.insert(key)?,
            Some(Remote::Owner(outbox)) => outbox.send(&[key], &|| self.poll(true))?,
        }
        self.poll(false)
    }

    /// Handles what has come, if this process does that itself. `waits`: it has nothing else to do.
    pub fn poll(&self, waits: bool) -> Result<()> {
        self.handling.as_ref().map_or(Ok(()), |handling| handling.poll(waits))
    }

    /// Waits until all inserts of this process are in their volumes.
    pub fn flush(&self) -> Result<()> {
        for remote in self.remote.iter().flatten() {
            match remote {
                // Each operation was waited for.
                Remote::Volume(_) => {}
                Remote::Owner(outbox) => outbox.flush(&|| self.poll(true))?,
            }
        }
        Ok(())
    }

    /// Removes all elements of the volume of this process. Nobody may insert meanwhile.
    pub fn clear(&self) {
        self.own.clear();
    }

    /// Walks the chains of the volume of this process, and gives how many elements they hold.
    pub fn elements(&self) -> Result<u64> {
        self.own.elements()
    }
}
