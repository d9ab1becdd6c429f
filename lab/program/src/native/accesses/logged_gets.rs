//! Gets whose data are logged at their owner (PAPERS AA-12, sections 4.4 and 5.2.3), by scheme: the owner's pages do that, or the caller sends back what
//! it got, by a put behind an atomic that reserves space, or by a message. Each log has space for all gets of a round, as one that a checkpoint trims.

use super::super::comparison::messages::{Inbox, Outbox, Receiver};
use super::super::gathering::Gathering;
use super::{AccessScheme, LOOKS, Load, WINDOW, open_others};
use anyhow::{Context, Result, ensure};
use pagewire::{Atomic, Node, Operation, Region, RemoteRegion, Rights};
use pagewire_active::{AccessLog, AttributesOf, LogOptions, Logs};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Words of data in a message at most; longer data are several.
const MESSAGE_WORDS: usize = 512;
/// Words of a record of the schemes that send data back, before its data: caller, first word, count of words.
const HEAD: usize = 3;
/// Bytes of a record of an access log, before its data.
const RECORD_BYTES: usize = 48;

/// What one process got of another one: first word, and data.
pub(super) type Got = (usize, Vec<u64>);

/// Who logs.
enum Logging {
    None,
    Active {
        log: AccessLog,
        keys: Vec<u32>,
    },
    /// The first word of a log is how many are taken.
    Rma {
        log: Region<u64, Atomic>,
        remote: Vec<Option<RemoteRegion>>,
    },
    Messages {
        receiver: RefCell<Receiver>,
        outboxes: Vec<Option<Outbox>>,
        log: RefCell<Vec<(usize, Got)>>,
    },
}

struct InFlight {
    get: Operation<Vec<u64>>,
    owner: usize,
    /// First word, and where the caller wants it.
    first: usize,
    place: usize,
}

/// Takes what was got: the caller's place, and the data.
pub(super) type Sink<'s> = &'s mut dyn FnMut(usize, &[u64]) -> Result<()>;

pub(super) struct LoggedGets<'n> {
    node: &'n Node,
    /// What others get from.
    pub data: Region<u64>,
    remote: Vec<Option<RemoteRegion>>,
    logging: Logging,
    /// Own gets between two looks for messages.
    each: u64,
    gets: u64,
    in_flight: VecDeque<InFlight>,
    spare: Vec<Vec<u64>>,
    puts: VecDeque<Operation<Vec<u64>>>,
}

impl<'n> LoggedGets<'n> {
    /// With so many words of data here, of which others get `most_gets` pieces of `load.size` bytes at most in a round, all of them together.
    pub fn join(node: &'n Node, load: &Load, words: usize, most_gets: u64) -> Result<LoggedGets<'n>> {
        let data = node.zeroed::<u64>(words)?;
        let tokens = (0..node.size()).map(|_| data.export(Rights::READ)).collect::<Result<Vec<_>, _>>()?;
        // Each has a token of its own, whose key tells in the records who it is.
        let keys = tokens.iter().map(|token| token.memory().1).collect();
        let bytes: Vec<u8> = tokens.iter().flat_map(pagewire::Token::to_bytes).collect();
        let all = node.all_gather_bytes(&bytes)?;
        let logging = logging(node, load, (&data, keys), most_gets)?;
        let open = |(owner, tokens): (usize, &Vec<u8>)| -> Result<Option<RemoteRegion>> {
            if owner == node.rank() {
                return Ok(None);
            }
            let mine = tokens.chunks_exact(pagewire::Token::LEN).nth(node.rank()).context("no token")?;
            Ok(Some(node.open(&pagewire::Token::from_bytes(mine)?)?))
        };
        let remote = all.iter().enumerate().map(open).collect::<Result<_>>()?;
        let (in_flight, spare, puts) = (VecDeque::new(), Vec::new(), VecDeque::new());
        Ok(LoggedGets {
            node,
            data,
            remote,
            logging,
            each: load.each_or(LOOKS),
            gets: 0,
            in_flight,
            spare,
            puts,
        })
    }

    /// Gets so many words of another process from the first one on.
    pub fn get(
        &mut self,
        (owner, first, count): (usize, usize, usize),
        place: usize,
        sink: Sink,
    ) -> Result<()> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(count, 0);
        let remote = self.remote[owner].as_ref().context("a process gets from others")?;
        let get = remote.get_into(8 * first as u64, buffer);
        self.in_flight.push_back(InFlight { get, owner, first, place });
        self.gets += 1;
        if self.gets % self.each == 0 {
            self.serve(false)?;
        }
        self.keep_window(WINDOW, sink)
    }

    /// Waits until no more gets are under way, and sends back what they gave, if that is the scheme.
    fn keep_window(&mut self, most: usize, sink: Sink) -> Result<()> {
        while self.in_flight.len() > most {
            let Some(InFlight { get, owner, first, place }) = self.in_flight.pop_front() else { break };
            let got = get.wait()?;
            sink(place, &got)?;
            match &self.logging {
                Logging::None | Logging::Active { .. } => self.spare.push(got),
                Logging::Rma { .. } => self.put_back(owner, first, &got)?,
                Logging::Messages { .. } => {
                    self.send_back(owner, first, &got)?;
                    self.spare.push(got);
                }
            }
        }
        Ok(())
    }

    fn put_back(&mut self, owner: usize, first: usize, got: &[u64]) -> Result<()> {
        let Logging::Rma { remote, log } = &self.logging else { unreachable!("only such data are put back") };
        let remote = remote[owner].as_ref().context("a process gets from others")?;
        let record = [&[self.node.rank() as u64, first as u64, got.len() as u64], got].concat();
        let taken = remote.fetch_add(0, record.len() as u64).wait()?;
        // Logs are as long everywhere.
        ensure!((taken as usize) < log.len() - record.len(), "the log of process {owner} is full");
        self.puts.push_back(remote.put(8 * (1 + taken), record));
        while self.puts.len() > WINDOW {
            if let Some(put) = self.puts.pop_front() {
                put.wait()?;
            }
        }
        Ok(())
    }

    fn send_back(&self, owner: usize, first: usize, got: &[u64]) -> Result<()> {
        let Logging::Messages { outboxes, .. } = &self.logging else {
            unreachable!("only such data are sent back")
        };
        let outbox = outboxes[owner].as_ref().context("a process gets from others")?;
        for (number, part) in got.chunks(MESSAGE_WORDS).enumerate() {
            let message = [&[(first + number * MESSAGE_WORDS) as u64], part].concat();
            outbox.send(&message, &|| self.serve(true))?;
        }
        Ok(())
    }

    /// Keeps what others have sent back, if messages bring it.
    fn serve(&self, waits: bool) -> Result<()> {
        let mut handled = 0;
        if let Logging::Messages { receiver, log, .. } = &self.logging {
            let mut log = log.borrow_mut();
            handled = receiver.borrow_mut().handle(|from, words| {
                let (first, data) = words.split_first().context("a message is empty")?;
                let data = data.iter().map(|word| word.load(Ordering::Relaxed)).collect();
                log.push((from, (first.load(Ordering::Relaxed) as usize, data)));
                Ok(())
            })?;
        }
        if waits && handled == 0 {
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Waits until all gets of all processes have ended, and are logged.
    pub fn finish(&mut self, gathering: &Gathering, sink: Sink) -> Result<()> {
        self.keep_window(0, sink)?;
        for put in std::mem::take(&mut self.puts) {
            put.wait()?;
        }
        if let Logging::Messages { outboxes, .. } = &self.logging {
            outboxes.iter().flatten().try_for_each(|outbox| outbox.flush(&|| self.serve(true)))?;
        }
        gathering.wait(|| self.serve(true))
    }

    /// Takes all that was logged here, of each process in the order in which it is in the log. `None`: nobody logs.
    pub fn take_log(&self) -> Result<Option<Vec<Vec<Got>>>> {
        let mut all: Vec<Vec<Got>> = vec![Vec::new(); self.node.size()];
        match &self.logging {
            Logging::None => return Ok(None),
            Logging::Active { log, keys } => {
                let base = self.data.address();
                let mut strange = 0;
                log.drain(|access| {
                    // It has a record already.
                    if access.was_repeated() {
                        return;
                    }
                    let rank = keys.iter().position(|key| *key == access.key());
                    let data = access.bytes().chunks_exact(8);
                    let data = data.map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
                    match (rank, access.offset_from(base)) {
                        (Some(rank), Some(offset)) => all[rank].push((offset as usize / 8, data)),
                        _ => strange += 1,
                    }
                });
                ensure!(strange == 0, "{strange} records are of no process of this job");
            }
            Logging::Rma { log, .. } => {
                let words: Vec<u64> = log.words().iter().map(|word| word.load(Ordering::Acquire)).collect();
                log.words().iter().for_each(|word| word.store(0, Ordering::Release));
                let (taken, words) = words.split_first().context("a log has a first word")?;
                let mut rest = words.get(..*taken as usize).context("more is taken than the log has")?;
                while let Some((head, behind)) = rest.split_first_chunk::<HEAD>() {
                    let [rank, first, count] = head.map(|word| word as usize);
                    let data = behind.get(..count).context("a record is longer than the log")?;
                    all.get_mut(rank).context("a record of no process")?.push((first, data.to_vec()));
                    rest = &behind[count..];
                }
            }
            Logging::Messages { log, .. } => {
                log.take().into_iter().for_each(|(rank, got)| all[rank].push(got));
            }
        }
        Ok(Some(all))
    }
}

/// Each of these gets of a process must be in what was logged of it, in order and with the data that are here, and nothing else. A long one may be
/// several records.
pub(super) fn verify_log(
    data: &[u64],
    logged: &[Got],
    gets: impl Iterator<Item = (usize, usize)>,
) -> Result<()> {
    for (first, got) in logged {
        let here = data.get(*first..first + got.len());
        ensure!(here == Some(got), "what is logged from the word {first} on is not what is there");
    }
    let mut records = logged.iter();
    for (number, (mut first, mut count)) in gets.enumerate() {
        while count > 0 {
            let next = records.next();
            let (_, got) = next
                .filter(|(begin, got)| *begin == first && (1..=count).contains(&got.len()))
                .with_context(|| format!("the get {number}, from the word {first} on, is not logged"))?;
            (first, count) = (first + got.len(), count - got.len());
        }
    }
    ensure!(records.len() == 0, "{} records are of no get", records.len());
    Ok(())
}

fn logging(
    node: &Node,
    load: &Load,
    (data, keys): (&Region<u64>, Vec<u32>),
    most_gets: u64,
) -> Result<Logging> {
    let (gets, bytes) = (usize::try_from(most_gets)?, usize::try_from(load.size)?);
    Ok(match load.scheme {
        AccessScheme::None => Logging::None,
        AccessScheme::Aa => {
            // All of one process's gets may be of this one's data; a get that is repeated is logged once more.
            let space = (gets + gets / 8 + 64) * (RECORD_BYTES + bytes);
            // A source is a connection, of which each other process has one; the order between them does not matter.
            let sources = 2 * node.size();
            let options = LogOptions { sources, is_ordered: false, ..LogOptions::new(space) };
            let log = node.access_log_with(&options)?;
            data.attributes(..).log_get_data().to(&log)?;
            Logging::Active { log, keys }
        }
        AccessScheme::Rma => {
            let log = node.words(2 + (gets + 1) * (HEAD + bytes / 8))?;
            let remote = open_others(node, &log.export(Rights::all())?)?;
            Logging::Rma { log, remote }
        }
        AccessScheme::Am => {
            let words = 1 + MESSAGE_WORDS.min(bytes / 8);
            let inbox = Arc::new(Inbox::make(node, words)?);
            let tokens = node.all_gather(&inbox.export(Rights::all())?)?;
            let receiver = RefCell::new(Receiver::open(node, inbox.clone(), &tokens)?);
            let open = |(rank, token)| -> Result<Option<Outbox>> {
                if rank == node.rank() {
                    return Ok(None);
                }
                // Each message leaves at once.
                Ok(Some(Outbox::open(node, token, inbox.clone(), (rank, 1, false))?))
            };
            let outboxes = tokens.iter().enumerate().map(open).collect::<Result<_>>()?;
            Logging::Messages { receiver, outboxes, log: RefCell::default() }
        }
        AccessScheme::AaPoll | AccessScheme::AKv | AccessScheme::Allreduce => {
            unreachable!("Load::parse refuses it")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_lacks_a_get_or_has_other_data_is_an_error() {
        let data: Vec<u64> = (0..100).collect();
        let got = |first: usize, count: usize| -> Got { (first, data[first..first + count].to_vec()) };
        let gets = [(3, 2), (10, 4), (3, 2)];
        let verify = |logged: &[Got]| verify_log(&data, logged, gets.into_iter());
        assert!(verify(&[got(3, 2), got(10, 4), got(3, 2)]).is_ok());
        // In parts.
        assert!(verify(&[got(3, 2), got(10, 1), got(11, 3), got(3, 2)]).is_ok());
        for wrong in [
            vec![got(3, 2), got(3, 2), got(10, 4), got(3, 2)],
            vec![got(3, 2), got(10, 4), got(3, 2), got(3, 2)],
            vec![got(3, 2), got(10, 4)],
            vec![got(10, 4), got(3, 2), got(3, 2)],
            vec![got(3, 2), got(10, 3), got(3, 2)],
            vec![got(3, 2), got(10, 4), (3, vec![3, 5])],
            vec![got(3, 2), got(10, 4), (99, vec![99, 100])],
            vec![],
        ] {
            assert!(verify(&wrong).is_err(), "{wrong:?}");
        }
    }
}
