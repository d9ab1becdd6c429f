//! Messages and records of the journal as bytes: words of 8 bytes, little-endian.

use super::words::{Attempt, Notice, OwnerId, OwnerMessage, Priority, Record, Request, Session};
use pagewire::Token;

/// Somebody's message to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToStore {
    /// The token of the client's mailbox comes with each attempt's first request.
    Client(Attempt, Request, Option<Token>),
    Owner(OwnerId, Attempt, OwnerMessage),
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Takes words from the front of bytes.
struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    fn word(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn small(&mut self) -> Option<u32> {
        self.word()?.try_into().ok()
    }

    fn attempt(&mut self) -> Option<Attempt> {
        Some(Attempt { session: Session(self.word()?), number: self.word()? })
    }

    fn bytes(&mut self, length: usize) -> Option<&'b [u8]> {
        let (first, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(first)
    }
}

impl ToStore {
    pub fn encode(&self) -> Vec<u8> {
        let (attempt, kind, a, b) = match self {
            ToStore::Client(attempt, request, _) => match request {
                Request::Begin { priority } => (attempt, 1, priority.begun, priority.session.0),
                Request::Prepare { home } => (attempt, 2, u64::from(home.0), 0),
                Request::Commit => (attempt, 3, 0, 0),
                Request::Apply => (attempt, 4, 0, 0),
                Request::Abort => (attempt, 5, 0, 0),
                Request::Forget => (attempt, 6, 0, 0),
            },
            ToStore::Owner(from, attempt, OwnerMessage::Inquire) => (attempt, 7, u64::from(from.0), 0),
            ToStore::Owner(from, attempt, OwnerMessage::Decision { commits }) => {
                (attempt, 8, u64::from(from.0), u64::from(*commits))
            }
        };
        let mut message = bytes(&[kind, attempt.session.0, attempt.number, a, b]);
        if let ToStore::Client(_, _, Some(token)) = self {
            message.extend(token.to_bytes());
        }
        message
    }

    /// `None`: it is none.
    pub fn decode(message: &[u8]) -> Option<ToStore> {
        let mut reader = Reader(message);
        let (kind, attempt) = (reader.word()?, reader.attempt()?);
        let (a, b) = (reader.word()?, reader.word()?);
        let owner = || Some(OwnerId(a.try_into().ok()?));
        let request = match kind {
            1 => Request::Begin { priority: Priority { begun: a, session: Session(b) } },
            2 => Request::Prepare { home: owner()? },
            3 => Request::Commit,
            4 => Request::Apply,
            5 => Request::Abort,
            6 => Request::Forget,
            7 => return Some(ToStore::Owner(owner()?, attempt, OwnerMessage::Inquire)),
            8 => return Some(ToStore::Owner(owner()?, attempt, OwnerMessage::Decision { commits: b != 0 })),
            _ => return None,
        };
        let token = if reader.0.is_empty() { None } else { Some(Token::from_bytes(reader.0).ok()?) };
        Some(ToStore::Client(attempt, request, token))
    }
}

/// A store's message to a client.
pub fn encode_notice(from: OwnerId, attempt: Attempt, notice: Notice) -> Vec<u8> {
    let (kind, flag) = match notice {
        Notice::Invalidated => (1, false),
        Notice::Vote { is_for } => (2, is_for),
        Notice::Decided { commits } => (3, commits),
        Notice::Applied => (4, false),
    };
    bytes(&[kind, attempt.session.0, attempt.number, u64::from(from.0), u64::from(flag)])
}

pub fn decode_notice(message: &[u8]) -> Option<(OwnerId, Attempt, Notice)> {
    let mut reader = Reader(message);
    let (kind, attempt, from, flag) =
        (reader.word()?, reader.attempt()?, reader.small()?, reader.word()? != 0);
    let notice = match kind {
        1 => Notice::Invalidated,
        2 => Notice::Vote { is_for: flag },
        3 => Notice::Decided { commits: flag },
        4 => Notice::Applied,
        _ => return None,
    };
    Some((OwnerId(from), attempt, notice))
}

/// A record of the journal, with its length and checksum before it.
pub fn encode_record(record: &Record<Vec<u8>>) -> Vec<u8> {
    let body = match record {
        Record::Prepared { attempt, home, writes } => {
            let count = writes.len() as u64;
            let mut body = bytes(&[1, attempt.session.0, attempt.number, u64::from(home.0), count]);
            for (cell, value) in writes {
                body.extend(bytes(&[u64::from(*cell), value.len() as u64]));
                body.extend(value);
            }
            body
        }
        Record::Ended { attempt, commits, is_home } => {
            bytes(&[2, attempt.session.0, attempt.number, u64::from(*commits), u64::from(*is_home)])
        }
        Record::Forgotten { attempt } => bytes(&[3, attempt.session.0, attempt.number]),
        Record::Cell { cell, version, value } => {
            let mut body = bytes(&[4, u64::from(*cell), *version, value.len() as u64]);
            body.extend(value);
            body
        }
    };
    let length = (body.len() as u32).to_le_bytes();
    let sums = [crc32fast::hash(&length), crc32fast::hash(&body)];
    let mut record = length.to_vec();
    record.extend(sums.iter().flat_map(|sum| sum.to_le_bytes()));
    record.extend(body);
    record
}

/// What begins a journal: that it is one, and the position of its store.
const JOURNAL_MARK: u64 = u64::from_be_bytes(*b"pw_store");

pub fn encode_header(store: OwnerId) -> Vec<u8> {
    bytes(&[JOURNAL_MARK, u64::from(store.0)])
}

/// Why a file is not the journal of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WrongJournal {
    /// It begins otherwise.
    #[error("it is no journal of a store: name another file")]
    Other,
    /// It is of a store at another position.
    #[error("it is the journal of the store at position {0}: name that of this one")]
    Position(u64),
    /// Bytes have changed.
    #[error(
        "it is damaged at byte {0}: bring it back from a copy, or name another file, which loses what is in it"
    )]
    Damaged(usize),
}

/// Of a journal.
pub type Records = Vec<Record<Vec<u8>>>;

/// The records of a journal, and how many bytes of it are whole: behind them its writer was killed. A file without bytes is a new journal.
///
/// # Errors
/// It is none, it is another store's, or something of it was changed.
pub fn decode_journal(journal: &[u8], store: OwnerId) -> Result<(Records, usize), WrongJournal> {
    if journal.is_empty() {
        return Ok((Vec::new(), 0));
    }
    let mut reader = Reader(journal);
    match (reader.word(), reader.word()) {
        (Some(JOURNAL_MARK), Some(position)) if position == u64::from(store.0) => {}
        (Some(JOURNAL_MARK), Some(position)) => return Err(WrongJournal::Position(position)),
        _ => return Err(WrongJournal::Other),
    }
    let mut records = Vec::new();
    loop {
        let whole = journal.len() - reader.0.len();
        match decode_record(&mut reader) {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return Ok((records, whole)),
            Err(Changed) => return Err(WrongJournal::Damaged(whole)),
        }
    }
}

/// What a record has is not what was written.
struct Changed;

/// The next record. `None`: it is cut off.
fn decode_record(reader: &mut Reader<'_>) -> Result<Option<Record<Vec<u8>>>, Changed> {
    let Some(header) = reader.bytes(12) else { return Ok(None) };
    let word = |at: usize| header[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let (length, sums) = (word(0), [word(4), word(8)]);
    if crc32fast::hash(&length.to_le_bytes()) != sums[0] {
        return Err(Changed);
    }
    let Some(body) = reader.bytes(length as usize) else { return Ok(None) };
    if crc32fast::hash(body) != sums[1] {
        return Err(Changed);
    }
    decode_body(body).map(Some).ok_or(Changed)
}

fn decode_body(body: &[u8]) -> Option<Record<Vec<u8>>> {
    let mut body = Reader(body);
    let value = |reader: &mut Reader<'_>| {
        let length = reader.word()?;
        Some(reader.bytes(length.try_into().ok()?)?.to_vec())
    };
    Some(match body.word()? {
        1 => {
            let (attempt, home, count) = (body.attempt()?, OwnerId(body.small()?), body.word()?);
            let writes =
                (0..count).map(|_| Some((body.small()?, value(&mut body)?))).collect::<Option<_>>()?;
            Record::Prepared { attempt, home, writes }
        }
        2 => {
            Record::Ended { attempt: body.attempt()?, commits: body.word()? != 0, is_home: body.word()? != 0 }
        }
        3 => Record::Forgotten { attempt: body.attempt()? },
        4 => Record::Cell { cell: body.small()?, version: body.word()?, value: value(&mut body)? },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOURNAL_HEADER: usize = 16;
    const ATTEMPT: Attempt = Attempt { session: Session(7), number: 9 };

    #[test]
    fn messages_come_back_as_they_were() {
        let requests = [
            Request::Begin { priority: Priority { begun: 3, session: Session(4) } },
            Request::Prepare { home: OwnerId(2) },
            Request::Commit,
            Request::Apply,
            Request::Abort,
            Request::Forget,
        ];
        let mut all: Vec<_> = requests.map(|request| ToStore::Client(ATTEMPT, request, None)).into();
        all.push(ToStore::Owner(OwnerId(1), ATTEMPT, OwnerMessage::Inquire));
        all.push(ToStore::Owner(OwnerId(1), ATTEMPT, OwnerMessage::Decision { commits: true }));
        for message in all {
            let bytes = message.encode();
            assert_eq!(ToStore::decode(&bytes).as_ref(), Some(&message));
            assert!((0..bytes.len()).all(|length| ToStore::decode(&bytes[..length]).is_none()));
        }
        for notice in [
            Notice::Invalidated,
            Notice::Vote { is_for: true },
            Notice::Decided { commits: true },
            Notice::Applied,
        ] {
            let bytes = encode_notice(OwnerId(5), ATTEMPT, notice);
            assert_eq!(decode_notice(&bytes), Some((OwnerId(5), ATTEMPT, notice)));
        }
        assert_eq!(ToStore::decode(&[0xFF; 40]), None);
    }

    /// Cut off at any byte, a journal has the records before. Changed at any byte, it is refused.
    #[test]
    fn damaged_journal_is_cut_or_refused() {
        let records = [
            Record::Prepared {
                attempt: ATTEMPT,
                home: OwnerId(1),
                writes: vec![(3, vec![1, 2, 3]), (4, vec![])],
            },
            Record::Ended { attempt: ATTEMPT, commits: true, is_home: false },
            Record::Cell { cell: 8, version: 2, value: vec![9; 20] },
            Record::Forgotten { attempt: ATTEMPT },
        ];
        let mut journal = encode_header(OwnerId(3));
        let mut ends = vec![journal.len()];
        for record in &records {
            journal.extend(encode_record(record));
            ends.push(journal.len());
        }
        for length in JOURNAL_HEADER..=journal.len() {
            let whole = ends.iter().rposition(|end| *end <= length).unwrap();
            let expected = (records[..whole].to_vec(), ends[whole]);
            assert_eq!(decode_journal(&journal[..length], OwnerId(3)), Ok(expected));
        }
        assert_eq!(decode_journal(&[], OwnerId(3)), Ok((Vec::new(), 0)));
        assert_eq!(decode_journal(&journal, OwnerId(4)), Err(WrongJournal::Position(3)));
        assert_eq!(decode_journal(b"a text", OwnerId(3)), Err(WrongJournal::Other));
        for at in 0..journal.len() {
            let mut damaged = journal.clone();
            damaged[at] ^= 0x10;
            let expected = match at {
                0..8 => WrongJournal::Other,
                8..JOURNAL_HEADER => WrongJournal::Position(3 ^ 0x10 << (8 * (at - 8))),
                _ => WrongJournal::Damaged(ends[ends.iter().rposition(|end| *end <= at).unwrap()]),
            };
            assert_eq!(decode_journal(&damaged, OwnerId(3)), Err(expected), "byte {at}");
        }
    }
}
