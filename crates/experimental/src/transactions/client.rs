//! The client's side of transactions.

use super::error::TransactionError;
use super::store::{StoreToken, served_at};
use super::words::Session;
use super::work::Work;
use crate::mailbox::{Mailbox, Sender};
use pagewire::{Error, Node, Peer, RemoteRegion, Result, Token};
use pagewire_active::fork::{Owner, PerProcess};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

/// Space in the client's mailbox for each store.
const MAILBOX_BYTES: usize = 1 << 16;
/// Stores of a client; each has two rings.
const MAX_STORES: usize = 64;
/// So long a client waits for a store to say where it is served.
const LOOK: Duration = Duration::from_secs(2);
/// The first pause before a transaction is tried again.
const PAUSE: Duration = Duration::from_micros(50);
/// The longest one.
const MAX_PAUSE: Duration = Duration::from_micros(3200);

pub(super) struct Remote {
    pub token: StoreToken,
    pub cells: RemoteRegion,
    pub mailbox: Sender,
}

/// The pause before a transaction is tried again, which doubles each time.
pub(super) struct Pause(Duration);

impl Pause {
    pub fn new() -> Pause {
        Pause(PAUSE)
    }

    pub fn take(&mut self) {
        std::thread::sleep(self.0);
        self.0 = (self.0 * 2).min(MAX_PAUSE);
    }
}

/// The stores of which nodes have clients: a store tells clients apart by the connections of their nodes.
static IN_USE: PerProcess<BTreeSet<Use>> = PerProcess::new();

/// A node, and the mailbox of a store.
type Use = ([u8; Peer::LEN], [u8; Token::LEN]);

/// A client's entries in [`IN_USE`], as long as it lives.
struct Uses(Vec<Use>);

impl Uses {
    fn begin(node: &Node, stores: &[StoreToken]) -> Result<Uses> {
        let own = node.identity().to_bytes();
        let (mut all, mut begun) = (IN_USE.lock(), Uses(Vec::new()));
        for store in stores {
            let entry = (own, store.mailbox.to_bytes());
            if !all.insert(entry) {
                drop(all);
                return Err(Error::Limit {
                    what: "clients of a store with one node: make a node for each, more",
                    most: 1,
                });
            }
            begun.0.push(entry);
        }
        Ok(begun)
    }
}

impl Drop for Uses {
    fn drop(&mut self) {
        let mut all = IN_USE.lock();
        self.0.iter().for_each(|entry| _ = all.remove(entry));
    }
}

/// Who makes transactions on cells of stores, one at a time. A node has one client of a store.
pub struct Client {
    pub(super) mailbox: Mailbox,
    pub(super) stores: Vec<Remote>,
    pub(super) session: Session,
    /// Of the attempt.
    pub(super) number: u64,
    owner: Owner,
    _uses: Uses,
}

impl Client {
    /// Connects to stores, in the order that all have.
    ///
    /// # Errors
    /// `Limit`: there are more than 64, or the node has a client of one of them already. `Argument`: a store is served at another
    /// place. Else as those of [`Node::open`] and [`Node::make_access_log`].
    pub fn new(node: &Node, stores: &[StoreToken]) -> Result<Client> {
        if stores.len() > MAX_STORES {
            return Err(Error::Limit { what: "stores of a client", most: MAX_STORES });
        }
        let uses = Uses::begin(node, stores)?;
        let mailbox = Mailbox::new(node, MAILBOX_BYTES, 2 * MAX_STORES)?;
        let open = |(place, token): (usize, &StoreToken)| {
            let (cells, mailbox) = (node.open(&token.cells)?, node.open(&token.mailbox)?);
            check_place(place, &mailbox)?;
            Ok(Remote { token: *token, cells, mailbox: Sender::new(mailbox) })
        };
        let stores = stores.iter().enumerate().map(open).collect::<Result<Vec<_>>>()?;
        // The token has a random key, and the node a random nonce: no other mailbox has the same.
        let mut session = std::hash::DefaultHasher::new();
        std::hash::Hash::hash(&mailbox.token().to_bytes(), &mut session);
        std::hash::Hash::hash(&now(), &mut session);
        let session = Session(std::hash::Hasher::finish(&session));
        Ok(Client { mailbox, stores, session, number: 0, owner: Owner::this_process(), _uses: uses })
    }

    /// Refuses a forked child.
    pub(super) fn check_owner(&self) -> Result<()> {
        if self.owner.is_this_process() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Starts a transaction.
    pub fn start(&mut self) -> Transaction<'_> {
        self.start_again(now())
    }

    fn start_again(&mut self, begun: u64) -> Transaction<'_> {
        let work = Work::new(self, begun);
        Transaction { client: self, work }
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
        let (begun, mut pause) = (now(), Pause::new());
        loop {
            let mut transaction = self.start_again(begun);
            let done = match body(&mut transaction) {
                Ok(value) => transaction.commit().map(|()| value),
                Err(why) => Err(why),
            };
            match done {
                Err(TransactionError::Conflict) => pause.take(),
                done => return done,
            }
        }
    }
}

/// Whether a store is served at the place where the client has it. One that is not served yet, or is gone, is not asked.
fn check_place(place: usize, mailbox: &RemoteRegion) -> Result<()> {
    let found = mailbox.get_into(0, vec![0u64]);
    if !found.ends_within(LOOK) {
        return Ok(());
    }
    match found.wait().as_deref() {
        Ok([word]) if *word != 0 && *word != served_at(place) => {
            let why = format!(
                "the one at position {place} is served at position {}: give the tokens in the order that all have",
                word - 1
            );
            Err(Error::Argument { what: "stores", why })
        }
        // What is wrong with one that is gone its transactions say.
        _ => Ok(()),
    }
}

pub(super) fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

/// A transaction of a client. Dropped, it is aborted.
pub struct Transaction<'c> {
    client: &'c mut Client,
    work: Work,
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
        self.work.get(self.client, store, cell)
    }

    /// Puts a value into a cell, when the transaction commits.
    ///
    /// # Errors
    /// `Conflict`, `StoreLost`, `Range`, `Length`.
    pub fn put(&mut self, store: usize, cell: u32, value: &[u8]) -> Result<(), TransactionError> {
        self.work.put(self.client, store, cell, value)
    }

    /// Commits: when it returns, all is done, and every transaction that starts later sees it.
    ///
    /// # Errors
    /// `Conflict`, `StoreLost`: nothing was done. `Unknown`: all or nothing was done.
    pub fn commit(mut self) -> Result<(), TransactionError> {
        self.work.commit(self.client)
    }

    /// Gives it up: nothing of it is done.
    pub fn abort(self) {}
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.work.abort(self.client);
    }
}
