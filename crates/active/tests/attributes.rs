//! Each combination of attributes, kind of access and path: what the caller sees, what reaches memory, and what reaches which log (PAPERS AA-2 to
//! AA-4; "What the caller sees").

mod other;

use other::on_each_path;
use pagewire::access_log::{LoggedOperation, PageAttributes, PageFlags, RecordFlags};
use pagewire::{Failure, Node, Region, RemoteRegion, Rights, Rule, Side};
use pagewire_active::{AccessLog, AttributesOf, LogOptions, Logs};

const PAGE: u64 = 4096;

struct World {
    table: Region<u64>,
    remote: RemoteRegion,
    log: AccessLog,
    owner: Node,
    _caller: Node,
}

fn world(pages: u64) -> World {
    let (owner, caller) = (Node::alone().unwrap(), Node::alone().unwrap());
    let table = owner.zeroed::<u64>((pages * PAGE / 8) as usize).unwrap();
    let remote = caller.open(&table.export(Rights::all()).unwrap()).unwrap();
    let log = owner.access_log(1 << 16).unwrap();
    World { table, remote, log, owner, _caller: caller }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Get,
    FetchAdd,
}

/// What was seen of one access.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    succeeds: bool,
    reaches_memory: bool,
    /// Of each record: what it does, whether it was refused, whether redirected, and its data.
    access_log: Vec<(LoggedOperation, bool, bool, Vec<u8>)>,
    fault_log: usize,
}

fn access(world: &World, kind: Kind) -> Seen {
    let World { table, remote, log, owner, .. } = world;
    table.set(1, 0x11).unwrap();
    let succeeds = match kind {
        Kind::Put => remote.put_value(8, 0x22u64).wait().is_ok(),
        Kind::Get => {
            let got = remote.get::<u64>(8, 1).unwrap().wait();
            assert!(got.as_ref().is_ok_and(|got| *got == [0x11]) || got.is_err());
            got.is_ok()
        }
        Kind::FetchAdd => {
            let got = remote.fetch_add(8, 0x22).wait();
            assert!(got.as_ref().is_ok_and(|got| *got == 0x11) || got.is_err());
            got.is_ok()
        }
    };
    let mut access_log = Vec::new();
    log.poll(|access| {
        if access.was_repeated() {
            return;
        }
        assert_eq!((access.offset_from(table.address()), access.length()), (Some(8), 8));
        assert_eq!(access.user_domain(), log.user_domain());
        assert!(access.is_first() && access.is_last() && !access.may_have_written());
        let bytes = access.bytes().to_vec();
        access_log.push((access.operation(), access.was_refused(), access.was_redirected(), bytes));
    });
    // The network may have repeated a get, as one of this host does where no thread has a processor for a while.
    let (faults, _) = owner.take_logged_faults();
    let fault_log = faults.iter().filter(|fault| !fault.flags.contains(RecordFlags::REPEATED)).count();
    Seen { succeeds, reaches_memory: table.get(1).unwrap() != 0x11, access_log, fault_log }
}

/// Written from the table of the specification, not from the code.
fn expected(flags: PageFlags, kind: Kind) -> Seen {
    let has = |flag| flags.contains(flag);
    let (r, w, e) = (has(PageFlags::READ), has(PageFlags::WRITE), has(PageFlags::TO_ACCESS_LOG));
    let (metadata, data) = match kind {
        Kind::Get => (has(PageFlags::LOG_READ), has(PageFlags::LOG_READ_DATA)),
        Kind::Put | Kind::FetchAdd => (has(PageFlags::LOG_WRITE), has(PageFlags::LOG_WRITE_DATA)),
    };
    let redirected = kind == Kind::Put && !w && data && e;
    let succeeds = match kind {
        Kind::Put => w || redirected,
        Kind::Get => r,
        Kind::FetchAdd => r && w,
    };
    let operation = match kind {
        Kind::Put => LoggedOperation::Write,
        Kind::Get => LoggedOperation::Read,
        Kind::FetchAdd => LoggedOperation::FetchAdd,
    };
    let content: u64 = if kind == Kind::Get { 0x11 } else { 0x22 };
    let bytes = if data && succeeds { content.to_ne_bytes().to_vec() } else { Vec::new() };
    let is_logged = metadata || data;
    Seen {
        succeeds,
        reaches_memory: succeeds && kind != Kind::Get && w,
        access_log: if is_logged && e { vec![(operation, !succeeds, redirected, bytes)] } else { Vec::new() },
        fault_log: usize::from(is_logged && !e),
    }
}

#[test]
fn each_combination_of_attributes_and_access() {
    on_each_path("each_combination_of_attributes_and_access", || {
        let world = world(2);
        for bits in 0..=PageFlags::all().bits() {
            let flags = PageFlags::from_bits_retain(bits);
            let page = PageAttributes { flags, user_domain: world.log.user_domain() };
            world.table.set_attributes(0..PAGE, page).unwrap();
            for kind in [Kind::Put, Kind::Get, Kind::FetchAdd] {
                assert_eq!(access(&world, kind), expected(flags, kind), "{flags:?} {kind:?}");
            }
        }
        // The page beside it is ordinary all the time.
        world.remote.put_value(PAGE, 5u64).wait().unwrap();
        assert_eq!(world.table.get(512).unwrap(), 5);
        assert_eq!(world.log.poll(|_| ()), 0);
    });
}

/// A put over pages with different attributes: each run by its own, and nothing moves where one page refuses.
#[test]
fn a_long_put_is_cut_into_runs_of_pages() {
    on_each_path("a_long_put_is_cut_into_runs_of_pages", || {
        let world = world(64);
        let World { table, remote, log, .. } = &world;
        let words = 64 * 512;
        table.attributes(PAGE..2 * PAGE).redirect_puts().to(log).unwrap();
        table.attributes(2 * PAGE..3 * PAGE).log_puts().to(log).unwrap();
        table.attributes(3 * PAGE..60 * PAGE).log_put_data().to(log).unwrap();
        let values: Vec<u64> = (1..=words as u64).collect();
        let put = remote.put(0, values.clone());
        // The ring is shorter than the put: it waits for the owner, and goes on where it stopped.
        let (mut logged, mut bytes, mut metadata, mut messages) = (vec![0u8; words * 8], 0, 0, Vec::new());
        let mut is_done = false;
        while !is_done {
            // What is published when the put has ended is seen by one more look.
            is_done = put.is_done();
            log.poll(|access| {
                let at = access.offset_from(table.address()).unwrap() as usize;
                messages.push((access.message(), access.is_first(), access.is_last()));
                if access.bytes().is_empty() {
                    metadata += access.length();
                    return;
                }
                assert_eq!(access.bytes().len(), access.length());
                assert_eq!(access.was_redirected(), at < 2 * PAGE as usize);
                logged[at..at + access.length()].copy_from_slice(access.bytes());
                bytes += access.length();
            });
        }
        put.wait().unwrap();
        assert_eq!(log.poll(|_| ()), 0);
        assert_eq!((metadata, bytes), (PAGE as usize, 58 * PAGE as usize));
        assert!(messages.iter().all(|(message, ..)| *message == messages[0].0));
        let page = |number: usize| number * 512..(number + 1) * 512;
        let mut there = vec![0; words];
        table.read(0, &mut there).unwrap();
        assert!(there[page(1)].iter().all(|word| *word == 0), "what is redirected does not reach memory");
        assert_eq!(there[page(0)], values[page(0)]);
        assert_eq!(there[1024..], values[1024..]);
        for (index, word) in
            values.iter().enumerate().take(60 * 512).skip(512).filter(|(at, _)| !page(2).contains(at))
        {
            assert_eq!(logged[index * 8..index * 8 + 8], word.to_ne_bytes(), "{index}");
        }
        // One page that refuses: nothing moves at all.
        table.attributes(63 * PAGE..).refuse_puts().log_puts().to(log).unwrap();
        let before = there;
        assert!(remote.put(62 * PAGE, vec![0u64; 1024]).wait().is_err());
        let mut there = vec![0; words];
        table.read(0, &mut there).unwrap();
        assert_eq!(there, before);
        let mut refused = 0;
        log.poll(|access| refused += usize::from(access.was_refused()));
        assert_eq!(refused, 1);
        // The connection goes on.
        assert_eq!(remote.get::<u64>(0, 1).unwrap().wait().unwrap(), [1]);
    });
}

/// Whatever pages an access covers, each log sees where its records of it begin and end.
#[test]
fn each_log_sees_the_first_and_the_last_of_an_access() {
    on_each_path("each_log_sees_the_first_and_the_last_of_an_access", || {
        let World { owner, table, remote, log, .. } = &world(32);
        let other = owner.access_log(1 << 16).unwrap();
        // Pages by letter: redirects puts and logs gets to the one log, logs both to the other one, or is ordinary.
        for pages in [
            "r.",
            ".r",
            ".r.",
            "r.r",
            "ro",
            "or",
            "r.o.r.o.",
            "..o..rr..",
            "r.............................o",
            "o",
        ] {
            table.attributes(..).set().unwrap();
            for (page, letter) in pages.bytes().enumerate() {
                let of = table.attributes(page as u64 * PAGE..(page as u64 + 1) * PAGE);
                match letter {
                    b'r' => of.redirect_puts().log_gets().to(log).unwrap(),
                    b'o' => of.log_puts().log_gets().to(&other).unwrap(),
                    _ => {}
                }
            }
            let words = pages.len() * 512 - 2;
            let count = |log: &AccessLog| {
                let (mut firsts, mut lasts, mut records) = (Vec::new(), Vec::new(), 0);
                log.drain(|access| {
                    // A slow owner is asked again.
                    if access.was_repeated() {
                        return;
                    }
                    firsts.extend(access.is_first().then_some(records));
                    lasts.extend(access.is_last().then_some(records));
                    records += 1;
                });
                (firsts, lasts, records)
            };
            for is_get in [false, true] {
                match is_get {
                    true => drop(remote.get::<u64>(8, words).unwrap().wait().unwrap()),
                    false => drop(remote.put(8, vec![7u64; words]).wait().unwrap()),
                }
                for (log, letter) in [(log, 'r'), (&other, 'o')] {
                    let (firsts, lasts, records) = count(log);
                    let says = format!("{pages}, {letter}, {is_get}: {records} records");
                    match pages.contains(letter) {
                        true => assert_eq!((firsts, lasts), (vec![0], vec![records - 1]), "{says}"),
                        false => assert_eq!(records, 0, "{says}"),
                    }
                }
            }
        }
    });
}

/// A get of data that are logged returns what is in the log.
#[test]
fn a_long_get_is_logged_with_its_data() {
    on_each_path("a_long_get_is_logged_with_its_data", || {
        let world = world(32);
        let World { table, remote, log, .. } = &world;
        let words = 32 * 512;
        for index in 0..words {
            table.set(index, index as u64 * 7).unwrap();
        }
        table.attributes(..).log_get_data().to(log).unwrap();
        let get = remote.get::<u64>(0, words).unwrap();
        let mut logged = vec![0u8; words * 8];
        let mut covered = 0;
        while !get.is_done() || covered < words * 8 {
            log.poll(|access| {
                // A slow peer may ask again.
                if access.was_repeated() {
                    return;
                }
                let at = access.offset_from(table.address()).unwrap() as usize;
                logged[at..at + access.length()].copy_from_slice(access.bytes());
                covered += access.length();
            });
        }
        let got = get.wait().unwrap();
        for (index, word) in got.iter().enumerate() {
            assert_eq!(
                (*word, &logged[index * 8..index * 8 + 8]),
                (index as u64 * 7, &word.to_ne_bytes()[..])
            );
        }
    });
}

/// PAPERS AA-8: a full ring stops its own source, and no other one; nothing is lost.
#[test]
fn a_full_log_stops_its_source_alone() {
    on_each_path("a_full_log_stops_its_source_alone", || {
        const PUTS: u64 = 500;
        let (owner, caller, other) = (Node::alone().unwrap(), Node::alone().unwrap(), Node::alone().unwrap());
        let table = owner.zeroed::<u64>(1024).unwrap();
        let token = table.export(Rights::all()).unwrap();
        let log = owner.access_log_with(&LogOptions { is_ordered: false, ..LogOptions::new(1024) }).unwrap();
        table.attributes(..PAGE).redirect_puts().to(&log).unwrap();
        let (remote, beside) = (caller.open(&token).unwrap(), other.open(&token).unwrap());
        let puts: Vec<_> = (0..PUTS).map(|value| remote.put_value(0, value)).collect();
        // Until its ring is full, and beyond.
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!puts[PUTS as usize - 1].is_done(), "1 KiB has not 500 records");
        beside.put_value(PAGE, 9u64).wait().unwrap();
        beside.put_value(8, 10u64).wait().unwrap();
        let (mut next, mut others) = (0, 0);
        while next < PUTS || others == 0 {
            log.poll(|access| match access.offset_from(table.address()) {
                Some(0) => {
                    assert_eq!(access.value::<u64>(), Some(next), "each comes once, in order");
                    next += 1;
                }
                _ => others += 1,
            });
        }
        puts.into_iter().for_each(|put| drop(put.wait().unwrap()));
        assert_eq!(others, 1);
        assert_eq!(log.poll(|_| ()), 0);
    });
}

/// Attributes change while puts go on: from the moment at which the call returns each put obeys, and none fails.
#[test]
fn changes_count_when_the_call_returns() {
    on_each_path("changes_count_when_the_call_returns", || {
        let world = world(1);
        let World { table, remote, log, .. } = &world;
        for round in 0..100u64 {
            let before: Vec<_> = (0..4).map(|_| remote.put_value(0, 2 * round + 1)).collect();
            if round % 2 == 0 {
                table.attributes(..).redirect_puts().to(log).unwrap();
            } else {
                table.attributes(..).set().unwrap();
            }
            before.into_iter().for_each(|put| drop(put.wait().unwrap()));
            log.poll(|_| ());
            table.set(0, 0).unwrap();
            remote.put_value(0, 2 * round + 2).wait().unwrap();
            let mut redirected = 0;
            log.poll(|access| redirected += usize::from(access.value::<u64>() == Some(2 * round + 2)));
            let reached = table.get(0).unwrap() == 2 * round + 2;
            assert_eq!((redirected, reached), if round % 2 == 0 { (1, false) } else { (0, true) }, "{round}");
        }
    });
}

#[test]
fn a_log_that_ends_has_its_pages_refuse_what_they_redirected() {
    let World { table, remote, log, owner, _caller } = world(1);
    table.attributes(..).redirect_puts().to(&log).unwrap();
    remote.put_value(0, 1u64).wait().unwrap();
    drop(log);
    assert!(remote.put_value(0, 2u64).wait().is_err());
    assert_eq!(table.get(0).unwrap(), 0);
    let (faults, dropped) = owner.take_logged_faults();
    assert_eq!((faults.len(), dropped), (1, 0));
    table.attributes(..).set().unwrap();
    remote.put_value(0, 3u64).wait().unwrap();
    assert_eq!(table.get(0).unwrap(), 3);
}

#[test]
fn ranges_that_cut_a_page_are_refused_with_the_rule() {
    let World { table, log, .. } = world(2);
    for bytes in [1..PAGE, 0..100, PAGE..3 * PAGE] {
        let error = table.attributes(bytes).redirect_puts().to(&log).unwrap_err();
        assert!(error.to_string().starts_with("attributes of pages: the range"), "{error}");
    }
}

/// A user domain is given again. One that pages name still is not: what they redirect belongs to no other log.
#[test]
fn logs_come_and_go_without_end() {
    on_each_path("logs_come_and_go_without_end", || {
        let world = world(2);
        let World { owner, table, remote, .. } = &world;
        let options = LogOptions { sources: 1, ..LogOptions::new(4096) };
        let ended = owner.access_log_with(&options).unwrap();
        table.attributes(..PAGE).redirect_puts().to(&ended).unwrap();
        let domain = ended.user_domain();
        drop(ended);
        let mut given = std::collections::HashSet::new();
        for round in 0..1500u64 {
            let log = owner.access_log_with(&options).unwrap();
            assert_ne!(log.user_domain(), domain);
            given.insert(log.user_domain());
            if round % 500 == 499 {
                table.attributes(PAGE..).redirect_puts().to(&log).unwrap();
                remote.put_value(PAGE, round).wait().unwrap();
                let mut values = Vec::new();
                log.drain(|access| values.extend(access.value::<u64>()));
                assert_eq!(values, [round]);
                assert!(remote.put_value(0, round).wait().is_err(), "nobody reads its log");
            }
        }
        assert!(given.len() > 1000, "{}", given.len());
        // No page names it any more.
        table.attributes(..).set().unwrap();
        let logs: Vec<_> = (0..1022).map(|_| owner.access_log_with(&options).unwrap()).collect();
        assert!(logs.iter().any(|log| log.user_domain() == domain));
        assert!(owner.access_log_with(&options).is_ok() && logs.len() == 1022);
    });
}

#[test]
fn attributes_that_contradict_each_other_are_refused() {
    let World { table, log, .. } = world(1);
    let redirected_and_refused = table.attributes(..).redirect_puts().refuse_puts().to(&log);
    let refused_with_data = table.attributes(..).log_put_data().refuse_puts().to(&log);
    let redirected_nowhere = table.attributes(..).redirect_puts().to_fault_log();
    let logged_nowhere = table.attributes(..).log_gets().set();
    for (outcome, says) in [
        (redirected_and_refused, "choose one"),
        (refused_with_data, "has none"),
        (redirected_nowhere, "no access log"),
        (logged_nowhere, "name their log"),
    ] {
        let error = outcome.unwrap_err().to_string();
        assert!(error.starts_with("attributes of pages: ") && error.contains(says), "{error}");
    }
}

/// PAPERS AA-5: a thread is woken by a count of records, by time, or when space gets little.
#[test]
fn threads_are_woken_by_threshold_interval_and_space() {
    use pagewire_active::Events;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, Instant};
    let World { table, remote, log, .. } = &world(1);
    table.attributes(..).redirect_puts().to(log).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let handled = |least: u64| {
        let start = Instant::now();
        while count.load(Ordering::Acquire) < least {
            assert!(start.elapsed() < Duration::from_secs(60), "{count:?} of {least}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let serve = |threshold, interval| {
        count.store(0, Ordering::Release);
        let counted = count.clone();
        let events = Events { threshold, interval: Duration::from_millis(interval) };
        let serving = log
            .serve_events(&events, move |_| {
                counted.fetch_add(1, Ordering::AcqRel);
            })
            .unwrap();
        let start = Instant::now();
        while !serving.is_asleep() {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not sleep");
            std::thread::sleep(Duration::from_millis(1));
        }
        serving
    };
    let put = |count: u64| (0..count).for_each(|value| drop(remote.put_value(0, value).wait().unwrap()));
    let hour = 3_600_000;
    let by_count = serve(10, hour);
    put(9);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(count.load(Ordering::Acquire), 0);
    put(1);
    handled(10);
    by_count.end();
    let by_time = serve(1000, 50);
    put(3);
    handled(3);
    by_time.end();
    // The ring has 64 KiB: three quarters of it are 877 records of 56 bytes.
    let by_space = serve(u64::MAX, hour);
    put(900);
    handled(870);
    by_space.end();
}

/// PAPERS AA-6: a flush waits for the handlers of what was logged before, and for nothing else.
#[test]
fn a_flush_ends_when_handlers_have_returned() {
    on_each_path("a_flush_ends_when_handlers_have_returned", || {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicU64, Ordering};
        let World { table, remote, log, .. } = &world(1);
        table.attributes(..).redirect_puts().to(log).unwrap();
        remote.flush_handled(None).wait().unwrap();
        let put = remote.put_value(0, 1u64);
        let flush = remote.flush_handled(Some(log.user_domain()));
        let elsewhere = remote.flush_handled(Some(log.user_domain() + 1));
        put.wait().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(!flush.is_done());
        assert_eq!(log.poll(|_| assert!(!flush.is_done())), 1);
        flush.wait().unwrap();
        elsewhere.wait().unwrap();
        // With a thread: an ordinary get that follows sees what the handlers did.
        let sum = Arc::new(AtomicU64::new(0));
        let (added, count) = (sum.clone(), 200);
        let serving = log
            .serve(move |access| {
                added.fetch_add(access.value::<u64>().unwrap(), Ordering::Relaxed);
                assert!(
                    access.value::<u64>() != Some(100),
                    "a handler that panics is reported, and the log goes on"
                );
            })
            .unwrap();
        for value in 1..=count {
            let put = remote.put_value(0, value);
            if value % 10 == 0 {
                remote.flush_handled(None).wait().unwrap();
                assert_eq!(sum.load(Ordering::Relaxed), value * (value + 1) / 2);
            }
            put.wait().unwrap();
        }
        let summary = serving.end();
        assert_eq!((summary.handled, summary.panicked), (count, 1));
    });
}

/// Behind a refused access nothing of its operation is done; before it all is, and the failure says how much. Other operations go on.
#[test]
fn a_refusal_within_an_operation_says_what_has_landed() {
    on_each_path("a_refusal_within_an_operation_says_what_has_landed", || {
        let world = world(3);
        let World { table, remote, .. } = &world;
        table.attributes(PAGE..2 * PAGE).refuse_puts().set().unwrap();
        for (offsets, expected) in [([0, 2 * PAGE, PAGE], 128), ([0, PAGE, 2 * PAGE], 64), ([PAGE, 0, 8], 0)]
        {
            (0..3 * PAGE as usize / 8).for_each(|word| table.set(word, 0).unwrap());
            let put = remote.put_scattered(&offsets.map(|offset| (offset, 64)), vec![7u8; 192]);
            // Started behind it, and not by it.
            let others = [remote.put_value(512, 9u64), remote.put_value(2 * PAGE + 512, 9u64)];
            let failure = put.wait().unwrap_err().failure;
            let landed = match failure {
                Failure::Refused { landed, side: Side::Target, rule: Rule::Key, .. } => landed,
                other => panic!("{other:?}"),
            };
            assert_eq!(landed, expected, "{offsets:?}");
            let pieces_there = offsets.iter().filter(|offset| table.get(**offset as usize / 8).unwrap() != 0);
            assert_eq!(pieces_there.count() as u64 * 64, expected, "{offsets:?}");
            others.into_iter().for_each(|other| drop(other.wait().unwrap()));
            assert_eq!((table.get(64).unwrap(), table.get(1024 + 64).unwrap()), (9, 9));
        }
    });
}
