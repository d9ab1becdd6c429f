//! Access logs between processes: the owner takes no part, and a source may die at any instant.

mod other;

use other::{Other, ROLE, hex, read_line, token_of};
use pagewire::{Node, Rights};
use pagewire_active::{AccessLog, AttributesOf, LogOptions, Logs};
use std::io::{BufRead, Read};
use std::time::{Duration, Instant};

/// DESIGN, rule 4: the owner's threads take no part in logging on the local path. A stopped owner delays no put.
#[test]
fn stopped_owner_delays_no_put() {
    const PUTS: u64 = 1000;
    if std::env::var_os(ROLE).is_some() {
        let node = Node::alone().unwrap();
        let table = node.zeroed::<u64>(512).unwrap();
        let log = node.access_log(1 << 20).unwrap();
        table.attributes(..).redirect_puts().log_gets().to(&log).unwrap();
        println!("token {}", hex(&table.export(Rights::all()).unwrap().to_bytes()));
        read_line();
        let mut sum = 0;
        let records = log.poll(|access| sum += access.value::<u64>().unwrap_or(0));
        println!("found {records} {sum}");
        read_line();
        return;
    }
    let mut owner = Other::start("stopped_owner_delays_no_put", "owner", "local");
    let token = token_of(&owner.expect("token"));
    let node = Node::alone().unwrap();
    let remote = node.open(&token).unwrap();
    // The channel is made.
    remote.put_value(0, 0u64).wait().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    remote.put_value(0, 0u64).wait().unwrap();
    owner.signal("-STOP");
    let start = Instant::now();
    for value in 1..=PUTS {
        remote.put_value(8 * (value % 512), value).wait().unwrap();
    }
    assert_eq!(remote.get::<u64>(0, 1).unwrap().wait().unwrap(), [0]);
    let took = start.elapsed();
    owner.signal("-CONT");
    owner.tell("go");
    assert_eq!(owner.expect("found"), format!("{} {}", PUTS + 3, PUTS * (PUTS + 1) / 2));
    // Who waited for the owner would wait for ever.
    assert!(took < Duration::from_secs(60), "{took:?}");
    owner.tell("end");
}

/// Waits for the log until it has nothing more for a while; gives what was put, in order, and what may have been.
fn drain(log: &AccessLog, quiet: Duration) -> (Vec<u64>, usize) {
    let (mut values, mut unsure) = (Vec::new(), 0);
    let mut since = Instant::now();
    while since.elapsed() < quiet {
        let found = log.poll(|access| match access.may_have_written() {
            true => unsure += 1,
            false => values.extend(access.value::<u64>()),
        });
        match found {
            // Other lanes have the processor meanwhile.
            0 => std::thread::sleep(Duration::from_micros(500)),
            _ => since = Instant::now(),
        }
    }
    (values, unsure)
}

/// A source is killed at a random instant: what it was told to be done has its record, every byte that changed has one or a "may have
/// written", and others go on (`PAGEWIRE_ACTIVE_KILLS`: how often).
#[test]
fn a_source_that_is_killed_leaves_no_byte_without_a_record() {
    const TEST: &str = "a_source_that_is_killed_leaves_no_byte_without_a_record";
    if std::env::var_os(ROLE).is_some() {
        let token = token_of(&read_line());
        let node = Node::alone().unwrap();
        let remote = node.open(&token).unwrap();
        println!("begun");
        for value in 1..u64::MAX {
            remote.put_value(8 * (value % 4096), value).wait().unwrap();
            println!("done {value}");
        }
    }
    let kills = std::env::var("PAGEWIRE_ACTIVE_KILLS").map_or(4, |kills| kills.parse().unwrap());
    // Most of a round is a wait for what does not come.
    let lanes = kills.clamp(1, 8);
    std::thread::scope(|scope| {
        for lane in 0..lanes {
            let rounds = kills / lanes + usize::from(lane < kills % lanes);
            scope.spawn(move || kill_sources(TEST, lane, rounds));
        }
    });
}

/// Sources are started and killed, one after the other, so many times.
fn kill_sources(test: &str, lane: usize, rounds: usize) {
    let mut random = 0x9E37_79B9u64 ^ (lane as u64) << 40;
    let node = Node::alone().unwrap();
    let log = node.access_log_with(&LogOptions { sources: 8, ..LogOptions::new(1 << 20) }).unwrap();
    let table = node.zeroed::<u64>(4096).unwrap();
    table.attributes(..).log_put_data().to(&log).unwrap();
    let token = hex(&table.export(Rights::all()).unwrap().to_bytes());
    for round in 0..rounds {
        let path = ["local", "udp"][(lane + round) % 2];
        for index in 0..4096 {
            table.set(index, 0).unwrap();
        }
        let mut source = Other::start(test, "source", path);
        source.tell(&token);
        source.expect("begun");
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        let until = Instant::now() + Duration::from_micros(2_000 + (random >> 40) % 20_000);
        let mut recorded: Vec<u64> = Vec::new();
        while Instant::now() < until {
            log.poll(|access| recorded.extend(access.value::<u64>()));
        }
        source.child.kill().unwrap();
        source.child.wait().unwrap();
        let lines: Vec<String> = source.says.by_ref().lines().map_while(Result::ok).collect();
        let told = lines.iter().rev().find_map(|line| line.strip_prefix("done ")?.parse::<u64>().ok());
        let (rest, unsure) = drain(&log, Duration::from_millis(500));
        recorded.extend(rest);
        let (count, acknowledged) = (recorded.len() as u64, told.unwrap_or(0));
        assert!(recorded.iter().copied().eq(1..=count), "{path}: each record once, in order");
        assert!(count >= acknowledged, "{path}: {acknowledged} were acknowledged, {count} recorded");
        assert!(unsure <= 1, "{path}: one access was under way");
        for index in 0..4096 {
            let value = table.get(index).unwrap();
            assert!(value <= count || unsure == 1 && value == count + 1, "{path}: {value} without a record");
        }
    }
}

/// A puts, waits for `remote`, tells B, and B puts: the owner handles A's first, whatever paths they take (`PAGEWIRE_ACTIVE_ROUNDS`: how often).
#[test]
fn what_ended_before_is_handled_before_on_every_mix_of_paths() {
    const TEST: &str = "what_ended_before_is_handled_before_on_every_mix_of_paths";
    if std::env::var_os(ROLE).is_some() {
        let node = Node::alone().unwrap();
        let remote = node.open(&token_of(&read_line())).unwrap();
        println!("done 0");
        loop {
            let line = read_line();
            let Ok(value) = line.parse::<u64>() else { return };
            remote.put_value(0, value).wait().unwrap();
            println!("done {value}");
        }
    }
    let rounds = std::env::var("PAGEWIRE_ACTIVE_ROUNDS").map_or(300, |rounds| rounds.parse().unwrap());
    for paths in [["local", "local"], ["local", "udp"], ["udp", "local"], ["udp", "udp"]] {
        let node = Node::alone().unwrap();
        let log = node.access_log(1 << 16).unwrap();
        let table = node.zeroed::<u64>(512).unwrap();
        table.attributes(..).redirect_puts().to(&log).unwrap();
        let token = hex(&table.export(Rights::all()).unwrap().to_bytes());
        let mut sources = paths.map(|path| Other::start(TEST, "source", path));
        for source in &mut sources {
            source.tell(&token);
            source.expect("done");
        }
        let seen = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
        let last = seen.clone();
        let serving = log
            .serve_polling(move |access| {
                let value = access.value::<u64>().unwrap();
                assert_eq!(value, last.load(std::sync::atomic::Ordering::Relaxed) + 1);
                last.store(value, std::sync::atomic::Ordering::Relaxed);
            })
            .unwrap();
        for value in 1..=rounds {
            let source = &mut sources[value as usize % 2];
            source.tell(&value.to_string());
            source.expect("done");
        }
        let start = Instant::now();
        while serving.summary().handled < rounds && start.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        assert_eq!(
            (serving.end().panicked, seen.load(std::sync::atomic::Ordering::Relaxed)),
            (0, rounds),
            "{paths:?}"
        );
        sources.iter_mut().for_each(|source| source.tell("end"));
    }
}
