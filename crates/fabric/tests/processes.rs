//! Several processes: this test binary runs itself in other roles.

mod common;

use common::not_checked::tell;
use common::{packet, route, send, until};
use pagewire_fabric::{FIRST_DIRECT_BLOCK, Fabric, FabricEvent, HostFabric, ROCE_PORT, Route, port_of};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_memory::{ApplicationMemory, MemoryError, Segment};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const TEST: Site = Site("test");
const ROLE: &str = "PAGEWIRE_TEST_ROLE";
/// A user that is not root.
const OTHER_UID: u32 = 65_534;
/// A third user, neither root nor `OTHER_UID`.
const THIRD_UID: u32 = 65_533;

const SOME: u32 = 20;

/// This test binary where any user can run it: the checkout may be in somebody's home. It goes with the value.
struct OpenCopy(PathBuf);

impl OpenCopy {
    fn new() -> Self {
        let copy = std::env::temp_dir().join(format!("pagewire-processes-{}", std::process::id()));
        std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
        OpenCopy(copy)
    }

    /// A command of another user.
    fn command(&self, user: u32) -> Command {
        let mut command = Command::new(&self.0);
        command.uid(user).gid(user).current_dir("/");
        command
    }
}

impl Drop for OpenCopy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A process in a role, answering lines with lines.
struct Other {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// What it said and nobody wanted to know yet.
    said: Vec<String>,
}

impl Other {
    fn start(role: &str) -> Self {
        Other::start_by(role, Command::new(std::env::current_exe().unwrap()))
    }

    fn start_by(role: &str, mut command: Command) -> Self {
        command.args(["--exact", "in_a_role", "--nocapture", "--test-threads", "1"]).env(ROLE, role);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Other { child, lines, said: Vec::new() }
    }

    /// The rest of the line that begins with `word`, once it is there.
    fn expect(&mut self, word: &str) -> String {
        // The test harness writes its own words in front.
        let mark = format!("@{word} ");
        loop {
            if let Some(place) = self.said.iter().position(|line| line.contains(&mark)) {
                let line = self.said.remove(place);
                return line[line.find(&mark).unwrap() + mark.len()..].trim().to_owned();
            }
            let mut line = String::new();
            let length = self.lines.read_line(&mut line).unwrap();
            assert!(length > 0, "the process ended before it said `{word}`");
            self.said.push(line);
        }
    }

    fn ask(&mut self, question: &str) -> String {
        writeln!(self.child.stdin.as_mut().unwrap(), "{question}").unwrap();
        self.expect(question.split(' ').next().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn in_a_role() {
    match std::env::var(ROLE).as_deref() {
        Ok("serve") => serve(HostFabric::new().unwrap()),
        Ok("drop_rights") => {
            let fabric = HostFabric::new().unwrap();
            // SAFETY: both only change the user of this process.
            unsafe { assert!(libc::setgid(OTHER_UID) == 0 && libc::setuid(OTHER_UID) == 0) };
            serve(fabric);
        }
        Ok("fork") => fork_and_serve(),
        Ok(role) => panic!("no role {role}"),
        Err(_) => {}
    }
}

/// Leases a block, counts datagrams, answers questions, until its input ends.
fn serve(fabric: HostFabric) {
    let block = fabric.lease_block().unwrap();
    let page = vec![7u8; 4096];
    println!("@block {block}");
    println!("@page {}", page.as_ptr() as u64);
    let (sender, questions) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            sender.send(line.unwrap()).unwrap();
        }
    });
    let (mut events, mut got) = (Vec::new(), 0);
    loop {
        fabric.wait(Some(fabric.now() + 5_000_000));
        fabric.events(&mut events);
        for event in events.drain(..) {
            if let FabricEvent::Accepted { channel } = event {
                channel.words.store(TEST, 9, 99);
            }
        }
        loop {
            let handed = fabric.receive(64, &mut |datagrams| {
                for datagram in datagrams {
                    assert_eq!(u32::from_be_bytes(datagram.bytes[4..8].try_into().unwrap()) >> 8, block);
                }
            });
            got += handed;
            if handed == 0 {
                break;
            }
        }
        match questions.try_recv().as_deref() {
            Ok("got") => println!("@got {got}"),
            Ok("forwarded") => println!("@forwarded {}", fabric.counters().forwarded.get()),
            Ok("port") => {
                println!("@port {} {}", fabric.direct_port(), fabric.port_reason().unwrap_or_default())
            }
            Ok(question) if question.starts_with("send ") => {
                let words: Vec<&str> = question.split(' ').collect();
                let (address, block) = (words[1], words[2].parse::<u32>().unwrap());
                send_some(&fabric, address, block);
                println!("@send {} refused", fabric.counters().dropped_refused.get());
            }
            Ok("sum") => println!("@sum {}", page.iter().map(|byte| u64::from(*byte)).sum::<u64>()),
            Ok(other) => panic!("{other}"),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
    }
}

/// Sends [`SOME`] packets to a block of this host, where its number says that it is reached.
fn send_some(fabric: &HostFabric, address: &str, block: u32) {
    let route = Route { port: port_of(block << 8), ..route(address, address, fabric) };
    let packets: Vec<Vec<u8>> = (0..SOME).map(|seed| packet(block << 8, seed, 256)).collect();
    send(fabric, &route, &packets);
}

/// Makes a fabric, then a child that goes on without it; the parent serves.
fn fork_and_serve() {
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = count();
    let fabric = HostFabric::new().unwrap();
    fabric.lease_block().unwrap();
    assert!(count() > before + 5);
    // SAFETY: the child uses what fork(2) leaves usable in a process with one more thread (the test harness), and ends by
    // _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let clean = fabric.is_forked_child() && count() == before;
        // Its memory of the engine is gone; dropping what is left of it does no harm.
        drop(fabric);
        println!("@child {}", if clean { "clean" } else { "not clean" });
        std::io::stdout().flush().unwrap();
        // Outlives its parent.
        std::thread::sleep(Duration::from_secs(5));
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) };
    }
    assert!(!fabric.is_forked_child());
    serve(fabric);
}

#[test]
fn a_killed_process_departs() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fabric = HostFabric::new().unwrap();
    let mut other = Other::start("serve");
    let block: u32 = other.expect("block").parse().unwrap();
    let page: u64 = other.expect("page").parse().unwrap();
    fabric.connect(block);
    let channel = until(&[&fabric], |_, events| {
        events.drain(..).find_map(|event| match event {
            FabricEvent::Connected { channel, .. } => Some(channel),
            FabricEvent::Refused { reason, .. } => panic!("{reason}"),
            _ => None,
        })
    });
    let start = Instant::now();
    while channel.words.load(9) != 99 {
        assert!(start.elapsed() < common::PATIENCE);
    }
    let process = channel.process.clone();
    let ones = [1u8; 4096];
    let from = [Segment { address: ones.as_ptr() as u64, length: 4096 }];
    let to = [Segment { address: page, length: 4096 }];
    fabric.memory().push(&process, &from, &to, true).unwrap();
    assert_eq!(other.ask("sum"), "4096");
    let unmapped = [Segment { address: 4096, length: 4096 }];
    assert_eq!(fabric.memory().push(&process, &from, &unmapped, true), Err(MemoryError::NotMapped));

    other.child.kill().unwrap();
    let departed = until(&[&fabric], |_, events| {
        events.drain(..).find_map(|event| match event {
            FabricEvent::Departed { channel } => Some(channel),
            _ => None,
        })
    });
    assert_eq!(departed, channel.id);
    assert_eq!(fabric.memory().push(&process, &from, &to, true), Err(MemoryError::PeerGone));
    // Its name is free again.
    fabric.connect(block);
    until(&[&fabric], |_, events| {
        events.drain(..).find_map(|event| match event {
            FabricEvent::Refused { absent, reason, .. } => {
                assert!(absent, "{reason}");
                Some(())
            }
            _ => None,
        })
    });
}

#[test]
fn a_forked_child_holds_nothing() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fabric = HostFabric::new().unwrap();
    let mut other = Other::start("fork");
    let said = [other.expect("child"), other.expect("block")];
    assert_eq!(said[0], "clean");
    let block: u32 = said[1].parse().unwrap();
    fabric.connect(block);
    until(&[&fabric], |_, events| {
        events.drain(..).find(|event| matches!(event, FabricEvent::Connected { .. }))
    });
    // The child lives on for seconds; the parent's end is noticed all the same.
    other.child.kill().unwrap();
    until(&[&fabric], |_, events| {
        events.drain(..).find(|event| matches!(event, FabricEvent::Departed { .. }))
    });
}

#[test]
fn datagrams_find_their_process() {
    let Some(_alone) = common::alone_in_own_network() else { return };
    let sender = HostFabric::new().unwrap();
    if sender.direct_port() != ROCE_PORT {
        return tell(sender.port_reason().unwrap());
    }
    let mut others: Vec<Other> = (0..3).map(|_| Other::start("serve")).collect();
    let blocks: Vec<u32> = others.iter_mut().map(|other| other.expect("block").parse().unwrap()).collect();
    for address in ["127.0.0.1", "::1"] {
        let route = route(address, address, &sender);
        let forwarded = |others: &mut Vec<Other>| -> u64 {
            let handed_on: u64 =
                others.iter_mut().map(|other| other.ask("forwarded").parse::<u64>().unwrap()).sum();
            handed_on + sender.counters().forwarded.get()
        };
        // Until a round in which nothing had to be handed on: the kernel knows the processes now.
        let start = Instant::now();
        loop {
            let handed_on = forwarded(&mut others);
            for (other, block) in others.iter_mut().zip(&blocks) {
                let before: u32 = other.ask("got").parse().unwrap();
                let packets: Vec<Vec<u8>> = (0..20).map(|seed| packet(block << 8, seed, 256)).collect();
                send(&sender, &route, &packets);
                let sent = Instant::now();
                while other.ask("got").parse::<u32>().unwrap() < before + 20 {
                    sender.receive(64, &mut |_| panic!("not ours"));
                    sender.wait(Some(sender.now() + 1_000_000));
                    assert!(sent.elapsed() < common::PATIENCE, "packets were lost");
                }
            }
            if forwarded(&mut others) == handed_on {
                break;
            }
            assert!(start.elapsed() < common::PATIENCE, "datagrams are handed on for ever");
        }
    }
}

/// Datagrams are only lost while the steering of the port changes.
fn everybody_is_reached(sender: &HostFabric, others: &mut [Other]) {
    const GOOD_ROUNDS: u32 = 5;
    let blocks: Vec<u32> = others.iter_mut().map(|other| other.expect("block").parse().unwrap()).collect();
    for address in ["127.0.0.1", "::1"] {
        let route = route(address, address, sender);
        let (start, mut good) = (Instant::now(), 0);
        while good < GOOD_ROUNDS {
            good += 1;
            for (other, block) in others.iter_mut().zip(&blocks) {
                let before: u32 = other.ask("got").parse().unwrap();
                let packets: Vec<Vec<u8>> = (0..SOME).map(|seed| packet(block << 8, seed, 256)).collect();
                send(sender, &route, &packets);
                let sent = Instant::now();
                while other.ask("got").parse::<u32>().unwrap() < before + SOME {
                    sender.receive(64, &mut |_| panic!("not ours"));
                    sender.wait(Some(sender.now() + 1_000_000));
                    if sent.elapsed() > Duration::from_secs(1) {
                        good = 0;
                        break;
                    }
                }
            }
            assert!(start.elapsed() < common::PATIENCE, "packets to {address} are lost for ever");
        }
    }
}

#[test]
fn a_process_that_becomes_another_user_shares_the_port_still() {
    let _alone = common::alone();
    // SAFETY: geteuid(2) only gives a number.
    if unsafe { libc::geteuid() } != 0 {
        return tell("only root can become another user");
    }
    let sender = HostFabric::new().unwrap();
    if sender.direct_port() != ROCE_PORT {
        return tell(sender.port_reason().unwrap());
    }
    let mut others = [Other::start("serve"), Other::start("drop_rights"), Other::start("serve")];
    everybody_is_reached(&sender, &mut others);
}

#[test]
fn processes_that_do_not_see_each_other_share_the_port() {
    let _alone = common::alone();
    // SAFETY: geteuid(2) only gives a number.
    if unsafe { libc::geteuid() } != 0 {
        return tell("only root can make PID namespaces");
    }
    let sender = HostFabric::new().unwrap();
    if sender.direct_port() != ROCE_PORT {
        return tell(sender.port_reason().unwrap());
    }
    let mut others = [(); 3].map(|()| {
        let mut apart = Command::new("unshare");
        apart.args(["--pid", "--fork", "--kill-child"]).arg(std::env::current_exe().unwrap());
        Other::start_by("serve", apart)
    });
    everybody_is_reached(&sender, &mut others);
}

#[test]
fn users_without_the_port_have_direct_ports() {
    // SAFETY: geteuid(2) only gives a number.
    if unsafe { libc::geteuid() } != 0 {
        return tell("only root can start processes of other users");
    }
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fabric = HostFabric::new().unwrap();
    let own = fabric.lease_block().unwrap();
    let users = [OTHER_UID, OTHER_UID, THIRD_UID];
    let program = OpenCopy::new();
    let mut others = users.map(|user| Other::start_by("serve", program.command(user)));
    let blocks = others.each_mut().map(|other| other.expect("block").parse::<u32>().unwrap());
    for (other, block) in others.iter_mut().zip(blocks) {
        assert!(block >= FIRST_DIRECT_BLOCK);
        assert!(other.ask("port").starts_with(&format!("{block} ")));
    }
    // Everybody reaches everybody.
    let mut ours = 0;
    for address in ["127.0.0.1", "::1"] {
        for to in 0..others.len() {
            for from in 0..=others.len() {
                let before: u32 = others[to].ask("got").parse().unwrap();
                match others.get_mut(from) {
                    Some(other) => {
                        assert_eq!(other.ask(&format!("send {address} {}", blocks[to])), "0 refused")
                    }
                    None => send_some(&fabric, address, blocks[to]),
                }
                let start = Instant::now();
                while others[to].ask("got").parse::<u32>().unwrap() < before + SOME {
                    assert!(start.elapsed() < common::PATIENCE, "{from} does not reach {to}");
                }
            }
            assert_eq!(others[to].ask(&format!("send {address} {own}")), "0 refused");
            ours += u64::from(SOME);
            let start = Instant::now();
            while fabric.counters().datagrams_received.get() < ours {
                fabric.wait(Some(fabric.now() + 1_000_000));
                fabric.receive(64, &mut |_| ());
                assert!(start.elapsed() < common::PATIENCE, "{to} does not reach port {ROCE_PORT}");
            }
        }
    }
}

#[test]
fn other_user_is_refused() {
    // SAFETY: geteuid(2) only gives a number.
    if unsafe { libc::geteuid() } != 0 {
        return tell("only root can start processes of other users");
    }
    let Some(_alone) = common::alone_in_own_network() else { return };
    let fabric = HostFabric::new().unwrap();
    let program = OpenCopy::new();
    let mut other = Other::start_by("serve", program.command(OTHER_UID));
    let block = other.expect("block").parse().unwrap();
    fabric.connect(block);
    let reason = until(&[&fabric], |_, events| {
        events.drain(..).next().map(|event| match event {
            FabricEvent::Refused { reason, absent: false, .. } => reason,
            _ => panic!(),
        })
    });
    assert!(reason.contains("belongs to user 65534"), "{reason}");
    // The port is root's here.
    let port = other.ask("port");
    if fabric.direct_port() == ROCE_PORT {
        assert!(port.contains("another user"), "{port}");
    }

    // Two processes of an unprivileged user reach each other like any.
    drop(fabric);
    let mut status = program.command(OTHER_UID);
    status.args(["--exact", "a_killed_process_departs", "datagrams_find_their_process"]);
    status.stdout(Stdio::null()).stderr(Stdio::null());
    assert!(status.status().unwrap().success());
}
