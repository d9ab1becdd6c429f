//! The owner of a parity: its handler XORs what members put.

use super::error::ParityError;
use super::layout::{
    Attempt, BEGIN, CHALLENGE, COMMIT, Commit, FENCE, Layout, MAGIC, MEMBERS, MemberStatus, Message, Status,
    random,
};
use crate::access::Access;
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, LogOptions, Logs};
use crate::serve::Serving;
use pagewire::{Node, Region, Rights, Token};
use std::collections::HashMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Bytes of the log for each source: some chunks of a checkpoint.
const LOG_BYTES: usize = 1 << 20;

/// The parity of the checkpoints of some processes, which this process keeps. Dropped, it takes no more.
///
/// ```
/// # fn main() -> Result<(), pagewire_active::ParityError> {
/// use pagewire::Node;
/// use pagewire_active::{Parity, ParityMember};
/// use std::time::Duration;
/// let patience = Duration::from_secs(10);
///
/// let keeper = Node::alone()?;
/// let parity = Parity::new(&keeper, 3, 1 << 20)?; // three members of up to a mebibyte
///
/// // Three processes, each of which has a token of its own:
/// let node = Node::alone()?;
/// let tables = [10u64, 20, 30].map(|value| {
///     let table = node.zeroed::<u64>(1000).unwrap();
///     table.set(500, value).unwrap();
///     table
/// });
/// let mut members = Vec::new();
/// for (index, table) in tables.iter().enumerate() {
///     let mut member = ParityMember::join(&node, &parity.token(index)?, index)?;
///     member.save(&[table])?;
///     members.push(member);
/// }
/// members[0].wait_complete(patience)?;
/// let survivors = [members[0].token()?, members[2].token()?];
///
/// // Process 1 dies; another one takes its place.
/// let node = Node::alone()?;
/// let (member, rebuilt) = ParityMember::rebuild(&node, &parity.token(1)?, 1, &survivors)?;
/// let table = node.zeroed::<u64>(1000)?;
/// member.restore(&[&table])?;
/// assert_eq!((rebuilt.round, table.get(500)?), (1, 20));
/// # Ok(())
/// # }
/// ```
pub struct Parity {
    shared: Arc<OwnerShared>,
    keys: Vec<Token>,
    _serving: Serving,
    _log: AccessLog,
}

struct OwnerShared {
    layout: Layout,
    region: Region<u64>,
}

/// What the handler knows.
struct ParityHandler {
    shared: Arc<OwnerShared>,
    /// Members by the keys of their tokens.
    members: HashMap<u32, usize>,
    status: Status,
    of_members: Vec<Member>,
    buffer: Vec<u8>,
}

#[derive(Clone, Default)]
struct Member {
    status: MemberStatus,
    /// Bytes of its attempt that were XORed, and their checksum.
    bytes: u64,
    checksum: crc32fast::Hasher,
}

/// Bytes of a member's checkpoint at most.
const MOST_BYTES: u64 = 1 << 46;

impl Parity {
    /// A parity of so many members, whose checkpoints have `bytes` at most. It takes twice as much memory.
    ///
    /// # Errors
    /// `Members`: there are none, or too many. As those of [`Node::zeroed`], [`Node::make_access_log`] and [`Region::set_attributes`].
    pub fn new(node: &Node, members: usize, bytes: u64) -> Result<Parity, ParityError> {
        if members == 0 || members > MEMBERS {
            return Err(ParityError::Members { members, most: MEMBERS });
        }
        // Nothing of it may come round: no memory has so many.
        if bytes > MOST_BYTES {
            return Err(pagewire::Error::NoMemory(bytes).into());
        }
        let layout = Layout::new(members, bytes);
        let region = node.zeroed::<u64>((layout.length() / 8) as usize)?;
        // Each member has a connection, and so has one that takes its place.
        let options = LogOptions { sources: (2 * members + 2).min(4096), ..LogOptions::new(LOG_BYTES) };
        let log = node.access_log_with(&options)?;
        region.attributes(..layout.messages()).refuse_puts().set()?;
        region.attributes(layout.messages()..).redirect_puts().to(&log)?;
        let tokens = (0..members).map(|_| region.export(Rights::READ | Rights::WRITE));
        let keys: Vec<Token> = tokens.collect::<Result<_, _>>()?;
        let status = Status {
            magic: MAGIC,
            group: random(),
            domain: log.user_domain().into(),
            members: members as u64,
            bytes: layout.bytes,
            ..Status::default()
        };
        region.write_bytes(0, status.as_bytes())?;
        let shared = Arc::new(OwnerShared { layout, region });
        let mut handler = ParityHandler {
            shared: shared.clone(),
            members: keys.iter().enumerate().map(|(member, token)| (token.memory().1, member)).collect(),
            status,
            of_members: vec![Member::default(); members],
            buffer: Vec::new(),
        };
        let serving = log.serve(move |access| {
            if let Err(error) = handler.handle(&access) {
                log::error!("parity: {error}");
            }
        })?;
        Ok(Parity { shared, keys, _serving: serving, _log: log })
    }

    /// The token of a member, which no other one uses: it tells the members apart.
    ///
    /// # Errors
    /// `NoMember`.
    pub fn token(&self, member: usize) -> Result<Token, ParityError> {
        let none = ParityError::NoMember { member, members: self.keys.len() };
        self.keys.get(member).copied().ok_or(none)
    }

    /// The last round that all members have committed. 0: none.
    pub fn complete_round(&self) -> Result<u64, ParityError> {
        Ok(self.shared.region.get(std::mem::offset_of!(Status, complete) / 8)?)
    }
}

impl ParityHandler {
    fn handle(&mut self, access: &Access<'_>) -> pagewire::Result<()> {
        let layout = self.shared.layout;
        let member = self.members.get(&access.key()).copied();
        // A put whose source has died in its midst has no data. Its member begins anew.
        let (Some(member), false, Some(offset)) =
            (member, access.may_have_written(), access.offset_from(self.shared.region.address()))
        else {
            return Ok(());
        };
        match offset.checked_sub(layout.slot(0)) {
            None => match access.value::<Message>() {
                Some(message) if message.what == BEGIN => self.begin(member, message.commit.attempt),
                Some(message) if message.what == COMMIT => self.commit(member, message.commit),
                Some(message) if message.what == FENCE => self.fence(member),
                Some(message) if message.what == CHALLENGE => self.challenge(member, message.commit.checksum),
                _ => Ok(()),
            },
            Some(offset) => self.data(member, offset / layout.bytes, offset % layout.bytes, access.bytes()),
        }
    }

    /// A member begins a round. The first one that does so makes the slot empty.
    fn begin(&mut self, member: usize, attempt: Attempt) -> pagewire::Result<()> {
        let slot = (attempt.round % 2) as usize;
        // A round that is complete stays.
        if attempt.round != self.status.complete + 1 || attempt < self.status.slots[slot] {
            return Ok(());
        }
        if attempt > self.status.slots[slot] {
            self.empty(attempt)?;
        }
        let known = &mut self.of_members[member];
        if known.status.begun == attempt {
            // What it put before is in the parity already: a member that begins twice takes another attempt.
            return Ok(());
        }
        *known = Member { status: MemberStatus { begun: attempt, ..known.status }, ..Member::default() };
        self.publish(member)
    }

    /// Makes the slot of an attempt empty.
    fn empty(&mut self, attempt: Attempt) -> pagewire::Result<()> {
        let (layout, region) = (self.shared.layout, &self.shared.region);
        self.buffer.clear();
        self.buffer.resize(1 << 16, 0);
        for at in (0..layout.bytes).step_by(self.buffer.len()) {
            let length = (layout.bytes - at).min(self.buffer.len() as u64) as usize;
            region.write_bytes(layout.slot(attempt.round) + at, &self.buffer[..length])?;
        }
        self.status.slots[(attempt.round % 2) as usize] = attempt;
        region.write_bytes(0, self.status.as_bytes())
    }

    /// A process joins by the token of a member.
    fn challenge(&mut self, member: usize, challenge: u64) -> pagewire::Result<()> {
        self.of_members[member].status.challenge = challenge;
        self.publish(member)
    }

    /// Another process takes the place of a member. The round that is not complete cannot become so without it.
    fn fence(&mut self, member: usize) -> pagewire::Result<()> {
        let round = self.status.complete + 1;
        let newest = self.status.slots[(round % 2) as usize];
        if newest.round == round {
            self.empty(Attempt { round, attempt: newest.attempt + 1 })?;
        }
        let status = MemberStatus { begun: Attempt::default(), ..self.of_members[member].status };
        self.of_members[member] = Member { status, ..Member::default() };
        self.publish(member)
    }

    /// XORs data of a member into a slot, in the order in which it puts them.
    fn data(&mut self, member: usize, slot: u64, offset: u64, bytes: &[u8]) -> pagewire::Result<()> {
        let known = &mut self.of_members[member];
        let (begun, expected) = (known.status.begun, self.status.slots[slot as usize % 2]);
        let is_committed = known.status.committed[slot as usize % 2].attempt == begun;
        // Another member has begun anew, or the bytes do not follow.
        let is_beyond = offset.saturating_add(bytes.len() as u64) > self.shared.layout.bytes;
        if begun != expected || begun.round % 2 != slot || is_committed || known.bytes != offset || is_beyond
        {
            return Ok(());
        }
        let at = self.shared.layout.slot(begun.round) + offset;
        self.buffer.resize(bytes.len(), 0);
        self.shared.region.read_bytes(at, &mut self.buffer)?;
        xor(&mut self.buffer, bytes);
        self.shared.region.write_bytes(at, &self.buffer)?;
        known.checksum.update(bytes);
        known.bytes += bytes.len() as u64;
        Ok(())
    }

    /// A member has put all.
    fn commit(&mut self, member: usize, commit: Commit) -> pagewire::Result<()> {
        let slot = (commit.attempt.round % 2) as usize;
        let known = &mut self.of_members[member];
        let checksum = u64::from(known.checksum.clone().finalize());
        let is_whole = (known.bytes, checksum) == (commit.bytes, commit.checksum);
        if !is_whole || commit.attempt != known.status.begun || commit.attempt != self.status.slots[slot] {
            return Ok(());
        }
        known.status.committed[slot] = commit;
        self.publish(member)?;
        if self.of_members.iter().all(|member| member.status.committed[slot].attempt == commit.attempt) {
            self.status.complete = commit.attempt.round;
            self.shared.region.write_bytes(0, self.status.as_bytes())?;
        }
        Ok(())
    }

    fn publish(&self, member: usize) -> pagewire::Result<()> {
        let status = self.of_members[member].status;
        self.shared.region.write_bytes(Layout::member(member), status.as_bytes())
    }
}

/// XORs bytes into others.
pub fn xor(into: &mut [u8], bytes: &[u8]) {
    into.iter_mut().zip(bytes).for_each(|(into, byte)| *into ^= byte);
}
