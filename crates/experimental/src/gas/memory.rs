//! The global address space at work: memory, messages and threads.

use super::cache::{Cache, CacheEffect};
use super::directory::{Directory, HomeEffect};
use super::wire::{Content, Envelope, decode, encode};
use super::words::{Message, Page, Rank};
use crate::mailbox::{Incoming, Mailbox, Sender};
use pagewire::{Error, Node, Result, Token};
use pagewire_active::fork::Owner;
use pagewire_active::{PollOutcome, USERFAULT_PAGE_WORDS, UserfaultMemory};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages of all processes together.
const MAX_PAGES: usize = 1 << 28;
/// Space in the mailbox for each process: some messages with pages.
const MAILBOX_BYTES: usize = 1 << 18;
/// Longest sleep of a thread.
const NAP: Duration = Duration::from_millis(20);
/// How often the other processes are looked after.
const TICK: Duration = Duration::from_millis(100);
/// Polls without a message before the thread sleeps.
const EMPTY_POLLS: u32 = 64;

/// Memory that all processes of a job load and store: each has the same words at the same indices.
///
/// Its pages have homes: those of process 0 come first, then those of process 1, and so on. A page comes when a thread touches it, and goes when
/// another process stores to it.
pub struct GlobalMemory {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    rank: usize,
    words_each: usize,
    owner: Owner,
}

/// An access to a page, as a handler at its home sees it: once for each time that the page comes to a process.
pub struct PageAccess<'p> {
    /// The words of the page, as indices of [`GlobalMemory::words`].
    pub words: Range<usize>,
    /// The process whose thread touched it.
    pub by: usize,
    /// The page was touched by a store.
    pub is_store: bool,
    content: &'p mut Content,
    is_shared: bool,
}

impl PageAccess<'_> {
    /// What the process will find.
    pub fn content(&self) -> &[u64; USERFAULT_PAGE_WORDS] {
        self.content
    }

    /// What the process will find, to be changed. `None`: other processes have a copy.
    pub fn content_mut(&mut self) -> Option<&mut [u64; USERFAULT_PAGE_WORDS]> {
        if self.is_shared { None } else { Some(self.content) }
    }
}

/// What has happened at one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GasStatistics {
    /// Times that a thread waited for a page or a right.
    pub faults: u64,
    /// Pages that came.
    pub pages_in: u64,
    /// Pages that were given back, or are only loaded any more.
    pub pages_out: u64,
    /// Pages whose home this is, and whose last stores were lost with the process that had made them.
    pub lost_stores: u64,
    /// Pages that nobody can give any more, because their home is gone.
    pub poisoned: u64,
}

type Handler = Box<dyn FnMut(&mut PageAccess<'_>) + Send>;

struct Shared {
    pages: UserfaultMemory,
    mailbox: Mailbox,
    state: Mutex<State>,
    ends: AtomicBool,
    faults: AtomicU64,
    begun: Instant,
}

/// Takes the tokens of all processes, by rank, if all have as many pages.
fn gather(node: &Node, own: &Token, pages_each: usize) -> Result<Vec<Token>> {
    let mut bytes = own.to_bytes().to_vec();
    bytes.extend((pages_each as u64).to_le_bytes());
    let all = node.all_gather_bytes(&bytes)?;
    let token_of = |(rank, given): (usize, &Vec<u8>)| {
        let (token, pages) = given.split_at(given.len().min(Token::LEN));
        if pages != (pages_each as u64).to_le_bytes() {
            let pages = pages.try_into().map_or(0, u64::from_le_bytes);
            let why = format!(
                "the process {rank} makes it of {pages} pages each, and this one of {pages_each}: all give the same number"
            );
            return Err(Error::System { what: "global memory".into(), why: io::Error::other(why) });
        }
        Ok(Token::from_bytes(token)?)
    };
    all.iter().enumerate().map(token_of).collect()
}

struct State {
    rank: Rank,
    pages_each: usize,
    directory: Directory<Content>,
    cache: Cache<Content>,
    /// Of each process; none of its own.
    peers: Vec<Option<Sender>>,
    sent: Vec<u64>,
    received: Vec<u64>,
    /// Who sends from which source.
    sources: HashMap<u64, Rank>,
    is_lost: Vec<bool>,
    /// Messages to this process itself.
    own: VecDeque<Message<Content>>,
    handler: Option<Handler>,
    statistics: GasStatistics,
}

impl GlobalMemory {
    /// Makes the memory. All processes of the job call it, with the same number of pages of 4,096 bytes for each. The
    /// node has to live as long as the memory.
    ///
    /// # Errors
    /// `System`: there is no userfaultfd for this user, and what to do; the processes have given different numbers of pages. `Limit`: more than
    /// 2^28 pages together, or none. Else as those of [`Node::all_gather`], [`Node::make_access_log`] and [`Node::open`].
    pub fn new(node: &Node, pages_each: usize) -> Result<GlobalMemory> {
        let size = node.size();
        let pages = pages_each.checked_mul(size).filter(|pages| (1..=MAX_PAGES).contains(pages));
        let pages = pages
            .ok_or(Error::Limit { what: "pages of a global memory, and at least one,", most: MAX_PAGES })?;
        let system = |why| Error::System { what: "global memory".into(), why };
        let faulted = UserfaultMemory::new(pages).map_err(system)?;
        let mailbox = Mailbox::new(node, MAILBOX_BYTES, 2 * size + 2)?;
        let rank = node.rank();
        let tokens = gather(node, &mailbox.token(), pages_each)?;
        let open = |(place, token)| {
            if place == rank { Ok(None) } else { Ok(Some(Sender::new(node.open(token)?))) }
        };
        let peers = tokens.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        let zero: Content = Box::new([0; USERFAULT_PAGE_WORDS]);
        let state = State {
            rank: rank as Rank,
            pages_each,
            directory: Directory::new((rank * pages_each) as Page, pages_each, &zero),
            cache: Cache::new(pages),
            peers,
            sent: vec![0; size],
            received: vec![0; size],
            sources: HashMap::new(),
            is_lost: vec![false; size],
            own: VecDeque::new(),
            handler: None,
            statistics: GasStatistics::default(),
        };
        let shared = Arc::new(Shared {
            pages: faulted,
            mailbox,
            state: Mutex::new(state),
            ends: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            begun: Instant::now(),
        });
        let words_each = pages_each * USERFAULT_PAGE_WORDS;
        let mut made =
            GlobalMemory { shared, threads: Vec::new(), rank, words_each, owner: Owner::this_process() };
        made.start("pagewire-faults", Shared::serve_faults)?;
        made.start("pagewire-pages", Shared::serve_messages)?;
        Ok(made)
    }

    fn start(&mut self, name: &str, run: fn(&Shared)) -> Result<()> {
        let shared = self.shared.clone();
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || run(&shared));
        let thread = thread.map_err(|why| Error::System { what: format!("the thread {name}"), why })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Ends the memory when all processes of the job have called this. One that drops it before takes away its pages, and what it stored last.
    ///
    /// # Errors
    /// As those of [`Node::barrier`].
    pub fn leave(self, node: &Node) -> Result<()> {
        node.barrier()
    }

    /// All words. Relaxed loads and stores are plain instructions of the processor; read-modify-writes are atomic among all processes.
    ///
    /// A thread that touches a page whose home is gone gets SIGSEGV. A forked child finds no words, as it does not have the memory.
    pub fn words(&self) -> &[AtomicU64] {
        if self.owner.is_this_process() { self.shared.pages.words() } else { &[] }
    }

    /// The state. `None`: this is a forked child, where a thread of the parent may hold the lock.
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.owner.is_this_process().then(|| self.shared.state.lock())
    }

    /// The words whose home is a process: those that it touches most.
    pub fn words_of(&self, rank: usize) -> Range<usize> {
        rank * self.words_each..(rank + 1) * self.words_each
    }

    /// The words whose home is this process.
    pub fn own_words(&self) -> Range<usize> {
        self.words_of(self.rank)
    }

    /// Has a handler called at each access to a page whose home this process is, before the page goes to whoever touched it: to count, to check, or to
    /// fill it (PAPERS AA-15, data-centric handlers). It must not touch this memory, nor wait for a thread that calls for it: no page is served
    /// meanwhile. In a forked child nothing is done.
    pub fn on_access(&self, handler: impl FnMut(&mut PageAccess<'_>) + Send + 'static) {
        if let Some(mut state) = self.state() {
            state.handler = Some(Box::new(handler));
        }
    }

    /// The pages whose home this is that any process may have stored to since the last call, by the first word of each. A page that a process still
    /// may store to is among them the next time, too. A forked child finds none.
    pub fn take_dirty(&self) -> Vec<usize> {
        let dirty = self.state().map_or_else(Vec::new, |mut state| state.directory.take_dirty());
        dirty.into_iter().map(|page| page as usize * USERFAULT_PAGE_WORDS).collect()
    }

    /// Whether the calling thread is one that runs the handler of [`on_access`](Self::on_access), which must make no call for this memory.
    pub fn is_in_handler(&self) -> bool {
        let own = std::thread::current().id();
        self.threads.iter().any(|thread| thread.thread().id() == own)
    }

    /// What has happened so far. A forked child finds nothing.
    pub fn statistics(&self) -> GasStatistics {
        let Some(state) = self.state() else { return GasStatistics::default() };
        let faults = self.shared.faults.load(Ordering::Relaxed);
        GasStatistics { faults, ..state.statistics }
    }

    /// The processes that are gone. A forked child finds none.
    pub fn lost(&self) -> Vec<usize> {
        let Some(state) = self.state() else { return Vec::new() };
        (0..state.is_lost.len()).filter(|rank| state.is_lost[*rank]).collect()
    }
}

impl Drop for GlobalMemory {
    fn drop(&mut self) {
        if !self.owner.is_this_process() {
            // A forked child has neither the threads nor the memory.
            std::mem::forget(self.shared.clone());
            self.threads.drain(..).for_each(std::mem::forget);
            return;
        }
        self.shared.ends.store(true, Ordering::Release);
        self.shared.mailbox.wake();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                log::error!("a thread of a global memory panicked");
            }
        }
    }
}

impl Shared {
    fn ends(&self) -> bool {
        self.ends.load(Ordering::Acquire)
    }

    fn serve_faults(&self) {
        let mut found = Vec::new();
        while !self.ends() {
            if let Err(why) = self.pages.faults(&mut found, NAP) {
                log::error!("faults of a global memory cannot be read: {why}");
                std::thread::sleep(NAP);
            }
            if found.is_empty() {
                continue;
            }
            self.faults.fetch_add(found.len() as u64, Ordering::Relaxed);
            let mut state = self.state.lock();
            for fault in found.drain(..) {
                state.cache.on_fault(fault.page as Page, fault.is_store);
                self.carry_out(&mut state);
            }
            if state.cache.next_time().is_some() {
                self.mailbox.wake();
            }
        }
    }

    fn serve_messages(&self) {
        let (mut ticked, mut polls) = (Instant::now(), 0);
        while !self.ends() {
            let found = self.mailbox.take(&mut |access| {
                let mut state = self.state.lock();
                state.on_record(&access, self.begun.elapsed());
                self.carry_out(&mut state);
            });
            if found == PollOutcome::Handled {
                polls = 0;
            } else {
                polls += 1;
            }
            if polls < EMPTY_POLLS && ticked.elapsed() < TICK {
                continue;
            }
            let mut state = self.state.lock();
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                state.look_after_peers();
            }
            state.cache.on_time(self.begun.elapsed());
            self.carry_out(&mut state);
            let until = state.cache.next_time().map(|time| time.saturating_sub(self.begun.elapsed()));
            drop(state);
            if found != PollOutcome::Handled {
                self.mailbox.sleep(until.unwrap_or(NAP).min(NAP));
            }
        }
    }

    /// Carries out effects, and what follows from messages to this process itself.
    fn carry_out(&self, state: &mut State) {
        loop {
            for effect in state.directory.take_effects() {
                state.at_home(effect);
            }
            for effect in state.cache.take_effects() {
                self.at_cache(state, effect);
            }
            let Some(message) = state.own.pop_front() else { return };
            let rank = state.rank;
            state.on_message(rank, message, self.begun.elapsed());
        }
    }

    fn at_cache(&self, state: &mut State, effect: CacheEffect<Content>) {
        let (page, done) = match effect {
            CacheEffect::Want { page, for_stores } => {
                let home = state.home(page);
                return state.send(home, Message::Want { page, for_stores });
            }
            CacheEffect::Give { page, for_stores, content } => {
                state.statistics.pages_in += 1;
                (page, self.pages.give(page as usize, &content, for_stores))
            }
            CacheEffect::AllowStores { page } => (page, self.pages.allow_stores(page as usize, true)),
            CacheEffect::Wake { page } => (page, self.pages.wake(page as usize)),
            CacheEffect::Return { page, with_content, keep } => {
                (page, self.give_back(state, page, with_content, keep))
            }
            CacheEffect::Poison { page } => {
                state.statistics.poisoned += 1;
                let home = state.home(page);
                log::error!(
                    "page {page} of the global memory is lost with process {home}: who touches it gets SIGSEGV"
                );
                (page, self.pages.poison(page as usize))
            }
        };
        if let Err(why) = done {
            log::error!("page {page} of the global memory: {why}: who touches it gets SIGSEGV");
            if let Err(why) = self.pages.poison(page as usize) {
                log::error!("page {page} of the global memory cannot be protected: {why}");
            }
        }
    }

    fn give_back(
        &self,
        state: &mut State,
        page: Page,
        with_content: bool,
        keep: bool,
    ) -> std::io::Result<()> {
        state.statistics.pages_out += 1;
        let mut content = None;
        if with_content {
            self.pages.allow_stores(page as usize, false)?;
            content = Some(Box::new(self.pages.content(page as usize)));
        }
        if !keep {
            self.pages.remove(page as usize)?;
        }
        let home = state.home(page);
        state.send(home, Message::Returned { page, content });
        Ok(())
    }
}

impl State {
    fn home(&self, page: Page) -> Rank {
        (page as usize / self.pages_each) as Rank
    }

    fn send(&mut self, to: Rank, message: Message<Content>) {
        if to == self.rank {
            return self.own.push_back(message);
        }
        let place = to as usize;
        if let Some(sender) = &mut self.peers[place] {
            let envelope = Envelope { from: self.rank, number: self.sent[place] };
            self.sent[place] += 1;
            sender.send(encode(envelope, &message));
        }
    }

    fn on_message(&mut self, from: Rank, message: Message<Content>, now: Duration) {
        match message {
            Message::Want { .. } | Message::Returned { .. } => self.directory.on_message(from, message),
            // Only the home of a page decides.
            Message::Grant { .. } | Message::Recall { .. } if self.home(message.page()) == from => {
                self.cache.on_message(message, now);
            }
            Message::Grant { .. } | Message::Recall { .. } => {}
        }
    }

    fn on_record(&mut self, access: &Incoming<'_>, now: Duration) {
        let known = self.sources.get(&access.source).copied();
        if !access.is_whole {
            if let Some(from) = known {
                self.lose(from, "one of its messages was cut off");
            }
            return;
        }
        let Some((Envelope { from, number }, message)) = decode(access.bytes) else {
            return log::warn!("source {} sent a global memory what is no message", access.source);
        };
        let place = from as usize;
        if from == self.rank || place >= self.received.len() || self.is_lost[place] {
            return;
        }
        self.sources.insert(access.source, from);
        if number != self.received[place] {
            return self.lose(from, "one of its messages is missing");
        }
        self.received[place] += 1;
        self.on_message(from, message, now);
    }

    fn look_after_peers(&mut self) {
        for place in 0..self.peers.len() {
            if let Some(why) = self.peers[place].as_mut().and_then(Sender::failure) {
                self.lose(place as Rank, &why.to_string());
            }
        }
    }

    fn lose(&mut self, rank: Rank, why: &str) {
        let place = rank as usize;
        if std::mem::replace(&mut self.is_lost[place], true) {
            return;
        }
        log::error!("process {rank} of a global memory is lost: {why}");
        self.peers[place] = None;
        self.directory.on_lost(rank);
        let first = place * self.pages_each;
        self.cache.on_lost(first as Page, (first + self.pages_each) as Page);
    }

    fn at_home(&mut self, effect: HomeEffect) {
        match effect {
            HomeEffect::Recall { to, page, keep } => self.send(to, Message::Recall { page, keep }),
            HomeEffect::Grant { to, page, for_stores, with_content } => {
                self.tell_handler(to, page, for_stores);
                let content =
                    self.directory.content(page).filter(|_| with_content).map(|content| content.clone());
                self.send(to, Message::Grant { page, for_stores, content });
            }
            HomeEffect::LostStores { page } => {
                self.statistics.lost_stores += 1;
                log::error!("the last stores to page {page} of the global memory are lost");
            }
        }
    }

    fn tell_handler(&mut self, by: Rank, page: Page, is_store: bool) {
        let is_shared = self.directory.has_copies_before(page);
        let (Some(handler), Some(content)) = (&mut self.handler, self.directory.content(page)) else {
            return;
        };
        let first = page as usize * USERFAULT_PAGE_WORDS;
        let words = first..first + USERFAULT_PAGE_WORDS;
        let mut access = PageAccess { words, by: by as usize, is_store, content, is_shared };
        let call = std::panic::AssertUnwindSafe(|| handler(&mut access));
        if std::panic::catch_unwind(call).is_err() {
            log::error!("a handler panicked at page {page} of a global memory");
        }
    }
}
