//! Sequences of packets that are nearly right, to a whole host.
//!
//! The attacker knows the protocol: it follows messages, PSNs and what the host under attack sends, so that its packets get
//! far, and then it changes the opcode, the PSN, the key, the length, the syndrome, the address that it sends from.

use crate::host::{AttackedHost, Heard, MTU, ProgramWish, QUEUE_KEY, TestRegion};
use arbitrary::{Result, Unstructured};
use pagewire_nic::attributes::QueuePairType;
use pagewire_wire::{
    Aeth, AtomicEth, Bth, Capabilities, Deth, Extensions, Feth, Hello, Hold, HoldFlags, Opcode, PacketHeader,
    PacketOperation, Resume, Reth, SelectiveAck, Skip, Syndrome, VendorPacket, packet,
};
use std::collections::VecDeque;
use std::net::IpAddr;

const PSN_MASK: u32 = 0xFF_FFFF;
/// Packets that may be sent once more.
const HISTORY: usize = 32;
/// Requests of the host that are remembered for an answer.
const REQUESTS: usize = 64;
/// What payloads are made of: not what secrets are.
const PAYLOAD: [u8; 2048] = [0x5C; 2048];
/// Bytes of the longest payload, a little more than any MTU here.
const LONGEST: usize = 1100;

/// A request of the host under attack that waits for its answer.
struct PendingRequest {
    psn: u32,
    operation: PacketOperation,
    /// Bytes that a READ asks for.
    length: u32,
    /// Of these, answered.
    answered: u32,
}

/// What the attacker knows of one queue pair.
struct KnownQueuePair {
    number: u32,
    kind: QueuePairType,
    /// PSN that the queue pair expects of its peer.
    expected: u32,
    /// The message under way to it: whether a WRITE, and the bytes that are left.
    message: Option<(bool, u32)>,
    requests: VecDeque<PendingRequest>,
    /// PSN of the queue pair's newest request.
    newest: u32,
}

/// The attacker.
struct Attacker {
    known: Vec<KnownQueuePair>,
    history: VecDeque<(IpAddr, Vec<u8>)>,
}

/// One input; gives how many packets it held.
pub fn run(bytes: &[u8]) -> u64 {
    let mut host = AttackedHost::new();
    let mut attacker = Attacker::new(&host);
    // The input is over: a run like any other.
    let _ = attacker.interpret(&mut Unstructured::new(bytes), &mut host);
    let packets = host.packets;
    host.end();
    packets
}

impl Attacker {
    fn new(host: &AttackedHost) -> Self {
        let known = host.program.ends.iter().map(|end| KnownQueuePair {
            number: end.queue_pair.number(),
            kind: end.kind,
            expected: end.first_psn,
            message: None,
            requests: VecDeque::new(),
            newest: end.first_psn,
        });
        Attacker { known: known.collect(), history: VecDeque::new() }
    }

    fn interpret(&mut self, input: &mut Unstructured<'_>, host: &mut AttackedHost) -> Result<()> {
        while !input.is_empty() {
            for _ in 0..input.int_in_range(1..=12)? {
                self.packet(input, host)?;
            }
            host.run_for(0);
            for heard in std::mem::take(&mut host.heard) {
                self.learn(host, &heard);
            }
            self.program(input, host)?;
        }
        Ok(())
    }

    /// The program under attack goes on meanwhile.
    fn program(&mut self, input: &mut Unstructured<'_>, host: &mut AttackedHost) -> Result<()> {
        let end = input.choose_index(self.known.len())?;
        match input.int_in_range(0..=31u8)? {
            0..=5 => {
                for _ in 0..input.int_in_range(1..=6)? {
                    host.program.post_receive(end, input.int_in_range(0..=1024)?, &mut host.memory);
                }
            }
            6..=10 => {
                let (address, key) = remote(input, host)?;
                let wish = ProgramWish {
                    end,
                    operation: input.arbitrary()?,
                    length: input.int_in_range(0..=1024)?,
                    address,
                    key,
                };
                host.post_send(&wish);
            }
            11 => host.run_for(u64::from(input.arbitrary::<u32>()?)),
            12..=13 => host.run_for(u64::from(input.arbitrary::<u16>()?)),
            14 => {
                let target = input.choose_index(host.memory.targets.len() - 1)?;
                host.memory.replace(target);
            }
            15 => host.memory.evict(input.arbitrary::<u8>()?.into(), input.int_in_range(1..=20)?),
            16 => {
                let flush = input.arbitrary()?;
                host.program.revive(end, flush, &mut host.memory);
                self.forget(end, host);
            }
            17..=24 => {
                let fallen: Vec<usize> =
                    (0..self.known.len()).filter(|index| host.program.ends[*index].is_fallen()).collect();
                host.revive_fallen(input.arbitrary()?);
                fallen.into_iter().for_each(|index| self.forget(index, host));
            }
            25 => host.memory.check(),
            _ => {}
        }
        Ok(())
    }

    /// A connection begins anew.
    fn forget(&mut self, index: usize, host: &AttackedHost) {
        let first = host.program.ends[index].first_psn;
        let known = &mut self.known[index];
        (known.expected, known.newest, known.message) = (first, first, None);
        known.requests.clear();
    }

    /// What the host sent tells where its connections stand.
    fn learn(&mut self, host: &AttackedHost, heard: &Heard) {
        let header = &heard.header;
        let ends = &host.program.ends;
        let Some(index) = ends.iter().position(|end| end.peer == header.bth.destination) else { return };
        let known = &mut self.known[index];
        let psn = header.bth.psn;
        match header.bth.opcode.operation() {
            Some(PacketOperation::Acknowledge) => {
                if let Some(Aeth { syndrome: Syndrome::Nak(_) | Syndrome::ReceiverNotReady { .. }, .. }) =
                    header.aeth
                {
                    known.expected = psn;
                    known.message = None;
                }
            }
            Some(
                operation @ (PacketOperation::ReadRequest
                | PacketOperation::CompareSwap
                | PacketOperation::FetchAdd
                | PacketOperation::AtomicWrite
                | PacketOperation::Flush
                | PacketOperation::SendLast
                | PacketOperation::SendOnly
                | PacketOperation::WriteLast
                | PacketOperation::WriteOnly),
            ) => {
                known.newest = psn;
                if known.requests.len() < REQUESTS {
                    let length = header.reth.map_or(0, |reth| reth.length);
                    known.requests.push_back(PendingRequest { psn, operation, length, answered: 0 });
                }
            }
            Some(_) | None => {
                if heard.payload > 0 {
                    known.newest = known.newest.max(psn);
                }
            }
        }
    }

    /// Sends one packet.
    fn packet(&mut self, input: &mut Unstructured<'_>, host: &mut AttackedHost) -> Result<()> {
        let index = input.choose_index(self.known.len())?;
        let mut source = host.program.ends[index].peer_address;
        if input.int_in_range(0..=15u8)? == 0 {
            source = stranger(input, host)?;
        }
        let kind = input.int_in_range(0..=31u8)?;
        let mut bytes = match kind {
            0..=1 => match self.history.len() {
                0 => return Ok(()),
                all => {
                    let (old, bytes) = self.history[input.choose_index(all)?].clone();
                    source = old;
                    bytes
                }
            },
            2..=4 => self.own(input, index)?,
            5..=13 => self.response(input, index)?,
            14 => built(self.header(Opcode::CNP, index, 0), &[0; 16]),
            _ => self.request(input, index, host)?,
        };
        if input.int_in_range(0..=15u8)? == 0 {
            spoil(input, &mut bytes)?;
        }
        host.send(source, &bytes);
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back((source, bytes));
        Ok(())
    }

    fn header(&self, opcode: Opcode, index: usize, psn: u32) -> PacketHeader {
        PacketHeader::new(Bth::new(opcode, self.known[index].number, psn & PSN_MASK))
    }

    /// A request: mostly the next of a message, or the first of a new one.
    fn request(
        &mut self,
        input: &mut Unstructured<'_>,
        index: usize,
        host: &AttackedHost,
    ) -> Result<Vec<u8>> {
        use PacketOperation::*;
        let mtu = MTU.bytes();
        let known = &self.known[index];
        let kind = known.kind;
        let expected = known.expected;
        let (address, key) = remote(input, host)?;
        let mut reth_length = input.int_in_range(0..=1500u32)?;
        let mut next = known.message;
        let (operation, mut length, psns) = match (kind, next) {
            (QueuePairType::Ud, _) => {
                let immediate: bool = input.arbitrary()?;
                (if immediate { SendOnlyImmediate } else { SendOnly }, input.int_in_range(0..=600)?, 1)
            }
            (_, Some((write, left))) if left > mtu => {
                next = Some((write, left - mtu));
                (if write { WriteMiddle } else { SendMiddle }, mtu as usize, 1)
            }
            (_, Some((write, left))) => {
                next = None;
                let last = match (write, input.int_in_range(0..=3u8)?) {
                    (true, 0) => WriteLastImmediate,
                    (true, _) => WriteLast,
                    (false, 0) => SendLastImmediate,
                    (false, 1) => SendLastInvalidate,
                    (false, _) => SendLast,
                };
                (last, left as usize, 1)
            }
            (_, None) => match input.int_in_range(0..=16u8)? {
                0..=1 => (ReadRequest, 0, reth_length.div_ceil(mtu).max(1)),
                2 => (CompareSwap, 0, 1),
                3 => (FetchAdd, 0, 1),
                14 => {
                    reth_length = if input.int_in_range(0..=3u8)? == 0 { reth_length } else { 8 };
                    (AtomicWrite, reth_length.min(mtu) as usize, 1)
                }
                16 => (Flush, 0, 1),
                4..=6 => {
                    reth_length %= mtu + 1;
                    (WriteOnly, reth_length as usize, 1)
                }
                7 => {
                    reth_length %= mtu + 1;
                    (WriteOnlyImmediate, reth_length as usize, 1)
                }
                8..=9 => (SendOnly, (reth_length % (mtu + 1)) as usize, 1),
                10 => (SendOnlyInvalidate, (reth_length % (mtu + 1)) as usize, 1),
                11..=13 => {
                    reth_length += mtu + 1;
                    next = Some((true, reth_length - mtu));
                    (WriteFirst, mtu as usize, 1)
                }
                _ => {
                    next = Some((false, reth_length.max(1)));
                    (SendFirst, mtu as usize, 1)
                }
            },
        };
        let mut opcode = operation as u8
            | match kind {
                QueuePairType::Rc => 0x00,
                QueuePairType::Uc => 0x20,
                QueuePairType::Ud => 0x60,
                QueuePairType::XrcSend | QueuePairType::XrcReceive => 0xA0,
            };
        let (mut psn, mut advance) = (expected, psns);
        // What is wrong with it.
        match input.int_in_range(0..=31u8)? {
            0 => opcode = opcode & 0xE0 | input.int_in_range(0..=31)?,
            1 => opcode = input.arbitrary()?,
            2 | 3 => (psn, advance) = (expected.wrapping_add_signed(input.int_in_range(-4..=12)?), 0),
            4 => (psn, advance) = (input.arbitrary()?, 0),
            5 => length = input.int_in_range(0..=LONGEST)?,
            6 => reth_length = input.arbitrary()?,
            // One is left out.
            7 => (psn, advance) = (expected + 1, psns + 1),
            _ => {}
        }
        let mut header = self.header(Opcode(opcode), index, psn);
        header.bth.acknowledge = input.arbitrary()?;
        header.bth.solicited = opcode & 1 != 0;
        let Some(extensions) = header.bth.opcode.extensions() else {
            return input.bytes(input.len().min(64)).map(|bytes| raw(&header, bytes));
        };
        let number: u32 = self.known[index].number;
        fill(&mut header, extensions, input, (address, key, reth_length), number)?;
        let known = &mut self.known[index];
        known.message = next;
        known.expected = (expected + advance) & PSN_MASK;
        Ok(built(header, &PAYLOAD[..length.min(LONGEST)]))
    }

    /// A response or an acknowledgement, mostly to a request that the host has made.
    fn response(&mut self, input: &mut Unstructured<'_>, index: usize) -> Result<Vec<u8>> {
        use PacketOperation::*;
        let mtu = MTU.bytes();
        let known = &mut self.known[index];
        let mut psn = known.newest;
        let mut operation = Acknowledge;
        let mut length = 0;
        let mut finished = true;
        if let Some(request) = known.requests.front_mut() {
            psn = request.psn;
            match request.operation {
                ReadRequest => {
                    let left = request.length.saturating_sub(request.answered);
                    psn += request.answered / mtu;
                    length = left.min(mtu);
                    finished = left <= mtu;
                    operation = match (request.answered, finished) {
                        (0, true) => ReadResponseOnly,
                        (0, false) => ReadResponseFirst,
                        (_, true) => ReadResponseLast,
                        (_, false) => ReadResponseMiddle,
                    };
                    request.answered += mtu;
                }
                CompareSwap | FetchAdd => operation = AtomicAcknowledge,
                AtomicWrite | Flush => operation = ReadResponseOnly,
                _ => {}
            }
        }
        if finished {
            known.requests.pop_front();
        }
        let mut syndrome = Syndrome::Ack { credits: 31 }.to_byte();
        let mut opcode = operation as u8;
        match input.int_in_range(0..=15u8)? {
            0 => opcode = 0x0D + input.int_in_range(0..=5u8)?,
            1 | 2 => psn = psn.wrapping_add_signed(input.int_in_range(-8..=8)?),
            3 => psn = input.arbitrary()?,
            4 => length = input.int_in_range(0..=LONGEST as u32)?,
            5 | 6 => syndrome = input.arbitrary()?,
            7 => (opcode, syndrome) = (Acknowledge as u8, 0x60 | input.int_in_range(0..=5u8)?),
            8 => (opcode, syndrome) = (Acknowledge as u8, 0x20 | input.int_in_range(0..=31u8)?),
            _ => {}
        }
        let mut header = self.header(Opcode(opcode), index, psn);
        let message = input.arbitrary::<u32>()? & PSN_MASK;
        let extensions = header.bth.opcode.extensions().unwrap_or(Extensions::empty());
        if extensions.contains(Extensions::AETH) {
            header.aeth = Some(Aeth { syndrome: Syndrome::from_byte(syndrome), message });
        }
        if extensions.contains(Extensions::ATOMIC_ACK_ETH) {
            header.atomic_ack = Some(5);
        }
        Ok(built(header, &PAYLOAD[..length as usize]))
    }

    /// One of Pagewire's own packets.
    fn own(&mut self, input: &mut Unstructured<'_>, index: usize) -> Result<Vec<u8>> {
        let known = &self.known[index];
        let near = known.newest.wrapping_add_signed(input.int_in_range(-4..=8)?) & PSN_MASK;
        let (own, mut psn) = match input.int_in_range(0..=8u8)? {
            0..=3 => {
                let message = input.arbitrary::<u32>()? & PSN_MASK;
                let bits: [u8; 4] = input.arbitrary()?;
                let received = bits.into_iter().map(usize::from).collect();
                (VendorPacket::SelectiveAck(SelectiveAck { expected: near, message, received }), near)
            }
            4 => (
                VendorPacket::Hold(Hold {
                    psn: near,
                    flags: HoldFlags::from_bits_retain(input.arbitrary()?),
                }),
                near,
            ),
            5 => (VendorPacket::Resume(Resume { psn: near, block: input.int_in_range(0..=12)? }), near),
            6 => {
                let resume = near.wrapping_add(input.int_in_range(0..=12)?) & PSN_MASK;
                (VendorPacket::Skip(Skip { refused: near, resume }), near)
            }
            _ => {
                let hello = Hello {
                    version: Hello::VERSION,
                    reply: input.arbitrary()?,
                    capabilities: Capabilities::from_bits_retain(input.arbitrary()?),
                    direct_port: input.arbitrary()?,
                    instance: input.int_in_range(1..=3)?,
                    connection: input.int_in_range(0..=3)?,
                };
                // Every queue pair here begins with one PSN in both directions.
                (VendorPacket::Hello(hello), 0xFF_FFF0)
            }
        };
        if input.int_in_range(0..=7u8)? == 0 {
            psn = input.arbitrary()?;
        }
        let mut body = [0; VendorPacket::MAX_LEN];
        let length = own.emit(&mut body);
        Ok(built(self.header(own.opcode(), index, psn), &body[..length]))
    }
}

/// Address and key of memory of the host: right, or wrong in one way.
fn remote(input: &mut Unstructured<'_>, host: &AttackedHost) -> Result<(u64, u32)> {
    let targets = &host.memory.targets;
    // Mostly the one with all rights.
    let target = &targets[input.choose_index(2 * targets.len())?.saturating_sub(targets.len())];
    let mut key = target.key;
    let address = match input.int_in_range(0..=7u8)? {
        0 => target.iova + TestRegion::LENGTH - input.int_in_range(0..=600)?,
        1 => target.iova.wrapping_sub(input.int_in_range(0..=64)?),
        2 => input.arbitrary()?,
        3 => target.address,
        _ => target.iova + input.int_in_range(0..=TestRegion::LENGTH / 8)? * 8,
    };
    match input.int_in_range(0..=15u8)? {
        0 => key = input.arbitrary()?,
        1 => key ^= 1 << input.int_in_range(0..=31)?,
        2 => key = host.memory.buffer_key(),
        _ => {}
    }
    Ok((address, key))
}

fn stranger(input: &mut Unstructured<'_>, host: &AttackedHost) -> Result<IpAddr> {
    Ok(match input.int_in_range(0..=3u8)? {
        0 => host.own_address,
        1 => host.peer_address,
        _ => IpAddr::from(input.arbitrary::<[u8; 4]>()?),
    })
}

/// Fills in the extended headers that an opcode has.
fn fill(
    header: &mut PacketHeader,
    extensions: Extensions,
    input: &mut Unstructured<'_>,
    (address, key, length): (u64, u32, u32),
    source: u32,
) -> Result<()> {
    if extensions.contains(Extensions::XRCETH) {
        header.xrc = Some(source);
    }
    if extensions.contains(Extensions::FETH) {
        let wrong = input.int_in_range(0..=15u8)? == 0;
        let (placement, selectivity) = (input.int_in_range(1..=3u8)?, input.int_in_range(0..=1u8)?);
        let placement = if wrong { input.int_in_range(0..=15u8)? } else { placement };
        header.flush = Some(Feth { placement, selectivity });
    }
    if extensions.contains(Extensions::DETH) {
        let wrong = input.int_in_range(0..=7u8)? == 0;
        let queue_key = if wrong { input.arbitrary()? } else { QUEUE_KEY };
        header.deth = Some(Deth { queue_key, source });
    }
    if extensions.contains(Extensions::RETH) {
        header.reth = Some(Reth { address, key, length });
    }
    if extensions.contains(Extensions::ATOMIC_ETH) {
        let odd = input.int_in_range(0..=15u8)? == 0;
        let address = if odd { address } else { address & !7 };
        header.atomic = Some(AtomicEth { address, key, swap_or_add: 1, compare: 0x1111_1111_1111_1111 });
    }
    if extensions.contains(Extensions::AETH) {
        let syndrome = Syndrome::from_byte(input.arbitrary()?);
        header.aeth = Some(Aeth { syndrome, message: 0 });
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
    Ok(())
}

/// The packet from BTH to padding.
fn built(header: PacketHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; packet::len(&header, payload.len()) - packet::ICRC_LEN];
    bytes[header.len()..][..payload.len()].copy_from_slice(payload);
    packet::emit_without_icrc(&header, payload.len(), &mut bytes);
    bytes
}

/// A BTH, and whatever behind it: for opcodes that have no format.
fn raw(header: &PacketHeader, rest: &[u8]) -> Vec<u8> {
    let plain = PacketHeader::new(Bth { opcode: Opcode(0), ..header.bth });
    let mut bytes = built(plain, rest);
    bytes[0] = header.bth.opcode.0;
    bytes
}

/// Turns some bits round, cuts or prolongs.
fn spoil(input: &mut Unstructured<'_>, bytes: &mut Vec<u8>) -> Result<()> {
    match input.int_in_range(0..=3u8)? {
        0 => bytes.truncate(input.int_in_range(12..=bytes.len().max(12))?),
        1 => bytes.resize(bytes.len() + input.int_in_range(1..=40)?, 0x5C),
        _ => {
            for _ in 0..input.int_in_range(1..=4)? {
                let at = input.choose_index(bytes.len().min(60))?;
                // The block of queue pair numbers decides who is handed the packet.
                if !(5..7).contains(&at) {
                    bytes[at] ^= 1 << input.int_in_range(0..=7)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_nic::{CompletionOpcode as Completed, Status};
    use pagewire_sim::Plant;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The byte beyond a copy is often one of the same message's, but not always.
    #[test]
    fn a_write_outside_a_region_is_found() {
        let found = (0..20).any(|chances| {
            let mut host = AttackedHost::new();
            host.plant(Plant::Overrun, chances);
            let mut attacker = Attacker::new(&host);
            let input = crate::campaign::input(crate::FuzzTarget::Sequences, 1, 0, &[]);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                attacker.interpret(&mut Unstructured::new(&input), &mut host).unwrap();
                host.memory.check();
            }));
            outcome.is_err_and(|panic| {
                panic.downcast_ref::<String>().is_some_and(|text| text.contains("nobody may write it"))
            })
        });
        assert!(found);
    }

    /// An attacker whose packets are all thrown away at the door finds nothing.
    #[test]
    fn the_attacker_gets_far() {
        let mut host = AttackedHost::new();
        let mut attacker = Attacker::new(&host);
        for execution in 0..40 {
            let input = crate::campaign::input(crate::FuzzTarget::Sequences, 1, execution, &[]);
            attacker.interpret(&mut Unstructured::new(&input), &mut host).unwrap();
        }
        let done = |opcode, status| host.program.completions.get(&(opcode, status)).copied().unwrap_or(0);
        for opcode in
            [Completed::Receive, Completed::ReceiveWriteImmediate, Completed::Send, Completed::Write]
        {
            assert!(done(opcode, Status::Success) > 20, "{opcode:?}: {:?}", host.program.completions);
        }
        for opcode in [Completed::Read, Completed::FetchAdd, Completed::CompareSwap] {
            assert!(done(opcode, Status::Success) > 2, "{opcode:?}: {:?}", host.program.completions);
        }
        let answered = |opcode: Opcode| host.answered.get(&opcode).copied().unwrap_or(0);
        for opcode in [
            Opcode(PacketOperation::Acknowledge as u8),
            Opcode(PacketOperation::AtomicAcknowledge as u8),
            Opcode(PacketOperation::ReadResponseOnly as u8),
            Opcode(PacketOperation::ReadResponseMiddle as u8),
            Opcode(PacketOperation::WriteMiddle as u8),
            Opcode::HELLO,
            Opcode::SELECTIVE_ACK,
        ] {
            assert!(answered(opcode) > 10, "{opcode}: {:?}", host.answered);
        }
        println!("{} packets: {:?}\n{:?}", host.packets, host.program.completions, host.answered);
        host.end();
    }
}
