//! Handlers that need no user code: count, fetch-and-append, compare-and-swap of up to 32 bytes with masks, indirect reads and writes, XOR, and
//! [chains](Chain) of these (PRISM, SOSP 2021).
//!
//! The owner [serves](BuiltIns::serve) a region. Whoever has its address runs chains there: one message to the owner's handler, and its answer. A
//! caller that has the memory mapped runs a chain itself, if each of its steps changes one word of 8 bytes at most.
//!
//! ```
//! # fn main() -> pagewire::Result<()> {
//! use pagewire_active::built_in::{BuiltIns, Chain, Outcome, RemoteBuiltIns, begin_area};
//! use std::sync::Arc;
//! let node = Arc::new(pagewire::Node::alone()?);
//! let memory = Arc::new(node.words(512)?);
//! begin_area(memory.words(), 64, 128..4096)?; // for appends
//! let served = BuiltIns::serve(&node, &memory)?;
//!
//! // In any process that has the address:
//! let remote = RemoteBuiltIns::open(&node, &served.address())?;
//! assert_eq!(remote.run(&Chain::new().fetch_add(0, 5))?, [Outcome::Word(0)]);
//! // A value is appended, and becomes the first one of a list if there is none yet.
//! let push = Chain::new().append(64, b"first").if_swapped().compare_swap(8, &[0; 8], &128u64.to_le_bytes());
//! assert_eq!(remote.run(&push)?[0], Outcome::Word(128));
//! # Ok(())
//! # }
//! ```
//!
//! # What is atomic
//! - A step that changes one word of 8 bytes, against everything.
//! - A compare-swap or XOR of more, against others of more than one word: the owner's handler runs them one at a time. Against the rest it is so
//!   word by word.
//!
//! # What survives
//! The memory is the owner's, and ends with it. A caller that dies leaves a chain whole or not begun where the owner's handler runs it, and
//! between two of its steps where the caller does.

mod chain;
mod words;

pub use chain::{Chain, MAX_COMPARED, MAX_MOVED, Outcome, Place};
pub use words::Words;

use crate::access::Access;
use crate::assembler::Assembler;
use crate::attributes::AttributesOf;
use crate::log::{AccessLog, Logs};
use crate::serve::Serving;
use chain::refused;
use pagewire::{Atomic, Error, Node, Region, RemoteRegion, Result, Rights, Token};
use pagewire_memory::fork::Owner;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use words::{out_of_bounds, update};

/// Bytes of a request and of an answer at most: what the steps move, and what says so.
const MESSAGE: usize = 64 << 10;
/// Bytes of the log for each caller.
const LOG_BYTES: usize = 1 << 18;

/// Makes an area for [`Chain::append`]: two words at `area`, the offset of the next byte that is free and that of the end. `bytes`: what is in it.
/// Nobody appends to it yet.
///
/// # Errors
/// `Range`, `Alignment`: one of them lies outside of the words, or at no multiple of 8. That the memory cannot be accessed.
pub fn begin_area(words: &(impl Words + ?Sized), area: u64, bytes: Range<u64>) -> Result<()> {
    let length = words.count().saturating_mul(8);
    let misaligned = [area, bytes.start].into_iter().find(|offset| offset % 8 != 0);
    if let Some(offset) = misaligned {
        return Err(Error::Alignment { offset, align: 8 });
    }
    if bytes.start > bytes.end || bytes.end > length {
        return Err(Error::Range {
            offset: bytes.start,
            count: bytes.end.saturating_sub(bytes.start),
            length,
        });
    }
    if area.checked_add(16).is_none_or(|end| end > length) {
        return Err(out_of_bounds(words, area, 16));
    }
    // The end comes first: until the other word is there, too, nothing is taken beyond it.
    for (index, value) in [(area / 8 + 1, bytes.end), (area / 8, bytes.start)] {
        update(words, index, |_| Some(value))?;
    }
    Ok(())
}

/// The built-in handlers of a region of this process. Dropped, they run no chains any more.
pub struct BuiltIns {
    // Ends before the log does.
    _serving: Serving,
    _log: AccessLog,
    _mailbox: Region<u64>,
    tokens: [Token; 2],
    /// The user domain of the log.
    domain: u16,
    /// Whose export of the memory ends with it.
    exporter: Option<Arc<Node>>,
}

/// Bytes of an [address](BuiltIns::address).
pub const ADDRESS_LEN: usize = 2 * Token::LEN + 2;

impl BuiltIns {
    /// Serves a region. Offsets of chains are bytes from its beginning.
    ///
    /// # Errors
    /// `NoMemory`, `Heap`: there is no memory for the mailbox; as those of [`Node::make_access_log`].
    pub fn serve(node: &Arc<Node>, memory: &Arc<Region<u64, Atomic>>) -> Result<BuiltIns> {
        let mut served = BuiltIns::serve_words(node, memory.clone(), memory.export(Rights::all())?)?;
        served.exporter = Some(node.clone());
        Ok(served)
    }

    /// Serves words of any memory of this process.
    ///
    /// `token`: of exactly these words, with all rights. By it callers of this host run chains themselves, if they have the words mapped, so end it
    /// when nobody is to do so any more.
    ///
    /// # Errors
    /// As those of [`serve`](Self::serve).
    pub fn serve_words(node: &Node, words: Arc<dyn Words + Send + Sync>, token: Token) -> Result<BuiltIns> {
        let mailbox = node.zeroed::<u64>(MESSAGE / 8)?;
        let log = node.access_log(LOG_BYTES)?;
        mailbox.attributes(..).redirect_puts().to(&log)?;
        let (tokens, domain) = ([mailbox.export(Rights::WRITE)?, token], log.user_domain());
        // A caller may use the owner's node, and its operations wait behind a flush of the same node.
        let answering = Node::alone()?;
        let mut handler =
            Handler { answering, words, callers: HashMap::new(), messages: Assembler::default() };
        let serving = log.serve(move |access| handler.handle(&access))?;
        Ok(BuiltIns { _serving: serving, _log: log, _mailbox: mailbox, tokens, domain, exporter: None })
    }

    /// By which others run chains here, [`ADDRESS_LEN`] bytes: whoever has it may do so.
    pub fn address(&self) -> Vec<u8> {
        self.tokens.iter().flat_map(Token::to_bytes).chain(self.domain.to_le_bytes()).collect()
    }
}

impl Drop for BuiltIns {
    fn drop(&mut self) {
        // Callers that have the memory mapped run none any more, either.
        let ended = self.exporter.as_ref().map_or(Ok(()), |node| node.unexport(&self.tokens[1]));
        if let Err(error) = ended
            && !matches!(error, Error::Forked)
        {
            log::warn!("the memory of built-in handlers stays open to callers that map it: {error}");
        }
    }
}

/// A chain, and where its answer goes.
#[derive(Serialize, Deserialize)]
struct Request {
    answer: Vec<u8>,
    number: u64,
    chain: Chain,
}

/// What became of a chain.
#[derive(Serialize, Deserialize)]
struct Answer {
    number: u64,
    outcome: core::result::Result<Vec<Outcome>, Refusal>,
}

/// Why a chain was refused, so that its caller gets the error that it gets where it runs the chain itself.
#[derive(Serialize, Deserialize)]
enum Refusal {
    Range { offset: u64, count: u64, length: u64 },
    Alignment { offset: u64 },
    Other(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        match error {
            Error::Range { offset, count, length } => Refusal::Range { offset, count, length },
            Error::Alignment { offset, .. } => Refusal::Alignment { offset },
            Error::System { why, .. } => Refusal::Other(why.to_string()),
            other => Refusal::Other(other.to_string()),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Range { offset, count, length } => Error::Range { offset, count, length },
            Refusal::Alignment { offset } => Error::Alignment { offset, align: 8 },
            Refusal::Other(why) => refused(why),
        }
    }
}

struct Handler {
    answering: Node,
    words: Arc<dyn Words + Send + Sync>,
    /// Regions for answers, by their tokens.
    callers: HashMap<Vec<u8>, RemoteRegion>,
    messages: Assembler,
}

/// Callers whose regions are kept open at most.
const KEPT: usize = 1024;

impl Handler {
    fn handle(&mut self, access: &Access<'_>) {
        let Some(message) = self.messages.take(access) else { return };
        match postcard::from_bytes::<Request>(&message) {
            Ok(request) => {
                if let Err(error) = self.answer(&request) {
                    log::debug!("the answer of a chain did not reach its caller: {error}");
                }
            }
            Err(error) => log::warn!("a message to built-in handlers is no chain: {error}"),
        }
    }

    fn answer(&mut self, request: &Request) -> Result<()> {
        let outcome = request.chain.run(&*self.words).map_err(Refusal::from);
        let answer = encode(&Answer { number: request.number, outcome })?;
        if self.callers.len() >= KEPT {
            self.callers.clear();
        }
        let caller = match self.callers.get(&request.answer) {
            Some(caller) => caller.clone(),
            None => {
                let caller = self.answering.open(&Token::from_bytes(&request.answer)?)?;
                self.callers.insert(request.answer.clone(), caller.clone());
                caller
            }
        };
        let put = caller.put(0, answer).wait();
        if put.is_err() {
            self.callers.remove(&request.answer);
        }
        put?;
        Ok(())
    }
}

fn encode(message: &impl Serialize) -> Result<Vec<u8>> {
    let bytes = postcard::to_allocvec(message).map_err(|error| refused(error.to_string()))?;
    match bytes.len() {
        ..=MESSAGE => Ok(bytes),
        length => Err(refused(format!("it takes {length} bytes as a message, and {MESSAGE} are the most"))),
    }
}

/// Built-in handlers of another process, or of this one.
pub struct RemoteBuiltIns {
    mailbox: RemoteRegion,
    memory: RemoteRegion,
    /// The user domain of the mailbox's log.
    domain: u16,
    /// Where answers come, one at a time.
    answers: Mutex<Answers>,
    owner: Owner,
}

struct Answers {
    region: Region<u64>,
    token: Token,
    number: u64,
}

impl RemoteBuiltIns {
    /// Opens the handlers that an address names.
    ///
    /// # Errors
    /// As those of [`Node::open`]; `Token`, `System`: it is no address.
    pub fn open(node: &Arc<Node>, address: &[u8]) -> Result<RemoteBuiltIns> {
        let domain = (address.len() == ADDRESS_LEN).then(|| address.last_chunk()).flatten();
        let Some(domain) = domain.map(|bytes| u16::from_le_bytes(*bytes)) else {
            let why = format!("it has {ADDRESS_LEN} bytes, and these are {}: send it whole", address.len());
            return Err(Error::Argument { what: "an address of built-in handlers", why });
        };
        let token = |index: usize| Token::from_bytes(&address[index * Token::LEN..(index + 1) * Token::LEN]);
        let (mailbox, memory) = (node.open(&token(0)?)?, node.open(&token(1)?)?);
        let region = node.zeroed::<u64>(MESSAGE / 8)?;
        let token = region.export(Rights::WRITE)?;
        let answers = Mutex::new(Answers { region, token, number: 0 });
        Ok(RemoteBuiltIns { mailbox, memory, domain, answers, owner: Owner::this_process() })
    }

    /// Runs a chain, and gives what each of its steps has found.
    ///
    /// # Errors
    /// `Range`, `Alignment`: a step leaves the memory, or is misaligned; `System`: it finds an area full, or the chain is none. The steps before it
    /// were run. Those of operations: the owner is lost. `Forked`.
    pub fn run(&self, chain: &Chain) -> Result<Vec<Outcome>> {
        // A thread of the parent may hold the lock below.
        if !self.owner.is_this_process() {
            return Err(Error::Forked);
        }
        chain.check()?;
        if chain.is_narrow() {
            if let Some(outcome) = self.memory.with_words(|words| chain.run(words)) {
                return outcome;
            }
        }
        let mut answers = self.answers.lock();
        answers.number += 1;
        let request = Request {
            answer: answers.token.to_bytes().to_vec(),
            number: answers.number,
            chain: chain.clone(),
        };
        self.mailbox.put(0, encode(&request)?).wait()?;
        // The handler has put its answer before it returns.
        self.mailbox.flush_handled(Some(self.domain)).wait()?;
        let mut bytes = vec![0u64; MESSAGE / 8];
        answers.region.read(0, &mut bytes)?;
        let (answer, _) = postcard::take_from_bytes::<Answer>(zerocopy::IntoBytes::as_bytes(&bytes[..]))
            .map_err(|error| refused(format!("its answer is none: {error}")))?;
        if answer.number != answers.number {
            return Err(refused("its owner did not answer; its log says why".into()));
        }
        Ok(answer.outcome?)
    }
}
