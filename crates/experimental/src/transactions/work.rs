//! What a client has done of a transaction so far.

use super::client::Client;
use super::coordinator::{Coordinator, Outcome, Requests};
use super::error::TransactionError;
use super::wire::{ToStore, decode_notice};
use super::words::{Attempt, OwnerId, Priority, Request};
use pagewire::{Failure, Operation};
use pagewire_active::PollOutcome;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// A store that says nothing for so long is taken for lost.
const PATIENCE: Duration = Duration::from_secs(30);
/// Polls before a client sleeps.
const EMPTY_POLLS: u32 = 256;
const NAP: Duration = Duration::from_millis(5);

/// An attempt of a transaction, whose client is given to each call.
pub struct Work {
    coordinator: Coordinator,
    puts: Vec<(usize, Operation<Vec<u8>>)>,
    /// What it has put itself.
    own: HashMap<(usize, u32), Vec<u8>>,
    lost: BTreeMap<usize, Failure>,
}

impl Work {
    /// Begins the next attempt of a client. One that is tried again keeps the time when it began at first.
    pub fn new(client: &mut Client, begun: u64) -> Work {
        client.number += 1;
        let coordinator = Coordinator::new(Priority { begun, session: client.session });
        Work { coordinator, puts: Vec::new(), own: HashMap::new(), lost: BTreeMap::new() }
    }

    /// Gives it up, unless it has ended.
    pub fn abort(&mut self, client: &mut Client) {
        // The parent goes on with it.
        if client.check_owner().is_err() {
            return;
        }
        let requests = self.coordinator.abort();
        self.send(client, requests);
    }

    /// Gives the version, too.
    pub fn get(
        &mut self,
        client: &mut Client,
        store: usize,
        cell: u32,
    ) -> Result<(u64, Vec<u8>), TransactionError> {
        self.begin(client, store, cell)?;
        if let Some(own) = self.own.get(&(store, cell)) {
            return Ok((u64::MAX, own.clone()));
        }
        let remote = &client.stores[store];
        let stride = remote.token.stride();
        let got = remote.cells.get_into(u64::from(cell) * stride, vec![0; stride as usize]).wait();
        match got {
            Ok(bytes) => {
                self.listen(client);
                self.go_on()?;
                let (version, value) = bytes.split_at(8);
                Ok((version.try_into().map_or(0, u64::from_ne_bytes), value.to_vec()))
            }
            Err(error) => Err(self.lose(client, store, error.failure)),
        }
    }

    pub fn put(
        &mut self,
        client: &mut Client,
        store: usize,
        cell: u32,
        value: &[u8],
    ) -> Result<(), TransactionError> {
        self.begin(client, store, cell)?;
        let remote = &client.stores[store];
        let expected = remote.token.value as usize;
        if value.len() != expected {
            return Err(TransactionError::Length { store, found: value.len(), expected });
        }
        let at = u64::from(cell) * remote.token.stride() + 8;
        self.puts.push((store, remote.cells.put(at, value.to_vec())));
        self.own.insert((store, cell), value.to_vec());
        self.listen(client);
        self.go_on()
    }

    pub fn commit(&mut self, client: &mut Client) -> Result<(), TransactionError> {
        client.check_owner()?;
        self.go_on()?;
        // A store that votes must not give up reads while puts to another one are still on their way.
        for (store, put) in std::mem::take(&mut self.puts) {
            if let Err(error) = put.wait() {
                return Err(self.lose(client, store, error.failure));
            }
        }
        let requests = self.coordinator.commit();
        self.send(client, requests);
        let (mut last_notice, mut polls) = (Instant::now(), 0);
        while self.coordinator.outcome().is_none() {
            if self.listen(client) > 0 {
                (last_notice, polls) = (Instant::now(), 0);
                continue;
            }
            polls += 1;
            if polls > EMPTY_POLLS {
                client.mailbox.sleep(NAP);
                self.look_after_stores(client, last_notice.elapsed() > PATIENCE);
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

    fn begin(&mut self, client: &mut Client, store: usize, cell: u32) -> Result<(), TransactionError> {
        client.check_owner()?;
        let stores = client.stores.len();
        let cells = client.stores.get(store).map_or(0, |store| store.token.count());
        if cell >= cells {
            return Err(TransactionError::Range { store, cell, stores, cells });
        }
        self.go_on()?;
        if let Some(request) = self.coordinator.access(OwnerId(store as u32)) {
            self.send(client, vec![(OwnerId(store as u32), request)]);
        }
        Ok(())
    }

    fn attempt(&self, client: &Client) -> Attempt {
        Attempt { session: client.session, number: client.number }
    }

    fn send(&mut self, client: &mut Client, requests: Requests) {
        let (attempt, own) = (self.attempt(client), client.mailbox.token());
        for (owner, request) in requests {
            let token = matches!(request, Request::Begin { .. }).then_some(own);
            if let Some(store) = client.stores.get_mut(owner.0 as usize) {
                store.mailbox.send(ToStore::Client(attempt, request, token).encode());
            }
        }
    }

    /// Takes what the stores have said, and gives how many messages that were.
    fn listen(&mut self, client: &mut Client) -> usize {
        let (attempt, mut notices) = (self.attempt(client), Vec::new());
        let mut take = || client.mailbox.take(&mut |access| notices.extend(decode_notice(access.bytes)));
        while take() == PollOutcome::Handled {}
        let count = notices.len();
        for (owner, of, notice) in notices {
            if of == attempt {
                let requests = self.coordinator.on_notice(owner, notice);
                self.send(client, requests);
            }
        }
        count
    }

    fn look_after_stores(&mut self, client: &mut Client, is_late: bool) {
        for store in 0..client.stores.len() {
            let late = Failure::TimedOut { operation: "a transaction", waited_for: "a store's answer" };
            let failure = client.stores[store].mailbox.failure().or(is_late.then_some(late));
            if let Some(failure) = failure {
                self.lose(client, store, failure);
            }
        }
    }

    fn lose(&mut self, client: &mut Client, store: usize, why: Failure) -> TransactionError {
        let requests = self.coordinator.on_lost(OwnerId(store as u32));
        self.send(client, requests);
        self.lost.entry(store).or_insert_with(|| why.clone());
        TransactionError::StoreLost { store, why }
    }
}
