//! Another process writes random words to all that it shares with this one: its peer's other connections go on, nothing that was
//! not opened to it changes, and with its death everything ends.

use crate::support::*;
use pagewire_fabric::{Fabric, FabricEvent, HostFabric};
use pagewire_iommu::layout::{BLOCKS, MAGIC, MAGIC_WORD, QUEUE_PAIRS, REGIONS};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_nic::attributes::{QpState, QueuePairChange, QueuePairType};
use pagewire_nic::path::ring::{DIRECTION_WORDS, HAZARD_SLOTS, HAZARDS};
use pagewire_nic::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

const SCRIBBLE: Site = Site("test.scribble");
const SEED: &str = "PAGEWIRE_TEST_SEED";
/// Rounds of honest traffic meanwhile.
const ROUNDS: u64 = 300;
const MESSAGE: usize = 4096;
/// Words that are changed between two looks at who has connected.
const SCRIBBLES: usize = 64;
/// Bytes around a buffer that nobody may touch.
const GUARD: usize = 4096;

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// A ring whose rules are broken is left alone, and with it all the rest: every other process breaks none.
fn breaks_rings(seed: u64) -> bool {
    seed % 2 == 0
}

/// The process that scribbles until it is killed; not a test by itself.
#[test]
#[ignore = "run by the test of this file as a process of its own"]
fn scribbler() {
    let seed = std::env::var(SEED).expect("started by the test of this file");
    let mut random = Random(seed.parse().unwrap());
    let rings = breaks_rings(random.0);
    let fabric = HostFabric::new().unwrap();
    // The least that makes an engine's tables of it.
    fabric.tables().store(SCRIBBLE, MAGIC_WORD, MAGIC);
    let block = fabric.lease_block().unwrap();
    fabric.tables().store(SCRIBBLE, BLOCKS, u64::from(block) + 1);
    println!("\nBLOCK {block}");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    fabric.connect(line.trim().parse().unwrap());
    let start = Instant::now();
    let (mut channels, mut events) = (Vec::new(), Vec::new());
    // The other process ends this one; should it be gone, time does.
    while start.elapsed() < PATIENCE * 4 {
        fabric.events(&mut events);
        for event in events.drain(..) {
            if let FabricEvent::Connected { channel, .. } | FabricEvent::Accepted { channel } = event {
                channels.push(channel);
                println!("\nCONNECTED");
            }
        }
        for _ in 0..SCRIBBLES {
            let Some(channel) = channels.get(random.below(channels.len().max(1))) else { break };
            scribble(&fabric, &channel.words, &channel.mailbox, rings, &mut random);
        }
    }
}

fn scribble(
    fabric: &HostFabric,
    words: &pagewire_fabric::MappedWords,
    mailbox: &pagewire_fabric::MappedWords,
    rings: bool,
    random: &mut Random,
) {
    let tables = fabric.tables();
    let direction = random.below(2) * DIRECTION_WORDS;
    let first = if rings { 0 } else { 9 };
    let (words, index) = match first + random.below(16 - first) {
        0 | 1 => (words, direction),
        2 => (words, direction + 8),
        3..=7 => (words, direction + 64 + random.below(448)),
        8 => (words, direction + random.below(DIRECTION_WORDS)),
        9 => (words, direction + HAZARDS + random.below(HAZARD_SLOTS)),
        10 => (mailbox, random.below(mailbox.len())),
        11 | 12 => (tables, REGIONS + random.below(256)),
        13 | 14 => (tables, QUEUE_PAIRS + random.below(256)),
        _ => (tables, BLOCKS + 1 + random.below(4)),
    };
    let now = words.load(index);
    let value = match random.below(6) {
        0 => random.next(),
        1 => 0,
        2 => now.wrapping_add(random.next() % 17).wrapping_sub(8),
        3 => now ^ (1 << random.below(64)),
        // A record's first word, or a small number.
        4 => (random.next() % 16) | (random.next() % 64) << 8 | (random.next() % 4096) << 32,
        _ => random.next() % 64,
    };
    words.store(SCRIBBLE, index, value);
}

struct Scribbler {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Scribbler {
    fn start(seed: u64) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["scribbler::scribbler", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(SEED, seed.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Scribbler { process, output }
    }

    /// The rest of the line with a keyword, once it comes.
    fn line(&mut self, keyword: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended before {keyword}");
            if let Some(rest) = line.strip_prefix(keyword) {
                return rest.trim().to_owned();
            }
        }
    }
}

impl Drop for Scribbler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A buffer between bytes that nobody may touch.
struct Guarded {
    buffer: Buffer,
}

impl Guarded {
    fn new(side: &Side) -> Self {
        let bytes = Box::leak(vec![0xEE; 2 * GUARD + MESSAGE].into_boxed_slice());
        let address = bytes.as_mut_ptr() as u64 + GUARD as u64;
        let region = side.domain.register(address, MESSAGE as u64, address, all_rights()).unwrap();
        Guarded { buffer: Buffer { bytes, address, region } }
    }

    fn check(&self) {
        let bytes = &self.buffer.bytes;
        let (front, rest) = bytes.split_at(GUARD);
        assert!(front.iter().chain(&rest[MESSAGE..]).all(|byte| *byte == 0xEE), "a write outside a region");
    }
}

fn write(
    queue_pair: &Arc<QueuePair<HostFabric>>,
    wr_id: u64,
    from: &Buffer,
    (address, key): (u64, u32),
) -> Result<()> {
    queue_pair.post_send(&SendRequest {
        wr_id,
        data: Data::Segments(&[from.piece(0, MESSAGE as u32)]),
        operation: SendOperation::Write { address, key },
        signaled: true,
        fence: false,
        solicited: false,
        destination: None,
    })?;
    Ok(())
}

fn endures(seed: u64) {
    println!("seed {seed}");
    let mut scribbler = Scribbler::start(seed);
    let block: u32 = scribbler.line("BLOCK").parse().unwrap();
    let mut pair = Pair::new(PathChoice::Local, QueuePairType::Rc, all_rights());
    let doomed = pair.a.queue_pair(QueuePairType::Rc, all_rights());
    let open = Guarded::new(&pair.a);
    let source = pair.a.buffer(MESSAGE, all_rights());
    let target = pair.b.buffer(MESSAGE, all_rights());
    writeln!(scribbler.process.stdin.as_mut().unwrap(), "{}", doomed.number() / 256).unwrap();
    let start = Instant::now();
    let (mut posted, mut shared) = (0, false);
    // Where rings are scribbled over, the channel may be broken before it was ever used.
    let rings = breaks_rings(seed);
    let mut round = 0;
    while round < ROUNDS || !(shared || rings) {
        if round == 1 {
            scribbler.line("CONNECTED");
        }
        if doomed.state() != QpState::ReadyToSend {
            let reset = QueuePairChange { state: Some(QpState::Reset), ..Default::default() };
            // Busy, if a word says that somebody is at its memory: the state has changed all the same.
            let _ = doomed.modify(&reset);
            assert_eq!(doomed.state(), QpState::Reset);
            to_init(&doomed, all_rights());
            to_rtr(&pair.a, &doomed, block << 8);
            to_rts(&doomed, Timers { timeout: 8, retry_count: 1, rnr_retry: 0 });
        }
        match write(&doomed, 1000 + round, &open.buffer, (0x1000, round as u32)) {
            Ok(()) => posted += 1,
            // Nobody answers, so that the queue fills up until the retries are used up.
            Err(Error::NoMemory(_)) => {}
            Err(error) => panic!("seed {seed}: {error}"),
        }
        doomed.doorbell();
        source.bytes.fill((round % 251) as u8 + 1);
        write(&pair.qa, round, &source, (target.address, target.region.rkey())).unwrap();
        pair.qa.doorbell();
        let done = Done { wr_id: round, status: Status::Success };
        while !pair.sent.contains(&done) {
            assert!(start.elapsed() < PATIENCE * 3, "seed {seed}: the honest connection stands still");
            pair.turn();
        }
        assert!(
            target.bytes.iter().all(|byte| *byte == (round % 251) as u8 + 1),
            "seed {seed}: round {round}"
        );
        open.check();
        let report = pagewire_nic::ConnectionReport::of_all(&pair.a.nic)
            .into_iter()
            .find(|report| report.number == doomed.number());
        shared |= report.is_some_and(|report| report.path == "local");
        round += 1;
    }
    scribbler.process.kill().unwrap();
    scribbler.process.wait().unwrap();
    // What was posted and neither polled nor forgotten by a RESET ends with the peer.
    let error = QueuePairChange { state: Some(QpState::Error), ..Default::default() };
    while doomed.modify(&error).is_err() {
        assert!(start.elapsed() < PATIENCE * 3, "seed {seed}: a dead process holds on to a queue pair");
        pair.turn();
    }
    pair.turn();
    let ended = pair.sent.iter().filter(|done| done.wr_id >= 1000).count();
    assert!(0 < ended && ended <= posted, "seed {seed}: {ended} of {posted}");
    open.buffer.region.deregister().unwrap();
    doomed.destroy().unwrap();
    open.check();
}

/// Others with `PAGEWIRE_FUZZ_SEED`.
#[test]
fn a_process_that_scribbles_over_shared_memory_harms_only_its_own_channel() {
    let first = match std::env::var("PAGEWIRE_FUZZ_SEED") {
        Ok(seed) => seed.parse().expect("PAGEWIRE_FUZZ_SEED is a number"),
        Err(_) => 1u64,
    };
    for seed in first..first + 4 {
        endures(seed);
    }
}
