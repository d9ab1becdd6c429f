//! Who is sent an acknowledgement and an answer in one datagram: a peer that says that it takes them, and no other.

use crate::support::*;
use pagewire_fabric::{Fabric, HostFabric};
use pagewire_nic::attributes::QueuePairType;
use pagewire_nic::*;
use pagewire_wire::joined::ACKNOWLEDGEMENT_LEN;
use pagewire_wire::packet::ICRC_LEN;
use pagewire_wire::{
    Aeth, Bth, Capabilities, Echo, Hello, Icrc, Opcode, Operation, Syndrome, Transport, VendorPacket, aeth,
    bth, packet,
};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Instant;

/// PSN at which both sides begin.
const FIRST_PSN: u32 = 0xFF_FFF0;
/// Far more exchanges than it takes until a peer has a socket of its own, and acknowledgements wait for answers.
const EXCHANGES: u32 = 400;

/// A peer behind a bare socket. It hears a socket for it alone, as Pagewires do.
struct Peer {
    socket: UdpSocket,
    address: Ipv4Addr,
    /// The queue pair that it is connected to, and that one's port.
    other: (u32, u16),
    /// Datagrams that have come, by what stands in them: a request alone, an acknowledgement alone, both.
    seen: [u32; 3],
    sent: u32,
    acknowledged: u32,
    /// What it says of itself when it is greeted.
    capabilities: Option<Capabilities>,
}

impl Peer {
    fn send(&self, opcode: Opcode, psn: u32, acknowledge: bool, body: &[u8]) {
        let mut bytes = vec![0; bth::LEN + body.len() + ICRC_LEN];
        let header = Bth { acknowledge, ..Bth::new(opcode, self.other.0, psn & 0xFF_FFFF) };
        header.emit(&mut bth::Packet::new(&mut bytes[..]).unwrap());
        bytes[bth::LEN..][..body.len()].copy_from_slice(body);
        let own = self.socket.local_addr().unwrap().port();
        packet::seal(&Icrc::ipv4(self.address, self.address, own, self.other.1, true), 0, &mut bytes);
        self.socket.send_to(&bytes, (self.address, self.other.1)).unwrap();
    }

    /// A SEND of 8 bytes.
    fn request(&mut self) {
        let opcode = Opcode::new(Transport::Rc, Operation::SendOnly);
        self.send(opcode, FIRST_PSN + self.sent, true, &[7; 8]);
        self.sent += 1;
    }

    /// Takes what has come, and answers it.
    fn serve(&mut self) {
        let mut bytes = [0; 2048];
        while let Ok((length, _)) = self.socket.recv_from(&mut bytes) {
            let datagram = &bytes[..length];
            let code = Opcode(datagram[0]);
            match code.operation() {
                _ if code == Echo::OPCODE => {
                    let echo = Echo::parse(&datagram[bth::LEN..length - ICRC_LEN]).unwrap();
                    let mut body = [0; Echo::LEN];
                    Echo { answer: true, ..echo }.emit(&mut body);
                    self.send(code, 0, false, &body);
                }
                _ if code == Opcode::HELLO => self.greet(),
                Some(Operation::Acknowledge) if length > ACKNOWLEDGEMENT_LEN => {
                    self.seen[2] += 1;
                    self.take_request(&datagram[ACKNOWLEDGEMENT_LEN..]);
                }
                Some(Operation::Acknowledge) => {
                    assert_eq!(length, ACKNOWLEDGEMENT_LEN);
                    self.seen[1] += 1;
                }
                Some(Operation::SendOnly) => {
                    self.seen[0] += 1;
                    self.take_request(datagram);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn greet(&self) {
        let Some(capabilities) = self.capabilities else { return };
        let hello = Hello {
            version: Hello::VERSION,
            reply: true,
            capabilities,
            direct_port: 0,
            instance: 0x1234,
            connection: 1,
        };
        let mut body = [0; VendorPacket::MAX_LEN];
        let length = VendorPacket::Hello(hello).emit(&mut body);
        self.send(Opcode::HELLO, FIRST_PSN, false, &body[..length]);
    }

    fn take_request(&mut self, request: &[u8]) {
        assert_eq!(request.len(), bth::LEN + 8 + ICRC_LEN, "a SEND of 8 bytes");
        let header = Bth::parse(&bth::Packet::new(request).unwrap());
        // A repetition is acknowledged again.
        let mut body = [0; aeth::LEN];
        let messages = header.psn.wrapping_sub(FIRST_PSN).wrapping_add(1) & 0xFF_FFFF;
        self.acknowledged = self.acknowledged.max(messages);
        let aeth = Aeth { syndrome: Syndrome::Ack { credits: 31 }, message: messages };
        aeth.emit(&mut aeth::Packet::new(&mut body[..]).unwrap());
        self.send(Opcode::new(Transport::Rc, Operation::Acknowledge), header.psn, false, &body);
    }
}

/// A program that answers each message of a new peer which says this of itself, or nothing. Gives the peer, and how many datagrams of
/// two packets left.
fn exchange(side: &Side, capabilities: Option<Capabilities>) -> (Peer, u64) {
    let counts = || {
        let counters = side.nic.fabric().counters();
        (counters.connected_sends.get(), counters.joined_sends.get())
    };
    let before = counts();
    let vector = side.vector();
    let gid = std::net::Ipv6Addr::from(vector.destination_gid);
    let address = gid.to_ipv4_mapped().expect("an IPv4 address");
    // A queue pair number tells the port that it is reached at, from 0xF000 on.
    let socket = (0xF100..0xF200).find_map(|port| UdpSocket::bind((address, port)).ok()).expect("a port");
    socket.set_nonblocking(true).unwrap();
    let number = u32::from(socket.local_addr().unwrap().port()) << 8 | 7;
    let queue_pair = side.queue_pair(QueuePairType::Rc, all_rights());
    let other = (queue_pair.number(), side.nic.fabric().direct_port());
    let mut peer = Peer { socket, address, other, seen: [0; 3], sent: 0, acknowledged: 0, capabilities };
    to_rtr(side, &queue_pair, number);
    // None of its requests is repeated while the peer has not had its turn.
    to_rts(&queue_pair, Timers { timeout: 20, ..TIMERS });
    let buffer = side.buffer(8, all_rights());
    let (mut received, mut sent) = (Vec::new(), Vec::new());
    for round in 0..EXCHANGES {
        let request = ReceiveRequest { wr_id: round.into(), segments: &[buffer.piece(0, 8)] };
        queue_pair.post_receive(&request).unwrap();
        peer.request();
        poll_until(side, &side.recv_cq, &mut received, round, &mut peer);
        let answer = SendRequest {
            wr_id: round.into(),
            data: Data::Segments(&[buffer.piece(0, 8)]),
            operation: SendOperation::Send,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        queue_pair.post_send(&answer).unwrap();
        queue_pair.doorbell();
        peer.serve();
        poll_until(side, &side.send_cq, &mut sent, round, &mut peer);
    }
    assert!(sent.iter().chain(&received).all(|done| done.status == Status::Success));
    assert_eq!(peer.acknowledged, EXCHANGES);
    let after = counts();
    assert!(after.0 - before.0 > 100, "the peer was not believed to hear");
    queue_pair.destroy().unwrap();
    (peer, after.1 - before.1)
}

/// Polls a queue until the completion of an exchange is there.
fn poll_until(
    side: &Side,
    queue: &CompletionQueue<HostFabric>,
    into: &mut Vec<Done>,
    exchange: u32,
    peer: &mut Peer,
) {
    let start = Instant::now();
    while into.len() <= exchange as usize {
        assert!(start.elapsed() < PATIENCE, "exchange {exchange}: {into:?}");
        side.poll(queue, into);
        peer.serve();
    }
}

#[test]
fn an_acknowledgement_and_an_answer_are_one_datagram_for_who_takes_that_alone() {
    if !own_network::is_here() {
        return;
    }
    let side = Side::without_thread(PathChoice::Udp);
    // A standard peer, and one that is a Pagewire without that.
    for capabilities in [None, Some(Capabilities::empty()), Some(Capabilities::HOLD)] {
        let (peer, joined) = exchange(&side, capabilities);
        assert_eq!((peer.seen[2], joined), (0, 0), "{capabilities:?}");
        assert!(peer.seen[0] >= EXCHANGES && peer.seen[1] >= EXCHANGES);
    }
    let (peer, joined) = exchange(&side, Some(Capabilities::JOINED));
    assert_eq!(u64::from(peer.seen[2]), joined);
    assert!(joined > u64::from(EXCHANGES / 2), "{joined} of {EXCHANGES}");
}
