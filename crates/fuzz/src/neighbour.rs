//! A neighbour on the local path that is hostile, or dies: whatever it writes to the memory that it shares with a victim, and
//! wherever it ends, the victim neither panics nor spins, nothing but what it opened to the neighbour changes, its other
//! connections go on, and with the neighbour's end everything ends.
//!
//! Three processes of one host run the NIC. The neighbour's engine works too; between its steps the input changes words of its
//! channel with the victim (both directions, rings and hazards), of its own tables, and of the victim's mailbox, or puts
//! records into the ring that no engine writes.

mod party;

use arbitrary::{Result, Unstructured};
use pagewire_fabric::{ChannelEnd, Fabric};
use pagewire_iommu::layout::{BLOCKS, MAGIC_WORD, QUEUE_PAIRS, REGIONS, SECRET_WORD};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_nic::Status;
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::path::ring::{DIRECTION_WORDS, HAZARD_SLOTS, HAZARDS, RING_ACKS, emit_reference};
use pagewire_sim::{CrashPoint, LinkFaults, SimWords, World};
use pagewire_transport::RemoteAddress;
use pagewire_wire::{Bth, Deth, Extensions, Feth, Opcode, PacketHeader, Reth};
use party::{AREA, Area, FuzzProcess, PAGES, QUEUE_KEY, Wish};

/// What no engine writes.
const SCRIBBLE: Site = Site("fuzz.scribble");
/// Rounds in which an engine has nothing left to do at one time.
const ROUNDS: u32 = 20_000;
/// Nanoseconds in which everything ends once the neighbour has: the notice of its death, and time-outs.
const NOTICE: u64 = 5_000_000_000;
/// The word in which a ring's reader tells where it is.
const HEAD_WORD: usize = 8;
/// First ring areas.
const RINGS: [RingArea; 2] = [RingArea { offset: 64, size: 448 }, RingArea { offset: 512, size: 8192 }];
/// Words that are no records.
const WRAP: u8 = 14;
const GROW: u8 = 15;
const POSITION_BITS: u32 = 56;
/// Bytes of the transfers between the victim and its other peer.
const HONEST: u32 = 3000;

/// What the input decides about: the three processes.
struct Neighbourhood {
    world: World,
    victim: FuzzProcess,
    neighbour: FuzzProcess,
    bystander: FuzzProcess,
    /// Words that the neighbour may write, once it has a channel with the victim: those of the channel, with the side that
    /// it holds, and the victim's mailbox.
    channel: Option<(SimWords, ChannelEnd, SimWords)>,
    /// The words of that channel as the victim holds them.
    victims_words: Option<SimWords>,
    packets: u64,
    honest: u8,
}

/// Queue pairs of the victim and of the neighbour: two RC, UC and UD; the last of the victim is the bystander's.
const SHARED: usize = 4;
const TO_BYSTANDER: usize = SHARED;

/// One input; gives how many packets were put into rings.
pub fn run(bytes: &[u8]) -> u64 {
    let mut all = Neighbourhood::new();
    // The input is over: a run like any other.
    let _ = all.interpret(&mut Unstructured::new(bytes));
    all.end()
}

impl Neighbourhood {
    fn new() -> Self {
        use QueuePairType::{Rc, Uc, Ud};
        let world = World::new(1, LinkFaults::NONE);
        let host = world.host();
        let mut parties = [(); 3].map(|()| FuzzProcess::new(&world, host));
        for kind in [Rc, Rc, Uc, Ud] {
            parties[0].queue_pair(kind, 0);
            parties[1].queue_pair(kind, 0);
        }
        parties[0].queue_pair(Rc, 1);
        parties[2].queue_pair(Rc, 1);
        let [victim, neighbour, bystander] = parties;
        for index in 0..SHARED {
            connect(&victim, index, &neighbour, index);
        }
        connect(&victim, TO_BYSTANDER, &bystander, 0);
        let mut all = Neighbourhood {
            world,
            victim,
            neighbour,
            bystander,
            channel: None,
            victims_words: None,
            packets: 0,
            honest: 0,
        };
        all.run_for(1_000_000);
        let channel = |of: &FuzzProcess, to: &FuzzProcess| {
            all.world.channels(of.process).into_iter().find(|(peer, _)| *peer == to.process)
        };
        let own = channel(&all.neighbour, &all.victim);
        let theirs = channel(&all.victim, &all.neighbour);
        all.channel = own.map(|(_, channel)| (channel.words, channel.side, channel.mailbox));
        all.victims_words = theirs.map(|(_, channel)| channel.words);
        assert!(all.channel.is_some(), "victim and neighbour are connected");
        all
    }

    fn interpret(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        while !input.is_empty() {
            let index = input.choose_index(SHARED)?;
            match input.int_in_range(0..=31u8)? {
                0..=9 => {
                    for _ in 0..input.int_in_range(1..=8)? {
                        self.scribble(input)?;
                    }
                }
                10..=17 => {
                    for _ in 0..input.int_in_range(1..=8)? {
                        self.record(input)?;
                    }
                }
                18..=19 => {
                    let wish = wish(input, &self.victim)?;
                    let number = self.victim.queue_pairs[index].number();
                    self.neighbour.send(index, &wish, number);
                }
                20..=21 => {
                    let wish = wish(input, &self.neighbour)?;
                    let number = self.neighbour.queue_pairs[index].number();
                    self.victim.send(index, &wish, number);
                }
                22..=23 => {
                    let length = input.int_in_range(0..=9000)?;
                    let offset = input.int_in_range(0..=AREA - 9000)?;
                    self.victim.receive(index, (Area::BuffersOfOne, offset, length));
                    self.neighbour.receive(index, (Area::BuffersOfOne, offset, length));
                }
                24 => self.run_for(u64::from(input.arbitrary::<u32>()?)),
                25 => self.transfer(),
                26 => self.reopen(),
                27 => {
                    self.victim.reset(index);
                    connect_one(&self.victim, index, &self.neighbour, index);
                }
                28 if self.world.get(self.neighbour.process).is_alive() => {
                    self.neighbour.reset(index);
                    connect_one(&self.neighbour, index, &self.victim, index);
                }
                29 => {
                    let process = self.world.get(self.neighbour.process);
                    let store = process.stores() + input.int_in_range(1..=400)?;
                    process.crash_at(CrashPoint::Store(store));
                }
                30 => {
                    let (page, pages) = (input.int_in_range(0..=PAGES - 1)?, input.int_in_range(1..=8u64)?);
                    let party = if input.arbitrary()? { &self.victim } else { &self.neighbour };
                    party.evict(page, pages.min(PAGES - page));
                }
                _ => {
                    let page = input.int_in_range(0..=PAGES - 1)?;
                    self.neighbour.unmap(page);
                }
            }
            if input.arbitrary()? {
                self.run_for(0);
            }
        }
        Ok(())
    }

    /// The victim ends a region: when that has succeeded, nothing of the neighbour's comes into it any more.
    fn reopen(&mut self) {
        if !self.victim.deregister(Area::OpenToOne) {
            return;
        }
        let then = self.victim.bytes(Area::OpenToOne);
        self.run_for(100_000);
        assert!(then == self.victim.bytes(Area::OpenToOne), "a write came after the end of its region");
        self.victim.register(Area::OpenToOne);
    }

    /// Victim and bystander write to each other as if nothing were.
    fn transfer(&mut self) {
        self.honest = self.honest.wrapping_add(1) | 1;
        let data = [self.honest; HONEST as usize];
        let local = (Area::BuffersOfOther, 0, HONEST);
        let to = |party: &FuzzProcess| (Area::OpenToOther.address(), party.keys[Area::OpenToOther as usize]);
        let (at_victim, at_bystander) = (to(&self.victim), to(&self.bystander));
        self.victim.fill(Area::BuffersOfOther, &data);
        self.bystander.fill(Area::BuffersOfOther, &data);
        let sent = [
            self.victim.send(TO_BYSTANDER, &Wish { operation: 3, local, remote: at_bystander }, 0),
            self.bystander.send(0, &Wish { operation: 3, local, remote: at_victim }, 0),
        ];
        let [Some(one), Some(two)] = sent else { panic!("the honest queue pairs take no requests") };
        let until = self.world.now() + NOTICE;
        while self.world.now() < until
            && !(self.victim.ended.contains_key(&one) && self.bystander.ended.contains_key(&two))
        {
            self.run_for(1_000_000);
        }
        assert_eq!(self.victim.ended.get(&one), Some(&Status::Success), "the victim's other connection");
        assert_eq!(self.bystander.ended.get(&two), Some(&Status::Success), "to the victim");
        for party in [&self.victim, &self.bystander] {
            let bytes = party.bytes(Area::OpenToOther);
            assert!(bytes[..HONEST as usize] == data, "what the other connection wrote");
        }
        self.victim.ended.clear();
        self.bystander.ended.clear();
        self.neighbour.ended.clear();
    }

    /// Everybody does all there is to do, while `time` nanoseconds pass.
    fn run_for(&mut self, time: u64) {
        let until = self.world.now() + time;
        let mut rounds = 0;
        loop {
            // Every look at the clock lets time pass: what is due by then was not due in this round.
            let begun = self.world.now();
            let mut due = u64::MAX;
            if self.world.get(self.neighbour.process).is_alive() {
                // What it does to itself is its own affair.
                self.neighbour.nic.progress();
                self.neighbour.poll();
            }
            for party in [&mut self.victim, &mut self.bystander] {
                due = due.min(party.nic.progress().unwrap_or(u64::MAX));
                party.poll();
            }
            if due > begun {
                if self.world.now() >= until {
                    return;
                }
                self.world.advance(Some(due.min(until)));
                rounds = 0;
            }
            rounds += 1;
            assert!(rounds < ROUNDS, "an engine does not come to an end");
        }
    }

    /// The neighbour changes one word.
    fn scribble(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let Some((words, side, mailbox)) = self.channel.clone() else { return Ok(()) };
        let tables = self.neighbour.nic.fabric().tables().clone();
        let (own, theirs) = directions(side);
        let direction = if input.ratio(3, 4)? { own } else { theirs };
        let (words, index) = match input.int_in_range(0..=15u8)? {
            // Where its reader is, and its verdicts.
            0 => (words, direction + HEAD_WORD),
            1..=2 => (words, direction + RING_ACKS + input.choose_index(2)?),
            3..=4 => (words, direction + HAZARDS + input.choose_index(HAZARD_SLOTS)?),
            5..=7 => {
                // Near what is written and read now.
                let (ring, end) = end_of_ring(&words, direction);
                let near = end.wrapping_add_signed(input.int_in_range(-40..=8)?) % ring.size;
                (words, direction + ring.offset + near)
            }
            8 => (words, direction + input.choose_index(DIRECTION_WORDS)?),
            9 => (mailbox.clone(), input.choose_index(mailbox.len())?),
            10..=11 => (tables, REGIONS + input.choose_index(8 * 8)?),
            12..=13 => (tables, QUEUE_PAIRS + input.choose_index(8 * 8)?),
            14 => (tables, BLOCKS + input.choose_index(4)?),
            _ => (tables, if input.arbitrary()? { SECRET_WORD } else { MAGIC_WORD }),
        };
        let now = words.load(index);
        let value = match input.int_in_range(0..=8u8)? {
            0 => input.arbitrary()?,
            1 => u64::MAX,
            2 => 0,
            3 => now ^ 1 << input.int_in_range(0..=63)?,
            4 => now.wrapping_add_signed(input.int_in_range(-9..=9)?),
            5 => record_word(input.int_in_range(0..=15)?, input.arbitrary()?, input.arbitrary()?),
            6 => record_word(
                input.int_in_range(0..=3)?,
                input.int_in_range(0..=80)?,
                input.int_in_range(0..=4096)?,
            ),
            7 => u64::from(input.arbitrary::<u8>()?),
            // A hazard, of regions and queue pairs that exist.
            _ => input.int_in_range(0..=6u64)? | input.int_in_range(0..=6u64)? << 32,
        };
        words.store(SCRIBBLE, index, value);
        Ok(())
    }

    /// The neighbour puts a record into the ring to the victim.
    fn record(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let Some((words, side, _)) = self.channel.clone() else { return Ok(()) };
        let (base, _) = directions(side);
        let (RingArea { offset, size }, end) = end_of_ring(&words, base);
        let kind = input.int_in_range(1..=4u8)?;
        let mut headers = [0; 128];
        let mut length = if kind == 3 { 40 } else { 0 };
        let header = packet(input, &self.victim)?;
        if kind == 4 {
            let first = u64::from(header.bth.destination) & 0xFF_FFFF
                | u64::from(header.bth.psn & 0xFF_FFFF) << 24
                | u64::from(header.bth.partition) << 48;
            headers[..8].copy_from_slice(&first.to_ne_bytes());
            headers[8..16].copy_from_slice(&input.arbitrary::<u64>()?.to_ne_bytes());
            length = input.int_in_range(0..=24)?;
            if input.ratio(3, 4)? {
                length = 8 + length / 13 * 8;
            }
        } else {
            length += header.emit(&mut headers[length..]);
        }
        let payload = if kind == 2 {
            let mut pieces = Vec::new();
            for _ in 0..input.int_in_range(0..=5)? {
                pieces.extend_from_slice(&piece(input, &self.neighbour)?);
            }
            pieces
        } else {
            vec![0x5C; input.int_in_range(0..=1200)?]
        };
        let need = 1 + length.div_ceil(8) + payload.len().div_ceil(8);
        if need > size {
            return Ok(());
        }
        let mut place = end;
        if place + need > size {
            words.store(SCRIBBLE, base + offset + place, u64::from(WRAP));
            place = 0;
        }
        let at = base + offset + place;
        words.write_bytes(SCRIBBLE, at + 1, &headers[..length]);
        words.write_bytes(SCRIBBLE, at + 1 + length.div_ceil(8), &payload);
        if input.ratio(7, 8)? {
            words.store(SCRIBBLE, base + offset + (place + need) % size, 0);
        }
        let judged = if input.arbitrary()? { 0x80 } else { 0 };
        words.store(SCRIBBLE, at, record_word(kind | judged, length as u8, payload.len() as u32));
        self.packets += 1;
        Ok(())
    }

    /// The neighbour ends: so does everything with it, and nothing else.
    fn end(mut self) -> u64 {
        self.world.kill(self.neighbour.process);
        let until = self.world.now() + NOTICE;
        while self.world.now() < until && (0..SHARED).any(|index| self.victim.sends(index) > 0) {
            self.run_for(10_000_000);
        }
        self.run_for(10_000_000);
        for index in 0..SHARED {
            assert_eq!(
                self.victim.sends(index),
                0,
                "requests to a dead process do not end: queue pair {index}"
            );
        }
        self.transfer();
        for party in [&self.victim, &self.bystander] {
            party.check_surroundings();
            let other = party.bytes(Area::OpenToOther);
            assert!(other[HONEST as usize..].iter().all(|byte| *byte == 0xEE), "not opened to the neighbour");
            let buffers = party.bytes(Area::BuffersOfOther);
            assert!(buffers[HONEST as usize..].iter().all(|byte| *byte == 0xEE), "not its buffers");
        }
        for area in [Area::OpenToOne, Area::BuffersOfOne] {
            assert!(self.bystander.bytes(area).iter().all(|byte| *byte == 0xEE), "the bystander's {area:?}");
        }
        self.victim.end();
        self.bystander.end();
        if let Some(words) = self.victims_words.take() {
            for slot in 0..HAZARD_SLOTS {
                words.store(SCRIBBLE, HAZARDS + slot, 0);
                words.store(SCRIBBLE, DIRECTION_WORDS + HAZARDS + slot, 0);
            }
        }
        self.neighbour.bury();
        self.packets
    }
}

/// One area of a ring: its first word in the direction, and how many it has.
#[derive(Clone, Copy)]
struct RingArea {
    offset: usize,
    size: usize,
}

/// The area that is in use of the ring in a direction, and the place where its next record is to be: behind what lies there from
/// where the reader last told to be.
fn end_of_ring(words: &SimWords, direction: usize) -> (RingArea, usize) {
    let head = words.load(direction + HEAD_WORD);
    let mut area = (head >> POSITION_BITS) as usize % RINGS.len();
    let mut place = head as usize % RINGS[area].size;
    for _ in 0..RINGS[area].size {
        let ring = RINGS[area];
        let word = words.load(direction + ring.offset + place);
        let (header, payload) = ((word >> 8) as u8, (word >> 32) as usize);
        match word as u8 & 0x7F {
            0 => break,
            WRAP => place = 0,
            GROW if area + 1 < RINGS.len() => (area, place) = (area + 1, 0),
            _ => place = (place + 1 + usize::from(header).div_ceil(8) + payload.div_ceil(8)) % ring.size,
        }
    }
    (RINGS[area], place)
}

/// Where the words of the own direction begin, and of the other.
fn directions(side: ChannelEnd) -> (usize, usize) {
    match side {
        ChannelEnd::Opened => (0, DIRECTION_WORDS),
        ChannelEnd::Accepted => (DIRECTION_WORDS, 0),
    }
}

fn record_word(kind: u8, header: u8, payload: u32) -> u64 {
    u64::from(kind) | u64::from(header) << 8 | u64::from(payload) << 32
}

fn connect(one: &FuzzProcess, own: usize, other: &FuzzProcess, theirs: usize) {
    connect_one(one, own, other, theirs);
    connect_one(other, theirs, one, own);
}

fn connect_one(one: &FuzzProcess, own: usize, other: &FuzzProcess, theirs: usize) {
    one.connect(own, other.process, other.queue_pairs[theirs].number());
}

/// A send request to a process: mostly one that it permits.
fn wish(input: &mut Unstructured<'_>, to: &FuzzProcess) -> Result<Wish> {
    let length = input.int_in_range(0..=9000u32)?;
    let offset = input.int_in_range(0..=AREA - 9000)?;
    let area = Area::ALL[input.int_in_range(0..=7usize)?.saturating_sub(4)];
    let mut address = Area::OpenToOne.address() + input.int_in_range(0..=(AREA - 9000) / 8)? * 8;
    if input.ratio(1, 16)? {
        address = area.address().wrapping_add_signed(input.int_in_range(-64..=AREA as i64)?);
    }
    let operation = input.arbitrary()?;
    Ok(Wish {
        operation,
        local: (Area::BuffersOfOne, offset, length),
        remote: (address, to.keys[area as usize]),
    })
}

/// Headers of a packet to the victim.
fn packet(input: &mut Unstructured<'_>, victim: &FuzzProcess) -> Result<PacketHeader> {
    let index = input.choose_index(victim.queue_pairs.len())?;
    let service = [0x00, 0x00, 0x20, 0x60, 0x00][index];
    let opcode = if input.ratio(7, 8)? {
        Opcode(service | input.int_in_range(0..=0x1D)?)
    } else {
        Opcode(input.arbitrary()?)
    };
    let opcode = if opcode.extensions().is_some() { opcode } else { Opcode(service | 4) };
    let extensions = opcode.extensions().unwrap_or(Extensions::empty());
    let mut header = PacketHeader::new(Bth {
        acknowledge: input.arbitrary()?,
        ..Bth::new(
            opcode,
            victim.queue_pairs[index].number(),
            0xFF_FFF0u32.wrapping_add_signed(input.int_in_range(-4..=40)?) & 0xFF_FFFF,
        )
    });
    let area = Area::ALL[input.choose_index(4)?];
    let key = victim.keys[area as usize];
    let near = area.address().wrapping_add_signed(input.int_in_range(-64..=AREA as i64)?);
    let address = if input.ratio(7, 8)? { near } else { input.arbitrary()? };
    if extensions.contains(Extensions::XRCETH) {
        header.xrc = Some(0);
    }
    if extensions.contains(Extensions::FETH) {
        let (placement, selectivity) = (input.int_in_range(0..=3u8)?, input.int_in_range(0..=1u8)?);
        header.flush = Some(Feth { placement, selectivity });
    }
    if extensions.contains(Extensions::DETH) {
        header.deth = Some(Deth { queue_key: QUEUE_KEY, source: 1 });
    }
    if extensions.contains(Extensions::RETH) {
        let length = if input.ratio(7, 8)? { input.int_in_range(0..=9000)? } else { input.arbitrary()? };
        header.reth = Some(Reth { address, key, length });
    }
    if extensions.contains(Extensions::ATOMIC_ETH) {
        let atomic = pagewire_wire::AtomicEth { address, key, swap_or_add: 1, compare: 0 };
        header.atomic = Some(atomic);
    }
    if extensions.contains(Extensions::AETH) {
        let syndrome = pagewire_wire::Syndrome::from_byte(input.arbitrary()?);
        header.aeth = Some(pagewire_wire::Aeth { syndrome, message: 0 });
    }
    if extensions.contains(Extensions::ATOMIC_ACK_ETH) {
        header.atomic_ack = Some(1);
    }
    if extensions.contains(Extensions::IMM_DT) {
        header.immediate = Some(3);
    }
    if extensions.contains(Extensions::IETH) {
        header.invalidate = Some(key);
    }
    Ok(header)
}

/// A piece of the neighbour's memory, or what it says is one.
fn piece(input: &mut Unstructured<'_>, neighbour: &FuzzProcess) -> Result<[u8; 16]> {
    let area = Area::ALL[input.choose_index(4)?];
    let key = if input.ratio(7, 8)? { neighbour.keys[area as usize] } else { input.arbitrary()? };
    let address = if input.ratio(7, 8)? {
        area.address().wrapping_add_signed(input.int_in_range(-64..=AREA as i64)?)
    } else {
        input.arbitrary()?
    };
    let length = match input.int_in_range(0..=7u8)? {
        0 => input.arbitrary()?,
        1 => u32::MAX,
        2 => 0,
        _ => input.int_in_range(0..=5000)?,
    };
    Ok(emit_reference(RemoteAddress { address, key }, length))
}
