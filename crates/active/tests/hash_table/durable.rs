//! Tables that outlive their processes: any member is killed at any instant, another one takes its place, and whatever was acknowledged to anyone stays.

use super::other::{Job, Other, hex, read_line, role, say, unhex};
use pagewire::{Node, Result};
use pagewire_active::hash_table::{Durability, Scheme, Service};
use pagewire_active::{Events, HashTable, TableOptions};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PLAIN: &str = "PAGEWIRE_TABLE_FOLDER";

/// How often members are killed in a test: `make test-active` asks for more.
fn kills() -> u64 {
    std::env::var("PAGEWIRE_TABLE_KILLS").map_or(3, |kills| kills.parse().unwrap())
}

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
    (*state >> 33) ^ *state << 31
}

/// The change that a member makes as its so many-th: to keys that it alone writes.
fn change(rank: usize, index: u64) -> (u64, Option<Vec<u8>>) {
    let mut state = (rank as u64) << 40 | index;
    random(&mut state);
    let key = 1 + ((rank as u64) << 32) + random(&mut state) % 700;
    let value = match random(&mut state) % 16 {
        0..=2 => return (key, None),
        3..=9 => index.to_le_bytes()[..7].to_vec(),
        10..=14 => vec![index as u8; (random(&mut state) % 200) as usize],
        _ => vec![index as u8; 5000],
    };
    (key, Some(value))
}

/// What a member has made, if it has made so many changes.
fn model(rank: usize, count: u64) -> HashMap<u64, Vec<u8>> {
    let mut model = HashMap::new();
    for index in 0..count {
        match change(rank, index) {
            (key, Some(value)) => _ = model.insert(key, value),
            (key, None) => _ = model.remove(&key),
        }
    }
    model
}

/// Small, so that it grows, and with logs so small that checkpoints are made while all write.
fn options(scheme: Scheme) -> TableOptions {
    TableOptions { scheme, value_bytes: 4000, ..TableOptions::new(50) }
}

fn durability(folder: &Path) -> Durability {
    Durability { log_bytes: 96 << 10, syncs: false, ..Durability::new(folder) }
}

/// A member that makes changes, and writes to a file how many were acknowledged.
struct Member {
    rank: usize,
    size: usize,
    table: HashTable,
    /// How many changes of each member were acknowledged.
    acknowledged: File,
    /// It has the volumes mapped: a change has happened when its call returns.
    is_mapped: bool,
}

impl Member {
    fn count(&self, rank: usize) -> u64 {
        let mut bytes = [0; 8];
        self.acknowledged.read_exact_at(&mut bytes, 8 * rank as u64).unwrap();
        u64::from_le_bytes(bytes)
    }

    fn note(&self, count: u64) {
        self.acknowledged.write_all_at(&count.to_le_bytes(), 8 * self.rank as u64).unwrap();
    }

    /// Makes changes until so many are acknowledged.
    fn make(&mut self, until: u64) {
        let mut made = self.count(self.rank);
        while made < until {
            let end = until.min(made + if self.is_mapped { 1 } else { 40 });
            let outcome = (made..end).try_for_each(|index| self.make_one(index));
            match outcome.and_then(|()| if self.is_mapped { Ok(()) } else { self.table.flush() }) {
                Ok(()) => {
                    made = end;
                    self.note(made);
                }
                Err(error) => self.readmit(&error.to_string()),
            }
        }
    }

    fn make_one(&self, index: u64) -> Result<()> {
        match change(self.rank, index) {
            (key, value) if index % 5 == 0 => self.swap(key, value.as_deref())?,
            (key, Some(value)) => self.table.insert(key, &value)?,
            (key, None) => self.table.delete(key)?,
        }
        if index % 997 == 0 {
            self.table.checkpoint()?;
        }
        Ok(())
    }

    /// Sets a value by compare-and-set. A message of before may come between.
    fn swap(&self, key: u64, value: Option<&[u8]>) -> Result<()> {
        loop {
            let present = self.table.lookup(key)?;
            if self.table.compare_and_set(key, present.as_deref(), value)? {
                return Ok(());
            }
        }
    }

    /// An owner was lost: another one takes its place.
    fn readmit(&mut self, why: &str) {
        say(&format!("lost: {why}"));
        let line = read_line();
        assert!(self.obey(&line), "{line}");
    }

    /// False: the line is none of these.
    fn obey(&mut self, line: &str) -> bool {
        let Some(("readmit", rest)) = line.split_once(' ') else { return false };
        let (rank, ticket) = rest.split_once(' ').unwrap();
        match self.table.readmit(rank.parse().unwrap(), &unhex(ticket)) {
            // `make` does again what was not flushed.
            Ok(_) => say("readmitted"),
            // That one was killed, too.
            Err(error) => self.readmit(&error.to_string()),
        }
        true
    }

    /// What was acknowledged to every member is there, and nothing else of this one's volume.
    fn verify(&self) {
        let mut expected = 0;
        for rank in 0..self.size {
            let model = model(rank, self.count(rank));
            expected += model.len();
            for key in (0..700).map(|key| 1 + ((rank as u64) << 32) + key) {
                assert_eq!(self.table.lookup(key).unwrap(), model.get(&key).cloned(), "{rank}: {key}");
            }
        }
        let statistics = self.table.statistics().unwrap();
        assert_eq!(statistics.malformed, 0);
        say(&format!("verified: {} {expected}", statistics.elements));
    }

    /// Does what the test says.
    fn serve(mut self) {
        say(&format!("ticket: {}", hex(&self.table.ticket())));
        loop {
            let line = read_line();
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("make", until) => {
                    say("begins");
                    self.make(until.parse().unwrap());
                    say("made");
                }
                ("verify", _) => self.verify(),
                ("set", value) => {
                    self.table.insert(u64::MAX, value.as_bytes()).unwrap();
                    self.table.flush().unwrap();
                    say("set");
                }
                ("get", _) => {
                    let value = self.table.lookup(u64::MAX).unwrap();
                    say(&format!(
                        "value: {}",
                        value.map_or(String::new(), |value| String::from_utf8(value).unwrap())
                    ));
                }
                ("end", _) => return,
                _ => assert!(self.obey(&line), "{line}"),
            }
        }
    }
}

/// A process of a table in a folder, by its role: `scheme folder [rank size]`; with a rank it restarts.
fn member(role: &str) {
    let words: Vec<&str> = role.split(' ').collect();
    let (scheme, folder) = (super::scheme_of(words[0]), Path::new(words[1]));
    let (options, durability) = (options(scheme), durability(folder));
    let service = Service::Events(Events::default());
    let (table, rank, size) = match words.get(2) {
        None => {
            let node = Arc::new(Node::from_env().unwrap());
            let table = HashTable::join_durable(&node, &options, &durability, service).unwrap();
            (table, node.rank(), node.size())
        }
        Some(rank) => {
            let rank = rank.parse().unwrap();
            let tickets: Vec<Vec<u8>> = words[3..].iter().map(|ticket| unhex(ticket)).collect();
            let node = Arc::new(Node::alone().unwrap());
            let table = HashTable::restart(&node, &options, &durability, service, (rank, &tickets)).unwrap();
            (table, rank, tickets.len())
        }
    };
    let acknowledged = File::options().read(true).write(true).open(folder.join("acknowledged")).unwrap();
    let is_local = std::env::var("PAGEWIRE_PATH").is_ok_and(|path| path == "local");
    let is_mapped = is_local && scheme == Scheme::Nearest;
    Member { rank, size, table, acknowledged, is_mapped }.serve();
}

/// A table whose members the test kills.
struct World {
    test: &'static str,
    path: &'static str,
    scheme: &'static str,
    job: Job,
    tickets: Vec<String>,
    folder: tempfile::TempDir,
    /// Members that have said that they have made their changes.
    have_made: Vec<bool>,
}

impl World {
    fn start(test: &'static str, (path, scheme): (&'static str, &'static str), size: usize) -> World {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("acknowledged"), vec![0; 8 * size]).unwrap();
        World::start_in(folder, test, (path, scheme), size)
    }

    fn start_in(
        folder: tempfile::TempDir,
        test: &'static str,
        (path, scheme): (&'static str, &'static str),
        size: usize,
    ) -> World {
        let role = format!("{scheme} {}", folder.path().display());
        let mut job = Job::start_as(test, &role, size, path);
        let tickets = job.members.iter_mut().map(|member| member.expect("ticket: ")).collect();
        World { test, path, scheme, job, tickets, folder, have_made: vec![false; size] }
    }

    fn tell_all(&mut self, line: &str) {
        self.job.members.iter_mut().for_each(|member| member.tell(line));
    }

    /// Starts a process in the place of one that was killed.
    fn replace(&mut self, rank: usize) {
        let folder = self.folder.path().display();
        let role = format!("{} {folder} {rank} {}", self.scheme, self.tickets.join(" "));
        self.job.members[rank] = Other::start(self.test, &role, self.path);
    }

    /// The others take it for the member of its rank. Those that work hear of it when they have lost the one before.
    fn readmit(&mut self, rank: usize) {
        self.tickets[rank] = self.job.members[rank].expect("ticket: ");
        let line = format!("readmit {rank} {}", self.tickets[rank]);
        for other in (0..self.tickets.len()).filter(|other| *other != rank) {
            self.job.members[other].tell(&line);
            self.expect_line(other, "readmitted");
        }
    }

    /// Waits for a line of a member. That it has made its changes may come before.
    fn expect_line(&mut self, rank: usize, expected: &str) {
        loop {
            let line = self.job.members[rank].expect("");
            if line == expected {
                return;
            }
            self.have_made[rank] |= line == "made";
        }
    }

    fn wait_until_made(&mut self, rank: usize) {
        if !std::mem::take(&mut self.have_made[rank]) {
            self.expect_line(rank, "made");
        }
    }

    /// All have made so many changes, all of which are there, and nothing else.
    fn verify(&mut self) {
        self.tell_all("verify");
        let mut found = 0;
        let mut expected = 0;
        for member in &mut self.job.members {
            let line = member.expect("verified: ");
            let (elements, of_all) = line.split_once(' ').unwrap();
            found += elements.parse::<usize>().unwrap();
            expected = of_all.parse::<usize>().unwrap();
        }
        assert_eq!(found, expected, "elements of all chains");
    }
}

/// Members are killed while all write. `changes`: of each member in a round.
fn survives(test: &'static str, (path, scheme): (&'static str, &'static str), size: usize, changes: u64) {
    if let Some(role) = role() {
        return member(&role);
    }
    let mut world = World::start(test, (path, scheme), size);
    let seed = std::env::var("PAGEWIRE_TABLE_SEED").map_or(1, |seed| seed.parse().unwrap());
    let mut state: u64 = seed;
    for round in 1..=kills() {
        println!("{path} {scheme}: round {round} of seed {seed}");
        let until = round * changes;
        world.tell_all(&format!("make {until}"));
        world.job.members.iter_mut().for_each(|member| _ = member.expect("begins"));
        let victim = random(&mut state) as usize % size;
        std::thread::sleep(Duration::from_micros(random(&mut state) % 15_000));
        assert!(world.job.members[victim].kill());
        world.have_made[victim] = false;
        world.replace(victim);
        // Now and then it is killed again while it rebuilds, or just behind that.
        while random(&mut state) % 3 == 0 {
            std::thread::sleep(Duration::from_micros(random(&mut state) % 60_000));
            assert!(world.job.members[victim].kill());
            world.replace(victim);
        }
        world.readmit(victim);
        world.job.members[victim].tell(&format!("make {until}"));
        (0..size).for_each(|rank| world.wait_until_made(rank));
        world.verify();
    }
    // The last of several that write one key stays, in whichever files their changes lie.
    for turn in 0..2 * size {
        world.job.members[turn % size].tell(&format!("set {turn}"));
        world.job.members[turn % size].expect("set");
    }
    for victim in 0..size {
        assert!(world.job.members[victim].kill());
        world.replace(victim);
        world.readmit(victim);
        world.job.members[victim].tell("get");
        assert_eq!(world.job.members[victim].expect("value: "), (2 * size - 1).to_string());
    }
    // All of them at once: the whole job starts anew.
    world.job.members.iter_mut().for_each(|member| _ = member.kill());
    let World { folder, .. } = world;
    let mut world = World::start_in(folder, test, (path, scheme), size);
    world.job.members[0].tell("get");
    assert_eq!(world.job.members[0].expect("value: "), (2 * size - 1).to_string());
}

#[test]
fn owners_of_mapped_volumes_are_killed() {
    survives("durable::owners_of_mapped_volumes_are_killed", ("local", "nearest"), 3, 700);
}

#[test]
fn owners_that_handle_are_killed() {
    survives("durable::owners_that_handle_are_killed", ("local", "handler"), 3, 700);
}

#[test]
fn owners_are_killed_over_udp() {
    survives("durable::owners_are_killed_over_udp", ("udp", "nearest"), 2, 700);
}

#[test]
fn one_of_eight_is_killed() {
    survives("durable::one_of_eight_is_killed", ("local", "nearest"), 8, 200);
}

/// A volume grows while a checkpoint begins: what was inserted stays.
#[test]
fn growth_beside_a_checkpoint_loses_nothing() {
    const ROUNDS: u64 = 40;
    let node = Arc::new(Node::alone().unwrap());
    for round in 0..ROUNDS {
        let folder = tempfile::tempdir().unwrap();
        let durability = Durability { syncs: false, ..Durability::new(folder.path()) };
        let (options, service) = (options(Scheme::Nearest), Service::Events(Events::default()));
        let join = || HashTable::join_durable(&node, &options, &durability, service).unwrap();
        let (table, start) = (join(), std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                let begin = Instant::now();
                while begin.elapsed() < Duration::from_micros(20 * round) {
                    std::hint::spin_loop();
                }
                table.checkpoint().unwrap();
            });
            start.wait();
            table.insert_batch((1..=256).map(|key| (key, &b"one of many"[..]))).unwrap();
        });
        drop(table);
        let table = join();
        let lost: Vec<u64> = (1..=256).filter(|key| table.lookup(*key).unwrap().is_none()).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?}");
    }
}

fn text<T>(result: Result<T>) -> String {
    result.err().map_or(String::new(), |error| error.to_string())
}

#[test]
fn what_cannot_be_durable_is_refused() {
    let node = Arc::new(Node::alone().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (durability, service) = (durability(folder.path()), Service::Events(Events::default()));
    let join = |scheme| HashTable::join_durable(&node, &options(scheme), &durability, service);
    assert!(text(join(Scheme::Operations)).contains("Scheme::Nearest"));
    let plain = HashTable::join(&node, &options(Scheme::Nearest)).unwrap();
    assert!(text(plain.checkpoint()).contains("join it as one"));
    let mut table = join(Scheme::Nearest).unwrap();
    table.insert(5, b"five").unwrap();
    assert!(text(table.readmit(0, &[])).contains("another member"));
    // A log with that key could not be read.
    assert!(text(table.delete(0)).contains("the key is 0"));
    drop(table);
    // Of another count of processes.
    let tickets = [vec![], vec![]];
    let two = HashTable::restart(&node, &options(Scheme::Nearest), &durability, service, (0, &tickets));
    assert!(text(two).contains("of 1 processes"));
    let outside = HashTable::restart(&node, &options(Scheme::Nearest), &durability, service, (2, &tickets));
    assert!(text(outside).contains("less than"));
    let table = join(Scheme::Handler).unwrap();
    assert_eq!(table.lookup(5).unwrap().unwrap(), b"five");
    table.clear().unwrap();
    table.insert(6, b"six").unwrap();
    drop(table);
    let table = join(Scheme::Handler).unwrap();
    assert_eq!((table.lookup(5).unwrap(), table.lookup(6).unwrap()), (None, Some(b"six".to_vec())));
    drop(table);
    let stray = folder.path().join(format!("volume-0.{}.x.log", u64::MAX));
    std::fs::write(&stray, []).unwrap();
    assert!(text(join(Scheme::Nearest)).contains("x.log: its generation is the last one"));
    std::fs::remove_file(&stray).unwrap();
    let file = folder.path().join("volume-0.checkpoint");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(text(join(Scheme::Nearest)).contains("volume-0.checkpoint: it is damaged at byte"));
}

/// A volume has one owner at a time.
#[test]
fn a_volume_has_one_owner() {
    const TEST: &str = "durable::a_volume_has_one_owner";
    let service = Service::Events(Events::default());
    let join = |folder: &Path| {
        let node = Arc::new(Node::alone().unwrap());
        HashTable::join_durable(&node, &options(Scheme::Nearest), &durability(folder), service)
    };
    if role().is_some() {
        let _table = join(Path::new(&std::env::var(PLAIN).unwrap())).unwrap();
        say("joined");
        read_line();
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let text_of_folder = folder.path().to_str().unwrap();
    let mut other = Other::start_with(TEST, "owner", &[(PLAIN, text_of_folder)]);
    other.expect("joined");
    assert!(text(join(folder.path())).contains("another process has this volume"));
    assert!(other.kill());
    join(folder.path()).unwrap();
}

/// Nanoseconds of an insert with and without files, by each scheme, and what a checkpoint and a restart take (medians of five).
///
/// `cargo test --release -p pagewire-active --test hash_table cost -- --ignored --nocapture`
#[test]
#[ignore = "it measures"]
fn cost_of_durability() {
    const TEST: &str = "durable::cost_of_durability";
    if let Some(role) = role() {
        return measure(&role);
    }
    for scheme in ["nearest", "handler"] {
        for kept in ["plain", "durable"] {
            let folder = tempfile::tempdir().unwrap();
            let role = format!("{scheme} {kept} {}", folder.path().display());
            let mut job = Job::start_with(TEST, &role, 2, "local", &["--ignored"]);
            println!("{scheme} {kept}: {}", job.members[1].expect("cost: "));
            assert!(job.members.iter_mut().all(|member| member.wait().success()));
        }
    }
}

fn measure(role: &str) {
    const KEYS: u64 = 200_000;
    let words: Vec<&str> = role.split(' ').collect();
    let node = Arc::new(Node::from_env().unwrap());
    let options = TableOptions { scheme: super::scheme_of(words[0]), ..TableOptions::new(2_000_000) };
    let durability = Durability { syncs: false, ..Durability::new(words[2]) };
    let service = Service::Events(Events::default());
    let table = match words[1] {
        "plain" => HashTable::join_served(&node, &options, service).unwrap(),
        _ => HashTable::join_durable(&node, &options, &durability, service).unwrap(),
    };
    let (mut texts, value) = (Vec::new(), [7u8; 100]);
    for (what, value) in [("no value", &value[..0]), ("100 bytes", &value[..])] {
        let (mut single, mut batch) = (Vec::new(), Vec::new());
        for round in 0..6 {
            let keys = (1..=KEYS).map(|key| key << 8 | node.rank() as u64);
            node.barrier().unwrap();
            let start = Instant::now();
            keys.clone().for_each(|key| table.insert(key, value).unwrap());
            table.flush().unwrap();
            single.push(start.elapsed().as_nanos() as u64 / KEYS);
            node.barrier().unwrap();
            let start = Instant::now();
            table.insert_batch(keys.map(|key| (key, value))).unwrap();
            table.flush().unwrap();
            batch.push(start.elapsed().as_nanos() as u64 / KEYS);
            if round == 0 {
                // It touches pages for the first time.
                (single, batch) = (Vec::new(), Vec::new());
            }
        }
        single.sort_unstable();
        batch.sort_unstable();
        texts.push(format!("{what}: {} ns, in a batch {} ns", single[2], batch[2]));
    }
    if words[1] == "durable" {
        let start = Instant::now();
        table.checkpoint().unwrap();
        let elements = table.statistics().unwrap().elements;
        texts.push(format!("checkpoint of {elements} elements: {} ms", start.elapsed().as_millis()));
        node.barrier().unwrap();
        drop(table);
        node.barrier().unwrap();
        let start = Instant::now();
        let table = HashTable::join_durable(&node, &options, &durability, service).unwrap();
        assert_eq!(table.statistics().unwrap().elements, elements);
        texts.push(format!("restart: {} ms", start.elapsed().as_millis()));
        node.barrier().unwrap();
    }
    say(&format!("cost: {}", texts.join("; ")));
    node.barrier().unwrap();
}
