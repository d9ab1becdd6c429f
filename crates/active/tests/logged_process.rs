//! Logged puts and gets: a process that is killed at any instant is rebuilt from its checkpoint and the logs of the others, and all memory is
//! that of a run in which nobody died (PAPERS AA-12).

mod other;

use other::{Other, ROLE, hex, on_each_path, read_line};
use pagewire::Node;
use pagewire_active::{CheckpointOptions, LoggedProcess, LoggedProcessError, LoggedProcessOptions, Ticket};
use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

const SIZE: usize = 3;
/// Words that a process puts to each other one in an epoch, and that it shows to all.
const WORDS: usize = 40;
const STATE: usize = 0;

/// First word of what `from` has put in an epoch.
fn inbox(epoch: u64, from: usize) -> usize {
    8 + ((epoch % 2) as usize * SIZE + from) * WORDS
}

/// First word of what is shown in an epoch.
fn shown(epoch: u64) -> usize {
    inbox(1, SIZE) + (epoch % 2) as usize * WORDS
}

const MEMORY: usize = 8 + 2 * SIZE * WORDS + 2 * WORDS;

fn mix(state: u64, value: u64) -> u64 {
    (state ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).wrapping_add(1)
}

/// What a process does in an epoch, on any memory.
trait Machine {
    fn load(&self, word: usize) -> u64;
    fn store(&mut self, word: usize, value: u64);
    fn put(&mut self, rank: usize, word: usize, values: &[u64]);
    fn get(&mut self, rank: usize, word: usize, count: usize) -> Vec<u64>;
}

fn work(machine: &mut dyn Machine, rank: usize, epoch: u64) {
    let mut state = machine.load(STATE);
    for from in (0..SIZE).filter(|from| *from != rank) {
        for word in 0..WORDS {
            state = mix(state, machine.load(inbox(epoch + 1, from) + word));
        }
    }
    for other in (0..SIZE).filter(|other| *other != rank) {
        // Several gets and puts, so that a process dies between them.
        for part in 0..4 {
            let part = part * WORDS / 4;
            let got = machine.get(other, shown(epoch) + part, WORDS / 4);
            state = got.into_iter().fold(state, mix);
            let values: Vec<u64> = (0..WORDS as u64 / 4).map(|word| mix(state, word)).collect();
            machine.put(other, inbox(epoch, rank) + part, &values);
        }
    }
    (0..WORDS).for_each(|word| machine.store(shown(epoch + 1) + word, mix(state, word as u64 + 1000)));
    machine.store(STATE, state);
}

/// All memory in one place, where nobody dies.
struct Model<'m> {
    memory: &'m mut [Vec<u64>],
    rank: usize,
}

impl Machine for Model<'_> {
    fn load(&self, word: usize) -> u64 {
        self.memory[self.rank][word]
    }
    fn store(&mut self, word: usize, value: u64) {
        self.memory[self.rank][word] = value;
    }
    fn put(&mut self, rank: usize, word: usize, values: &[u64]) {
        self.memory[rank][word..word + values.len()].copy_from_slice(values);
    }
    fn get(&mut self, rank: usize, word: usize, count: usize) -> Vec<u64> {
        self.memory[rank][word..word + count].to_vec()
    }
}

/// A process, which its test tells what to do when a peer is lost.
struct Live {
    process: LoggedProcess,
    rank: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum Said {
    Go { saves: bool },
    Connected,
    End,
}

impl Live {
    fn make(&self, rank: &str) {
        let ticket = self.process.ticket(rank.parse().unwrap()).unwrap();
        println!("ticket {}", hex(&ticket.to_bytes()));
    }

    /// Does what the test says until it is to go on.
    fn obey(&mut self) -> Said {
        loop {
            let line = read_line();
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "make" => self.make(rest),
                "connect" => {
                    self.process.connect(&ticket_of(rest)).unwrap();
                    return Said::Connected;
                }
                "go" => return Said::Go { saves: rest == "save" },
                _ => return Said::End,
            }
        }
    }

    fn lost(&mut self, rank: usize, error: &LoggedProcessError) {
        assert!(matches!(error, LoggedProcessError::Pagewire(_)), "process {}: {error}", self.rank);
        println!("lost {rank} {error}");
        while self.obey() != Said::Connected {}
    }
}

impl Machine for Live {
    fn load(&self, word: usize) -> u64 {
        self.process.memory().get(word).unwrap()
    }
    fn store(&mut self, word: usize, value: u64) {
        self.process.memory().set(word, value).unwrap();
    }
    fn put(&mut self, rank: usize, word: usize, values: &[u64]) {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        // It is logged, and put when the peer is there again.
        if let Err(error) = self.process.put(rank, 8 * word as u64, &bytes) {
            self.lost(rank, &error);
        }
    }
    fn get(&mut self, rank: usize, word: usize, count: usize) -> Vec<u64> {
        loop {
            match self.process.get(rank, 8 * word as u64, 8 * count) {
                Ok(bytes) => {
                    let words = bytes.chunks_exact(8);
                    return words.map(|bytes| u64::from_ne_bytes(bytes.try_into().unwrap())).collect();
                }
                Err(error) => self.lost(rank, &error),
            }
        }
    }
}

fn ticket_of(text: &str) -> Ticket {
    let digits = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..text.len() / 2).map(digits).collect();
    Ticket::from_bytes(&bytes).unwrap()
}

fn options() -> LoggedProcessOptions {
    let checkpoints = CheckpointOptions { syncs: false, ..CheckpointOptions::default() };
    LoggedProcessOptions { checkpoints, ..LoggedProcessOptions::default() }
}

fn run_process() {
    let line = read_line();
    let (rank, path) = line.split_once(' ').unwrap();
    let rank: usize = rank.parse().unwrap();
    let node = Arc::new(Node::alone().unwrap());
    let (process, note) = LoggedProcess::start(&node, (rank, SIZE), 8 * MEMORY, path, &options()).unwrap();
    let is_new = note.is_none();
    let mut live = Live { process, rank };
    println!("started {}", if is_new { "new" } else { "again" });
    // All are connected then.
    while live.obey() == Said::Connected {}
    if !is_new {
        assert_eq!(note.unwrap(), format!("at {}", live.process.epoch()).into_bytes());
        live.process.replay().unwrap();
    }
    let mut was_replaying = !is_new;
    loop {
        if was_replaying && !live.process.is_replaying() {
            was_replaying = false;
            println!("caught up");
            // A ticket for each other one, before anything else.
            (1..SIZE).for_each(|_| live.make(read_line().strip_prefix("make ").unwrap()));
        }
        let epoch = live.process.epoch();
        work(&mut live, rank, epoch);
        let mut saves = false;
        if !live.process.is_replaying() {
            println!("at {epoch}");
            loop {
                match live.obey() {
                    Said::Go { saves: all } => {
                        saves = all || (epoch + rank as u64) % 5 == 0;
                        break;
                    }
                    Said::Connected => {}
                    Said::End => {
                        let memory: Vec<u8> =
                            (0..MEMORY).flat_map(|word| live.load(word).to_le_bytes()).collect();
                        println!("memory {}", hex(&memory));
                        return;
                    }
                }
            }
        }
        live.process.next_epoch().unwrap();
        if saves {
            live.process.checkpoint(format!("at {}", live.process.epoch()).as_bytes()).unwrap();
        }
    }
}

struct World {
    processes: Vec<Other>,
    /// The epoch at whose end a process has said that it is, and that the test has not noted yet.
    at: [Option<u64>; SIZE],
    directory: tempfile::TempDir,
}

impl World {
    const TEST: &str = "a_process_that_is_killed_at_any_instant_repeats_its_work";

    fn start(&self, rank: usize, path: &str) -> Other {
        let mut process = Other::start(World::TEST, "process", path);
        let file = self.directory.path().join(format!("checkpoint.{rank}"));
        process.tell(&format!("{rank} {}", file.display()));
        process
    }

    fn others(rank: usize) -> impl Iterator<Item = usize> {
        (0..SIZE).filter(move |other| *other != rank)
    }

    /// Has a process make a ticket, and another one connect it.
    fn connect(&mut self, from: usize, to: usize) {
        self.processes[from].tell(&format!("make {to}"));
        let ticket = self.processes[from].expect("ticket");
        self.processes[to].tell(&format!("connect {ticket}"));
    }

    fn barrier(&mut self, go: &str) -> u64 {
        for (at, process) in self.at.iter_mut().zip(&mut self.processes) {
            at.get_or_insert_with(|| process.expect("at ").parse().unwrap());
        }
        let at = std::mem::take(&mut self.at);
        assert_eq!(at, [at[0]; SIZE]);
        self.processes.iter_mut().for_each(|process| process.tell(go));
        at[0].unwrap()
    }

    /// Waits until a process is at the barrier, or has noticed that another one is lost.
    fn notices(&mut self, survivor: usize) {
        while self.at[survivor].is_none() {
            let mut line = String::new();
            assert!(self.processes[survivor].says.read_line(&mut line).unwrap() > 0, "a survivor has ended");
            match line.trim().split_once(' ') {
                Some(("at", epoch)) => self.at[survivor] = Some(epoch.parse().unwrap()),
                Some(("lost", _)) => return,
                _ => {}
            }
        }
    }

    /// Kills a process, and has another one take its place.
    fn replace(&mut self, victim: usize, path: &str) {
        self.processes[victim].child.kill().unwrap();
        self.processes[victim].child.wait().unwrap();
        World::others(victim).for_each(|survivor| self.notices(survivor));
        self.at[victim] = None;
        self.processes[victim] = self.start(victim, path);
        assert_eq!(self.processes[victim].expect("started"), "again");
        World::others(victim).for_each(|survivor| self.connect(survivor, victim));
        self.processes[victim].tell("go");
        self.processes[victim].expect("caught up");
        World::others(victim).for_each(|survivor| self.connect(victim, survivor));
    }
}

/// `PAGEWIRE_REPLAY_KILLS`: how often.
#[test]
fn a_process_that_is_killed_at_any_instant_repeats_its_work() {
    if std::env::var_os(ROLE).is_some() {
        return run_process();
    }
    let kills = std::env::var("PAGEWIRE_REPLAY_KILLS").map_or(20, |kills| kills.parse().unwrap());
    let mut world =
        World { processes: Vec::new(), at: [None; SIZE], directory: tempfile::tempdir().unwrap() };
    world.processes = (0..SIZE).map(|rank| world.start(rank, "auto")).collect();
    world.processes.iter_mut().for_each(|process| assert_eq!(process.expect("started"), "new"));
    for from in 0..SIZE {
        World::others(from).for_each(|to| world.connect(from, to));
    }
    world.processes.iter_mut().for_each(|process| process.tell("go"));
    world.barrier("go save");
    let mut state = u64::from(std::process::id());
    eprintln!("seed {state}");
    let mut random = |below: u64| {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..kills {
        for _ in 0..random(7) {
            world.barrier("go");
        }
        world.barrier("go");
        std::thread::sleep(Duration::from_micros(random(1_500)));
        let victim = random(SIZE as u64) as usize;
        world.replace(victim, ["auto", "udp"][random(2) as usize]);
        // Until all have saved, another death would be one too many.
        world.barrier("go save");
        world.barrier("go");
    }
    let last = world.barrier("end");
    let mut model = vec![vec![0u64; MEMORY]; SIZE];
    for epoch in 0..=last {
        (0..SIZE).for_each(|rank| work(&mut Model { memory: &mut model, rank }, rank, epoch));
    }
    for (rank, process) in world.processes.iter_mut().enumerate() {
        let memory: Vec<u8> = model[rank].iter().flat_map(|word| word.to_le_bytes()).collect();
        assert!(process.expect("memory") == hex(&memory), "process {rank} after {last} epochs");
    }
    eprintln!("{kills} kills, {last} epochs");
}

/// What is logged, what is trimmed, and what a process that takes the place of another one gets: in one process, on each path.
#[test]
fn logs_are_trimmed_and_replayed() {
    on_each_path("logs_are_trimmed_and_replayed", || {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        let options = LoggedProcessOptions { log_bytes: 2048, ..options() };
        let node = Arc::new(Node::alone().unwrap());
        let (mut a, _) = LoggedProcess::start(&node, (0, 2), 4096, file("a"), &options).unwrap();
        let node = Arc::new(Node::alone().unwrap());
        let (mut b, _) = LoggedProcess::start(&node, (1, 2), 4096, file("b"), &options).unwrap();
        assert!(matches!(a.put(1, 0, &[1]), Err(LoggedProcessError::NotConnected { rank: 1 })));
        a.connect(&b.ticket(0).unwrap()).unwrap();
        b.connect(&a.ticket(1).unwrap()).unwrap();
        let wrong = a.connect(&a.ticket(1).unwrap()).unwrap_err();
        assert!(wrong.to_string().contains("it is for another one"), "{wrong}");
        a.checkpoint(b"begin").unwrap();
        // The logs fill up: of puts at their source, of gets by their source. A checkpoint of the target, or of the source, frees them.
        let fill =
            |a: &mut LoggedProcess| (0..).take_while(|at| a.put(1, at % 400, &[7; 100]).is_ok()).count();
        let full = fill(&mut a);
        assert!((10..16).contains(&full), "{full}");
        let error = a.put(1, 0, &[7; 100]).unwrap_err();
        assert!(error.to_string().contains("process 1 must save a checkpoint"), "{error}");
        b.checkpoint(b"").unwrap();
        assert_eq!(fill(&mut a), full);
        b.checkpoint(b"").unwrap();
        a.checkpoint(b"b").unwrap();
        b.memory().set(10, 77).unwrap();
        let gets = (0..).take_while(|_| a.get(1, 80, 8).is_ok()).count();
        assert!((30..50).contains(&gets), "{gets}");
        let error = a.get(1, 80, 8).unwrap_err();
        assert!(error.to_string().contains("process 0 must save a checkpoint"), "{error}");
        a.checkpoint(b"c").unwrap();
        assert_eq!(a.get(1, 80, 8).unwrap(), 77u64.to_ne_bytes());
        // It puts, gets, is put to, and dies.
        a.put(1, 8, &5u64.to_ne_bytes()).unwrap();
        b.put(0, 24, &6u64.to_ne_bytes()).unwrap();
        assert_eq!(a.memory().get(3).unwrap(), 6);
        drop(a);
        b.memory().set(10, 78).unwrap();
        let node = Arc::new(Node::alone().unwrap());
        let (mut a, note) = LoggedProcess::start(&node, (0, 2), 4096, file("a"), &options).unwrap();
        assert_eq!(
            (note.as_deref(), a.is_replaying(), a.memory().get(3).unwrap()),
            (Some(&b"c"[..]), true, 0)
        );
        assert!(matches!(a.get(1, 80, 8), Err(LoggedProcessError::Order(_))));
        a.connect(&b.ticket(0).unwrap()).unwrap();
        a.replay().unwrap();
        assert!(matches!(a.replay(), Err(LoggedProcessError::Order(_))));
        assert_eq!((a.is_replaying(), a.memory().get(3).unwrap()), (false, 6), "b's put is there again");
        assert!(
            matches!(a.checkpoint(b""), Err(LoggedProcessError::Order(_))),
            "it has not repeated its work"
        );
        let diverged = a.get(1, 88, 8).unwrap_err();
        assert!(
            diverged.to_string().contains("a process that is replayed must repeat its work"),
            "{diverged}"
        );
        assert_eq!(
            a.get(1, 80, 8).unwrap(),
            77u64.to_ne_bytes(),
            "what it had got, and not what is there now"
        );
        b.memory().set(1, 55).unwrap();
        a.put(1, 8, &5u64.to_ne_bytes()).unwrap();
        assert_eq!(b.memory().get(1).unwrap(), 55, "a put that had arrived is not made again");
        // From here on it is live.
        assert_eq!(a.get(1, 80, 8).unwrap(), 78u64.to_ne_bytes());
        a.put(1, 8, &9u64.to_ne_bytes()).unwrap();
        assert_eq!(b.memory().get(1).unwrap(), 9);
        a.checkpoint(b"d").unwrap();
        b.connect(&a.ticket(1).unwrap()).unwrap();
        b.put(0, 24, &8u64.to_ne_bytes()).unwrap();
        assert_eq!(a.memory().get(3).unwrap(), 8);
        assert!(Ticket::from_bytes(&[0; 3]).is_err() && Ticket::from_bytes(&[0; Ticket::LEN]).is_err());
    });
}

/// Nobody logs an atomic, nor what comes by a token of the program's own. So the process does not go on as if a replay had it.
#[test]
fn unlogged_access_is_an_error() {
    on_each_path("unlogged_access_is_an_error", || {
        let name = format!("pagewire-replay-unlogged-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let begin = |number: usize| {
            let node = Arc::new(Node::alone().unwrap());
            let path = folder.join(format!("{number}.checkpoint"));
            LoggedProcess::start(&node, (0, 2), 4096, path, &LoggedProcessOptions::default()).unwrap().0
        };
        let caller = Node::alone().unwrap();
        type Access = fn(&pagewire::RemoteRegion);
        let accesses: [(&str, Access); 3] = [
            ("an atomic", |remote| assert_eq!(remote.fetch_add(64, 5).wait().unwrap(), 0)),
            ("an atomic", |remote| assert_eq!(remote.compare_swap(64, 0, 5).wait().unwrap(), 0)),
            ("a put", |remote| drop(remote.put_value(64, 5u64).wait().unwrap())),
        ];
        for (number, (what, access)) in accesses.into_iter().enumerate() {
            let mut process = begin(number);
            let token = process.memory().export(pagewire::Rights::all()).unwrap();
            let remote = caller.open(&token).unwrap();
            // A get changes nothing.
            assert_eq!(remote.get::<u64>(64, 1).unwrap().wait().unwrap(), [0]);
            process.next_epoch().unwrap();
            access(&remote);
            let error = process.next_epoch().unwrap_err();
            assert!(matches!(error, LoggedProcessError::Unlogged { rank: 0, offset: 64, .. }), "{error}");
            assert!(error.to_string().starts_with(what), "{error}");
            assert!(matches!(process.checkpoint(b""), Err(LoggedProcessError::Unlogged { .. })));
            assert!(matches!(process.put(1, 0, &[1]), Err(LoggedProcessError::Unlogged { .. })));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
