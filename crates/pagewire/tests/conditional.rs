//! Conditional writes between nodes of one process and between processes (FRRWP-1, FRRWP-2).

use pagewire::raw::{Deferred, Posted};
use pagewire::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Two nodes, and a table of the receiver.
fn pair(count: usize) -> (Node, Node, Region<u64>, Token) {
    let (writer, receiver) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = receiver.zeroed::<u64>(count).unwrap();
    let token = table.export(Rights::WRITE).unwrap();
    (writer, receiver, table, token)
}

#[test]
fn a_write_waits_for_its_release() {
    let (writer, receiver, table, token) = pair(1 << 16);
    for (tag, count) in [(1, 0), (2, 1), (3, 512), (4, 1 << 16)] {
        let values: Vec<u64> = (0..count as u64).map(|value| value + tag).collect();
        let held = writer.conditional_write(receiver.identity(), tag, values.clone()).unwrap();
        let opened = receiver.next_conditional_request(PATIENCE).unwrap();
        assert_eq!((opened.peer(), opened.tag()), (writer.identity(), tag));
        assert_eq!((opened.length(), opened.direction()), (8 * count as u64, Direction::Write));
        assert!(!held.is_done(), "nothing was released");
        let released = opened.accept(&token).unwrap();
        assert_eq!(released.wait().unwrap(), 8 * count as u64);
        let mut there = vec![0; count];
        table.read(0, &mut there).unwrap();
        assert_eq!(there, values, "the bytes are there when the release has ended");
        assert_eq!(held.wait(), WriteOutcome::Written(values));
    }
}

#[test]
fn a_release_waits_for_its_write() {
    let (writer, receiver, table, token) = pair(4);
    let released = receiver.accept_conditional_write(writer.identity(), 9, &token).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let held = writer.conditional_write(receiver.identity(), 9, vec![5u64, 6]).unwrap();
    assert_eq!(held.wait(), WriteOutcome::Written(vec![5, 6]));
    assert_eq!((released.wait().unwrap(), table.get(1).unwrap()), (16, 6));
    // Its opening was answered before it came.
    assert!(matches!(
        receiver.next_conditional_request(Duration::from_millis(1)),
        Err(Error::Timeout { .. })
    ));
}

#[test]
fn a_release_may_name_any_peer() {
    let (writer, receiver, table, token) = pair(4);
    let other = Node::alone().unwrap();
    let first = receiver.accept_any_conditional_write(3, &token).unwrap();
    let held = writer.conditional_write(receiver.identity(), 3, vec![1u64]).unwrap();
    assert_eq!(first.wait().unwrap(), 8);
    assert_eq!(held.wait(), WriteOutcome::Written(vec![1]));
    let held = other.conditional_write(receiver.identity(), 3, vec![2u64]).unwrap();
    let opened = receiver.next_conditional_request(PATIENCE).unwrap();
    assert_eq!(opened.peer(), other.identity());
    assert_eq!(receiver.accept_any_conditional_write(3, &token).unwrap().wait().unwrap(), 8);
    assert_eq!(held.wait(), WriteOutcome::Written(vec![2]));
    assert_eq!(table.get(0).unwrap(), 2);
}

#[test]
fn a_read_is_a_conditional_write_of_the_peer() {
    let (owner, reader) = (Node::alone().unwrap(), Node::alone().unwrap());
    let room = reader.zeroed::<u64>(100).unwrap();
    let read = reader.conditional_read(owner.identity(), 4, &room).unwrap();
    let opened = owner.next_conditional_request(PATIENCE).unwrap();
    assert_eq!((opened.tag(), opened.length(), opened.direction()), (4, 800, Direction::Read));
    let held = opened.supply((0..50u64).collect::<Vec<_>>()).unwrap();
    assert_eq!(read.wait().unwrap(), 400);
    assert_eq!(room.get(49).unwrap(), 49);
    assert!(matches!(held.wait(), WriteOutcome::Written(_)));
}

#[test]
fn a_held_write_delays_nothing_behind_it() {
    let (writer, receiver, table, token) = pair(4);
    let remote = writer.open(&token).unwrap();
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    remote.put(8, vec![7u64]).wait().unwrap();
    writer.flush().unwrap();
    assert_eq!((table.get(0).unwrap(), table.get(1).unwrap()), (0, 7));
    receiver.accept_conditional_write(writer.identity(), 1, &token).unwrap().wait().unwrap();
    assert_eq!(held.wait(), WriteOutcome::Written(vec![1]));
}

#[test]
fn a_cancelled_write_writes_nothing() {
    let (writer, receiver, table, token) = pair(4);
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    let opened = receiver.next_conditional_request(PATIENCE).unwrap();
    assert!(matches!(held.cancel(), WriteOutcome::Cancelled(buffer, _) if buffer == [1]));
    let end = opened.accept(&token).and_then(Acceptance::wait);
    assert!(matches!(end, Err(Error::Failed(Failure::Cancelled { .. }))), "{end:?}");
    assert_eq!(table.get(0).unwrap(), 0);
    // The tag is free again, for a write and its own release.
    let held = writer.conditional_write(receiver.identity(), 1, vec![2u64]).unwrap();
    receiver.accept_conditional_write(writer.identity(), 1, &token).unwrap().wait().unwrap();
    assert_eq!(held.cancel(), WriteOutcome::Written(vec![2]), "it had been written before");
}

#[test]
fn a_write_ends_when_its_time_is_over() {
    let (writer, receiver, table, token) = pair(4);
    let start = Instant::now();
    let held = writer
        .conditional_write(receiver.identity(), 1, vec![1u64])
        .unwrap()
        .within(Duration::from_millis(30));
    assert!(matches!(held.wait(), WriteOutcome::TimedOut(buffer, _) if buffer == [1]));
    assert!(start.elapsed() >= Duration::from_millis(30));
    // It may have been taken before its end was told.
    if let Ok(opened) = receiver.next_conditional_request(Duration::from_millis(1)) {
        let end = opened.accept(&token).and_then(Acceptance::wait);
        assert!(matches!(end, Err(Error::Failed(Failure::Cancelled { .. }))), "{end:?}");
    }
    assert_eq!(table.get(0).unwrap(), 0);
}

#[test]
fn a_declined_write_ends() {
    let (writer, receiver, ..) = pair(4);
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    receiver.next_conditional_request(PATIENCE).unwrap().decline();
    assert!(matches!(held.wait(), WriteOutcome::Refused(buffer, Failure::Declined { .. }) if buffer == [1]));
}

#[test]
fn what_a_token_does_not_take_is_refused_on_both_sides() {
    let (writer, receiver, table, token) = pair(2);
    let read_only = table.export(Rights::READ).unwrap();
    let others = writer.zeroed::<u64>(2).unwrap().export(Rights::WRITE).unwrap();
    let gone = table.export(Rights::WRITE).unwrap();
    receiver.unexport(&gone).unwrap();
    for (tag, token, count) in [(1, read_only, 1), (2, token, 3), (3, others, 1), (4, gone, 1)] {
        let held = writer.conditional_write(receiver.identity(), tag, vec![9u64; count]).unwrap();
        let end = receiver.accept_conditional_write(writer.identity(), tag, &token).unwrap().wait();
        assert!(
            matches!(end, Err(Error::Failed(Failure::Refused { rule: Rule::Release, .. }))),
            "{tag} {end:?}"
        );
        assert!(matches!(held.wait(), WriteOutcome::Refused(buffer, _) if buffer.len() == count), "{tag}");
    }
    assert_eq!((table.get(0).unwrap(), table.get(1).unwrap()), (0, 0));
}

#[test]
fn a_refused_put_ends_no_held_write() {
    let (writer, receiver, table, token) = pair(2);
    let gone = table.export(Rights::WRITE).unwrap();
    let remote = writer.open(&gone).unwrap();
    let held = writer.conditional_write(receiver.identity(), 1, vec![3u64]).unwrap();
    receiver.unexport(&gone).unwrap();
    remote.put(0, vec![1u64]).wait().unwrap_err();
    let opened = receiver.next_conditional_request(PATIENCE).unwrap();
    opened.accept(&token).unwrap().wait().unwrap();
    assert_eq!(held.wait(), WriteOutcome::Written(vec![3]));
}

#[test]
fn a_tag_is_used_once_with_a_peer() {
    let (writer, receiver, ..) = pair(2);
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    let error =
        writer.conditional_write(receiver.identity(), 1, vec![2u64]).err().expect("the tag is in use");
    assert_eq!(error.buffer, [2]);
    assert!(matches!(error.failure, Failure::Refused { rule: Rule::TagInUse(1), .. }));
    assert!(matches!(held.cancel(), WriteOutcome::Cancelled(buffer, _) if buffer == [1]));
}

#[test]
fn dropped_writes_are_done_and_forgotten_ones_stay_sound() {
    let (writer, receiver, table, token) = pair(2);
    drop(writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap());
    receiver.accept_conditional_write(writer.identity(), 1, &token).unwrap().wait().unwrap();
    assert_eq!(table.get(0).unwrap(), 1);
    std::mem::forget(writer.conditional_write(receiver.identity(), 2, vec![2u64]).unwrap());
    receiver.accept_conditional_write(writer.identity(), 2, &token).unwrap().wait().unwrap();
    assert_eq!(table.get(0).unwrap(), 2);
}

#[test]
fn writes_that_are_left_held_end_with_their_node() {
    let (writer, receiver, ..) = pair(2);
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    drop(writer);
    assert!(matches!(held.wait(), WriteOutcome::Cancelled(buffer, _) if buffer == [1]));
}

/// The receiver of [`a_lost_receiver_ends_what_is_held`], in a process of its own.
#[test]
#[ignore = "a process of another test"]
fn receiver_process() {
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(2).unwrap();
    let token = table.export(Rights::WRITE).unwrap();
    let text: String = token.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("token {text}");
    std::io::stdout().flush().unwrap();
    let opened = node.next_conditional_request(PATIENCE).unwrap();
    opened.accept(&token).unwrap().wait().unwrap();
    println!("written {}", table.get(0).unwrap());
    std::thread::sleep(PATIENCE);
}

fn spawn_receiver() -> (Child, Token, impl Iterator<Item = String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "receiver_process", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let text = lines.by_ref().find_map(|line| line.split_once("token ").map(|(_, text)| text.to_owned()));
    let text = text.expect("a token");
    let bytes: Vec<u8> =
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect();
    (child, Token::from_bytes(&bytes).unwrap(), lines)
}

#[test]
fn a_lost_receiver_ends_what_is_held() {
    let (mut child, token, mut lines) = spawn_receiver();
    let node = Node::alone().unwrap();
    let first = node.conditional_write(token.owner(), 1, vec![42u64]).unwrap();
    assert_eq!(first.wait(), WriteOutcome::Written(vec![42]));
    assert!(lines.any(|line| line.contains("written 42")));
    let held = node.conditional_write(token.owner(), 2, vec![1u64]).unwrap();
    assert!(!held.is_done());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(matches!(held.wait(), WriteOutcome::PeerLost(buffer, _) if buffer == [1]));
    let error = node.conditional_write(token.owner(), 3, vec![1u64]).err().expect("the peer is gone");
    assert!(matches!(error.failure, Failure::PeerLost { .. }), "{}", error.failure);
}

#[test]
fn a_release_to_a_lost_peer_ends() {
    let (mut child, token, _lines) = spawn_receiver();
    child.kill().unwrap();
    child.wait().unwrap();
    let node = Node::alone().unwrap();
    let own = node.zeroed::<u64>(1).unwrap().export(Rights::WRITE).unwrap();
    let end = node.accept_conditional_write(token.owner(), 1, &own).unwrap().wait();
    assert!(matches!(end, Err(Error::Failed(Failure::PeerLost { .. }))), "{end:?}");
}

#[test]
fn an_opening_is_released_itself_or_not_at_all() {
    let (writer, receiver, table, token) = pair(4);
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    let first = receiver.next_conditional_request(PATIENCE).unwrap();
    assert!(matches!(held.cancel(), WriteOutcome::Cancelled(..)));
    let held = writer.conditional_write(receiver.identity(), 1, vec![2u64]).unwrap();
    let second = receiver.next_conditional_request(PATIENCE).unwrap();
    let end = first.accept(&token).and_then(Acceptance::wait);
    assert!(matches!(end, Err(Error::Failed(Failure::Cancelled { .. }))), "{end:?}");
    assert!(!held.is_done() && table.get(0).unwrap() == 0);
    assert_eq!(second.accept(&token).unwrap().wait().unwrap(), 8);
    assert_eq!(held.wait(), WriteOutcome::Written(vec![2]));
}

#[test]
fn a_peer_that_is_no_pagewire_is_an_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        // What is not read would reset the connection.
        let read = stream.read(&mut [0; 256]).unwrap();
        assert!(read > 0);
        stream.write_all(b"220 mail.example ESMTP\r\n").unwrap();
    });
    let node = Node::alone().unwrap();
    let mut bytes = node.zeroed::<u64>(1).unwrap().export(Rights::WRITE).unwrap().to_bytes();
    // The token of a node at that port: its checksum is made anew.
    bytes[4..6].copy_from_slice(&port.to_be_bytes());
    bytes[32..48].copy_from_slice(&std::net::Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
    bytes[12..16].fill(0);
    let checksum = crc32fast::hash(&bytes);
    bytes[12..16].copy_from_slice(&checksum.to_be_bytes());
    let peer = Token::from_bytes(&bytes).unwrap().owner();
    let error = node.conditional_write(peer, 1, vec![1u64]).err().expect("it is no Pagewire");
    assert!(error.failure.to_string().contains("no Pagewire"), "{}", error.failure);
    answers.join().unwrap();
}

/// Whether poll(2) reports a node within this time.
fn is_ready(node: &Node, patience: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let descriptor = node.descriptor().unwrap();
    let time = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)], Some(&time)).unwrap() == 1
}

#[test]
fn one_descriptor_tells_of_all_that_is_ready() {
    let (writer, receiver, _table, token) = pair(4);
    let remote = writer.open(&token).unwrap();
    assert!(!is_ready(&writer, Duration::ZERO) && !is_ready(&receiver, Duration::ZERO));
    let held = writer.conditional_write(receiver.identity(), 1, vec![1u64]).unwrap();
    assert!(is_ready(&receiver, PATIENCE), "something was opened");
    let opened = receiver.next_conditional_request(PATIENCE).unwrap();
    assert!(!is_ready(&receiver, Duration::ZERO), "it was taken");
    let released = opened.accept(&token).unwrap();
    assert!(is_ready(&receiver, PATIENCE) && is_ready(&writer, PATIENCE));
    released.wait().unwrap();
    held.wait().into_result().unwrap();
    assert!(!is_ready(&receiver, Duration::ZERO) && !is_ready(&writer, Duration::ZERO));
    let (put, dropped) = (remote.put(8, vec![2u64]), remote.put(8, vec![3u64]));
    assert!(is_ready(&writer, PATIENCE));
    drop(dropped);
    remote.flush().unwrap();
    assert!(is_ready(&writer, Duration::ZERO), "one has a result still");
    put.wait().unwrap();
    assert!(!is_ready(&writer, Duration::ZERO));
}

#[test]
fn many_writes_from_several_threads_end_once_each() {
    const WRITES: u64 = 500;
    let (writer, receiver, table, _) = pair(4 * WRITES as usize);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (writer, receiver, table) = (&writer, &receiver, &table);
            scope.spawn(move || {
                for number in (0..WRITES).map(|number| thread * WRITES + number) {
                    let held =
                        writer.conditional_write(receiver.identity(), number, vec![number + 1]).unwrap();
                    let part = 8 * number..8 * number + 8;
                    let token = table.export_part(part, Rights::WRITE).unwrap();
                    let released =
                        receiver.accept_conditional_write(writer.identity(), number, &token).unwrap();
                    let outcome = if number % 3 == 0 { held.cancel() } else { held.wait() };
                    match (outcome, released.wait()) {
                        (WriteOutcome::Written(_), Ok(8)) => {
                            assert_eq!(table.get(number as usize).unwrap(), number + 1);
                        }
                        (WriteOutcome::Cancelled(..), Err(Error::Failed(failure))) => {
                            assert!(matches!(failure, Failure::Cancelled { .. } | Failure::TimedOut { .. }));
                            assert_eq!(table.get(number as usize).unwrap(), 0);
                        }
                        (outcome, released) => panic!("{outcome:?}, {released:?}"),
                    }
                    receiver.unexport(&token).unwrap();
                }
            });
        }
    });
}

/// A write of another layer, which notes what becomes of it.
#[derive(Default)]
struct OfAnotherLayer {
    /// Posts that find no space.
    full: AtomicU32,
    has_ended: AtomicBool,
    posts: Mutex<Vec<(u64, u32)>>,
    ends: Mutex<Vec<Failure>>,
}

impl Deferred for OfAnotherLayer {
    fn length(&self) -> u64 {
        100
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }

    fn post(&self, address: u64, key: u32) -> Posted {
        if self.full.load(Ordering::Relaxed) > 0 {
            self.full.fetch_sub(1, Ordering::Relaxed);
            return Posted::Full;
        }
        self.posts.lock().unwrap().push((address, key));
        Posted::Done
    }

    fn end(&self, failure: &Failure) {
        self.ends.lock().unwrap().push(failure.clone());
    }
}

impl OfAnotherLayer {
    /// How it has ended, once it has.
    fn end_of(&self) -> Failure {
        let start = Instant::now();
        while self.ends.lock().unwrap().is_empty() {
            assert!(start.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
        self.ends.lock().unwrap()[0].clone()
    }
}

#[test]
fn writes_of_another_layer_are_posted_or_ended_once() {
    let (writer, receiver) = (Node::alone().unwrap(), Node::alone().unwrap());
    let (to, from) = (receiver.identity(), writer.identity());
    let hold = |tag, patience| {
        let write = Arc::new(OfAnotherLayer::default());
        writer.hold_deferred(to, tag, write.clone(), patience).unwrap();
        write
    };
    // The queue is full three times.
    let write = hold(1, None);
    write.full.store(3, Ordering::Relaxed);
    assert!(writer.hold_deferred(to, 1, write.clone(), None).is_err(), "the tag is in use");
    assert_eq!(receiver.release_memory(from, 1, (4096, 100), 7).unwrap().wait().unwrap(), 100);
    assert_eq!(*write.posts.lock().unwrap(), [(4096, 7)]);
    // The memory is too short.
    let short = hold(2, None);
    let released = receiver.release_memory(from, 2, (4096, 99), 7).unwrap();
    assert!(matches!(short.end_of(), Failure::Refused { side: Side::Target, rule: Rule::Release, .. }));
    assert!(matches!(released.wait(), Err(Error::Failed(Failure::Refused { .. }))));
    // Cancelled, timed out, and its queue ended.
    let cancelled = hold(3, None);
    writer.cancel_deferred(to, 3);
    assert!(matches!(cancelled.end_of(), Failure::Cancelled { .. }));
    let late = hold(4, Some(Duration::from_millis(1)));
    assert!(matches!(late.end_of(), Failure::TimedOut { .. }));
    let over = hold(5, None);
    over.has_ended.store(true, Ordering::Relaxed);
    assert!(matches!(over.end_of(), Failure::PeerLost { .. }));
    let last = hold(6, None);
    drop(writer);
    assert!(matches!(last.end_of(), Failure::Cancelled { .. }));
    for ended in [short, cancelled, late, over, last] {
        assert!(ended.posts.lock().unwrap().is_empty() && ended.ends.lock().unwrap().len() == 1);
    }
    assert!(write.ends.lock().unwrap().is_empty());
}
