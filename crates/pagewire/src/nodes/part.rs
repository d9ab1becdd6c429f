//! Parts of a job: processes that split it by colour, with a rank, a barrier and an all-gather of their own.
//!
//! No form of bootstrap has parts. So the members exchange by puts and gets, as [`members`] says; splitting is an all-gather of the whole.

mod members;
#[cfg(test)]
mod tests;

use crate::bootstrap::{Job, JobError, Joined};
use crate::error::Result;
use crate::nodes::engine::heap;
use crate::nodes::peers::PeerTable;
use crate::nodes::services::NodeServices;
use crate::regions::memory::Block;
use crate::regions::region::{Atomic, Region};
use crate::regions::rights::Rights;
use crate::regions::token::Token;
use members::{Members, mailbox_words};
use std::sync::Arc;
use std::time::Duration;

/// Some processes of a job, as one of them sees it. Its operations are those of the job's [`Node`](crate::Node), with the ranks of the part.
///
/// A failure ends the part, and not the job: every later operation of it gives [`JobError::Ended`]. A member that dies or drops its part is noticed,
/// and ends it for all. The part works as long as its node is there.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::Node;
/// # let node = Node::alone()?;
/// // The processes of each row of a grid.
/// let (columns, rank) = (4, node.rank() as u64);
/// let row = node.split(Some(rank / columns), 0)?.expect("a colour was given");
/// let names = row.all_gather_bytes(format!("process {rank}").as_bytes())?;
/// assert_eq!(names.len(), row.size());
/// # Ok(())
/// # }
/// ```
pub struct Part {
    job: Job,
    /// The ranks of the members in the job of the node, by their rank in the part.
    ranks: Vec<usize>,
    services: Arc<NodeServices>,
    peers: Arc<PeerTable>,
}

/// What is split.
pub(crate) struct Whole<'w> {
    pub job: &'w Job,
    pub services: &'w Arc<NodeServices>,
    pub peers: &'w Arc<PeerTable>,
}

/// What a process gives when the whole is split. A process without a colour gives nothing.
#[derive(Clone, Copy)]
struct SplitOffer {
    colour: u64,
    key: i64,
    mailbox: Token,
}

impl SplitOffer {
    fn to_bytes(self) -> Vec<u8> {
        [&self.colour.to_le_bytes()[..], &self.key.to_le_bytes(), &self.mailbox.to_bytes()].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let (head, token) = bytes.split_at(bytes.len().min(16));
        let mailbox = Token::from_bytes(token)?;
        let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        Ok(Some(SplitOffer { colour: number(0), key: number(8).cast_signed(), mailbox }))
    }
}

impl Whole<'_> {
    /// Splits it. `rank_of`: the rank in the node's job of a rank of this whole.
    pub fn split(
        &self,
        colour: Option<u64>,
        key: i64,
        rank_of: impl Fn(usize) -> usize,
    ) -> Result<Option<Part>> {
        self.services.check_owner()?;
        let given = match colour {
            None => None,
            Some(colour) => {
                let words = mailbox_words(self.job.size());
                let block = Block::zeroed(heap(&self.services.nic)?, words * size_of::<u64>())?;
                let mailbox: Region<u64, Atomic> = Region::new(self.services, block);
                let token = mailbox.export(Rights::READ | Rights::WRITE)?;
                Some((mailbox, SplitOffer { colour, key, mailbox: token }))
            }
        };
        let bytes = given.as_ref().map(|(_, offer)| offer.to_bytes()).unwrap_or_default();
        let offers = self.job.all_gather(&bytes)?;
        let Some((mailbox, own)) = given else { return Ok(None) };
        let mut members = Vec::new();
        for (rank, bytes) in offers.iter().enumerate() {
            // The own one has come by another process, too.
            let offer = if rank == self.job.rank() { Some(own) } else { SplitOffer::from_bytes(bytes)? };
            if let Some(offer) = offer.filter(|offer| offer.colour == own.colour) {
                members.push((offer.key, rank, offer.mailbox));
            }
        }
        members.sort_by_key(|(key, rank, _)| (*key, *rank));
        let rank = members.iter().take_while(|(_, rank, _)| *rank != self.job.rank()).count();
        let started_by =
            format!("a split, by colour {}, of what {} has joined", own.colour, self.job.started_by());
        let ranks = members.iter().map(|(_, rank, _)| rank_of(*rank)).collect();
        let (size, tokens) = (members.len(), members.into_iter().map(|(.., token)| token).collect());
        let exchange = Box::new(Members::new((self.services, self.peers), rank, mailbox, tokens));
        let job = Job::of(Joined { rank, size, started_by, exchange }, self.job.timeout());
        Ok(Some(Part { job, ranks, services: self.services.clone(), peers: self.peers.clone() }))
    }
}

impl Part {
    /// The number of this process in the part, from 0 on.
    pub fn rank(&self) -> usize {
        self.job.rank()
    }

    /// Processes of the part.
    pub fn size(&self) -> usize {
        self.job.size()
    }

    /// The rank in the job of a rank of the part, for [`Node::peer`](crate::Node::peer) and what was gathered in the job.
    ///
    /// # Errors
    /// `Job`: there is no such rank.
    pub fn job_rank(&self, rank: usize) -> Result<usize> {
        let size = self.ranks.len();
        self.ranks.get(rank).copied().ok_or(JobError::NoSuchRank { root: rank, size }.into())
    }

    /// Waits until all processes of the part have called it, for the job's timeout at most.
    ///
    /// # Errors
    /// `Job`: a member is lost, or does not come.
    pub fn barrier(&self) -> Result<()> {
        Ok(self.job.barrier()?)
    }

    /// [`barrier`](Self::barrier) for so long at most. A late one stays begun, as that of [`Node::barrier_for`](crate::Node::barrier_for).
    ///
    /// # Errors
    /// `Job`.
    pub fn barrier_for(&self, time: Duration) -> Result<()> {
        Ok(self.job.barrier_for(time)?)
    }

    /// Gives a token to all processes of the part, and takes theirs, by rank. All processes of the part call it.
    ///
    /// # Errors
    /// `Job`; `Token`: one gave something else.
    pub fn all_gather(&self, token: &Token) -> Result<Vec<Token>> {
        tokens(&self.job.all_gather(&token.to_bytes())?)
    }

    /// [`all_gather`](Self::all_gather) for so long at most, as [`Node::all_gather_for`](crate::Node::all_gather_for).
    ///
    /// # Errors
    /// `Job`; `Token`.
    pub fn all_gather_for(&self, token: &Token, time: Duration) -> Result<Vec<Token>> {
        tokens(&self.job.all_gather_for(&token.to_bytes(), time)?)
    }

    /// Gives bytes to all processes of the part, and takes theirs, by rank. Each may give another count of bytes.
    ///
    /// # Errors
    /// `Job`.
    pub fn all_gather_bytes(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        Ok(self.job.all_gather(bytes)?)
    }

    /// [`all_gather_bytes`](Self::all_gather_bytes) for so long at most.
    ///
    /// # Errors
    /// `Job`.
    pub fn all_gather_bytes_for(&self, bytes: &[u8], time: Duration) -> Result<Vec<Vec<u8>>> {
        Ok(self.job.all_gather_for(bytes, time)?)
    }

    /// Gives the bytes of the process `root` of the part to all. All processes of the part call it.
    ///
    /// # Errors
    /// `Job`.
    pub fn broadcast(&self, root: usize, bytes: &[u8]) -> Result<Vec<u8>> {
        Ok(self.job.broadcast(root, bytes)?)
    }

    /// Splits the part, as [`Node::split`](crate::Node::split) splits the job. All processes of the part call it.
    ///
    /// # Errors
    /// As those of [`Node::split`](crate::Node::split).
    pub fn split(&self, colour: Option<u64>, key: i64) -> Result<Option<Part>> {
        let whole = Whole { job: &self.job, services: &self.services, peers: &self.peers };
        whole.split(colour, key, |rank| self.ranks[rank])
    }
}

fn tokens(all: &[Vec<u8>]) -> Result<Vec<Token>> {
    all.iter().map(|bytes| Ok(Token::from_bytes(bytes)?)).collect()
}
