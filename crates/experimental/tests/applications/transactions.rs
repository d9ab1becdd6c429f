//! Transactions between processes. The unit tests have the histories in virtual time; here their accesses are gets and puts.

use crate::other::{Other, hex, read_line, role, say, unhex};
use pagewire::Node;
use pagewire_experimental::transactions::{
    Client, History, ServedStore, Store, StoreOptions, StoreToken, TransactionError,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ACCOUNTS: u32 = 4;
const PATHS: [&str; 2] = ["local", "udp"];

fn options(journal: Option<&Path>) -> StoreOptions {
    StoreOptions { cells: ACCOUNTS, value: 8, journal: journal.map(Path::to_owned) }
}

fn value(bytes: &[u8]) -> i64 {
    i64::from_ne_bytes(bytes.try_into().unwrap())
}

fn tokens_of(text: &str) -> Vec<StoreToken> {
    text.split(' ').map(|token| StoreToken::from_bytes(&unhex(token)).unwrap()).collect()
}

fn text_of(tokens: &[StoreToken]) -> String {
    tokens.iter().map(|token| hex(&token.to_bytes())).collect::<Vec<_>>().join(" ")
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % limit
    }
}

/// Moves money between two accounts of any stores.
fn transfer(client: &mut Client, random: &mut Random, stores: usize) -> Result<(), TransactionError> {
    let mut place = || (random.below(stores as u64) as usize, random.below(u64::from(ACCOUNTS)) as u32);
    let (from, to) = (place(), place());
    let amount = random.below(100) as i64;
    client.run(|transaction| {
        let taken = value(&transaction.get(from.0, from.1)?) - amount;
        transaction.put(from.0, from.1, &taken.to_ne_bytes())?;
        let given = value(&transaction.get(to.0, to.1)?) + amount;
        transaction.put(to.0, to.1, &given.to_ne_bytes())
    })
}

fn sum(client: &mut Client, stores: usize) -> Result<i64, TransactionError> {
    client.run(|transaction| {
        let mut sum = 0;
        for store in 0..stores {
            for cell in 0..ACCOUNTS {
                sum += value(&transaction.get(store, cell)?);
            }
        }
        Ok(sum)
    })
}

fn serve_here(node: &Arc<Node>, place: usize, stores: &[StoreToken], store: Store) -> ServedStore {
    store.serve(node, place, stores).unwrap()
}

/// A process with a store.
fn store_role(place: usize, journal: Option<PathBuf>) {
    let node = Arc::new(Node::alone().unwrap());
    let store = Store::new(&node, &options(journal.as_deref())).unwrap();
    say(&format!("store {}", text_of(&[store.token()])));
    let served = serve_here(&node, place, &tokens_of(&read_line()), store);
    say("served");
    read_line();
    until_nothing_is_held(&served);
    say(&format!("held {} {:?}", served.held(), served.failure()));
}

/// A process that moves money until it is told to end, or killed.
fn client_role() {
    let tokens = tokens_of(&read_line());
    let node = Node::alone().unwrap();
    let mut client = Client::new(&node, &tokens).unwrap();
    let mut random = Random(u64::from(std::process::id()));
    let count: u64 = read_line().parse().unwrap();
    say("begun");
    for done in 0..count {
        transfer(&mut client, &mut random, tokens.len()).unwrap();
        if done % 8 == 0 {
            assert_eq!(sum(&mut client, tokens.len()).unwrap(), 0);
        }
    }
    say("done");
    read_line();
}

/// Starts a store in another process.
fn other_store(test: &str, path: &str) -> (Other, StoreToken) {
    let mut other = Other::start_with(test, "store", &[("PAGEWIRE_PATH", path)]);
    let token = tokens_of(&other.expect("store "))[0];
    (other, token)
}

/// Nothing is left held when everybody has ended.
fn until_nothing_is_held(store: &ServedStore) {
    let start = Instant::now();
    while store.held() > 0 {
        assert!(start.elapsed() < Duration::from_secs(60), "{} attempts are held", store.held());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn money_moves_between_processes_and_none_is_lost() {
    const TEST: &str = "transactions::money_moves_between_processes_and_none_is_lost";
    match role().as_deref() {
        Some("store") => return store_role(1, None),
        Some(_) => return client_role(),
        None => {}
    }
    for path in PATHS {
        let (mut other, distant) = other_store(TEST, path);
        let node = Arc::new(Node::alone().unwrap());
        let store = Store::new(&node, &options(None)).unwrap();
        let tokens = [store.token(), distant];
        other.tell(&text_of(&tokens));
        let store = serve_here(&node, 0, &tokens, store);
        other.expect("served");
        let mut clients = [0, 1].map(|_| Other::start_with(TEST, "client", &[("PAGEWIRE_PATH", path)]));
        for client in &mut clients {
            client.tell(&text_of(&tokens));
            client.tell("60");
        }
        let observer = Node::alone().unwrap();
        let mut observer = Client::new(&observer, &tokens).unwrap();
        clients.iter_mut().for_each(|client| _ = client.expect("begun"));
        for _ in 0..20 {
            assert_eq!(sum(&mut observer, 2).unwrap(), 0, "{path}");
        }
        for client in &mut clients {
            client.expect("done");
            client.tell("end");
        }
        assert_eq!(sum(&mut observer, 2).unwrap(), 0, "{path}");
        let moved = (0..ACCOUNTS).any(|cell| store.cell(cell).unwrap().0 > 1);
        assert!(moved, "something was done");
        until_nothing_is_held(&store);
        other.tell("end");
        assert_eq!(other.expect("held"), "0 None");
    }
}

/// A client is killed at any instant: what it held is given up, and its transactions are whole or not there (`PAGEWIRE_ACTIVE_KILLS`: how often).
#[test]
fn a_client_that_is_killed_leaves_whole_transactions() {
    const TEST: &str = "transactions::a_client_that_is_killed_leaves_whole_transactions";
    match role().as_deref() {
        Some("store") => return store_role(1, None),
        Some(_) => return client_role(),
        None => {}
    }
    let (mut other, distant) = other_store(TEST, "auto");
    let node = Arc::new(Node::alone().unwrap());
    let store = Store::new(&node, &options(None)).unwrap();
    let tokens = [store.token(), distant];
    other.tell(&text_of(&tokens));
    let store = serve_here(&node, 0, &tokens, store);
    other.expect("served");
    let observer = Node::alone().unwrap();
    let mut observer = Client::new(&observer, &tokens).unwrap();
    let kills = std::env::var("PAGEWIRE_ACTIVE_KILLS").map_or(4, |kills| kills.parse().unwrap());
    let mut random = Random(5);
    for round in 0..kills {
        let mut victim = Other::start_with(TEST, "client", &[("PAGEWIRE_PATH", PATHS[round % 2])]);
        victim.tell(&text_of(&tokens));
        victim.tell("1000000000");
        victim.expect("begun");
        std::thread::sleep(Duration::from_micros(random.below(30_000)));
        assert!(victim.kill(), "it moves money until it is killed");
        assert_eq!(sum(&mut observer, 2).unwrap(), 0, "round {round}");
        until_nothing_is_held(&store);
    }
    other.tell("end");
    assert_eq!(other.expect("held"), "0 None");
}

/// A store is killed at any instant. It comes back with its journal, and all that was committed is there as a whole.
#[test]
fn a_store_that_is_killed_comes_back_with_what_was_committed() {
    const TEST: &str = "transactions::a_store_that_is_killed_comes_back_with_what_was_committed";
    let journal = || PathBuf::from(std::env::var_os("PAGEWIRE_ACTIVE_JOURNAL").unwrap());
    match role().as_deref() {
        Some("store") => return store_role(1, Some(journal())),
        Some(_) => return client_role(),
        None => {}
    }
    let folder = std::env::temp_dir().join(format!("pagewire-journal-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (distant_journal, own_journal) = (folder.join("distant"), folder.join("own"));
    let start = || {
        let variables = [("PAGEWIRE_ACTIVE_JOURNAL", distant_journal.to_str().unwrap())];
        let mut other = Other::start_with(TEST, "store", &variables);
        let token = tokens_of(&other.expect("store "))[0];
        (other, token)
    };
    let (mut other, distant) = start();
    let node = Arc::new(Node::alone().unwrap());
    let store = Store::new(&node, &options(Some(&own_journal))).unwrap();
    let mut tokens = [store.token(), distant];
    other.tell(&text_of(&tokens));
    let store = serve_here(&node, 0, &tokens, store);
    other.expect("served");
    let mut random = Random(77);
    let kills = std::env::var("PAGEWIRE_ACTIVE_KILLS").map_or(4, |kills| kills.parse().unwrap());
    for round in 0..kills {
        let client_node = Node::alone().unwrap();
        let mut client = Client::new(&client_node, &tokens).unwrap();
        let until = Instant::now() + Duration::from_micros(5_000 + random.below(30_000));
        let kill = std::thread::spawn(move || {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            assert!(other.kill());
        });
        let mut committed = 0;
        let error = loop {
            match transfer(&mut client, &mut random, 2) {
                Ok(()) => committed += 1,
                Err(error) => break error,
            }
            assert!(until.elapsed() < Duration::from_secs(60), "nobody noticed the death");
        };
        let is_meant = matches!(
            error,
            TransactionError::StoreLost { store: 1, .. } | TransactionError::Unknown { store: 1 }
        );
        assert!(is_meant, "round {round}, {committed} committed: {error}");
        kill.join().unwrap();
        (other, tokens[1]) = start();
        other.tell(&text_of(&tokens));
        store.replace(1, &tokens[1]).unwrap();
        other.expect("served");
        let client_node = Node::alone().unwrap();
        let mut client = Client::new(&client_node, &tokens).unwrap();
        assert_eq!(sum(&mut client, 2).unwrap(), 0, "round {round}");
        until_nothing_is_held(&store);
    }
    other.tell("end");
    assert_eq!(other.expect("held"), "0 None");
    std::fs::remove_dir_all(&folder).unwrap();
}

struct Pair {
    _store: ServedStore,
    nodes: [Node; 2],
    tokens: [StoreToken; 1],
    _owner: Arc<Node>,
}

fn pair() -> Pair {
    let owner = Arc::new(Node::alone().unwrap());
    let store = Store::new(&owner, &options(None)).unwrap();
    let tokens = [store.token()];
    let store = serve_here(&owner, 0, &tokens, store);
    Pair { _store: store, nodes: [0, 1].map(|_| Node::alone().unwrap()), tokens, _owner: owner }
}

/// One transaction that reads some cells, and writes some of those: what it did, as (cell, version, whether it wrote that).
fn record(client: &mut Client, random: &mut Random) -> Vec<(u32, u64, bool)> {
    let accesses: Vec<(u32, bool)> =
        (0..3).map(|_| (random.below(u64::from(ACCOUNTS)) as u32, random.below(2) == 0)).collect();
    client
        .run(|transaction| {
            let mut done: Vec<(u32, u64, bool)> = Vec::new();
            for (cell, is_write) in &accesses {
                if done.iter().any(|(known, ..)| known == cell) {
                    continue;
                }
                let store = (cell % 2) as usize;
                let (version, _) = transaction.get_versioned(store, *cell)?;
                done.push((*cell, version, false));
                if *is_write {
                    transaction.put(store, *cell, &[1; 8])?;
                    done.push((*cell, version + 1, true));
                }
            }
            Ok(done)
        })
        .unwrap()
}

/// What real processes have done has no circle in its dependency graph (`PAGEWIRE_ACTIVE_TRANSACTIONS`: transactions of each client).
#[test]
fn histories_of_processes_are_serialisable() {
    const TEST: &str = "transactions::histories_of_processes_are_serialisable";
    let rounds = std::env::var("PAGEWIRE_ACTIVE_TRANSACTIONS").map_or(80, |rounds| rounds.parse().unwrap());
    match role().as_deref() {
        Some("store") => return store_role(1, None),
        Some(_) => {
            let tokens = tokens_of(&read_line());
            let node = Node::alone().unwrap();
            let mut client = Client::new(&node, &tokens).unwrap();
            let mut random = Random(u64::from(std::process::id()));
            say("begun");
            read_line();
            for _ in 0..rounds {
                let done = record(&mut client, &mut random);
                let text =
                    |(cell, version, is_write): &(u32, u64, bool)| format!("{cell}.{version}.{is_write}");
                say(&format!("did {}", done.iter().map(text).collect::<Vec<_>>().join(" ")));
            }
            say("did done");
            read_line();
            return;
        }
        None => {}
    }
    let (mut other, distant) = other_store(TEST, "auto");
    let node = Arc::new(Node::alone().unwrap());
    let store = Store::new(&node, &options(None)).unwrap();
    let tokens = [store.token(), distant];
    other.tell(&text_of(&tokens));
    let _served = serve_here(&node, 0, &tokens, store);
    other.expect("served");
    let mut clients: Vec<Other> = ["local", "local", "udp"]
        .map(|path| Other::start_with(TEST, "client", &[("PAGEWIRE_PATH", path)]))
        .into();
    for client in &mut clients {
        client.tell(&text_of(&tokens));
        client.expect("begun");
    }
    clients.iter_mut().for_each(|client| client.tell("go"));
    let (mut history, mut writers, mut id) = (History::default(), std::collections::BTreeMap::new(), 0);
    for client in &mut clients {
        loop {
            let line = client.expect("did ");
            if line == "done" {
                break;
            }
            id += 1;
            for access in line.split(' ') {
                let parts: Vec<&str> = access.split('.').collect();
                let (cell, version): (u64, u64) = (parts[0].parse().unwrap(), parts[1].parse().unwrap());
                if parts[2] == "true" {
                    let before = writers.insert((cell, version), id);
                    assert_eq!(before, None, "two transactions wrote version {version} of cell {cell}");
                } else {
                    history.read(id, cell, version);
                }
            }
        }
        client.tell("end");
    }
    // By cell, then by version.
    for (index, ((cell, version), by)) in writers.iter().enumerate() {
        let is_next = *version == 1 || writers.keys().nth(index - 1) == Some(&(*cell, version - 1));
        assert!(is_next, "nobody wrote version {} of cell {cell}", version - 1);
        history.write(*by, *cell);
    }
    assert_eq!(id, 3 * rounds);
    assert_eq!(history.check(), Ok(()));
    other.tell("end");
}

/// Values that the network cuts into several packets.
#[test]
fn long_values_come_whole() {
    const TEST: &str = "transactions::long_values_come_whole";
    const LENGTH: usize = 4096;
    let long = StoreOptions { cells: 3, value: LENGTH, journal: None };
    if role().is_some() {
        let node = Arc::new(Node::alone().unwrap());
        let store = Store::new(&node, &long).unwrap();
        say(&format!("store {}", text_of(&[store.token()])));
        let _served = serve_here(&node, 0, &[store.token()], store);
        say("served");
        read_line();
        return;
    }
    for path in PATHS {
        let (mut other, token) = other_store(TEST, path);
        other.expect("served");
        let node = Node::alone().unwrap();
        let mut client = Client::new(&node, &[token]).unwrap();
        for round in 1..20u8 {
            client
                .run(|transaction| {
                    let before = transaction.get(0, 1)?;
                    assert_eq!(before, vec![round - 1; LENGTH], "{path}");
                    transaction.put(0, 1, &vec![round; LENGTH])
                })
                .unwrap();
        }
        other.tell("end");
    }
}

/// The younger of two is told, without asking, and the older one commits.
#[test]
fn younger_transaction_gets_conflict() {
    let pair = pair();
    let [mut first, mut second] = [0, 1].map(|at| Client::new(&pair.nodes[at], &pair.tokens).unwrap());
    let mut older = first.start();
    older.get(0, 0).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    let mut younger = second.start();
    younger.get(0, 1).unwrap();
    older.put(0, 1, &1i64.to_ne_bytes()).unwrap();
    older.commit().unwrap();
    let error = younger.put(0, 2, &2i64.to_ne_bytes()).unwrap_err();
    assert!(matches!(error, TransactionError::Conflict), "{error}");
    assert!(matches!(younger.commit(), Err(TransactionError::Conflict)));
    // Nothing of the younger one is left, and its client goes on.
    second
        .run(|transaction| {
            assert_eq!(value(&transaction.get(0, 1)?), 1);
            assert_eq!(value(&transaction.get(0, 2)?), 0);
            transaction.put(0, 2, &5i64.to_ne_bytes())?;
            assert_eq!(value(&transaction.get(0, 2)?), 5, "its own put");
            Ok(())
        })
        .unwrap();
    let mut given_up = first.start();
    given_up.put(0, 2, &9i64.to_ne_bytes()).unwrap();
    given_up.abort();
    let kept = first.run(|transaction| Ok(value(&transaction.get(0, 2)?))).unwrap();
    assert_eq!(kept, 5, "what was aborted is not there");
}

#[test]
fn what_cannot_be_done_says_why() {
    let pair = pair();
    let mut client = Client::new(&pair.nodes[0], &pair.tokens).unwrap();
    let mut transaction = client.start();
    let error = transaction.get(0, ACCOUNTS).unwrap_err().to_string();
    assert!(error.contains("no cell 4") && error.contains("4 cells"), "{error}");
    let error = transaction.put(0, 0, &[1]).unwrap_err().to_string();
    assert!(error.contains("1 bytes") && error.contains("have 8"), "{error}");
    assert!(transaction.get(1, 0).is_err());
    drop(transaction);
    for (cells, value) in [(0, 8), (1, 0), (1, 12), (1, 8192)] {
        assert!(Store::new(&pair.nodes[0], &StoreOptions { cells, value, journal: None }).is_err());
    }
    assert!(StoreToken::from_bytes(&[0; 4]).is_err());
    // A journal is of one store at a time, and of its cells.
    let journal = std::env::temp_dir().join(format!("pagewire-journal-of-one-{}", std::process::id()));
    let node = Arc::new(Node::alone().unwrap());
    let serve = |options: &StoreOptions| {
        let store = Store::new(&node, options).unwrap();
        let token = store.token();
        store.serve(&node, 0, &[token])
    };
    let served = serve(&options(Some(&journal))).unwrap();
    let error = serve(&options(Some(&journal))).err().unwrap().to_string();
    assert!(error.contains("in use by another store"), "{error}");
    let token = [served.token()];
    Client::new(&pair.nodes[1], &token).unwrap().run(|transaction| transaction.put(0, 3, &[1; 8])).unwrap();
    drop(served);
    let fewer = StoreOptions { cells: 2, ..options(Some(&journal)) };
    let error = serve(&fewer).err().unwrap().to_string();
    assert!(error.contains("other cells"), "{error}");
    assert_eq!(serve(&options(Some(&journal))).unwrap().cell(3), Some((1, vec![1; 8])));
    std::fs::remove_file(journal).unwrap();
}
