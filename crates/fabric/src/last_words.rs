//! Last words: the messages that peers of the connection manager get when this process is killed.
//!
//! A killed process sends nothing. So it keeps, for each of its connections, the message that would end it, in a memory file. Siblings (the
//! other processes of this user in this network namespace that have a connection manager) have that file, too, and the end for reading of a
//! pipe whose other end this process alone holds. When that hangs up, one sibling, the heir, sends the messages.
//!
//! A process that starts greets whoever has a sibling's name, without files. Who is greeted by a process of the same user, or root's, answers
//! with its files, and gets those of the other one.
//!
//! Files come from processes of the same user and of root's alone, and what is in them is as untrusted as any datagram.

use crate::descriptors::Descriptor;
use crate::forward::octets;
use crate::limits::MESSAGES_IN_A_ROW;
use crate::management::ManagementDatagram;
use crate::words::{FileAccess, MappedWords};
use crate::{names, sockets};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_wire::cm::DATAGRAM_LEN;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Uid, geteuid};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

const WRITE: Site = Site("last_words.write");

/// Slots of a file: a message for each communication ID.
const SLOTS: usize = 1 << 16;
/// Words of a slot: a word that is not 0 while the slot has a message, two addresses, the message.
const SLOT_WORDS: usize = 1 + 2 + 2 + DATAGRAM_LEN / 8;
/// In front of the slots: how many were ever used.
const USED: usize = 0;
const HEAD_WORDS: usize = 1;
const FILE_WORDS: usize = HEAD_WORDS + SLOTS * SLOT_WORDS;
/// Set in a slot that has a message; the traffic class and the hop limit are below, and the UDP port is above.
const IS_SAID: u64 = 1 << 16;
const PORT_SHIFT: u32 = 32;

/// A message that a killed process would have sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastMessage {
    /// Between which addresses it goes, and what it says.
    pub datagram: ManagementDatagram,
    /// UDP port of the peer.
    pub udp_port: u16,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
}

/// The last words of this process.
#[derive(Debug)]
pub struct LastWordsFile {
    words: MappedWords,
    file: Descriptor,
    block: u16,
    slots: HashMap<u16, usize>,
    free: Vec<usize>,
    /// Siblings introduce themselves here.
    introductions: Descriptor,
    /// This end hangs up when the process ends, or becomes another program.
    _alive: Descriptor,
    /// The end for reading, which siblings have.
    theirs: Descriptor,
}

impl LastWordsFile {
    /// An empty file for the process whose communication IDs begin so.
    ///
    /// # Errors
    /// The kernel's; `AddrInUse`: another process has these IDs.
    pub fn new(block: u16) -> io::Result<Self> {
        let introductions = names::datagrams(Some(&names::of_sibling(block)?))?;
        rustix::net::sockopt::set_socket_passcred(&introductions, true)?;
        let (words, file) = MappedWords::create("pagewire-last-words", FILE_WORDS, FileAccess::Read)?;
        let (theirs, alive) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(LastWordsFile {
            words,
            file,
            block,
            slots: HashMap::new(),
            free: Vec::new(),
            introductions,
            _alive: Descriptor::new(alive)?,
            theirs: Descriptor::new(theirs)?,
        })
    }

    /// What is to be said for a communication ID; `None`: nothing any more.
    pub fn set(&mut self, comm_id: u16, message: Option<&LastMessage>) {
        let Some(message) = message else {
            if let Some(slot) = self.slots.remove(&comm_id) {
                self.words.store(WRITE, word_of(slot), 0);
                self.free.push(slot);
            }
            return;
        };
        let slot = match self.slots.get(&comm_id) {
            Some(slot) => *slot,
            None => self.take_slot(comm_id),
        };
        let first = word_of(slot);
        // A process that is killed between these says nothing.
        self.words.store(WRITE, first, 0);
        let datagram = &message.datagram;
        self.words.write_bytes(WRITE, first + 1, &octets(datagram.source));
        self.words.write_bytes(WRITE, first + 3, &octets(datagram.destination));
        self.words.write_bytes(WRITE, first + 5, &datagram.payload);
        let class_and_hops = u64::from(message.traffic_class) << 8 | u64::from(message.hop_limit);
        let head = u64::from(message.udp_port) << PORT_SHIFT | IS_SAID | class_and_hops;
        self.words.store(WRITE, first, head);
    }

    /// There are as many slots as communication IDs.
    fn take_slot(&mut self, comm_id: u16) -> usize {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        self.slots.insert(comm_id, slot);
        let used = self.words.load(USED).max(slot as u64 + 1);
        self.words.store(WRITE, USED, used);
        slot
    }

    /// Greets all siblings, and gives how many.
    ///
    /// # Errors
    /// Where /proc does not tell who there is.
    pub fn greet_all(&self) -> io::Result<usize> {
        let others = names::siblings()?.into_iter().filter(|block| *block != self.block);
        Ok(others.inspect(|block| self.send(*block, Greeting::Hello, &[])).count())
    }

    fn send(&self, sibling: u16, greeting: Greeting, files: &[BorrowedFd<'_>]) {
        let [high, low] = self.block.to_be_bytes();
        let sent = names::of_sibling(sibling).and_then(|name| {
            let message = [&[high, low, greeting as u8][..], &[]];
            sockets::send_datagram_with_files(&self.introductions, &name, &message, files)
        });
        // One that has ended, or is too busy to learn of new siblings: another will be the heir.
        let _is_known = sent.is_ok();
    }

    /// Answers greetings, and gives the next sibling whose files have come; `None`: there is none now.
    ///
    /// # Errors
    /// The kernel's.
    pub fn next_sibling(&self) -> io::Result<Option<Sibling>> {
        let mut buffer = [0; 4];
        for _ in 0..MESSAGES_IN_A_ROW {
            let received = sockets::receive_datagram_with_files(&self.introductions, &mut buffer)?;
            let Some(received) = received else { return Ok(None) };
            let is_trusted =
                received.sender == geteuid().as_raw() || Uid::from_raw(received.sender).is_root();
            let (true, [high, low, greeting]) = (is_trusted, &buffer[..received.length]) else { continue };
            let block = u16::from_be_bytes([*high, *low]);
            let own = [self.file.as_fd(), self.theirs.as_fd()];
            match Greeting::of(*greeting) {
                Some(Greeting::Hello) => self.send(block, Greeting::Answer, &own),
                Some(greeting) => {
                    let Ok([file, end]) = <[OwnedFd; 2]>::try_from(received.files) else { continue };
                    if greeting == Greeting::Answer {
                        self.send(block, Greeting::Known, &own);
                    }
                    let (file, end) = (Descriptor::new(file)?, Descriptor::new(end)?);
                    return Ok(Some(Sibling { block, file, end }));
                }
                None => {}
            }
        }
        Ok(None)
    }
}

/// What processes say to each other; all but the first come with files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// Here is a new process.
    Hello = 1,
    /// Here are the files of one that was greeted; it wants those of the other.
    Answer = 2,
    /// Here are those.
    Known = 3,
}

impl Greeting {
    fn of(number: u8) -> Option<Self> {
        [Greeting::Hello, Greeting::Answer, Greeting::Known]
            .into_iter()
            .find(|greeting| *greeting as u8 == number)
    }
}

/// Readable when siblings have made themselves known.
impl AsFd for LastWordsFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.introductions.as_fd()
    }
}

/// Another process of this user that has a connection manager.
#[derive(Debug)]
pub struct Sibling {
    /// Its communication IDs begin so.
    pub block: u16,
    file: Descriptor,
    end: Descriptor,
}

/// Hangs up when the process has ended.
impl AsFd for Sibling {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.end.as_fd()
    }
}

/// The right to say a process's last words; nobody else has it meanwhile.
#[derive(Debug)]
pub struct Inheritance {
    name: Descriptor,
    words: MappedWords,
}

/// Says to other siblings, as long as it lives, that the last words of a process are said.
#[derive(Debug)]
pub struct SaidMark(#[expect(dead_code, reason = "held, not used")] Descriptor);

impl Sibling {
    /// Becomes the heir of a process that has ended; `None`: another sibling is.
    ///
    /// # Errors
    /// The kernel's; `InvalidData`: the file is none of last words.
    pub fn inherit(&self) -> io::Result<Option<Inheritance>> {
        let name = match names::claim(&names::of_heir(self.block)?) {
            Ok(name) => name,
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(None),
            Err(error) => return Err(error),
        };
        let words = MappedWords::open(&self.file, FILE_WORDS, FileAccess::Read)?;
        Ok(Some(Inheritance { name, words }))
    }
}

impl Inheritance {
    /// What the process would have said.
    pub fn messages(&self) -> impl Iterator<Item = LastMessage> + '_ {
        let used = usize::try_from(self.words.load(USED)).unwrap_or(SLOTS).min(SLOTS);
        (0..used).filter_map(|slot| self.message(slot))
    }

    /// The messages are said: what tells other siblings so.
    pub fn into_mark(self) -> SaidMark {
        SaidMark(self.name)
    }

    fn message(&self, slot: usize) -> Option<LastMessage> {
        let first = word_of(slot);
        let head = self.words.load(first);
        let address = |word: usize| {
            let mut bytes = [0; 16];
            self.words.read_bytes(word, &mut bytes);
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        };
        let mut payload = [0; DATAGRAM_LEN];
        self.words.read_bytes(first + 5, &mut payload);
        let datagram =
            ManagementDatagram { source: address(first + 1), destination: address(first + 3), payload };
        let (udp_port, traffic_class) = ((head >> PORT_SHIFT) as u16, (head >> 8) as u8);
        let message = LastMessage { datagram, udp_port, traffic_class, hop_limit: head as u8 };
        (head & IS_SAID != 0).then_some(message)
    }
}

fn word_of(slot: usize) -> usize {
    HEAD_WORDS + slot * SLOT_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u8) -> LastMessage {
        let datagram = ManagementDatagram {
            source: [192, 0, 2, number].into(),
            destination: "2001:db8::1".parse().unwrap(),
            payload: std::array::from_fn(|at| at as u8 ^ number),
        };
        LastMessage { datagram, udp_port: 0xF000 | u16::from(number), traffic_class: 3, hop_limit: number }
    }

    #[test]
    fn sibling_says_what_a_process_has_left() {
        // Numbers that no process of this machine's other tests has.
        let blocks = [0xFFF0, 0xFFF1].map(|block| LastWordsFile::new(block).unwrap());
        let [mut first, second] = blocks;
        // Anybody may have a name of any bytes.
        let raw = rustix::net::SocketAddrUnix::new_abstract_name(b"pagewire-test-\xff\xfe").unwrap();
        let _stranger = names::datagrams(Some(&raw)).unwrap();
        first.greet_all().unwrap();
        assert!(second.next_sibling().unwrap().is_none(), "it was greeted, without files");
        let other = first.next_sibling().unwrap().expect("the answer");
        let sibling = second.next_sibling().unwrap().expect("the files of who greeted");
        assert_eq!((other.block, sibling.block), (0xFFF1, 0xFFF0));
        for comm_id in 1..=4 {
            first.set(comm_id, Some(&message(comm_id as u8)));
        }
        first.set(2, None);
        first.set(3, Some(&message(33)));
        first.set(9, Some(&message(9)));
        let hangs_up = |wait: i64| {
            let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: wait };
            let mut ends = [rustix::event::PollFd::new(&sibling, rustix::event::PollFlags::empty())];
            rustix::event::poll(&mut ends, Some(&timeout)).unwrap() == 1
        };
        assert!(!hangs_up(0));
        drop(first);
        assert!(hangs_up(900_000_000));
        let heir = sibling.inherit().unwrap().expect("nobody else");
        assert!(sibling.inherit().unwrap().is_none(), "there is one heir");
        let said: Vec<LastMessage> = heir.messages().collect();
        assert_eq!(said, [1, 9, 33, 4].map(message));
        let mark = heir.into_mark();
        assert!(sibling.inherit().unwrap().is_none(), "they are said");
        drop(mark);
        assert!(sibling.inherit().unwrap().is_some());
    }
}
