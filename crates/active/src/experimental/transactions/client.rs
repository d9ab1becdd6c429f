//! The client's side of transactions.

use super::coordinator::{Coordinator, Outcome, Requests};
use super::error::TransactionError;
use super::store::StoreToken;
use super::wire::{ToStore, decode_notice};
use super::words::{Attempt, OwnerId, Priority, Request, Session};
use crate::experimental::mailbox::{Mailbox, Sender};
use crate::log::Found;
use pagewire::{Failure, Node, Operation, RemoteRegion, Result};
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant, SystemTime};

/// Space in the client's mailbox for each store.
const MAILBOX_BYTES: usize = 1 << 16;
/// Stores of a client; each has two rings.
const MAX_STORES: usize = 64;
/// A store that says nothing for so long is taken for lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// Polls before a client sleeps.
const EMPTY_POLLS: u32 = 256;
const NAP: Duration = Duration::from_millis(5);
/// The first pause before a transaction is tried again; it doubles up to 64 of them.
const PAUSE: Duration = Duration::from_micros(50);

struct Remote {
    token: StoreToken,
    cells: RemoteRegion,
    mailbox: Sender,
}

/// Who makes transactions on cells of stores, one at a time. A node has one client of a store.
pub struct Client {
    mailbox: Mailbox,
    stores: Vec<Remote>,
    session: Session,
    number: u64,
}

impl Client {
    /// Connects to stores, in the order that all have.
    ///
    /// # Errors
    /// `Limit`: there are more than 64. Else as those of [`Node::open`] and [`Node::make_access_log`].
    pub fn new(node: &Node, stores: &[StoreToken]) -> Result<Client> {
        if stores.len() > MAX_STORES {
            return Err(pagewire::Error::Limit { what: "stores of a client", most: MAX_STORES });
        }
        let mailbox = Mailbox::new(node, MAILBOX_BYTES, 2 * MAX_STORES)?;
        let open = |token: &StoreToken| {
            let (cells, mailbox) = (node.open(&token.cells)?, Sender::new(node.open(&token.mailbox)?));
            Ok(Remote { token: *token, cells, mailbox })
        };
        let stores = stores.iter().map(open).collect::<Result<Vec<_>>>()?;
        // The token has a random key, and the node a random nonce: no other mailbox has the same.
        let mut session = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&mailbox.token().to_bytes(), &mut session);
        std::hash::Hash::hash(&now(), &mut session);
        let session = Session(std::hash::Hasher::finish(&session));
        Ok(Client { mailbox, stores, session, number: 0 })
    }

    /// Starts a transaction.
    pub fn start(&mut self) -> Transaction<'_> {
        self.start_again(now())
    }

    fn start_again(&mut self, begun: u64) -> Transaction<'_> {
        self.number += 1;
        let coordinator = Coordinator::new(Priority { begun, session: self.session });
        let (puts, own) = (Vec::new(), HashMap::new());
        Transaction { client: self, coordinator, puts, own, lost: BTreeMap::new() }
    }

    /// Makes a transaction, again and again until it has no conflict. What `body` does besides gets and puts it may do several times, and it may
    /// see values that do not belong together: then its transaction does not commit.
    ///
    /// # Errors
    /// What `body` gives, but for `Conflict`, and as those of [`Transaction::commit`].
    pub fn run<T>(
        &mut self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, TransactionError> {
        let (begun, mut pause) = (now(), PAUSE);
        loop {
            let mut transaction = self.start_again(begun);
            let done = match body(&mut transaction) {
                Ok(value) => transaction.commit().map(|()| value),
                Err(why) => Err(why),
            };
            match done {
                Err(TransactionError::Conflict) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(64 * PAUSE);
                }
                done => return done,
            }
        }
    }
}

fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

/// A transaction of a client. Dropped, it is aborted.
pub struct Transaction<'c> {
    client: &'c mut Client,
    coordinator: Coordinator,
    puts: Vec<(usize, Operation<Vec<u8>>)>,
    /// What it has put itself.
    own: HashMap<(usize, u32), Vec<u8>>,
    lost: BTreeMap<usize, Failure>,
}

impl Transaction<'_> {
    /// Gets the value of a cell, by one get.
    ///
    /// # Errors
    /// `Conflict`: what it has read is out of date. `StoreLost`, `Range`.
    pub fn get(&mut self, store: usize, cell: u32) -> Result<Vec<u8>, TransactionError> {
        Ok(self.get_versioned(store, cell)?.1)
    }

    /// Gets the value of a cell and its version: how many transactions have written it. Of a cell that this transaction has put, it is
    /// `u64::MAX`: the version is not known before the commit.
    ///
    /// # Errors
    /// As those of [`get`](Self::get).
    pub fn get_versioned(&mut self, store: usize, cell: u32) -> Result<(u64, Vec<u8>), TransactionError> {
        self.begin(store, cell)?;
        if let Some(own) = self.own.get(&(store, cell)) {
            return Ok((u64::MAX, own.clone()));
        }
        let remote = &self.client.stores[store];
        let stride = remote.token.stride();
        let got = remote.cells.get_into(u64::from(cell) * stride, vec![0; stride as usize]).wait();
        match got {
            Ok(bytes) => {
                self.listen();
                self.go_on()?;
                let (version, value) = bytes.split_at(8);
                Ok((version.try_into().map_or(0, u64::from_ne_bytes), value.to_vec()))
            }
            Err(error) => Err(self.lose(store, error.failure)),
        }
    }

    /// Puts a value into a cell, when the transaction commits.
    ///
    /// # Errors
    /// `Conflict`, `StoreLost`, `Range`, `Length`.
    pub fn put(&mut self, store: usize, cell: u32, value: &[u8]) -> Result<(), TransactionError> {
        self.begin(store, cell)?;
        let remote = &self.client.stores[store];
        let expected = remote.token.value as usize;
        if value.len() != expected {
            return Err(TransactionError::Length { store, found: value.len(), expected });
        }
        let at = u64::from(cell) * remote.token.stride() + 8;
        self.puts.push((store, remote.cells.put(at, value.to_vec())));
        self.own.insert((store, cell), value.to_vec());
        self.listen();
        self.go_on()
    }

    /// Commits: when it returns, all is done, and every transaction that starts later sees it.
    ///
    /// # Errors
    /// `Conflict`, `StoreLost`: nothing was done. `Unknown`: all or nothing was done.
    pub fn commit(mut self) -> Result<(), TransactionError> {
        self.go_on()?;
        // A store that votes must not give up reads while puts to another one are still on their way.
        for (store, put) in std::mem::take(&mut self.puts) {
            if let Err(error) = put.wait() {
                return Err(self.lose(store, error.failure));
            }
        }
        let requests = self.coordinator.commit();
        self.send(requests);
        let (mut heard, mut polls) = (Instant::now(), 0);
        while self.coordinator.outcome().is_none() {
            if self.listen() > 0 {
                (heard, polls) = (Instant::now(), 0);
                continue;
            }
            polls += 1;
            if polls > EMPTY_POLLS {
                self.client.mailbox.sleep(NAP);
                self.look_after_stores(heard.elapsed() > PATIENCE);
            }
        }
        match self.coordinator.outcome() {
            Some(Outcome::Committed) => Ok(()),
            Some(Outcome::Unknown) => {
                Err(TransactionError::Unknown { store: self.lost.keys().next().copied().unwrap_or(0) })
            }
            _ => Err(self.why_aborted()),
        }
    }

    /// Gives it up: nothing of it is done.
    pub fn abort(self) {}

    fn why_aborted(&self) -> TransactionError {
        match self.lost.iter().next() {
            Some((store, why)) => TransactionError::StoreLost { store: *store, why: why.clone() },
            None => TransactionError::Conflict,
        }
    }

    /// An error if it cannot commit any more.
    fn go_on(&self) -> Result<(), TransactionError> {
        match self.coordinator.outcome() {
            None => Ok(()),
            Some(_) => Err(self.why_aborted()),
        }
    }

    fn begin(&mut self, store: usize, cell: u32) -> Result<(), TransactionError> {
        let stores = self.client.stores.len();
        let cells = self.client.stores.get(store).map_or(0, |store| store.token.count());
        if cell >= cells {
            return Err(TransactionError::Range { store, cell, stores, cells });
        }
        self.go_on()?;
        if let Some(request) = self.coordinator.access(OwnerId(store as u32)) {
            self.send(vec![(OwnerId(store as u32), request)]);
        }
        Ok(())
    }

    fn attempt(&self) -> Attempt {
        Attempt { session: self.client.session, number: self.client.number }
    }

    fn send(&mut self, requests: Requests) {
        let (attempt, own) = (self.attempt(), self.client.mailbox.token());
        for (owner, request) in requests {
            let token = matches!(request, Request::Begin { .. }).then_some(own);
            if let Some(store) = self.client.stores.get_mut(owner.0 as usize) {
                store.mailbox.send(ToStore::Client(attempt, request, token).encode());
            }
        }
    }

    /// Takes what the stores have said, and gives how many messages that were.
    fn listen(&mut self) -> usize {
        let (attempt, mut notices) = (self.attempt(), Vec::new());
        let mut take = || self.client.mailbox.take(&mut |access| notices.extend(decode_notice(access.bytes)));
        while take() == Found::Handled {}
        let count = notices.len();
        for (owner, of, notice) in notices {
            if of == attempt {
                let requests = self.coordinator.on_notice(owner, notice);
                self.send(requests);
            }
        }
        count
    }

    fn look_after_stores(&mut self, is_late: bool) {
        for store in 0..self.client.stores.len() {
            let late = Failure::TimedOut { operation: "a transaction", waited_for: "a store's answer" };
            let failure = self.client.stores[store].mailbox.failure().or(is_late.then_some(late));
            if let Some(failure) = failure {
                self.lose(store, failure);
            }
        }
    }

    fn lose(&mut self, store: usize, why: Failure) -> TransactionError {
        let requests = self.coordinator.on_lost(OwnerId(store as u32));
        self.send(requests);
        self.lost.entry(store).or_insert_with(|| why.clone());
        TransactionError::StoreLost { store, why }
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        let requests = self.coordinator.abort();
        self.send(requests);
    }
}
