//! Streams between processes, on both paths.

use crate::other::{Other, hex, read_line, role, say, token_of};
use pagewire::Node;
use pagewire_experimental::stream::{Endpoint, Listener, Stream};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATHS: [&str; 2] = ["local", "udp"];

/// The bytes of a stream, from a place of it on.
fn expected(at: u64) -> u8 {
    (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Makes an end and gives the peer's process its token, in a role.
fn connect_to(other: &mut Other, node: &Node, bytes: usize) -> Stream {
    let end = Endpoint::new(node, bytes).unwrap();
    other.tell(&hex(&end.token().to_bytes()));
    let token = token_of(&other.expect("token"));
    end.connect(node, &token).unwrap()
}

fn connect_back(node: &Node, bytes: usize) -> Stream {
    let end = Endpoint::new(node, bytes).unwrap();
    say(&format!("token {}", hex(&end.token().to_bytes())));
    end.connect(node, &token_of(&read_line())).unwrap()
}

/// The other process gives back what it gets, in pieces of its own.
#[test]
fn bytes_arrive_once_and_in_order_and_the_end_behind_them() {
    const TEST: &str = "stream::bytes_arrive_once_and_in_order_and_the_end_behind_them";
    const LENGTH: u64 = 3_000_001; // More than the window and all the buffers.
    if role().is_some() {
        let node = Node::alone().unwrap();
        let mut stream = connect_back(&node, 1 << 16);
        let copied = std::io::copy(&mut stream.clone(), &mut stream).unwrap();
        stream.finish().unwrap();
        say(&format!("copied {copied}"));
        read_line();
        return;
    }
    for path in PATHS {
        let mut other = Other::start_with(TEST, "echo", &[("PAGEWIRE_PATH", path)]);
        let node = Node::alone().unwrap();
        let stream = connect_to(&mut other, &node, 1 << 16);
        std::thread::scope(|scope| {
            let (mut writer, mut reader) = (stream.clone(), stream.clone());
            scope.spawn(move || {
                let (mut at, mut random) = (0u64, 1u64);
                while at < LENGTH {
                    random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                    let length = (1 + (random >> 40) % 100_000).min(LENGTH - at);
                    let bytes: Vec<u8> = (at..at + length).map(expected).collect();
                    writer.write_all(&bytes).unwrap();
                    at += length;
                }
                writer.finish().unwrap();
                assert_eq!(writer.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
            });
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            assert_eq!(bytes.len() as u64, LENGTH, "{path}");
            assert!((0..LENGTH).zip(&bytes).all(|(at, byte)| *byte == expected(at)), "{path}");
            assert_eq!(reader.read(&mut [0]).unwrap(), 0, "{path}: the end stays");
        });
        assert_eq!(other.expect("copied"), LENGTH.to_string());
        other.tell("end");
    }
}

/// A reader that does not read holds the writer back; nothing is lost.
#[test]
fn a_reader_that_does_not_read_holds_the_writer_back() {
    const TEST: &str = "stream::a_reader_that_does_not_read_holds_the_writer_back";
    const BUFFER: usize = 1 << 16;
    const LENGTH: usize = 4 << 20;
    if role().is_some() {
        let node = Node::alone().unwrap();
        let mut stream = connect_back(&node, BUFFER);
        read_line();
        let mut bytes = vec![0; LENGTH];
        stream.read_exact(&mut bytes).unwrap();
        say(&format!("right {}", bytes.iter().enumerate().all(|(at, byte)| *byte == expected(at as u64))));
        read_line();
        return;
    }
    for path in PATHS {
        let mut other = Other::start_with(TEST, "reader", &[("PAGEWIRE_PATH", path)]);
        let node = Node::alone().unwrap();
        let stream = connect_to(&mut other, &node, BUFFER);
        std::thread::scope(|scope| {
            let mut writer = stream.clone();
            let writing = scope.spawn(move || {
                let bytes: Vec<u8> = (0..LENGTH as u64).map(expected).collect();
                writer.write_all(&bytes).unwrap();
                writer.flush().unwrap();
            });
            std::thread::sleep(Duration::from_millis(300));
            assert!(!writing.is_finished(), "{path}: nobody reads");
            other.tell("go");
            assert_eq!(other.expect("right"), "true", "{path}");
        });
        other.tell("end");
    }
}

/// What a peer wrote before it died is read; then there is an error, for both directions.
#[test]
fn a_peer_that_is_killed_is_an_error_behind_its_bytes() {
    const TEST: &str = "stream::a_peer_that_is_killed_is_an_error_behind_its_bytes";
    if role().is_some() {
        let node = Node::alone().unwrap();
        let mut stream = connect_back(&node, 1 << 16);
        stream.write_all(&[5; 10_000]).unwrap();
        stream.flush().unwrap();
        say("written");
        read_line();
        return;
    }
    for path in PATHS {
        let mut other = Other::start_with(TEST, "victim", &[("PAGEWIRE_PATH", path)]);
        let node = Node::alone().unwrap();
        let mut stream = connect_to(&mut other, &node, 1 << 16);
        other.expect("written");
        assert!(other.kill());
        let mut bytes = vec![0; 10_000];
        stream.read_exact(&mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 5));
        let start = Instant::now();
        // Short waits learn of it, too, and looks without a wait.
        for wait in [Duration::ZERO, Duration::from_millis(10)] {
            let error = loop {
                let error = stream.read_within(&mut bytes, Some(wait)).unwrap_err();
                if error.kind() != ErrorKind::TimedOut {
                    break error;
                }
                assert!(start.elapsed() < Duration::from_secs(60), "{path}: {wait:?}");
            };
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{path}: {error}");
        }
        let error = stream.read(&mut bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{path}: {error}");
        // No write begins from then on.
        let error = stream.write(&[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{path}: {error}");
        let error = stream.write_all(&[0; 1 << 20]).and_then(|()| stream.flush()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{path}: {error}");
        assert!(start.elapsed() < Duration::from_secs(60), "{path}: {:?}", start.elapsed());
    }
}

/// A process that only writes: once its connection has ended, no write begins.
#[test]
fn a_write_behind_the_death_of_the_peer_is_refused() {
    const TEST: &str = "stream::a_write_behind_the_death_of_the_peer_is_refused";
    if role().is_some() {
        let node = Node::alone().unwrap();
        let _stream = connect_back(&node, 1 << 14);
        say("connected");
        read_line();
        return;
    }
    for path in PATHS {
        let mut other = Other::start_with(TEST, "victim", &[("PAGEWIRE_PATH", path)]);
        let node = Node::alone().unwrap();
        let mut stream = connect_to(&mut other, &node, 1 << 14);
        other.expect("connected");
        stream.write_all(&[1; 100]).and_then(|()| stream.flush()).unwrap();
        assert!(other.kill());
        // What is known of the peer is known by now, or is found out by the first write.
        std::thread::sleep(Duration::from_millis(500));
        let error = stream.write(&[0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{path}: {error}");
    }
}

/// Whoever waits for space of a peer that dies gets the error, too.
#[test]
fn a_writer_that_waits_for_space_learns_that_the_peer_died() {
    const TEST: &str = "stream::a_writer_that_waits_for_space_learns_that_the_peer_died";
    if role().is_some() {
        let node = Node::alone().unwrap();
        let _stream = connect_back(&node, 1 << 14);
        say("connected");
        read_line();
        return;
    }
    let mut other = Other::start_with(TEST, "victim", &[]);
    let node = Node::alone().unwrap();
    let mut stream = connect_to(&mut other, &node, 1 << 14);
    other.expect("connected");
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| stream.write_all(&vec![0; 4 << 20]).and_then(|()| stream.flush()));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!writing.is_finished(), "nobody reads");
        assert!(other.kill());
        assert_eq!(writing.join().unwrap().unwrap_err().kind(), ErrorKind::ConnectionReset);
    });
}

#[test]
fn an_end_that_is_dropped_is_the_end_of_the_stream_and_a_broken_pipe() {
    let node = Node::alone().unwrap();
    let (near, distant) = (Endpoint::new(&node, 4096).unwrap(), Endpoint::new(&node, 4096).unwrap());
    let (near_token, distant_token) = (near.token(), distant.token());
    let mut near = near.connect(&node, &distant_token).unwrap();
    let mut distant = distant.connect(&node, &near_token).unwrap();
    distant.write_all(b"bye").unwrap();
    drop(distant);
    let mut text = String::new();
    near.read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye");
    let error = near.write_all(b"x").and_then(|()| near.flush()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe, "{error}");
}

#[test]
fn what_cannot_be_a_stream_is_refused_with_the_reason() {
    let node = Node::alone().unwrap();
    let error = Endpoint::new(&node, 100).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("4096"), "{error}");
    let table = node.zeroed::<u64>(16).unwrap();
    let token = table.export(pagewire::Rights::all()).unwrap();
    let end = Endpoint::new(&node, 4096).unwrap();
    let error = end.connect(&node, &token).err().unwrap();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("Endpoint"), "{error}");
    let (near, distant) = (Endpoint::new(&node, 4096).unwrap(), Endpoint::new(&node, 4096).unwrap());
    let mut stream = near.connect(&node, &distant.token()).unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(30)));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
}

/// Other processes have the token of the listener alone. One that is killed while it waits is passed over.
#[test]
fn a_listener_takes_whoever_asks() {
    const TEST: &str = "stream::a_listener_takes_whoever_asks";
    const REQUESTS: usize = 3;
    if role().is_some() {
        let node = Node::alone().unwrap();
        let token = token_of(&read_line());
        say("asks");
        let mut stream = Stream::connect(&node, &token, 1 << 16, None).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        stream.write_all(text.to_uppercase().as_bytes()).unwrap();
        drop(stream);
        let closed = Stream::connect(&node, &token, 1 << 16, None).err().map(|why| why.kind());
        say(&format!("closed {closed:?}"));
        return;
    }
    for path in PATHS {
        let node = Arc::new(Node::alone().unwrap());
        let listener = Listener::new(&node, 1 << 16).unwrap();
        let late = listener.accept(Some(Duration::from_millis(30))).err().map(|why| why.kind());
        assert_eq!(late, Some(ErrorKind::TimedOut));
        let ask = || {
            let mut other = Other::start(TEST, "asks", path);
            other.tell(&hex(&listener.token().to_bytes()));
            other.expect("asks");
            other
        };
        let mut killed = ask();
        std::thread::sleep(Duration::from_millis(200)); // Its request is in the log by then, or it never comes.
        assert!(killed.kill());
        let mut others: Vec<Other> = (0..REQUESTS).map(|_| ask()).collect();
        let mut streams: Vec<Stream> = (0..REQUESTS).map(|_| listener.accept(None).unwrap()).collect();
        for (at, stream) in streams.iter_mut().enumerate() {
            stream.write_all(format!("to the process {at}").as_bytes()).unwrap();
            stream.finish().unwrap();
        }
        drop(listener);
        for (at, stream) in streams.iter_mut().enumerate() {
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text, format!("TO THE PROCESS {at}"));
        }
        for other in &mut others {
            assert_eq!(other.expect("closed"), "Some(ConnectionRefused)");
        }
    }
}

#[test]
fn waits_of_a_stream_have_bounds() {
    let node = Arc::new(Node::alone().unwrap());
    let listener = Listener::new(&node, 4096).unwrap();
    let token = listener.token();
    let brief = Some(Duration::from_millis(30));
    let kind = |why: std::io::Error| why.kind();
    // Nobody accepts. A process that has given up is skipped.
    assert_eq!(Stream::connect(&node, &token, 4096, brief).err().map(kind), Some(ErrorKind::TimedOut));
    let (client, server) = std::thread::scope(|scope| {
        let asks = scope.spawn(|| Stream::connect(&node, &token, 4096, None).unwrap());
        let server = listener.accept(None).unwrap();
        (asks.join().unwrap(), server)
    });
    assert_eq!(client.read_within(&mut [0], brief).unwrap_err().kind(), ErrorKind::TimedOut);
    let mut written = 0;
    let late = loop {
        match client.write_within(&[7; 1000], brief) {
            Ok(length) => written += length,
            Err(why) => break why,
        }
    };
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    assert_eq!(client.flush_within(brief).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(client.finish_within(brief).unwrap_err().kind(), ErrorKind::TimedOut);
    let mut read = Vec::new();
    let mut reader = server.clone();
    reader.read_to_end(&mut read).unwrap();
    assert_eq!(read, vec![7; written]);
    client.finish_within(Some(Duration::from_secs(10))).unwrap();
    let other = Listener::new(&node, 100).err().map(kind);
    assert_eq!(other, Some(ErrorKind::InvalidInput));
    let own = node.zeroed::<u8>(100).unwrap().export(pagewire::Rights::all()).unwrap();
    assert_eq!(Stream::connect(&node, &own, 4096, None).err().map(kind), Some(ErrorKind::InvalidInput));
    // Memory that only has the right length stays as it is.
    for bytes in [4096, (1 << 20) + 4096] {
        let memory = node.zeroed::<u8>(bytes).unwrap();
        let token = memory.export(pagewire::Rights::all()).unwrap();
        let by_listener = Stream::connect(&node, &token, 4096, None).err().map(kind);
        let by_end = Endpoint::new(&node, 4096).unwrap().connect(&node, &token).err().map(kind);
        assert_eq!([by_listener, by_end], [Some(ErrorKind::InvalidInput); 2]);
        let mut found = vec![1; bytes];
        memory.read(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }
}
