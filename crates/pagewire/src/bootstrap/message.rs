//! The messages of the rendezvous, as bytes. This module does no I/O, and no bytes make it panic.
//!
//! 1. Rank 0 sends a [`Challenge`] to whoever connects: a magic number and a nonce.
//! 2. The member sends a [`MemberHello`]: its rank, the size, a nonce, and a proof that it knows the job's secret.
//! 3. Rank 0 answers with a frame: `Welcome` with its own proof once all members have come, or `Refusal`.
//! 4. For each operation, a member sends a frame with its bytes. Rank 0 answers with the bytes of all, or `Failure`.
//!
//! A proof is HMAC-SHA-256 over both nonces, the rank and the size. Its key is `PAGEWIRE_JOB`, which itself is never sent.
//! The proof keeps strangers and other jobs out. The data are neither encrypted nor signed.

use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::error::{JobError, Operation, OperationKind, Ranks, Refusal};
use super::limits::{MAX_GATHERED, MAX_LISTED_RANKS, MAX_PROCESSES};
use super::{Wait, too_large};

/// First bytes of a challenge and a hello. The last one is the version of the protocol.
const MAGIC: [u8; 8] = *b"PWJOB\0\0\x01";
pub const NONCE: usize = 32;
pub const PROOF: usize = 32;
pub const CHALLENGE: usize = MAGIC.len() + NONCE;
pub const HELLO: usize = MAGIC.len() + 4 + 4 + NONCE + PROOF;
pub const HEADER: usize = 24;

pub type Nonce = [u8; NONCE];
pub type Proof = [u8; PROOF];

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("it speaks another protocol than Pagewire's rendezvous")]
    Magic,
    #[error("it speaks version {0} of the rendezvous, not {own}; use one release for all processes", own = MAGIC[7])]
    Version(u8),
    #[error("a message has unknown or contradictory fields")]
    Fields,
    #[error("a message of {0} bytes exceeds its bound")]
    Length(usize),
}

/// Who made a proof. Each side's proof is of no use to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prover {
    Root,
    Member,
}

/// What a proof covers.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    pub root_nonce: &'a Nonce,
    pub member_nonce: &'a Nonce,
    pub rank: u32,
    pub size: u32,
}

impl Subject<'_> {
    fn mac(&self, prover: Prover, secret: &str) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(secret.as_bytes()).expect("HMAC takes keys of any length");
        mac.update(match prover {
            Prover::Root => b"pagewire rendezvous root  ",
            Prover::Member => b"pagewire rendezvous member",
        });
        mac.update(self.root_nonce);
        mac.update(self.member_nonce);
        mac.update(&self.rank.to_le_bytes());
        mac.update(&self.size.to_le_bytes());
        mac
    }

    pub fn prove(&self, prover: Prover, secret: &str) -> Proof {
        self.mac(prover, secret).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    pub fn verify(&self, prover: Prover, secret: &str, proof: &Proof) -> bool {
        self.mac(prover, secret).verify_slice(proof).is_ok()
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), Malformed> {
    let version = MAGIC.len() - 1;
    if bytes[..version] != MAGIC[..version] {
        return Err(Malformed::Magic);
    }
    if bytes[version] != MAGIC[version] {
        return Err(Malformed::Version(bytes[version]));
    }
    Ok(())
}

/// Four little-endian bytes at an offset. The caller has checked the length.
fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// First message of rank 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Challenge {
    pub nonce: Nonce,
}

impl Challenge {
    pub fn encode(&self) -> [u8; CHALLENGE] {
        let mut bytes = [0; CHALLENGE];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[MAGIC.len()..].copy_from_slice(&self.nonce);
        bytes
    }

    pub fn decode(bytes: &[u8; CHALLENGE]) -> Result<Self, Malformed> {
        check_magic(bytes)?;
        Ok(Self { nonce: bytes[MAGIC.len()..].try_into().expect("a nonce's length") })
    }
}

/// First message of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberHello {
    pub rank: u32,
    pub size: u32,
    pub nonce: Nonce,
    pub proof: Proof,
}

impl MemberHello {
    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.rank.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..48].copy_from_slice(&self.nonce);
        bytes[48..].copy_from_slice(&self.proof);
        bytes
    }

    pub fn decode(bytes: &[u8; HELLO]) -> Result<Self, Malformed> {
        check_magic(bytes)?;
        Ok(Self {
            rank: word(bytes, 8),
            size: word(bytes, 12),
            nonce: bytes[16..48].try_into().expect("a nonce's length"),
            proof: bytes[48..].try_into().expect("a proof's length"),
        })
    }
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Rank 0's proof.
    Welcome,
    Refusal(Refusal),
    /// A member's bytes, or rank 0's bytes of all.
    Data(OperationKind),
    /// The operation failed for all.
    Failure,
}

/// First bytes of a frame: kind (4), detail (4), number of the operation (8), length of the body (4), zero (4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    pub number: u64,
    pub length: usize,
}

const REFUSALS: [Refusal; 3] = [Refusal::AnotherJob, Refusal::AnotherSize, Refusal::RankTaken];

impl FrameHeader {
    pub fn encode(&self) -> [u8; HEADER] {
        let refusal = |reason: Refusal| {
            REFUSALS.iter().position(|known| *known == reason).expect("every refusal is listed")
        };
        let (kind, detail) = match self.kind {
            FrameKind::Welcome => (1u32, 0),
            FrameKind::Refusal(reason) => (2, refusal(reason)),
            FrameKind::Failure => (3, 0),
            FrameKind::Data(OperationKind::Join) => unreachable!("joining has messages of its own"),
            FrameKind::Data(OperationKind::AllGather) => (4, 0),
            FrameKind::Data(OperationKind::Broadcast { root }) => (5, root),
            FrameKind::Data(OperationKind::Barrier) => (6, 0),
        };
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&kind.to_le_bytes());
        bytes[4..8].copy_from_slice(&to_word(detail).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..20].copy_from_slice(&to_word(self.length).to_le_bytes());
        bytes
    }

    /// Reads a header and refuses a body that is longer than its kind allows.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Self, Malformed> {
        let (kind, detail) = (word(bytes, 0), word(bytes, 4) as usize);
        let kind = match (kind, detail) {
            (1, 0) => FrameKind::Welcome,
            (2, _) => FrameKind::Refusal(*REFUSALS.get(detail).ok_or(Malformed::Fields)?),
            (3, 0) => FrameKind::Failure,
            (4, 0) => FrameKind::Data(OperationKind::AllGather),
            (5, root) if root < MAX_PROCESSES => FrameKind::Data(OperationKind::Broadcast { root }),
            (6, 0) => FrameKind::Data(OperationKind::Barrier),
            _ => return Err(Malformed::Fields),
        };
        let number = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
        let length = word(bytes, 16) as usize;
        let bound = match kind {
            FrameKind::Welcome => PROOF,
            FrameKind::Refusal(_) => 0,
            FrameKind::Failure => FAILURE,
            FrameKind::Data(_) => MAX_GATHERED + 4 * MAX_PROCESSES,
        };
        if length > bound {
            return Err(Malformed::Length(length));
        }
        if word(bytes, 20) != 0 {
            return Err(Malformed::Fields);
        }
        Ok(Self { kind, number, length })
    }
}

fn to_word(value: usize) -> u32 {
    u32::try_from(value).expect("the bounds of the bootstrap fit 32 bits")
}

/// A frame as one piece.
pub fn frame(kind: FrameKind, number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend(FrameHeader { kind, number, length: body.len() }.encode());
    bytes.extend(body);
    bytes
}

/// The body with the bytes of all: a length a rank, then the bytes.
pub fn encode_gathered(all: &[Vec<u8>]) -> Vec<u8> {
    let mut body = Vec::with_capacity(all.iter().map(|bytes| 4 + bytes.len()).sum());
    all.iter().for_each(|bytes| body.extend(to_word(bytes.len()).to_le_bytes()));
    all.iter().for_each(|bytes| body.extend(bytes));
    body
}

/// Reads the bytes of `size` ranks.
pub fn decode_gathered(body: &[u8], size: usize) -> Result<Vec<Vec<u8>>, Malformed> {
    let (lengths, mut rest) = body.split_at_checked(4 * size).ok_or(Malformed::Fields)?;
    let mut all = Vec::with_capacity(size);
    for length in lengths.chunks_exact(4) {
        let (bytes, after) = rest.split_at_checked(word(length, 0) as usize).ok_or(Malformed::Fields)?;
        all.push(bytes.to_vec());
        rest = after;
    }
    if rest.is_empty() { Ok(all) } else { Err(Malformed::Fields) }
}

/// The most bytes of a failure's body.
const FAILURE: usize = 4 + 8 + 4 * MAX_LISTED_RANKS;

/// The body that tells members why an operation failed: kind (4), a number (8), ranks (4 each).
pub fn encode_failure(error: &JobError) -> Vec<u8> {
    let (kind, number, ranks) = match error {
        JobError::Absent { ranks, .. } => (1u32, ranks.count(), ranks.listed().to_vec()),
        JobError::Lost { rank, .. } => (2, 0, vec![*rank]),
        JobError::Mismatch { rank, .. } => (3, 0, vec![*rank]),
        JobError::TooLarge { bytes, .. } => (4, *bytes, Vec::new()),
        // What else happens at rank 0 means for the others that rank 0 is lost.
        _ => (2, 0, vec![0]),
    };
    let mut body = kind.to_le_bytes().to_vec();
    body.extend((number as u64).to_le_bytes());
    ranks.iter().for_each(|rank| body.extend(to_word(*rank).to_le_bytes()));
    body
}

/// Reads why an operation failed.
pub fn decode_failure(
    body: &[u8],
    operation: Operation,
    place: &str,
    wait: Wait,
) -> Result<JobError, Malformed> {
    let (head, ranks) = body.split_at_checked(12).ok_or(Malformed::Fields)?;
    let number = u64::from_le_bytes(head[4..].try_into().expect("eight bytes"));
    let number = usize::try_from(number).map_err(|_| Malformed::Fields)?;
    if ranks.len() % 4 != 0 {
        return Err(Malformed::Fields);
    }
    let ranks: Vec<usize> = ranks.chunks_exact(4).map(|rank| word(rank, 0) as usize).collect();
    let one = || ranks.first().copied().ok_or(Malformed::Fields);
    Ok(match word(head, 0) {
        1 => wait.absent(operation, Ranks::from_parts(ranks, number), place),
        2 => {
            let reason = "rank 0 lost its connection".to_string();
            JobError::Lost { operation, rank: one()?, place: place.to_string(), reason }
        }
        3 => JobError::Mismatch { operation, rank: one()? },
        4 => too_large(operation, "all processes", number, MAX_GATHERED),
        _ => return Err(Malformed::Fields),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const GATHER: Operation = Operation { kind: OperationKind::AllGather, number: 9 };

    fn subject<'a>(root_nonce: &'a Nonce, member_nonce: &'a Nonce) -> Subject<'a> {
        Subject { root_nonce, member_nonce, rank: 2, size: 4 }
    }

    #[test]
    fn a_proof_covers_all_that_it_should() {
        let (root, member) = ([1; NONCE], [2; NONCE]);
        let it = subject(&root, &member);
        let proof = it.prove(Prover::Member, "secret");
        assert!(it.verify(Prover::Member, "secret", &proof));
        assert!(!it.verify(Prover::Root, "secret", &proof), "a member's proof is no proof of rank 0");
        assert!(!it.verify(Prover::Member, "Secret", &proof));
        assert!(!Subject { rank: 3, ..it }.verify(Prover::Member, "secret", &proof));
        assert!(!Subject { size: 5, ..it }.verify(Prover::Member, "secret", &proof));
        assert!(!subject(&member, &member).verify(Prover::Member, "secret", &proof));
        assert!(!subject(&root, &root).verify(Prover::Member, "secret", &proof));
    }

    #[test]
    fn greetings_survive_and_strangers_are_noticed() {
        let challenge = Challenge { nonce: [7; NONCE] };
        assert_eq!(Challenge::decode(&challenge.encode()), Ok(challenge));
        let hello = MemberHello { rank: 1, size: 2, nonce: [3; NONCE], proof: [4; PROOF] };
        assert_eq!(MemberHello::decode(&hello.encode()), Ok(hello));
        let mut bytes = challenge.encode();
        bytes[7] = 9;
        assert_eq!(Challenge::decode(&bytes), Err(Malformed::Version(9)));
        bytes[0] = b'S';
        assert_eq!(Challenge::decode(&bytes), Err(Malformed::Magic));
    }

    #[test]
    fn headers_survive_and_bound_their_body() {
        let kinds = [
            FrameKind::Welcome,
            FrameKind::Refusal(Refusal::RankTaken),
            FrameKind::Failure,
            FrameKind::Data(OperationKind::AllGather),
            FrameKind::Data(OperationKind::Broadcast { root: 3 }),
            FrameKind::Data(OperationKind::Barrier),
        ];
        for kind in kinds {
            let header = FrameHeader { kind, number: 1 << 40, length: 0 };
            assert_eq!(FrameHeader::decode(&header.encode()), Ok(header));
            let long = FrameHeader { kind, number: 1, length: u32::MAX as usize };
            assert_eq!(FrameHeader::decode(&long.encode()), Err(Malformed::Length(u32::MAX as usize)));
        }
        assert_eq!(FrameHeader::decode(&[0; HEADER]), Err(Malformed::Fields));
    }

    #[test]
    fn failures_reach_the_members() {
        let wait = Wait::new(Duration::from_secs(5));
        for error in [
            wait.absent(GATHER, Ranks::from_iter(10..40), "here"),
            wait.absent(GATHER, Ranks::from_iter([2]), "here"),
            JobError::Mismatch { operation: GATHER, rank: 3 },
            too_large(GATHER, "all processes", MAX_GATHERED + 1, MAX_GATHERED),
        ] {
            let body = encode_failure(&error);
            assert!(body.len() <= FAILURE);
            assert_eq!(decode_failure(&body, GATHER, "here", wait), Ok(error));
        }
        let other = encode_failure(&JobError::AlreadyJoined);
        let read = decode_failure(&other, GATHER, "here", wait).expect("a failure");
        assert!(matches!(read, JobError::Lost { rank: 0, .. }), "{read}");
    }

    proptest! {
        #[test]
        fn gathered_bytes_survive(all in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..20)) {
            prop_assert_eq!(decode_gathered(&encode_gathered(&all), all.len()), Ok(all));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 0usize..100, kind in 0u8..8) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() { *first = kind; }
            let wait = Wait::new(Duration::from_secs(1));
            let _ = decode_gathered(&bytes, size);
            if let Ok(JobError::Absent { ranks, .. }) = decode_failure(&bytes, GATHER, "here", wait) {
                prop_assert!(ranks.listed().len() <= MAX_LISTED_RANKS);
                let _ = ranks.to_string();
            }
            if let Some(Ok(bytes)) = bytes.get(..HEADER).map(TryInto::try_into) { let _ = FrameHeader::decode(bytes); }
            if let Some(Ok(bytes)) = bytes.get(..HELLO).map(TryInto::try_into) { let _ = MemberHello::decode(bytes); }
            if let Some(Ok(bytes)) = bytes.get(..CHALLENGE).map(TryInto::try_into) { let _ = Challenge::decode(bytes); }
        }
    }
}
