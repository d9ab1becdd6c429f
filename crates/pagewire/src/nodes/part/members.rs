//! How the members of a part exchange bytes: by puts and gets through member 0, the leader.
//!
//! Each member has a mailbox, which the others write. An operation has these steps:
//!
//! 1. Each member puts a note into the leader's mailbox: what it calls, and a token of what it gives. The operation's number follows as a signal.
//! 2. The leader has all notes, and gets what the members give.
//! 3. The leader puts a note into each mailbox: a token of all that was given. A barrier gives nothing, and ends here.
//! 4. Each member gets that, and puts the number as a signal into the leader's mailbox. The leader's memory is free then.
//!
//! Who waits asks now and then whether the one that it waits for is there. A failure of the leader is written to all mailboxes.

use crate::bootstrap::limits::{GRACE, MAX_GATHERED};
use crate::bootstrap::{
    Exchange, JobError, Operation, OperationKind, Ranks, Result, Wait, check_sum, too_large,
};
use crate::error::Error;
use crate::nodes::engine::heap;
use crate::nodes::peers::PeerTable;
use crate::nodes::services::NodeServices;
use crate::operations::operation::Operation as Started;
use crate::regions::memory::Block;
use crate::regions::region::{Atomic, Region, Shared};
use crate::regions::remote::RemoteRegion;
use crate::regions::rights::Rights;
use crate::regions::token::Token;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a member waits before it asks whether the other one is there, and before it asks again.
const LOOK: Duration = Duration::from_millis(500);
/// How long a failure is waited for that is written to the others.
const FAREWELL: Duration = Duration::from_secs(2);
const PLACE: &str = "a part of the job, whose ranks these are";

/// Words of a mailbox before its notes: why the leader has failed, and whose fault it is.
const HEADER: usize = 8;
const FAILURE: usize = 0;
const FAILED_RANK: usize = 1;
/// Words of a note.
const NOTE: usize = 16;
/// Words of it that are put; its signals follow.
const PUT: usize = 2 + Token::LEN / 8;
const TAKEN: usize = 14;
const STAMP: usize = 15;

/// Words of a mailbox for notes of so many members.
pub(super) fn mailbox_words(members: usize) -> usize {
    HEADER + NOTE * members
}

/// The members of a part, as one of them sees it.
pub(super) struct Members {
    services: Arc<NodeServices>,
    peers: Arc<PeerTable>,
    rank: usize,
    mailbox: Region<u64, Atomic>,
    /// Of all mailboxes, by rank.
    tokens: Vec<Token>,
    opened: Vec<Option<RemoteRegion>>,
}

/// What a member, or the leader, says of an operation.
#[derive(Clone, Copy)]
struct MemberNote {
    kind: u64,
    length: usize,
    /// Of `length` bytes. `None`: there are none.
    token: Option<Token>,
}

/// An operation that is under way.
#[derive(Clone, Copy)]
struct OperationRound {
    operation: Operation,
    wait: Wait,
}

fn code_of(kind: OperationKind) -> u64 {
    match kind {
        OperationKind::Join => 0,
        OperationKind::AllGather => 1,
        OperationKind::Barrier => 2,
        OperationKind::Broadcast { root } => 16 + root as u64,
    }
}

impl MemberNote {
    fn to_words(self) -> Vec<u64> {
        let mut words = vec![self.kind, self.length as u64];
        let token = self.token.map_or([0; Token::LEN], |token| token.to_bytes());
        words.extend(
            token.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())),
        );
        words
    }

    fn from_words(words: &[u64]) -> std::result::Result<Self, Error> {
        let length = words[1] as usize;
        let bytes: Vec<u8> = words[2..].iter().flat_map(|word| word.to_le_bytes()).collect();
        let token = if length == 0 { None } else { Some(Token::from_bytes(&bytes)?) };
        Ok(MemberNote { kind: words[0], length, token })
    }
}

impl Exchange for Members {
    fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
        if self.tokens.len() == 1 {
            return Ok(vec![bytes.to_vec()]);
        }
        if self.rank != 0 {
            // The leader's time is over first: it knows who is absent.
            return self.follow(OperationRound { operation, wait: wait.longer(GRACE) }, bytes);
        }
        let result = self.lead(OperationRound { operation, wait }, bytes);
        if let Err(failure) = &result {
            self.spread(failure);
        }
        result
    }
}

impl Members {
    pub fn new(
        (services, peers): (&Arc<NodeServices>, &Arc<PeerTable>),
        rank: usize,
        mailbox: Region<u64, Atomic>,
        tokens: Vec<Token>,
    ) -> Self {
        let opened = vec![None; tokens.len()];
        Members { services: services.clone(), peers: peers.clone(), rank, mailbox, tokens, opened }
    }

    fn follow(&mut self, round: OperationRound, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let given = self.publish(round, bytes)?;
        let note = MemberNote::of(round, given.as_ref());
        let sent = self.send(round, 0, note)?;
        self.wait_for_note(round, 0)?;
        // The leader has the note, though it may have left before it acknowledged it.
        self.end(round, 0, sent);
        let answer = self.note(round, 0)?;
        let Some(got) = self.start_get(round, 0, &answer)? else {
            return Ok(vec![Vec::new(); self.tokens.len()]);
        };
        let whole = self.finish(round, 0, got)?;
        let all = unpack(&whole, self.tokens.len())
            .ok_or_else(|| lost(round, 0, "it sent something else".into()))?;
        let offset = self.offset_of(0, TAKEN);
        let leader = self.open(round, 0)?;
        let taken = leader.signal_only(leader.signal(offset).set(round.operation.number));
        self.end(round, 0, taken);
        Ok(all)
    }

    fn lead(&mut self, round: OperationRound, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let members = 1..self.tokens.len();
        for rank in members.clone() {
            self.wait_for_note(round, rank)?;
        }
        let mut gets = Vec::new();
        let mut sum = bytes.len();
        for rank in members.clone() {
            let note = self.note(round, rank)?;
            if note.kind != code_of(round.operation.kind) {
                return Err(JobError::Mismatch { operation: round.operation, rank });
            }
            sum = check_sum(round.operation, [sum, note.length].into_iter())?;
            gets.push(self.start_get(round, rank, &note)?);
        }
        let mut all = vec![bytes.to_vec()];
        for (rank, get) in members.clone().zip(gets) {
            all.push(match get {
                Some(get) => self.finish(round, rank, get)?,
                None => Vec::new(),
            });
        }
        let given = if sum == 0 { None } else { self.publish(round, &pack(&all))? };
        let answer = MemberNote::of(round, given.as_ref());
        let mut sent = Vec::new();
        for rank in members.clone() {
            sent.push(self.send(round, rank, answer)?);
        }
        // All have come, so the operation is done. A member may have left as soon as it saw the answer; the next operation misses it.
        for (rank, sent) in members.clone().zip(sent) {
            self.end(round, rank, sent);
        }
        if given.is_some() {
            for rank in members {
                if let Err(error) = self.wait_for(round, rank, TAKEN) {
                    log::debug!("what was given to a part is not waited for: {error}");
                }
            }
        }
        Ok(all)
    }

    /// Memory that has bytes, and its token. `None`: there are none.
    fn publish(&self, round: OperationRound, bytes: &[u8]) -> Result<Option<(Region<u8, Shared>, Token)>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let publish = || {
            let block = Block::zeroed(heap(&self.services.nic)?, bytes.len())?;
            block.write(0, bytes);
            let region: Region<u8, Shared> = Region::new(&self.services, block);
            let token = region.export(Rights::READ)?;
            Ok::<_, Error>((region, token))
        };
        publish().map(Some).map_err(|error| lost(round, self.rank, error.to_string()))
    }

    /// The mailbox of a member.
    fn open(&mut self, round: OperationRound, rank: usize) -> Result<RemoteRegion> {
        if let Some(opened) = &self.opened[rank] {
            return Ok(opened.clone());
        }
        let token = self.tokens[rank];
        let connected =
            self.peers.connect(token.node).map_err(|error| lost(round, rank, error.to_string()))?;
        Ok(self.opened[rank].insert(RemoteRegion::new(connected, token)).clone())
    }

    /// The offset at `rank` of a word of this member's note.
    fn offset_of(&self, rank: usize, word: usize) -> u64 {
        let writer = if rank == 0 { self.rank } else { 0 };
        8 * (HEADER + NOTE * writer + word) as u64
    }

    fn send(&mut self, round: OperationRound, rank: usize, note: MemberNote) -> Result<Started<Vec<u64>>> {
        let (at, stamp) = (self.offset_of(rank, 0), self.offset_of(rank, STAMP));
        let other = self.open(round, rank)?;
        Ok(other.put_signal(at, note.to_words(), other.signal(stamp).set(round.operation.number)))
    }

    fn start_get(
        &self,
        round: OperationRound,
        rank: usize,
        note: &MemberNote,
    ) -> Result<Option<Started<Vec<u8>>>> {
        let Some(token) = note.token else { return Ok(None) };
        if note.length > MAX_GATHERED + 8 * self.tokens.len() {
            return Err(too_large(round.operation, &format!("rank {rank}"), note.length, MAX_GATHERED));
        }
        let get = || {
            let connected = self.peers.connect(token.node)?;
            RemoteRegion::new(connected, token).get::<u8>(0, note.length)
        };
        get().map(Some).map_err(|error| lost(round, rank, error.to_string()))
    }

    /// The result of an operation to a member, within the time.
    fn finish<B: Send + 'static>(
        &self,
        round: OperationRound,
        rank: usize,
        started: Started<B>,
    ) -> Result<B> {
        if !started.ends_within(round.wait.left()) {
            return Err(round.wait.absent(round.operation, Ranks::from_iter([rank]), PLACE));
        }
        started.wait().map_err(|error| lost(round, rank, error.to_string()))
    }

    /// Waits for the end of what the other side need not have acknowledged.
    fn end<B: Send + 'static>(&self, round: OperationRound, rank: usize, started: Started<B>) {
        if let Err(error) = self.finish(round, rank, started) {
            log::debug!("a member has left: {error}");
        }
    }

    /// Waits for the note of a member.
    fn wait_for_note(&mut self, round: OperationRound, rank: usize) -> Result<()> {
        self.wait_for(round, rank, STAMP)
    }

    /// Waits until a signal of a member's note is the number of the operation.
    fn wait_for(&mut self, round: OperationRound, rank: usize, word: usize) -> Result<()> {
        let place = HEADER + NOTE * rank + word;
        loop {
            let words = self.mailbox.words();
            let has_come = || words[place].load(Ordering::Acquire) >= round.operation.number;
            let has_failed = || words[FAILURE].load(Ordering::Acquire) != 0;
            let time = round.wait.left().min(LOOK);
            let waited = self.services.completions.wait_for(time, || has_come() || has_failed());
            waited.map_err(|_| JobError::Forked)?;
            if has_come() {
                return Ok(());
            }
            if has_failed() {
                return Err(self.failure_of_leader(round));
            }
            if round.wait.is_over() {
                return Err(round.wait.absent(round.operation, self.absent(round, rank, word), PLACE));
            }
            // One that has died, or has dropped its part, does not answer.
            let probe = self.open(round, rank)?.get::<u64>(0, 1);
            let probe = probe.map_err(|error| lost(round, rank, error.to_string()))?;
            self.finish(round, rank, probe)?;
        }
    }

    /// Who has not come, from a rank on.
    fn absent(&self, round: OperationRound, rank: usize, word: usize) -> Ranks {
        if self.rank != 0 {
            return Ranks::from_iter([rank]);
        }
        let words = self.mailbox.words();
        let has_come = |rank: &usize| {
            words[HEADER + NOTE * rank + word].load(Ordering::Acquire) >= round.operation.number
        };
        (rank..self.tokens.len()).filter(|rank| !has_come(rank)).collect()
    }

    /// The note of a member, which has come.
    fn note(&self, round: OperationRound, rank: usize) -> Result<MemberNote> {
        let first = HEADER + NOTE * rank;
        let words = &self.mailbox.words()[first..first + PUT];
        let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
        MemberNote::from_words(&words).map_err(|error| lost(round, rank, error.to_string()))
    }

    /// Writes a failure to all mailboxes, as far as they can be reached: who is not reached waits for the timeout.
    fn spread(&mut self, failure: &JobError) {
        let (code, failed) = match failure {
            JobError::Lost { rank, .. } => (1, *rank),
            JobError::Absent { ranks, .. } => (2, ranks.listed().first().copied().unwrap_or(0)),
            JobError::Mismatch { rank, .. } => (3, *rank),
            _ => (4, 0),
        };
        let mut written = Vec::new();
        for rank in (1..self.tokens.len()).filter(|rank| code != 1 || *rank != failed) {
            let connected = self.peers.connect(self.tokens[rank].node);
            let Ok(other) = connected.map(|connection| RemoteRegion::new(connection, self.tokens[rank]))
            else {
                continue;
            };
            let failure = other.signal(8 * FAILURE as u64).set(code);
            written.push(other.put_signal(8 * FAILED_RANK as u64, vec![failed as u64], failure));
        }
        for write in written {
            if !write.ends_within(FAREWELL) || write.wait().is_err() {
                log::debug!("a member of a part was not told that it has ended");
            }
        }
    }

    /// What the leader has written.
    fn failure_of_leader(&self, round: OperationRound) -> JobError {
        let words = self.mailbox.words();
        let rank = words[FAILED_RANK].load(Ordering::Relaxed) as usize;
        let operation = round.operation;
        match words[FAILURE].load(Ordering::Acquire) {
            1 => lost(round, rank, "rank 0 of the part cannot reach it any more".into()),
            2 => round.wait.absent(operation, Ranks::from_iter([rank]), PLACE),
            3 => JobError::Mismatch { operation, rank },
            _ => lost(round, 0, "the operation has failed there: its error says why".into()),
        }
    }
}

impl MemberNote {
    fn of(round: OperationRound, given: Option<&(Region<u8, Shared>, Token)>) -> Self {
        let token = given.map(|(_, token)| *token);
        let length = token.map_or(0, |token| token.length() as usize);
        MemberNote { kind: code_of(round.operation.kind), length, token }
    }
}

fn lost(round: OperationRound, rank: usize, reason: String) -> JobError {
    JobError::Lost { operation: round.operation, rank, place: PLACE.to_string(), reason }
}

/// What all have given: the lengths, then the bytes.
fn pack(all: &[Vec<u8>]) -> Vec<u8> {
    let lengths = all.iter().flat_map(|bytes| (bytes.len() as u64).to_le_bytes());
    lengths.chain(all.iter().flatten().copied()).collect()
}

fn unpack(whole: &[u8], members: usize) -> Option<Vec<Vec<u8>>> {
    let (lengths, mut rest) = whole.split_at_checked(8 * members)?;
    let mut all = Vec::with_capacity(members);
    for length in lengths.chunks_exact(8) {
        let length = u64::from_le_bytes(length.try_into().ok()?) as usize;
        let (bytes, after) = rest.split_at_checked(length)?;
        all.push(bytes.to_vec());
        rest = after;
    }
    rest.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_come_back() {
        let all = [b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let packed = pack(&all);
        assert_eq!(unpack(&packed, 3).unwrap(), all);
        assert!(unpack(&packed, 4).is_none() && unpack(&packed[1..], 3).is_none());
        assert!(unpack(&[], 1).is_none() && unpack(&[255; 8], 1).is_none());
    }
}
