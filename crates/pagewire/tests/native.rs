//! Nodes, regions and operations, between nodes of one process and between processes.

use pagewire::*;
use std::future::Future;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Two nodes, and a table of the first one opened by the second.
fn pair(count: usize, rights: Rights) -> (Node, Node, Region<u64>, RemoteRegion) {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(count).unwrap();
    let remote = caller.open(&table.export(rights).unwrap()).unwrap();
    (owner, caller, table, remote)
}

#[test]
fn bytes_go_there_and_come_back() {
    let (_owner, _caller, table, remote) = pair(1 << 17, Rights::all());
    for count in [0, 1, 2, 512, 513, 1 << 16] {
        let values: Vec<u64> = (0..count as u64).map(|value| value * 3 + 1).collect();
        let buffer = remote.put(24, values.clone()).wait().unwrap();
        assert_eq!(buffer, values, "the buffer comes back");
        let mut there = vec![0; count];
        table.read(3, &mut there).unwrap();
        assert_eq!(there, values);
        assert_eq!(remote.get::<u64>(24, count).unwrap().wait().unwrap(), values);
    }
    assert_eq!(table.get(2).unwrap(), 0, "nothing beside it was written");
}

#[test]
fn atomics_give_what_was_there() {
    let (_owner, _caller, table, remote) = pair(4, Rights::ATOMIC);
    assert_eq!(remote.fetch_add(8, 5).wait().unwrap(), 0);
    assert_eq!(remote.fetch_add(8, 5).wait().unwrap(), 5);
    assert_eq!(remote.compare_swap(8, 9, 1).wait().unwrap(), 10);
    assert_eq!(remote.compare_swap(8, 10, 1).wait().unwrap(), 10);
    assert_eq!(remote.swap(8, 77).wait().unwrap(), 1);
    assert_eq!(table.get(1).unwrap(), 77);
}

#[test]
fn additions_of_several_nodes_are_all_there() {
    const TIMES: u64 = 2000;
    let owner = Node::alone().unwrap();
    let words = owner.words(2).unwrap();
    let token = words.export(Rights::ATOMIC).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let node = Node::alone().unwrap();
                let remote = node.open(&token).unwrap();
                let all: Vec<_> = (0..TIMES).map(|_| remote.fetch_add(8, 1)).collect();
                all.into_iter().for_each(|operation| assert!(operation.wait().unwrap() < 3 * TIMES));
            });
        }
    });
    assert_eq!(words.words()[1].load(Ordering::Acquire), 3 * TIMES);
}

#[test]
fn a_signal_comes_behind_its_bytes() {
    let (_owner, _caller, table, remote) = pair(1 << 12, Rights::WRITE | Rights::ATOMIC);
    let signal = table.signal(8 * 4095).unwrap();
    for round in 1..=200u64 {
        let put = remote.put_signal(0, vec![round; 4000], remote.signal(8 * 4095).add(1));
        assert_eq!(signal.wait_until(|count| count >= round).unwrap(), round);
        let mut bytes = vec![0; 4000];
        table.read(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|value| *value == round));
        put.wait().unwrap();
    }
    remote.put_signal(0, vec![1u64], remote.signal(8 * 4095).set(9)).wait().unwrap();
    assert_eq!(signal.value(), 9);
    assert!(signal.wait_until_within(Duration::from_millis(5), |value| value == 10).is_err());
}

/// The rule that an operation was refused by, and the side.
fn refusal<B: std::fmt::Debug>(result: std::result::Result<B, OperationError<B>>) -> (Side, Rule) {
    match result.unwrap_err().failure {
        Failure::Refused { side, rule, .. } => (side, rule),
        other => panic!("{other}"),
    }
}

#[test]
fn what_the_token_does_not_give_is_refused_at_the_caller() {
    let (_owner, _caller, table, remote) = pair(4, Rights::READ);
    assert_eq!(refusal(remote.put(0, vec![1u64]).wait()), (Side::Caller, Rule::Rights("put")));
    assert_eq!(refusal(remote.fetch_add(0, 1).wait()), (Side::Caller, Rule::Rights("fetch-add")));
    let bounds = Rule::Bounds { offset: 24, count: 16, length: 32 };
    assert_eq!(refusal(remote.get::<u64>(24, 2).unwrap().wait()), (Side::Caller, bounds));
    let bounds = Rule::Bounds { offset: u64::MAX, count: 8, length: 32 };
    assert_eq!(refusal(remote.get::<u64>(u64::MAX, 1).unwrap().wait()), (Side::Caller, bounds));
    assert_eq!(table.get(0).unwrap(), 0);
}

#[test]
fn an_unexported_token_is_refused_and_what_stands_behind_it_goes_on() {
    let (owner, caller, table, remote) = pair(8, Rights::all());
    let stale = table.export_part(0..8, Rights::WRITE).unwrap();
    let gone = caller.open(&stale).unwrap();
    gone.put(0, vec![1u64]).wait().unwrap();
    owner.unexport(&stale).unwrap();
    for round in 0..20 {
        let before: Vec<_> = (0..5).map(|_| remote.fetch_add(8, 1)).collect();
        let refused = gone.put(0, vec![2u64]);
        let behind: Vec<_> = (0..5).map(|_| remote.fetch_add(8, 1)).collect();
        assert_eq!(refusal(refused.wait()), (Side::Target, Rule::Key));
        let found: Vec<u64> =
            before.into_iter().chain(behind).map(|operation| operation.wait().unwrap()).collect();
        assert_eq!(
            found,
            (0..10).map(|n| round * 10 + n).collect::<Vec<_>>(),
            "each was done once, in order"
        );
    }
    assert_eq!(table.get(0).unwrap(), 1, "nothing was written by the stale token");
}

#[test]
fn the_end_of_a_region_ends_its_tokens() {
    let (_owner, caller, table, remote) = pair(8, Rights::all());
    let token = table.export(Rights::READ).unwrap();
    drop(table);
    assert_eq!(refusal(remote.put(0, vec![1u64]).wait()), (Side::Target, Rule::Key));
    let again = caller.open(&token).unwrap();
    assert_eq!(refusal(again.get::<u64>(0, 1).unwrap().wait()), (Side::Target, Rule::Key));
}

#[test]
fn flush_reports_unawaited_failure() {
    let (owner, caller, table, remote) = pair(8, Rights::all());
    owner.unexport(&table.export(Rights::READ).unwrap()).unwrap();
    drop(remote.put(0, vec![1u64]));
    caller.flush().unwrap();
    assert_eq!(table.get(0).unwrap(), 1);
    drop(table);
    drop(remote.put(0, vec![1u64]));
    assert!(matches!(remote.flush(), Err(Failure::Refused { side: Side::Target, .. })));
    remote.flush().unwrap();
}

/// Runs a future on this thread, which sleeps meanwhile.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn futures_wake_whoever_awaits_them() {
    let (_owner, _caller, table, remote) = pair(1 << 20, Rights::all());
    block_on(async {
        for round in 0..50u64 {
            let buffer = remote.put(0, vec![round; 1 << 18]).await.unwrap();
            assert_eq!(remote.get_into(0, buffer).await.unwrap()[77], round);
            assert_eq!(remote.fetch_add(8 << 19, 1).await.unwrap(), round);
        }
    });
    assert_eq!(table.get(1 << 19).unwrap(), 50);
}

#[test]
fn operations_that_are_dropped_or_forgotten_are_done_all_the_same() {
    let (_owner, _caller, table, remote) = pair(1 << 12, Rights::all());
    for round in 0..300u64 {
        drop(remote.put(0, vec![round; 2000]));
        std::mem::forget(remote.put(8 * 2000, vec![round; 2000]));
        drop(remote.get::<u64>(0, 2000).unwrap());
    }
    remote.flush().unwrap();
    assert_eq!((table.get(1999).unwrap(), table.get(3999).unwrap()), (299, 299));
}

#[test]
fn tokens_of_a_node_that_has_ended_cannot_be_opened() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(8).unwrap();
    let token = table.export(Rights::READ).unwrap();
    let remote = caller.open(&token).unwrap();
    drop(owner);
    let lost = remote.get::<u64>(0, 1).unwrap().wait().unwrap_err();
    assert!(matches!(lost.failure, Failure::PeerLost { .. }), "{lost}");
    assert!(matches!(caller.open(&token), Err(Error::Connect { .. })));
}

#[test]
fn a_forged_token_is_refused_by_the_owner() {
    let (_owner, caller, table, _remote) = pair(8, Rights::all());
    let genuine = table.export_part(0..8, Rights::READ).unwrap();
    for change in [(3, 7u8), (11, genuine.to_bytes()[11] ^ 1), (30, 1)] {
        let mut bytes = genuine.to_bytes();
        bytes[change.0] = change.1;
        assert_eq!(Token::from_bytes(&bytes), Err(TokenError::Checksum));
        bytes[12..16].fill(0);
        let checksum = crc32fast::hash(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_be_bytes());
        let forged = Token::from_bytes(&bytes).unwrap();
        let remote = caller.open(&forged).unwrap();
        let refused = match change.0 {
            3 => refusal(remote.put(0, vec![1u64]).wait()),
            11 => refusal(remote.get::<u64>(0, 1).unwrap().wait()),
            _ => refusal(remote.get::<u64>(8, 1).unwrap().wait()),
        };
        assert_eq!(refused, (Side::Target, Rule::Key));
    }
    assert_eq!(table.get(0).unwrap(), 0);
}

/// Another process, which runs the test of this name with a token on its standard input.
struct Other(Child);

const OTHER: &str = "PAGEWIRE_TEST_OTHER";

impl Other {
    fn start(test: &str, path: &str, token: &Token) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(OTHER, "yes")
            .env("PAGEWIRE_PATH", path)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.as_mut().unwrap().write_all(&token.to_bytes()).unwrap();
        Other(child)
    }

    /// The token, in the other process.
    fn token() -> Option<Token> {
        std::env::var_os(OTHER)?;
        let mut bytes = [0; Token::LEN];
        std::io::stdin().read_exact(&mut bytes).unwrap();
        Some(Token::from_bytes(&bytes).unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        self.0.wait().unwrap();
    }
}

#[test]
fn another_process_puts_on_both_paths() {
    if let Some(token) = Other::token() {
        let node = Node::alone().unwrap();
        let remote = node.open(&token).unwrap();
        for round in 1..=50u64 {
            remote.put_signal(0, vec![round; 4000], remote.signal(8 * 4095).add(1)).wait().unwrap();
        }
        let path = std::env::var("PAGEWIRE_PATH").unwrap();
        let explained = node.explain(&token).unwrap();
        assert!(path == "auto" || explained.contains(&path), "{explained}");
        return;
    }
    let node = Node::alone().unwrap();
    for path in ["auto", "udp"] {
        let table = node.zeroed::<u64>(1 << 12).unwrap();
        let mut other =
            Other::start("another_process_puts_on_both_paths", path, &table.export(Rights::all()).unwrap());
        let count =
            table.signal(8 * 4095).unwrap().wait_until_within(Duration::from_secs(60), |count| count == 50);
        assert_eq!(count.unwrap(), 50);
        assert_eq!((table.get(0).unwrap(), table.get(3999).unwrap()), (50, 50));
        assert!(other.0.wait().unwrap().success());
    }
}

#[test]
fn a_peer_that_is_killed_is_lost_and_the_others_go_on() {
    if let Some(token) = Other::token() {
        let node = Node::alone().unwrap();
        let own = node.zeroed::<u64>(16).unwrap();
        let remote = node.open(&token).unwrap();
        let bytes = own.export(Rights::all()).unwrap().to_bytes().to_vec();
        remote.put_signal(0, bytes, remote.signal(64).set(1)).wait().unwrap();
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let node = Node::alone().unwrap();
    for path in ["auto", "udp"] {
        let inbox = node.zeroed::<u64>(16).unwrap();
        let token = inbox.export(Rights::all()).unwrap();
        let other = Other::start("a_peer_that_is_killed_is_lost_and_the_others_go_on", path, &token);
        inbox.signal(64).unwrap().wait_until_within(Duration::from_secs(60), |value| value == 1).unwrap();
        let mut words = [0; 7];
        inbox.read(0, &mut words).unwrap();
        let theirs = Token::from_bytes(zerocopy::IntoBytes::as_bytes(&words)).unwrap();
        let (remote, own) = (node.open(&theirs).unwrap(), node.open(&token).unwrap());
        assert_eq!(remote.fetch_add(0, 1).wait().unwrap(), 0);
        drop(other);
        // Memory that this process has mapped is there until it learns of the end.
        let lost = loop {
            match remote.fetch_add(0, 1).wait() {
                Ok(_) => std::thread::sleep(Duration::from_millis(1)),
                Err(error) => break error,
            }
        };
        assert!(matches!(lost.failure, Failure::PeerLost { .. }), "{lost}");
        own.put(8, vec![5u64]).wait().unwrap();
        assert_eq!(inbox.get(1).unwrap(), 5);
    }
}

#[test]
fn pieces_go_where_they_belong_however_many_they_are() {
    let (_owner, _caller, table, remote) = pair(1 << 12, Rights::all());
    // A column of a matrix of 1,000 rows: more pieces than the engine has at a time.
    let column: Vec<u64> = (1..=1000).collect();
    let column = remote.put_strided(8, 32, 8, column).wait().unwrap();
    assert!((0..1000).all(|row| table.get(4 * row + 1).unwrap() == row as u64 + 1));
    assert_eq!((table.get(0).unwrap(), table.get(2).unwrap()), (0, 0));
    assert_eq!(remote.get_strided(8, 32, 8, vec![0u64; 1000]).wait().unwrap(), column);
    let pieces = [(8 * 4001, 16), (8 * 4000, 8)];
    remote.put_scattered(&pieces, vec![1u64, 2, 3]).wait().unwrap();
    assert_eq!([4000, 4001, 4002].map(|index| table.get(index).unwrap()), [3, 1, 2]);
    assert_eq!(remote.get_scattered(&pieces, vec![0u64; 3]).wait().unwrap(), [1, 2, 3]);
    assert_eq!(remote.put_scattered(&[], Vec::<u64>::new()).wait().unwrap(), []);
    let rule = Rule::Pieces { pieces: 24, buffer: 8 };
    assert_eq!(refusal(remote.put_scattered(&pieces, vec![1u64]).wait()), (Side::Caller, rule));
    let rule = Rule::Bounds { offset: 8 << 12, count: 8, length: 8 << 12 };
    assert_eq!(refusal(remote.put_strided(0, 8, 8, vec![7u64; 4097]).wait()), (Side::Caller, rule));
    assert_eq!(table.get(0).unwrap(), 0, "refused as a whole");
}

#[test]
fn a_refused_operation_between_long_ones_leaves_them_whole() {
    let (owner, caller, table, remote) = pair(1 << 12, Rights::all());
    let stale = table.export_part(0..8, Rights::WRITE).unwrap();
    let gone = caller.open(&stale).unwrap();
    owner.unexport(&stale).unwrap();
    for round in 1..=10u64 {
        let before = remote.put_strided(0, 16, 8, vec![round; 700]);
        let refused = gone.put(0, vec![9u64]);
        let behind = remote.put_strided(8, 16, 8, vec![round + 1000; 700]);
        assert_eq!(refusal(refused.wait()), (Side::Target, Rule::Key));
        before.wait().unwrap();
        behind.wait().unwrap();
        let found: Vec<u64> = (0..1400).map(|index| table.get(index).unwrap()).collect();
        assert!(found.chunks(2).all(|pair| pair == [round, round + 1000]));
    }
}

#[test]
fn a_batch_gives_each_put_its_own_end() {
    let (_owner, _caller, table, remote) = pair(1 << 10, Rights::all());
    let puts = (0..400u64).map(|index| (index * 24, vec![index + 1]));
    let results: Vec<_> = remote.put_batch(puts).into_iter().map(Operation::wait).collect();
    for (index, result) in results.into_iter().enumerate() {
        if index * 24 + 8 <= 8 << 10 {
            assert_eq!(result.unwrap(), [index as u64 + 1]);
            assert_eq!(table.get(index * 3).unwrap(), index as u64 + 1);
        } else {
            assert!(matches!(refusal(result), (Side::Caller, Rule::Bounds { .. })));
        }
    }
}

#[test]
fn unpolled_operations_complete() {
    let (_owner, _caller, table, remote) = pair(4096, Rights::all());
    (0..2000u64).for_each(|index| drop(remote.put(8 * index, vec![index + 1])));
    drop(remote.put_strided(8 * 2048, 16, 8, vec![7u64; 1000]));
    let start = std::time::Instant::now();
    while table.get(1999).unwrap() != 2000 || table.get(2048 + 2 * 999).unwrap() != 7 {
        assert!(start.elapsed() < Duration::from_secs(30), "nothing goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!((0..2000).all(|index| table.get(index).unwrap() == index as u64 + 1));
}

#[test]
fn shared_connection_executes_each_operation_once() {
    const TIMES: u64 = 300;
    let (owner, caller, table, remote) = pair(4096, Rights::all());
    let stale = table.export_part(0..8, Rights::all()).unwrap();
    let gone = caller.open(&stale).unwrap();
    owner.unexport(&stale).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (remote, gone) = (&remote, &gone);
            scope.spawn(move || {
                for round in 0..TIMES {
                    let added: Vec<_> = (0..5).map(|_| remote.fetch_add(8 * 16, 1)).collect();
                    let column = remote.put_strided(8 * (1024 + thread), 32, 8, vec![round; 20]);
                    if round % 10 == thread {
                        assert_eq!(refusal(gone.put(0, vec![1u64]).wait()), (Side::Target, Rule::Key));
                    }
                    assert_eq!(
                        remote.swap(8 * (20 + thread), round).wait().unwrap(),
                        round.saturating_sub(1)
                    );
                    column.wait().unwrap();
                    added.into_iter().for_each(|operation| assert!(operation.wait().unwrap() < 15 * TIMES));
                }
            });
        }
    });
    assert_eq!(table.get(16).unwrap(), 15 * TIMES);
    assert!((0..20).all(|row| table.get(1024 + 4 * row).unwrap() == TIMES - 1));
}

#[test]
fn a_node_that_is_dropped_ends_what_it_has_started() {
    let (_owner, caller, _table, remote) = pair(1 << 18, Rights::all());
    let operations: Vec<_> = (0..500).map(|_| remote.put(0, vec![3u64; 1 << 12])).collect();
    drop(caller);
    for operation in operations {
        match operation.wait() {
            Ok(buffer) => assert_eq!(buffer.len(), 1 << 12),
            Err(error) => assert!(matches!(error.failure, Failure::PeerLost { .. }), "{error}"),
        }
    }
    assert!(matches!(remote.put(0, vec![1u64]).wait().unwrap_err().failure, Failure::PeerLost { .. }));
}

#[test]
fn an_export_ends_once_whoever_ends_it() {
    let (owner, _caller, table, _remote) = pair(64, Rights::all());
    for _ in 0..100 {
        let token = table.export(Rights::READ).unwrap();
        let ended: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2).map(|_| scope.spawn(|| owner.unexport(&token).is_ok())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ended.contains(&true));
        assert!(owner.unexport(&token).is_err(), "it was unexported before");
    }
    let (one, other) = (table.export(Rights::READ).unwrap(), table.export(Rights::READ).unwrap());
    assert_ne!(one, other, "no place was given twice");
}

#[test]
fn strangers_do_no_harm() {
    let (_owner, caller, table, _remote) = pair(64, Rights::all());
    let bytes = table.export(Rights::all()).unwrap().to_bytes();
    let port = u16::from_be_bytes([bytes[4], bytes[5]]);
    let address: [u8; 16] = bytes[32..48].try_into().unwrap();
    let address = std::net::Ipv6Addr::from(address);
    let address = address.to_ipv4_mapped().map_or(std::net::IpAddr::V6(address), std::net::IpAddr::V4);
    let silent: Vec<_> = (0..200).map(|_| std::net::TcpStream::connect((address, port)).unwrap()).collect();
    for rubbish in [
        &b"GET / HTTP/1.0\r\n\r\n"[..],
        &[0],
        &[255; 300],
        &[9, 1, 2],
        b"\x20PAGEWIRE\x09aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    ] {
        let mut stream = std::net::TcpStream::connect((address, port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        // The node may have hung up in the midst.
        let _ = stream.write_all(rubbish);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() <= 16, "{answer:?}");
    }
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    remote.put(0, vec![5u64]).wait().unwrap();
    assert_eq!(table.get(0).unwrap(), 5);
    drop(silent);
}

#[test]
fn a_published_region_is_read_by_all_and_written_by_none() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let primes = owner.publish(&[2u32, 3, 5, 7]).unwrap();
    assert_eq!(primes.as_slice(), [2, 3, 5, 7]);
    assert!(primes.export(Rights::WRITE).is_err());
    let remote = caller.open(&primes.export(Rights::READ).unwrap()).unwrap();
    assert_eq!(remote.get::<u32>(4, 2).unwrap().wait().unwrap(), [3, 5]);
}

/// What is allocated in the registered heap is a buffer, too, and comes back as any other.
#[test]
fn a_vector_in_the_registered_heap_is_put() {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>(4).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    let heap = caller.heap().unwrap();
    let mut vector = allocator_api2::vec::Vec::with_capacity_in(3, heap.clone());
    vector.extend_from_slice(&[5_u64, 6, 7]);
    let vector = remote.put(8, vector).wait().unwrap();
    assert!(heap.contains(vector.as_ptr()) && vector[..] == [5, 6, 7]);
    assert_eq!([0, 1, 2, 3].map(|index| table.get(index).unwrap()), [0, 5, 6, 7]);
}
