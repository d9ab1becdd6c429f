//! A member of a parity: it keeps its own checkpoints, and puts them to the owner.

use super::error::ParityError;
use super::layout::{
    Attempt, BEGIN, CHALLENGE, COMMIT, Commit, FENCE, HELD_MAGIC, Held, Layout, MAGIC, MemberStatus, Message,
    Status, random,
};
use super::owner::xor;
use crate::memory::Memory;
use pagewire::{Node, Operation, Region, RemoteRegion, Rights, Token};
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Bytes of one put: a caller of the same host writes its record itself up to here.
const CHUNK: usize = 64 << 10;
/// Puts that are started and not waited for.
const STARTED: usize = 8;
/// Pause between two looks at the owner's status.
const PAUSE: Duration = Duration::from_micros(100);

type Result<T> = std::result::Result<T, ParityError>;

/// A process whose checkpoints are part of a parity: see [`Parity`](super::Parity).
///
/// Its checkpoint lies in its own memory, and in the parity. The regions may change as soon as [`save`](Self::save) has returned.
pub struct ParityMember {
    remote: RemoteRegion,
    layout: Layout,
    /// Of the owner's log.
    domain: u16,
    member: usize,
    /// Own checkpoints of two rounds, by slot.
    held: Region<u64>,
    /// Bytes of the checkpoint in each slot of it.
    held_bytes: [u64; 2],
    /// The last attempt of this process.
    attempt: Attempt,
    /// What it has put, by slot.
    committed: [Commit; 2],
}

/// What was rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rebuilt {
    /// The round of the checkpoint, which all members have.
    pub round: u64,
    /// Its bytes.
    pub bytes: u64,
}

impl ParityMember {
    /// Joins a parity by the token of this member. It takes memory for two checkpoints.
    ///
    /// # Errors
    /// `Token`, `NoMember`, `NotOfMember`; as those of [`Node::open`], of a get and of a put.
    pub fn join(node: &Node, token: &Token, member: usize) -> Result<ParityMember> {
        let remote = node.open(token)?;
        if remote.length() < size_of::<Status>() as u64 {
            return Err(ParityError::Token { what: "a parity" });
        }
        let status = status_of(&remote)?;
        let layout = Layout { members: status.members as usize, bytes: status.bytes };
        if status.magic != MAGIC || remote.length() != layout.length() {
            return Err(ParityError::Token { what: "a parity" });
        }
        if member >= layout.members {
            return Err(ParityError::NoMember { member, members: layout.members });
        }
        let domain = status.domain as u16;
        challenge(&remote, &layout, domain, member)?;
        let held = node.zeroed::<u64>((layout.held_length() / 8) as usize)?;
        let whose = Held { magic: HELD_MAGIC, group: status.group, member: member as u64 };
        held.write_bytes(0, whose.as_bytes())?;
        let (attempt, committed) = (Attempt::default(), [Commit::default(); 2]);
        Ok(ParityMember { remote, layout, domain, member, held, held_bytes: [0; 2], attempt, committed })
    }

    /// Joins in the place of a member that died, and rebuilds its checkpoint of the last round that all members have, from the parity
    /// and the checkpoints of all others: their [tokens](Self::token), in any order. A round that was begun begins anew.
    ///
    /// # Errors
    /// `Nothing`: no round is complete. `Others`: the tokens are not those of all others. `Damaged`: a byte has changed. Else as those of
    /// [`join`](Self::join).
    pub fn rebuild(
        node: &Node,
        token: &Token,
        member: usize,
        others: &[Token],
    ) -> Result<(ParityMember, Rebuilt)> {
        let mut this = ParityMember::join(node, token, member)?;
        // Before anything is begun anew.
        let opened = this.open_others(node, others)?;
        let fence = Message { what: FENCE, commit: Commit::default() };
        this.remote.put(this.layout.messages(), vec![fence]).wait()?;
        // Behind all that the predecessor has put.
        this.remote.flush_handled(Some(this.domain)).wait()?;
        let round = this.status()?.complete;
        if round == 0 {
            return Err(ParityError::Nothing);
        }
        let commit = this.member_status()?.committed[(round % 2) as usize];
        let damaged = |why| ParityError::Damaged { member, round, why };
        if commit.attempt.round != round {
            return Err(damaged("the owner has begun another round"));
        }
        let (mut checksum, own) = (crc32fast::Hasher::new(), this.layout.held(round));
        for at in (0..commit.bytes).step_by(CHUNK) {
            let length = (commit.bytes - at).min(CHUNK as u64) as usize;
            let mut bytes = this.remote.get::<u8>(this.layout.slot(round) + at, length)?.wait()?;
            let gets: Vec<_> = opened.iter().map(|other| other.get::<u8>(own + at, length)).collect();
            for get in gets {
                xor(&mut bytes, &get?.wait()?);
            }
            checksum.update(&bytes);
            this.held.write_bytes(own + at, &bytes)?;
        }
        if u64::from(checksum.finalize()) != commit.checksum {
            return Err(damaged("its checksum is another one"));
        }
        this.committed[(round % 2) as usize] = commit;
        this.held_bytes[(round % 2) as usize] = commit.bytes;
        Ok((this, Rebuilt { round, bytes: commit.bytes }))
    }

    /// Opens the checkpoints of the other members: one of each.
    fn open_others(&self, node: &Node, tokens: &[Token]) -> Result<Vec<RemoteRegion>> {
        let others = |why: String| Err(ParityError::Others { why });
        if tokens.len() + 1 != self.layout.members {
            let (given, needed) = (tokens.len(), self.layout.members - 1);
            let is = if given < 2 { "is" } else { "are" };
            return others(format!("there {is} {given}, and {needed} are needed"));
        }
        let group = self.status()?.group;
        let (mut opened, mut seen) = (Vec::new(), BTreeSet::new());
        for token in tokens {
            let none = || others("one is not of the checkpoints of a member of such a parity".into());
            if token.length() != self.layout.held_length() {
                return none();
            }
            let remote = node.open(token)?;
            let Held { magic, group: of, member } = remote.get::<Held>(0, 1)?.wait()?[0];
            if magic != HELD_MAGIC {
                return none();
            }
            if of != group {
                return others("one is of another parity".into());
            }
            if member == self.member as u64 {
                return others(format!("one is of member {member}, which is to be rebuilt"));
            }
            if !seen.insert(member) {
                return others(format!("two are of member {member}"));
            }
            opened.push(remote);
        }
        Ok(opened)
    }

    /// A token of the own checkpoints, for who rebuilds another member.
    ///
    /// # Errors
    /// As those of [`Region::export`].
    pub fn token(&self) -> Result<Token> {
        Ok(self.held.export(Rights::READ)?)
    }

    /// Saves regions as the checkpoint of the next round: a copy in the own memory, and one put, in pieces, to the owner of the parity. Gives
    /// the round, which counts when all members have saved: see [`wait_complete`](Self::wait_complete).
    ///
    /// # Errors
    /// `Length`. `Incomplete`: this member has saved the round already, and others have not. `BegunAnew`: save again. As those of a put.
    pub fn save(&mut self, regions: &[&dyn Memory]) -> Result<u64> {
        let bytes: u64 = regions.iter().map(|region| region.bytes()).sum();
        if bytes > self.layout.bytes {
            return Err(ParityError::Length { bytes, most: self.layout.bytes });
        }
        let status = self.status()?;
        let round = status.complete + 1;
        let slot = (round % 2) as usize;
        let newest = status.slots[slot];
        if self.committed[slot].attempt == newest && newest.round == round {
            return Err(ParityError::Incomplete { round });
        }
        self.hold(round, regions)?;
        self.put(round, newest)?;
        Ok(round)
    }

    /// Copies the regions, one behind the other, into the own slot of a round.
    fn hold(&mut self, round: u64, regions: &[&dyn Memory]) -> Result<()> {
        let mut at = self.layout.held(round);
        let mut buffer = vec![0; CHUNK];
        for region in regions {
            for offset in (0..region.bytes()).step_by(CHUNK) {
                let length = (region.bytes() - offset).min(CHUNK as u64) as usize;
                region.copy_out(offset, &mut buffer[..length])?;
                self.held.write_bytes(at, &buffer[..length])?;
                at += length as u64;
            }
        }
        self.held_bytes[(round % 2) as usize] = at - self.layout.held(round);
        Ok(())
    }

    /// Puts what is held of a round to the owner.
    fn put(&mut self, round: u64, newest: Attempt) -> Result<()> {
        let bytes = self.held_bytes[(round % 2) as usize];
        let begun = self.member_status()?.begun;
        let newest = if newest.round == round { newest } else { Attempt { round, attempt: 0 } };
        // What this member, or the one in whose place it is, put in this attempt is in the parity already.
        let attempt = if begun == newest { Attempt { round, attempt: newest.attempt + 1 } } else { newest };
        self.attempt = attempt;
        let mut commit = Commit { attempt, bytes, checksum: 0 };
        let messages = self.layout.messages();
        let mut started = VecDeque::new();
        started.push_back(Started::Message(self.remote.put(messages, vec![Message { what: BEGIN, commit }])));
        let mut checksum = crc32fast::Hasher::new();
        for at in (0..bytes).step_by(CHUNK) {
            let mut piece = vec![0; (bytes - at).min(CHUNK as u64) as usize];
            self.held.read_bytes(self.layout.held(round) + at, &mut piece)?;
            checksum.update(&piece);
            started.push_back(Started::Data(self.remote.put(self.layout.slot(round) + at, piece)));
            if started.len() > STARTED {
                started.pop_front().map_or(Ok(()), Started::wait)?;
            }
        }
        commit.checksum = u64::from(checksum.finalize());
        started
            .push_back(Started::Message(self.remote.put(messages, vec![Message { what: COMMIT, commit }])));
        started.into_iter().try_for_each(Started::wait)?;
        self.remote.flush_handled(Some(self.domain)).wait()?;
        let slot = (round % 2) as usize;
        if self.member_status()?.committed[slot] != commit {
            return Err(ParityError::BegunAnew { round });
        }
        self.committed[slot] = commit;
        Ok(())
    }

    /// Waits until all members have saved the round that this one has saved last. If another member begins it anew, as one died in it, this
    /// one puts what it saved once more.
    ///
    /// # Errors
    /// `Timeout`, and those of a get and of a put.
    pub fn wait_complete(&mut self, patience: Duration) -> Result<u64> {
        let round = self.attempt.round;
        let start = Instant::now();
        loop {
            let status = self.status()?;
            if status.complete >= round {
                return Ok(round);
            }
            let newest = status.slots[(round % 2) as usize];
            if newest > self.attempt {
                match self.put(round, newest) {
                    Ok(()) | Err(ParityError::BegunAnew { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            if start.elapsed() > patience {
                return Err(ParityError::Timeout { round });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Restores regions from the own checkpoint of the last round that all members have: what this process saved, or what was rebuilt. Gives
    /// the round.
    ///
    /// # Errors
    /// `Nothing`, `Regions`, `Damaged`: nothing was changed.
    pub fn restore(&self, regions: &[&dyn Memory]) -> Result<u64> {
        let round = self.status()?.complete;
        let slot = (round % 2) as usize;
        let Commit { attempt, bytes, checksum } = self.committed[slot];
        if round == 0 || attempt.round != round {
            return Err(ParityError::Nothing);
        }
        let given = regions.iter().map(|region| region.bytes()).sum();
        if bytes != given {
            return Err(ParityError::Regions { checkpoint: bytes, regions: given });
        }
        let start = self.layout.held(round);
        let mut buffer = vec![0; CHUNK];
        let mut seen = crc32fast::Hasher::new();
        for at in (0..bytes).step_by(CHUNK) {
            let piece = &mut buffer[..(bytes - at).min(CHUNK as u64) as usize];
            self.held.read_bytes(start + at, piece)?;
            seen.update(piece);
        }
        if u64::from(seen.finalize()) != checksum {
            return Err(ParityError::Damaged {
                member: self.member,
                round,
                why: "its checksum is another one",
            });
        }
        let mut at = start;
        for region in regions {
            for offset in (0..region.bytes()).step_by(CHUNK) {
                let length = (region.bytes() - offset).min(CHUNK as u64) as usize;
                self.held.read_bytes(at, &mut buffer[..length])?;
                region.copy_in(offset, &buffer[..length])?;
                at += length as u64;
            }
        }
        Ok(round)
    }

    fn status(&self) -> Result<Status> {
        status_of(&self.remote)
    }

    fn member_status(&self) -> Result<MemberStatus> {
        let got = self.remote.get::<MemberStatus>(Layout::member(self.member), 1)?.wait()?;
        Ok(got[0])
    }
}

/// Finds out whether a token is that of a member: it tells the owner a number, which appears where the owner has the member of the token.
fn challenge(remote: &RemoteRegion, layout: &Layout, domain: u16, member: usize) -> Result<()> {
    let challenge = random();
    let commit = Commit { checksum: challenge, ..Commit::default() };
    remote.put(layout.messages(), vec![Message { what: CHALLENGE, commit }]).wait()?;
    remote.flush_handled(Some(domain)).wait()?;
    let of_member = remote.get::<MemberStatus>(Layout::member(member), 1)?.wait()?[0];
    if of_member.challenge == challenge { Ok(()) } else { Err(ParityError::NotOfMember { member }) }
}

fn status_of(remote: &RemoteRegion) -> Result<Status> {
    Ok(remote.get::<Status>(0, 1)?.wait()?[0])
}

/// A put that was started.
enum Started {
    Message(Operation<Vec<Message>>),
    Data(Operation<Vec<u8>>),
}

impl Started {
    fn wait(self) -> Result<()> {
        match self {
            Started::Message(put) => drop(put.wait()?),
            Started::Data(put) => drop(put.wait()?),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::Parity;
    use pagewire::Region;

    fn region(node: &Node, value: u8) -> Region<u8> {
        let region = node.zeroed::<u8>(3 * CHUNK / 2).unwrap();
        region.write(0, &[value; 3 * CHUNK / 2]).unwrap();
        region
    }

    /// A member whose save has ended with `BegunAnew` puts all that it holds when it waits.
    #[test]
    fn a_save_that_was_begun_anew_is_put_whole() {
        let [keeper, node, other_node] = [(); 3].map(|()| Node::alone().unwrap());
        let parity = Parity::new(&keeper, 2, 1 << 20).unwrap();
        let tokens = [0, 1].map(|member| parity.token(member).unwrap());
        let mut first = ParityMember::join(&node, &tokens[0], 0).unwrap();
        let mut second = ParityMember::join(&other_node, &tokens[1], 1).unwrap();
        first.save(&[&region(&node, 1)]).unwrap();
        second.save(&[&region(&other_node, 2)]).unwrap();
        first.wait_complete(Duration::from_secs(60)).unwrap();
        // The other member is rebuilt while the puts of a save run, so that it ends with `BegunAnew`: it has committed nothing.
        first.save(&[&region(&node, 7)]).unwrap();
        first.committed[0] = Commit::default();
        drop(second);
        let (mut second, _) =
            ParityMember::rebuild(&other_node, &tokens[1], 1, &[first.token().unwrap()]).unwrap();
        second.save(&[&region(&other_node, 9)]).unwrap();
        let patience = Duration::from_secs(60);
        std::thread::scope(|scope| {
            scope.spawn(|| second.wait_complete(patience).unwrap());
            first.wait_complete(patience).unwrap();
        });
        let others = [second.token().unwrap()];
        let (again, rebuilt) = ParityMember::rebuild(&node, &tokens[0], 0, &others).unwrap();
        assert_eq!(rebuilt, Rebuilt { round: 2, bytes: 3 * CHUNK as u64 / 2 });
        let restored = region(&node, 0);
        again.restore(&[&restored]).unwrap();
        let mut bytes = vec![0; 3 * CHUNK / 2];
        restored.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
}
