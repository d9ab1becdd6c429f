//! A process ends by SIGKILL: its peer sees error completions in bounded time and goes on with its other queue pairs.

use crate::support::*;
use pagewire_nic::attributes::{QpState, QueuePairType};
use pagewire_nic::*;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

const PATH: &str = "PAGEWIRE_TEST_PATH";

/// The process that is killed; not a test by itself.
#[test]
#[ignore = "run by the tests of this file as a process of its own"]
fn peer() {
    let path = match std::env::var(PATH).expect("started by a test of this file").as_str() {
        "local" => PathChoice::Local,
        _ => PathChoice::Udp,
    };
    let side = Side::new(path);
    let queue_pair = side.queue_pair(QueuePairType::Rc, all_rights());
    let buffer = side.buffer(4096, all_rights());
    println!("\nPEER {} {} {}", queue_pair.number(), buffer.address, buffer.region.rkey());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    to_rtr(&side, &queue_pair, line.trim().parse().unwrap());
    to_rts(&queue_pair, TIMERS);
    println!("\nREADY");
    let start = Instant::now();
    while start.elapsed() < PATIENCE * 2 {
        side.nic.progress();
    }
}

struct Peer {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn start(path: &str) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["death::peer", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
            .env(PATH, path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Peer { process, output }
    }

    /// The words behind a keyword, once it comes.
    fn line(&mut self, keyword: &str) -> Vec<u64> {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the peer ended before {keyword}");
            if let Some(rest) = line.strip_prefix(keyword) {
                return rest.split_whitespace().map(|word| word.parse().unwrap()).collect();
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn survives(name: &str, path: PathChoice) {
    let mut peer = Peer::start(name);
    let words = peer.line("PEER");
    let (number, address, key) = (words[0] as u32, words[1], words[2] as u32);
    // The pair's own queue pairs are the ones that must go on; a third leads to the peer.
    let mut pair = Pair::new(path, QueuePairType::Rc, all_rights());
    let doomed = pair.a.queue_pair(QueuePairType::Rc, all_rights());
    let source = pair.a.buffer(4096, all_rights());
    let target = pair.b.buffer(4096, all_rights());
    to_rtr(&pair.a, &doomed, number);
    to_rts(&doomed, TIMERS);
    writeln!(peer.process.stdin.as_mut().unwrap(), "{}", doomed.number()).unwrap();
    peer.line("READY");
    let write = |queue_pair: &std::sync::Arc<QueuePair<pagewire_fabric::HostFabric>>, wr_id, address, key| {
        queue_pair
            .post_send(&SendRequest {
                wr_id,
                data: Data::Segments(&[source.piece(0, 4096)]),
                operation: SendOperation::Write { address, key },
                signaled: true,
                fence: false,
                solicited: false,
                destination: None,
            })
            .unwrap();
    };
    write(&doomed, 1, address, key);
    doomed.doorbell();
    pair.until(1, 0);
    assert_eq!(pair.sent, [Done { wr_id: 1, status: Status::Success }], "while the peer lives");
    peer.process.kill().unwrap();
    peer.process.wait().unwrap();
    pair.sent.clear();
    for wr_id in 2..5 {
        write(&doomed, wr_id, address, key);
    }
    doomed.doorbell();
    pair.until(3, 0);
    let expected = [(2, Status::RetryExceeded), (3, Status::Flushed), (4, Status::Flushed)];
    assert_eq!(pair.sent, expected.map(|(wr_id, status)| Done { wr_id, status }), "after its death");
    assert_eq!(doomed.state(), QpState::Error);
    pair.sent.clear();
    for wr_id in 10..20 {
        write(&pair.qa, wr_id, target.address, target.region.rkey());
    }
    pair.qa.doorbell();
    pair.until(10, 0);
    assert!(
        pair.sent.len() == 10 && pair.sent.iter().all(|done| done.status == Status::Success),
        "{:?}",
        pair.sent
    );
    doomed.destroy().unwrap();
}

#[test]
fn on_the_local_path() {
    if !own_network::is_here() {
        return;
    }
    survives("local", PathChoice::Local);
}

#[test]
fn on_the_udp_path() {
    if !own_network::is_here() {
        return;
    }
    survives("udp", PathChoice::Udp);
}
