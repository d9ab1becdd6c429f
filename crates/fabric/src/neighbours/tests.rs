//! The handshake against peers that speak it by hand.

use super::*;
use crate::limits::{HANDSHAKE_TIME, HANDSHAKE_TIME_AT_MOST};
use crate::trust::PeerProcess;
use crate::{Fabric, HostFabric};
use std::time::{Duration, Instant};

/// A peer that speaks the handshake by hand.
struct Stranger {
    socket: Descriptor,
}

impl Stranger {
    fn connect(to: &HostFabric) -> Self {
        let socket = names::connection().unwrap();
        connect(&socket, &names::of_block(to.lease_block().unwrap()).unwrap()).unwrap();
        Stranger { socket }
    }

    fn say(&self, message: &HandshakeMessage, files: &[BorrowedFd<'_>]) {
        assert!(send(&self.socket, message, files).is_ok());
    }

    /// What the fabric answers, and how many files came with it.
    fn receive_message(&self, fabric: &HostFabric) -> (HandshakeMessage, usize) {
        let limit = Instant::now() + Duration::from_secs(30);
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            fabric.events(&mut Vec::new());
            match sockets::receive_message(&self.socket, &mut buffer).unwrap() {
                Some((0, _)) => panic!("the connection ends without a word"),
                Some((length, files)) => {
                    return (HandshakeMessage::decode(&buffer[..length]).unwrap(), files.len());
                }
                None => assert!(Instant::now() < limit, "no answer"),
            }
        }
    }

    /// Says Hello with a nonce at an address of this process; gives the fabric's identity and its proof.
    fn greet(&self, fabric: &HostFabric, nonce_address: u64) -> (Identity, u64) {
        let identity = Identity { instance: 1, nonce_address, swaps_at_a_limit: false };
        self.say(&HandshakeMessage::Hello { identity }, &[]);
        match self.receive_message(fabric) {
            (HandshakeMessage::Welcome { identity, proof }, 0) => (identity, proof),
            other => panic!("{other:?}"),
        }
    }
}

fn refusal_of(answer: (HandshakeMessage, usize)) -> String {
    match answer {
        (HandshakeMessage::Refuse { reason }, 0) => reason,
        other => panic!("{other:?}"),
    }
}

fn value_at(address: u64) -> u64 {
    // SAFETY: the fabric is of this process, and its handshake is under way: the page is mapped.
    unsafe { (address as *const u64).read_volatile() }
}

/// A peer that is there, but cannot make the channel (no memory for it, a file that is none), says so: it has not ended.
#[test]
fn who_cannot_make_a_channel_says_why() {
    let fabric = HostFabric::new().unwrap();
    let stranger = Stranger::connect(&fabric);
    let nonce = 77u64;
    let (theirs, proof) = stranger.greet(&fabric, &raw const nonce as u64);
    assert_eq!(proof, 77);
    // Too short for what they are said to be.
    let (_words, file) = MappedWords::create("pagewire-test", 8, FileAccess::ReadWrite).unwrap();
    let files = [file.as_fd(), file.as_fd(), file.as_fd()];
    stranger.say(&HandshakeMessage::Ready { proof: value_at(theirs.nonce_address) }, &files);
    let reason = refusal_of(stranger.receive_message(&fabric));
    assert!(reason.contains("cannot be used"), "{reason}");
}

/// What a peer says of itself proves nothing: without the value of the nonce it gets no file.
#[test]
fn a_peer_without_proof_gets_no_file() {
    let fabric = HostFabric::new().unwrap();
    let nonce = 77u64;
    let (words, file) = MappedWords::create("pagewire-test", CHANNEL_WORDS, FileAccess::ReadWrite).unwrap();
    for wrong in [0, 1, 77, u64::MAX] {
        let stranger = Stranger::connect(&fabric);
        let (theirs, _) = stranger.greet(&fabric, &raw const nonce as u64);
        assert_ne!(value_at(theirs.nonce_address), wrong);
        let files = [file.as_fd(), file.as_fd(), file.as_fd()];
        stranger.say(&HandshakeMessage::Ready { proof: wrong }, &files);
        let reason = refusal_of(stranger.receive_message(&fabric));
        assert!(reason.contains("did not prove"), "{reason}");
    }
    assert_eq!(fabric.counters().channels.get(), 0);
    drop(words);
}

/// Messages out of their order, and those of another version, end the handshake with a reason and without a file.
#[test]
fn a_handshake_out_of_order_gets_no_file() {
    let fabric = HostFabric::new().unwrap();
    let wrong = [
        HandshakeMessage::Ready { proof: 1 },
        HandshakeMessage::Accept,
        HandshakeMessage::Confirm,
        HandshakeMessage::Welcome {
            identity: Identity { instance: 1, nonce_address: 0, swaps_at_a_limit: false },
            proof: 1,
        },
    ];
    for message in wrong {
        let stranger = Stranger::connect(&fabric);
        stranger.say(&message, &[]);
        let reason = refusal_of(stranger.receive_message(&fabric));
        assert!(reason.contains("broke the rules"), "{message:?}: {reason}");
    }
    let stranger = Stranger::connect(&fabric);
    let mut older = HandshakeMessage::Accept.encode();
    older[8] -= 1;
    sockets::send_message(&stranger.socket, &older, &[]).unwrap();
    let reason = refusal_of(stranger.receive_message(&fabric));
    assert!(reason.contains("version"), "{reason}");
}

/// The opener proves too late, or not at all: the acceptor is not held up by it, and sends nothing.
#[test]
fn the_opener_gives_files_to_none_but_who_proves() {
    let fabric = HostFabric::new().unwrap();
    let block = 0xEE77;
    let claim = names::claim(&names::of_block(block).unwrap()).unwrap();
    names::listen_on(&claim).unwrap();
    fabric.connect(block);
    let stranger = Stranger { socket: accepted(&claim) };
    let (hello, files) = stranger.receive_message(&fabric);
    let HandshakeMessage::Hello { identity } = hello else { panic!("{hello:?}") };
    assert_eq!(files, 0);
    assert_ne!(value_at(identity.nonce_address), 0);
    let nonce = 77u64;
    let identity = Identity { instance: 1, nonce_address: &raw const nonce as u64, swaps_at_a_limit: false };
    stranger.say(&HandshakeMessage::Welcome { identity, proof: 0 }, &[]);
    let reason = refusal_of(stranger.receive_message(&fabric));
    assert!(reason.contains("did not prove"), "{reason}");
}

fn accepted(listener: &Descriptor) -> Descriptor {
    let limit = Instant::now() + Duration::from_secs(30);
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => return Descriptor::new(socket).unwrap(),
            Err(error) => assert!(error == Errno::AGAIN && Instant::now() < limit, "{error}"),
        }
    }
}

/// Revocation looks at the channels that a process knows: so each end knows a channel before the other may use it.
#[test]
fn a_channel_is_known_here_before_the_peer_may_use_it() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let block = b.lease_block().unwrap();
    a.connect(block);
    let limit = Instant::now() + Duration::from_secs(30);
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    while of_a.is_empty() {
        // Whatever makes the opener ready has been sent by an acceptor that already tells of the channel.
        b.events(&mut of_b);
        a.events(&mut of_a);
        assert!(Instant::now() < limit, "no channel");
    }
    assert!(matches!(of_a[..], [FabricEvent::Connected { .. }]));
    assert!(matches!(of_b[..], [FabricEvent::Accepted { .. }]), "not known to the acceptor yet");
}

/// The files of a channel find descriptors, however many processes connect at once.
#[test]
fn handshakes_leave_descriptors_to_others() {
    let limit =
        usize::try_from(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    for most in [OPENINGS, HANDSHAKES] {
        let found = handshakes_at_most(most);
        assert!(found == most || 16 * found <= limit, "{found} handshakes at a limit of {limit}");
    }
    assert_eq!(handshakes_at_most(1), 1);
}

/// Who comes while many others are being welcomed has to wait, and is not sent away.
#[test]
fn who_comes_in_a_crowd_waits() {
    let fabrics = [HostFabric::new().unwrap(), HostFabric::new().unwrap()];
    let [opener, crowded] = &fabrics;
    let block = crowded.lease_block().unwrap();
    let crowd: Vec<_> = (0..HANDSHAKES + 40)
        .map(|_| {
            let socket = names::connection().unwrap();
            connect(&socket, &names::of_block(block).unwrap()).unwrap();
            socket
        })
        .collect();
    opener.connect(block);
    let mut crowd = Some(crowd);
    let (mut opened, mut rounds) = (Vec::new(), 0);
    let limit = Instant::now() + Duration::from_secs(30);
    while opened.is_empty() {
        crowded.events(&mut Vec::new());
        opener.events(&mut opened);
        rounds += 1;
        if rounds == 1000 {
            drop(crowd.take());
        }
        assert!(Instant::now() < limit, "no answer");
    }
    assert!(matches!(opened[0], FabricEvent::Connected { .. }), "sent away");
    assert!(crowd.is_none(), "it did not have to wait");
}

/// A peer that merely gets no processor is waited for; one that is stopped, or that this process cannot see, for five seconds.
#[test]
fn a_handshake_is_late_sooner_with_a_peer_that_cannot_run() {
    let connection = |peer| {
        let socket = Arc::new(names::connection().unwrap());
        ChannelConnection::new(socket, HandshakeStage::Accepted, 0, peer)
    };
    let own = i32::try_from(std::process::id()).unwrap();
    let mut of_runnable = connection(Some(PeerProcess::by_pid(own)));
    let mut of_ended = connection(Some(PeerProcess::by_pid(i32::MAX)));
    let mut unconnected = connection(None);
    for late in [&mut of_runnable, &mut of_ended, &mut unconnected] {
        assert!(late.due(HANDSHAKE_TIME - 1, false).is_none());
    }
    assert!(of_runnable.due(HANDSHAKE_TIME + 1, false).is_none());
    for late in [&mut of_ended, &mut unconnected] {
        assert!(matches!(late.due(HANDSHAKE_TIME + 1, false), Some(HandshakeStep::End(_))));
    }
    assert!(matches!(of_runnable.due(HANDSHAKE_TIME_AT_MOST + 1, false), Some(HandshakeStep::End(_))));
}
