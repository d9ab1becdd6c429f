//! A hash table over the processes of a job (PAPERS AA-9). Each process has a volume of it; the hash of a key says whose.
//!
//! A process that has the volume mapped, because it is its own or a process's of its host, changes it where it lies. Any other one asks the owner:
//! one put to a page that the owner's handler serves. Whoever asks may look up at any time, with gets.
//!
//! ```
//! # fn main() -> pagewire::Result<()> {
//! use pagewire_active::{HashTable, TableOptions};
//! use std::sync::Arc;
//! let node = Arc::new(pagewire::Node::from_env()?); // mpirun, srun, ..., or alone
//! let table = HashTable::join(&node, &TableOptions::new(1000))?;
//! table.insert(7, b"seven")?;
//! table.insert(8, &[0; 5000])?;
//! table.flush()?; // what this process has inserted is found by everyone
//! assert_eq!(table.lookup(7)?.as_deref(), Some(&b"seven"[..]));
//! table.delete(7)?;
//! table.flush()?;
//! assert_eq!(table.lookup(7)?, None);
//! # Ok(())
//! # }
//! ```
//!
//! # What survives
//! What a member has flushed stays when that member ends. The elements of a volume lie in the memory of its owner, and end with it, but for
//! a table that is [durable](HashTable::join_durable): there they are in files, and a process that [restarts](HashTable::restart) has them.

mod compaction;
mod durable;
mod elements;
#[cfg(test)]
mod linking;
mod member;
mod messages;
mod own;
mod swap;
mod ticket;
mod volume;

pub use durable::Durability;
pub use elements::{Element, Elements, TableCursor};
pub use volume::MAX_VALUE;

use crate::log::Events;
use member::Member;
use messages::MAX_KEYS;
use own::{Kept, OwnVolume, is_swap};
use pagewire::{Node, Result};
use std::sync::Arc;
use swap::Swap;
use ticket::Ticket;
use volume::{Shape, hash};

/// Bytes of a [ticket](HashTable::ticket).
pub const TICKET_LEN: usize = Ticket::LEN;

/// Elements of a batch that are written under one claim on a peer's memory.
const CLAIMED: usize = 256;

/// Who changes the volume of another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// The caller, where the volume is mapped here; else the owner's handler.
    Nearest,
    /// The owner's handler, whatever is mapped: one put an element (the paper's AA).
    Handler,
    /// The caller, by gets, puts and atomics, whatever is mapped (the paper's RMA).
    Operations,
}

/// How the owner of a volume learns that others put to it (PAPERS AA-5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// A thread of its own, which sleeps until these events.
    Events(Events),
    /// A thread of its own, which never sleeps.
    Polling,
    /// The owner itself, whenever it calls [`HashTable::poll`]: it must, until all others have flushed.
    Owner,
}

/// How a hash table is made. Each process says for its own volume how large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Cells of the volume of this process. With as many elements as cells about a third of them collide. It grows when it is full.
    pub cells: usize,
    /// Cells for elements that collide.
    pub spare: usize,
    /// Bytes for values of more than 7 bytes.
    pub value_bytes: usize,
    /// Who changes the volumes of others.
    pub scheme: Scheme,
}

impl TableOptions {
    /// A volume of so many cells, as many spare ones, and 64 bytes of values for each.
    pub fn new(cells: usize) -> Self {
        TableOptions { cells, spare: cells, value_bytes: cells.saturating_mul(64), scheme: Scheme::Nearest }
    }

    fn shape(&self) -> Shape {
        Shape { cells: self.cells.max(1), spare: self.spare, value_words: self.value_bytes.div_ceil(8) }
    }
}

/// What a volume has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeStatistics {
    /// Elements, each with its own key.
    pub elements: usize,
    /// Cells of the table.
    pub cells: usize,
    /// Cells of chains that are taken.
    pub spare_taken: usize,
    /// How often it has grown, or was resized.
    pub resizes: u64,
    /// Checkpoints that were made of it since this process has it.
    pub checkpoints: u64,
    /// Messages of other processes that were none. They were not executed.
    pub malformed: u64,
}

/// A hash table from keys of 8 bytes, which are not 0, to values of any size up to [`MAX_VALUE`].
pub struct HashTable {
    own: Arc<OwnVolume>,
    /// Of this process among the members.
    rank: usize,
    /// By rank; `None`: this process.
    members: Vec<Option<Member>>,
}

impl HashTable {
    /// Makes a table with all processes of the job. Each of them calls this.
    ///
    /// # Errors
    /// `NoMemory` or `Heap`: there is none for the volume; `Job`: another process has ended; else as those of [`Node::open`].
    pub fn join(node: &Arc<Node>, options: &TableOptions) -> Result<HashTable> {
        HashTable::join_served(node, options, Service::Events(Events::default()))
    }

    /// As [`join`](Self::join), with a say in how the volume of this process is served.
    ///
    /// # Errors
    /// As those of [`join`](Self::join).
    pub fn join_served(node: &Arc<Node>, options: &TableOptions, service: Service) -> Result<HashTable> {
        let own = OwnVolume::begin(node, options.shape(), service, node.size(), None)?;
        let tickets = node.all_gather_bytes(&own.ticket().to_bytes())?;
        HashTable::open(node, options, own, (node.rank(), &tickets))
    }

    /// As [`join_served`](Self::join_served), with volumes that outlive their processes: [`Durability`] says where. A volume that a process of the
    /// same rank has left there is this process's, with all its elements.
    ///
    /// # Errors
    /// `System`: the scheme is [`Scheme::Operations`], which cannot log what it changes; a file cannot be used, and why. As those of [`join`](Self::join).
    pub fn join_durable(
        node: &Arc<Node>,
        options: &TableOptions,
        durability: &Durability,
        service: Service,
    ) -> Result<HashTable> {
        refuse_operations(options)?;
        let kept = Kept { durability, rank: node.rank(), size: node.size() };
        let own = OwnVolume::begin(node, options.shape(), service, node.size(), Some(kept))?;
        let tickets = node.all_gather_bytes(&own.ticket().to_bytes())?;
        HashTable::open(node, options, own, (node.rank(), &tickets))
    }

    /// Takes the place of a member of a durable table that was killed, and has all its elements: what came into its volume, by whomever.
    ///
    /// `tickets`: of all members, by rank, as [`ticket`](Self::ticket) gives them; that of `rank` is not looked at, and all others are valid, so with more
    /// than one dead member end the others, and start the job again with [`join_durable`](Self::join_durable). The others give the ticket of the new
    /// member to [`readmit`](Self::readmit). The node may be [alone](Node::alone), as the job that the dead process was of has ended.
    ///
    /// # Errors
    /// As those of [`join_durable`](Self::join_durable).
    pub fn restart<T: AsRef<[u8]>>(
        node: &Arc<Node>,
        options: &TableOptions,
        durability: &Durability,
        service: Service,
        (rank, tickets): (usize, &[T]),
    ) -> Result<HashTable> {
        refuse_operations(options)?;
        if rank >= tickets.len() {
            return Err(not_durable("a rank to restart is less than the count of the tickets"));
        }
        let kept = Kept { durability, rank, size: tickets.len() };
        let own = OwnVolume::begin(node, options.shape(), service, tickets.len(), Some(kept))?;
        HashTable::open(node, options, own, (rank, tickets))
    }

    fn open<T: AsRef<[u8]>>(
        node: &Arc<Node>,
        options: &TableOptions,
        own: Arc<OwnVolume>,
        (own_rank, tickets): (usize, &[T]),
    ) -> Result<HashTable> {
        let open = |(rank, ticket): (usize, &T)| match rank == own_rank {
            true => Ok(None),
            false => {
                let ticket = Ticket::from_bytes(ticket.as_ref())?;
                Member::open(node, &ticket, own.files_of(rank), options.scheme).map(Some)
            }
        };
        let members = tickets.iter().enumerate().map(open).collect::<Result<_>>()?;
        Ok(HashTable { own, rank: own_rank, members })
    }

    /// Where the volume of this process is: plain bytes, for a member that [restarts](Self::restart), or for [`readmit`](Self::readmit).
    pub fn ticket(&self) -> Vec<u8> {
        self.own.ticket().to_bytes()
    }

    /// Has a process that has [restarted](Self::restart) take the place of the member of its rank. What this process had inserted there and
    /// flushed is there. Returns how many messages for that member were not flushed: if there are any, do everything since the last flush again.
    ///
    /// # Errors
    /// `System`: the rank is this process's own, or no member's; the ticket is none. As those of [`join_durable`](Self::join_durable).
    pub fn readmit(&mut self, rank: usize, ticket: &[u8]) -> Result<u64> {
        self.own.check_owner()?;
        let files = self.own.files_of(rank);
        let Some(Some(member)) = self.members.get_mut(rank) else {
            return Err(not_durable("a rank to readmit is that of another member"));
        };
        let (new, unflushed) = member.reopen_as(&Ticket::from_bytes(ticket)?, files)?;
        *member = new;
        Ok(unflushed)
    }

    /// Writes a checkpoint of the volume of this process to its file, so that its logs begin anew. Others go on meanwhile. Of a durable table.
    ///
    /// # Errors
    /// `Argument`: the table is not durable. `System`: the file cannot be written, and the logs have all that they had.
    pub fn checkpoint(&self) -> Result<()> {
        self.own.check_owner()?;
        self.own.checkpoint()
    }

    /// Sets the value of a key, which is added if it is new. It has happened when this returns, or else when [`flush`](Self::flush) does, and
    /// behind everything that this process did to the same key before.
    ///
    /// # Errors
    /// `Argument`: the key is 0, or the value longer than [`MAX_VALUE`]. `NoMemory`, `Heap`: the volume cannot grow. Those of puts and gets: any message to
    /// the same owner since the last flush may be lost, so do everything since then again.
    #[inline]
    pub fn insert(&self, key: u64, value: &[u8]) -> Result<()> {
        self.own.check_owner()?;
        check(key, value)?;
        match self.member_of(key) {
            Some(member) => member.insert(key, value, &self.own),
            None => self.own.insert(key, value),
        }
    }

    /// Does what others have put to the volume of this process, where no thread does ([`Service::Owner`]), and gives how many puts.
    pub fn poll(&self) -> usize {
        self.own.poll()
    }

    /// Inserts several elements, in any order. Those of one owner go to it together: with a key that is there twice, either value may stay.
    ///
    /// # Errors
    /// As those of [`insert`](Self::insert). Some may be inserted.
    pub fn insert_batch<'v>(&self, elements: impl IntoIterator<Item = (u64, &'v [u8])>) -> Result<()> {
        self.own.check_owner()?;
        let mut batches = vec![Vec::new(); self.members.len()];
        for (key, value) in elements {
            check(key, value)?;
            let rank = self.rank_of(key);
            let batch = &mut batches[rank];
            batch.push((key, value));
            if batch.len() == MAX_KEYS {
                self.insert_for(rank, batch)?;
                batch.clear();
            }
        }
        batches.iter().enumerate().try_for_each(|(rank, batch)| self.insert_for(rank, batch))
    }

    fn insert_for(&self, rank: usize, batch: &[(u64, &[u8])]) -> Result<()> {
        match &self.members[rank] {
            Some(member) if member.is_mapped() => {
                batch.chunks(CLAIMED).try_for_each(|part| member.insert_mapped(part, &self.own))
            }
            Some(member) => member.insert_all(batch, &self.own),
            None => batch.chunks(CLAIMED).try_for_each(|part| self.own.insert_all(part)),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// Those of gets.
    #[inline]
    pub fn lookup(&self, key: u64) -> Result<Option<Vec<u8>>> {
        self.own.check_owner()?;
        match self.member_of(key) {
            Some(member) => member.lookup(key),
            None => self.own.lookup(key),
        }
    }

    /// Deletes the value of a key, if there is one: when this returns, or else when [`flush`](Self::flush) does.
    ///
    /// # Errors
    /// `Argument`: the key is 0. Those of puts.
    pub fn delete(&self, key: u64) -> Result<()> {
        self.own.check_owner()?;
        check(key, &[])?;
        match self.member_of(key) {
            Some(member) => member.delete(key, &self.own),
            None => self.own.delete(key),
        }
    }

    /// Waits until everything that this process has inserted and deleted is done at its owners.
    ///
    /// # Errors
    /// `Failed`: an owner is lost. `System`: messages were lost, and a call has failed before: do everything since the last flush again. `NoMemory`, `Heap`
    /// of the volume of this process, and `System` of another one: it was full and could not grow since the last flush. Then elements are not there that
    /// this process or another one has inserted into that volume.
    pub fn flush(&self) -> Result<()> {
        self.own.check_owner()?;
        // All of them, so that one owner that is lost keeps nothing of the others.
        let flushed = self.members.iter().flatten().map(|member| member.flush(&self.own));
        flushed.fold(Ok(()), Result::and)?;
        self.own.failure()
    }

    /// Gives the volume of this process so many cells, and spare ones for all of its elements at least, and leaves the bytes of values out that nothing
    /// names any more.
    ///
    /// # Errors
    /// `NoMemory`, `Heap`: there is none for it, and it stays as it was.
    pub fn resize(&self, cells: usize) -> Result<()> {
        self.own.check_owner()?;
        self.own.resize(cells)
    }

    /// Removes all elements, of all volumes, behind everything that this process did before. One process calls this, and others need not.
    ///
    /// Each volume is emptied at one instant, but not all at the same one: what others insert meanwhile may stay or not. When this returns all are emptied,
    /// as if each element had been deleted and flushed.
    ///
    /// # Errors
    /// As those of [`flush`](Self::flush); those of [`checkpoint`](Self::checkpoint), which the owner of a durable volume makes first. Some volumes may be
    /// emptied, and others have all their elements.
    pub fn clear(&self) -> Result<()> {
        self.own.check_owner()?;
        // All of them, so that one owner that is lost keeps nothing of the others.
        let cleared = self.members.iter().flatten().map(|member| member.clear(self.rank, &self.own));
        cleared.fold(Ok(()), Result::and).and(self.own.clear())
    }

    /// Removes all elements of the volume of this process, at one instant.
    ///
    /// # Errors
    /// A peer is stopped within an access; those of [`checkpoint`](Self::checkpoint), which a durable table makes first. Nothing is removed then.
    pub fn clear_volume(&self) -> Result<()> {
        self.own.check_owner()?;
        self.own.clear()
    }

    /// Sets the value of a key to `new` if it is `expected`, and says whether it was. `None` stands for no value: so this inserts a key that is not there,
    /// replaces or deletes a value. It is atomic against all that is done to the key, by whomever, and it has happened when this returns, behind everything
    /// that this process did to the same key before.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire_active::{HashTable, TableOptions};
    /// # let node = std::sync::Arc::new(pagewire::Node::alone()?);
    /// # let table = HashTable::join(&node, &TableOptions::new(10))?;
    /// assert!(table.compare_and_set(7, None, Some(b"mine"))?, "the first one to come");
    /// assert!(!table.compare_and_set(7, None, Some(b"mine, too"))?);
    /// assert!(table.compare_and_set(7, Some(b"mine"), None)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Argument`: the key is 0, or both values together are longer than [`MAX_VALUE`]; else as those of [`insert`](Self::insert). Where an owner is lost
    /// meanwhile it may have happened.
    pub fn compare_and_set(&self, key: u64, expected: Option<&[u8]>, new: Option<&[u8]>) -> Result<bool> {
        self.own.check_owner()?;
        check(key, &[])?;
        let swap = Swap { key, expected, new };
        if !is_swap(&swap) {
            return Err(refused_element(format!("both values together have more than {MAX_VALUE} bytes")));
        }
        match self.member_of(key) {
            Some(member) => member.compare_and_set(self.rank, &swap, &self.own),
            None => self.own.compare_and_set(&swap),
        }
    }

    /// All elements, in any order. Each element that is there during the whole loop comes exactly once, with a value that it has had meanwhile. One that is
    /// inserted or deleted meanwhile comes once or not at all. The loop holds nothing: anything may be done to the table in its midst.
    ///
    /// ```
    /// # fn main() -> pagewire::Result<()> {
    /// # use pagewire_active::{HashTable, TableOptions};
    /// # let node = std::sync::Arc::new(pagewire::Node::alone()?);
    /// # let table = HashTable::join(&node, &TableOptions::new(10))?;
    /// # table.insert(7, b"seven")?;
    /// for element in table.elements() {
    ///     let (key, value) = element?;
    ///     println!("{key}: {} bytes", value.len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An error is that of a [lookup](Self::lookup), and ends the loop.
    pub fn elements(&self) -> Elements<'_> {
        Elements::new(self)
    }

    /// The next elements of a [loop](Self::elements), some at a time, and moves its cursor behind them. None: there are no more.
    ///
    /// # Errors
    /// Those of [`lookup`](Self::lookup). The cursor stays.
    pub fn next_elements(&self, cursor: &mut TableCursor) -> Result<Vec<Element>> {
        self.own.check_owner()?;
        while let Some(member) = self.members.get(cursor.rank) {
            let part = match member {
                Some(member) => member.part(cursor.hash)?,
                None => self.own.part(cursor.hash)?,
            };
            *cursor = match part.next {
                Some(hash) => TableCursor { hash, ..*cursor },
                None => TableCursor { rank: cursor.rank + 1, hash: 0 },
            };
            if !part.elements.is_empty() {
                return Ok(part.elements);
            }
        }
        Ok(Vec::new())
    }

    /// Walks the chains of the volume of this process.
    ///
    /// # Errors
    /// `System`: a process has written over it.
    pub fn statistics(&self) -> Result<VolumeStatistics> {
        self.own.check_owner()?;
        self.own.statistics()
    }

    fn rank_of(&self, key: u64) -> usize {
        // The low half of the hash: the high one chooses the cell.
        ((hash(key) & u64::from(u32::MAX)) * self.members.len() as u64 >> 32) as usize
    }

    fn member_of(&self, key: u64) -> Option<&Member> {
        self.members[self.rank_of(key)].as_ref()
    }
}

fn refuse_operations(options: &TableOptions) -> Result<()> {
    match options.scheme {
        Scheme::Nearest | Scheme::Handler => Ok(()),
        Scheme::Operations => Err(not_durable(
            "`Scheme::Operations` changes volumes without a log: take `Scheme::Nearest` or `Scheme::Handler`",
        )),
    }
}

fn not_durable(why: &str) -> pagewire::Error {
    pagewire::Error::Argument { what: "a durable hash table", why: why.to_owned() }
}

fn check(key: u64, value: &[u8]) -> Result<()> {
    if key == 0 {
        return Err(refused_element("the key is 0, which marks an empty cell: take another one".to_owned()));
    }
    if value.len() > MAX_VALUE {
        let why = format!("its value has {} bytes, and {MAX_VALUE} are the most", value.len());
        return Err(refused_element(why));
    }
    Ok(())
}

fn refused_element(why: String) -> pagewire::Error {
    pagewire::Error::Argument { what: "an element of a hash table", why }
}
