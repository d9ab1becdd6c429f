//! Channels between two fabrics of one process, and from a fabric to itself.

mod common;

use common::{open, until};
use pagewire_fabric::{ChannelEnd, Fabric, FabricEvent, HostFabric, PageInThreads, RegionPart};
use pagewire_iommu::words::{SharedWords, Site};
use pagewire_iommu::{AccessScope, RegionTable, RegisteredRegion, Rights};
use pagewire_memory::{ApplicationMemory, Residency, Segment};
use pagewire_paging::Tenant;

const TEST: Site = Site("test");
/// Who asks for pages.
const TENANT: Tenant = Tenant { who: 1, matter: 0 };

/// A segment as a region of its own.
fn register(fabric: &HostFabric, segment: Segment) -> RegionPart {
    let table = RegionTable::new(fabric.tables().clone(), 7);
    let Segment { address, length } = segment;
    let region = RegisteredRegion { domain: 1, address, length, iova: address, rights: Rights::LOCAL_WRITE };
    let key = table.register(&region, 0).unwrap();
    RegionPart {
        region: table.view().window(key, region.rights, AccessScope::of_domain(1)).unwrap().life(),
        segment,
    }
}

#[test]
fn two_fabrics_share_words() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    assert_ne!(a.instance(), b.instance());
    let block = b.lease_block().unwrap();
    let (opened, accepted) = open(&a, &b, block);
    assert_eq!((opened.side, accepted.side), (ChannelEnd::Opened, ChannelEnd::Accepted));
    assert_eq!((opened.instance, accepted.instance), (b.instance(), a.instance()));
    opened.words.store(TEST, 77, 5);
    assert_eq!(accepted.words.load(77), 5);
    accepted.words.store(TEST, (1 << 20) - 1, 6);
    assert_eq!(opened.words.load((1 << 20) - 1), 6);
    b.tables().store(TEST, 8_000_000, 7);
    assert_eq!(opened.tables.load(8_000_000), 7);
    opened.mailbox.store(TEST, 3, 8);
    assert_eq!(b.mailbox().load(3), 8);

    // One touches the other's memory.
    let process = opened.process.clone();
    let (from, to) = (vec![7u8; 100_000], vec![0u8; 100_000]);
    let segment = |bytes: &[u8]| [Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 }];
    a.memory().push(&process, &segment(&from), &segment(&to), true).unwrap();
    assert_eq!(std::hint::black_box(&from), std::hint::black_box(&to));

    // A second connection to that process gives the first one's channel.
    a.connect(block);
    let again = until(&[&a, &b], |_, events| {
        events.drain(..).find_map(|event| match event {
            FabricEvent::Connected { channel, .. } => Some(channel),
            _ => None,
        })
    });
    assert_eq!(again.id, opened.id);
}

/// Blocks that are leased together follow each other, and each can be reached.
#[test]
fn blocks_are_leased_in_runs() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let blocks = b.lease_blocks(8).unwrap();
    assert!(!blocks.is_empty() && blocks.len() <= 8);
    assert!(blocks.windows(2).all(|pair| pair[1] == pair[0] + 1), "{blocks:?}");
    let (first, _) = open(&a, &b, blocks[0]);
    a.connect(blocks[blocks.len() - 1]);
    let again = until(&[&a, &b], |_, events| {
        events.drain(..).find_map(|event| match event {
            FabricEvent::Connected { channel, .. } => Some(channel),
            _ => None,
        })
    });
    assert_eq!(again.id, first.id);
    let mut count = blocks.len();
    while let Ok(more) = b.lease_blocks(64) {
        count += more.len();
    }
    assert_eq!(count, pagewire_iommu::limits::MAX_BLOCKS);
}

#[test]
fn a_fabric_reaches_itself() {
    let a = HostFabric::new().unwrap();
    let block = a.lease_block().unwrap();
    a.connect(block);
    let mut ends = Vec::new();
    until(&[&a], |_, events| {
        for event in events.drain(..) {
            match event {
                FabricEvent::Connected { channel, .. } | FabricEvent::Accepted { channel } => {
                    ends.push(channel)
                }
                _ => panic!(),
            }
        }
        (ends.len() == 2).then_some(())
    });
    ends[0].words.store(TEST, 1, 2);
    assert_eq!(ends[1].words.load(1), 2);
    assert_ne!(ends[0].side, ends[1].side);
    assert_ne!(ends[0].id, ends[1].id);
}

/// Two that open a channel to each other at once share one: each channel costs both descriptors.
#[test]
fn both_connect_at_once() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let (of_a, of_b) = (a.lease_block().unwrap(), b.lease_block().unwrap());
    a.connect(of_b);
    b.connect(of_a);
    let (mut connected, mut accepted) = ([None, None], 0);
    until(&[&a, &b], |index, events| {
        for event in events.drain(..) {
            match event {
                FabricEvent::Connected { channel, .. } => connected[index] = Some(channel.words),
                FabricEvent::Accepted { .. } => accepted += 1,
                _ => panic!(),
            }
        }
        connected.iter().all(Option::is_some).then_some(())
    });
    let [Some(of_a), Some(of_b)] = connected else { panic!() };
    of_a.store(TEST, 1, 2);
    assert_eq!((accepted, of_b.load(1)), (1, 2));
}

#[test]
fn connect_to_absent_block_is_refused() {
    let a = HostFabric::new().unwrap();
    a.connect(0xFFFF);
    let reason = until(&[&a], |_, events| {
        events.drain(..).next().map(|event| match event {
            FabricEvent::Refused { block: 0xFFFF, reason, absent: true } => reason,
            _ => panic!(),
        })
    });
    assert!(reason.contains("65535"), "{reason}");
}

/// Who refuses channels is not taken for one that does not exist, and may reach others itself.
#[test]
fn a_fabric_that_refuses_channels_says_so() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    b.refuse_channels();
    let (of_a, of_b) = (a.lease_block().unwrap(), b.lease_block().unwrap());
    a.connect(of_b);
    let reason = until(&[&a, &b], |_, events| {
        events.drain(..).next().map(|event| match event {
            FabricEvent::Refused { block, reason, absent: false } if block == of_b => reason,
            _ => panic!(),
        })
    });
    assert!(reason.contains("takes the network only"), "{reason}");
    open(&b, &a, of_a);
}

#[test]
fn a_fabric_departs() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let block = b.lease_block().unwrap();
    let (opened, accepted) = open(&a, &b, block);
    drop(b);
    let departed = until(&[&a], |_, events| {
        events.drain(..).find_map(|event| match event {
            FabricEvent::Departed { channel } => Some(channel),
            _ => None,
        })
    });
    assert_eq!(departed, opened.id);
    // The words stay as they are, for whoever looks at them still.
    accepted.words.store(TEST, 5, 5);
    assert_eq!(opened.words.load(5), 5);
    assert!(!opened.process.is_alive());
}

#[test]
fn a_sleeper_is_woken() {
    let (a, b) = (HostFabric::new().unwrap(), HostFabric::new().unwrap());
    let block = b.lease_block().unwrap();
    let (opened, _accepted) = open(&a, &b, block);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let start = std::time::Instant::now();
            while b.mailbox().load(0) == 0 {
                b.wait(None);
                assert!(start.elapsed() < common::PATIENCE);
            }
        });
        opened.mailbox.store(TEST, 0, 1);
        a.wake(opened.id);
        sleeper.join().unwrap();
        // A kick before the wait counts.
        b.kick();
        b.wait(None);
    });
    assert_eq!(a.counters().wakes_sent.get(), 1);
    assert_eq!(b.counters().wakes_received.get(), 1);
}

#[test]
fn waits_end_in_time() {
    let a = HostFabric::new().unwrap();
    let deadline = a.now() + 3_000_000;
    while a.now() < deadline {
        a.wait(Some(deadline));
    }
}

#[test]
fn absent_pages_are_brought_in() {
    let a = HostFabric::new().unwrap();
    // Never touched: not there.
    let length = 64 * 4096;
    let fresh = Vec::<u8>::with_capacity(length + (32 << 20));
    let segment = [Segment { address: fresh.as_ptr() as u64 + 4096, length: length as u64 }];
    assert_eq!(a.memory().residency(&segment), Residency::Absent);
    a.page_in().bring_in(TENANT, &[register(&a, segment[0])], true, 99);
    until(&[&a], |_, events| {
        events.drain(..).find(|event| matches!(event, FabricEvent::BroughtIn { token: 99 }))
    });
    assert_eq!(a.memory().residency(&segment), Residency::Resident);
    // Nothing is mapped there: that comes to an end too.
    a.page_in().bring_in(TENANT, &[register(&a, Segment { address: 4096, length: 5 })], true, 100);
    until(&[&a], |_, events| {
        events.drain(..).find(|event| matches!(event, FabricEvent::BroughtIn { token: 100 }))
    });
}

#[test]
fn signals_of_the_program_stay_with_its_threads() {
    let a = HostFabric::new().unwrap();
    let length = 64 * 4096;
    let fresh = Vec::<u8>::with_capacity(length + (32 << 20));
    let segment = Segment { address: fresh.as_ptr() as u64 + 4096, length: length as u64 };
    a.page_in().bring_in(TENANT, &[register(&a, segment)], true, 1);
    until(&[&a], |_, events| events.drain(..).find(|event| matches!(event, FabricEvent::BroughtIn { .. })));
    // The thread that did it waits a while for more.
    let mut seen = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // Threads of other tests may end in between.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        if read("comm").trim() != "pagewire-pages" {
            continue;
        }
        let mask = || {
            let status = read("status");
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?.trim();
            Some(u64::from_str_radix(mask, 16).unwrap())
        };
        // The C library keeps all signals from a thread that it is just starting.
        let is_open = |mask: u64| mask >> (libc::SIGSEGV - 1) & 1 == 0;
        let mut tries = 0..1000;
        while mask().is_some_and(|mask| !is_open(mask)) && tries.next().is_some() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let Some(mask) = mask() else { continue };
        assert!(is_open(mask), "SIGSEGV is blocked: {mask:x}");
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGUSR1, libc::SIGALRM, libc::SIGCHLD, 34, 64] {
            // The C library keeps 32 and 33, and lets nobody block them.
            assert!(mask >> (signal - 1) & 1 == 1, "signal {signal} is open: {mask:x}");
        }
        seen += 1;
    }
    assert!(seen > 0, "no thread brought the pages in");
    // This thread's mask is as it was.
    let own = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(own.contains("SigBlk:\t0000000000000000"), "{own}");
}
