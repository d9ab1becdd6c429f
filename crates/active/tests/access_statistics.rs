//! Access statistics by page and by source, on both paths: what is counted, and what the caller sees (PAPERS AA-10).

#[path = "other/lossy.rs"]
mod lossy;
mod other;

use lossy::on_a_lossy_network;
use other::on_each_path;
use pagewire::access_log::Source;
use pagewire::{Node, Region, RemoteRegion, Rights};
use pagewire_active::{AccessStatistics, Counts, RemoteAccessStatistics};

const PAGE: u64 = 4096;

struct World {
    table: Region<u64>,
    remotes: [RemoteRegion; 2],
    owner: Node,
    callers: [Node; 2],
}

fn world(pages: u64) -> World {
    let owner = Node::alone().unwrap();
    let callers = [(); 2].map(|()| Node::alone().unwrap());
    let table = owner.zeroed::<u64>((pages * PAGE / 8) as usize).unwrap();
    let token = table.export(Rights::all()).unwrap();
    let remotes = [0, 1].map(|index: usize| callers[index].open(&token).unwrap());
    World { table, remotes, owner, callers }
}

#[test]
fn each_access_is_counted_in_its_pages_and_by_its_source() {
    on_each_path("each_access_is_counted_in_its_pages_and_by_its_source", || {
        let world = world(64);
        let [one, other] = &world.remotes;
        let statistics = AccessStatistics::of(&world.owner, &world.table).start().unwrap();
        let mut model = vec![Counts::default(); 64];
        let mut sums = [Counts::default(); 2];
        for round in 0..40u64 {
            let page = (7 * round % 60) as usize;
            one.put_value(page as u64 * PAGE + 8, round).wait().unwrap();
            model[page].puts += 1;
            model[page].bytes_in += 8;
            other.fetch_add(3 * PAGE, 1).wait().unwrap();
            model[3].atomics += 1;
            model[3].bytes_in += 8;
            // The end of a page and the beginning of the next.
            other.get::<u8>((page as u64 + 1) * PAGE - 3, 10).unwrap().wait().unwrap();
            for (page, bytes) in [(page, 3), (page + 1, 7)] {
                model[page].gets += 1;
                model[page].bytes_out += bytes;
            }
        }
        // More than one record has space for, beginning in the midst of a page: each page once.
        one.put(100, vec![1u8; 50 * PAGE as usize]).wait().unwrap();
        for (page, counts) in model.iter_mut().enumerate().take(51) {
            counts.puts += 1;
            counts.bytes_in += match page {
                0 => PAGE - 100,
                50 => 100,
                _ => PAGE,
            };
        }
        sums[0] = Counts { puts: 41, bytes_in: 40 * 8 + 50 * PAGE, ..Counts::default() };
        sums[1] = Counts { atomics: 40, bytes_in: 320, gets: 40, bytes_out: 400, ..Counts::default() };
        for (page, counts) in model.iter().enumerate() {
            assert_eq!(statistics.page(page), *counts, "page {page}");
        }
        assert_eq!(statistics.page(64), Counts::default());
        let mut by_source: Vec<_> = statistics.sources().into_iter().map(|(_, counts)| counts).collect();
        by_source.sort_by_key(|counts| counts.atomics);
        // A source has two rings where the caller and the owner write records of it, but one number.
        assert_eq!(by_source, sums);
        let total = statistics.total();
        assert_eq!((total.puts, total.atomics, total.gets), (41, 40, 40));
        assert_eq!((total.bytes_in, total.bytes_out, total.refused()), (640 + 50 * PAGE, 400, 0));
        let hottest = statistics.hottest(2);
        assert_eq!((hottest[0], hottest.len()), ((3, model[3]), 2));
        // The data were put, too: counting takes nothing away.
        assert_eq!(world.table.get(100 / 8 + 1).unwrap(), 0x0101_0101_0101_0101);
        let remote = RemoteAccessStatistics::open(&world.callers[0], &statistics.export().unwrap()).unwrap();
        assert_eq!(remote.pages().unwrap(), model);
        assert_eq!(statistics.reset(), total);
        assert_eq!((statistics.total(), statistics.page(3)), (Counts::default(), Counts::default()));
        assert!(statistics.hottest(9).is_empty() && statistics.sources().is_empty());
        one.put_value(0, 1u64).wait().unwrap();
        assert_eq!(statistics.total(), Counts { puts: 1, bytes_in: 8, ..Counts::default() });
    });
}

#[test]
fn what_is_refused_is_counted_and_does_not_move() {
    on_each_path("what_is_refused_is_counted_and_does_not_move", || {
        let world = world(4);
        let remote = &world.remotes[0];
        let statistics = AccessStatistics::of(&world.owner, &world.table).refuse_puts().start().unwrap();
        world.table.set(512, 5).unwrap();
        assert!(remote.put_value(PAGE, 9u64).wait().unwrap_err().to_string().contains("refused"));
        assert!(world.remotes[1].fetch_add(PAGE, 1).wait().is_err());
        assert_eq!(
            world.callers[0]
                .open(&world.table.export(Rights::READ).unwrap())
                .unwrap()
                .get::<u64>(PAGE, 1)
                .unwrap()
                .wait()
                .unwrap(),
            [5]
        );
        assert_eq!(
            statistics.page(1),
            Counts { refused_puts: 2, gets: 1, bytes_out: 8, ..Counts::default() }
        );
        assert_eq!(world.table.get(512).unwrap(), 5);
        drop(statistics);
        // The attributes stay.
        assert!(world.remotes[1].put_value(PAGE, 9u64).wait().is_err());
        let statistics =
            AccessStatistics::of(&world.owner, &world.table).refuse_gets().puts_only().start().unwrap();
        let fresh = world.owner.open(&world.table.export(Rights::all()).unwrap()).unwrap();
        assert!(fresh.get::<u64>(0, 1).unwrap().wait().is_err());
        fresh.put_value(0, 1u64).wait().unwrap();
        // Gets are refused, and not counted: they need no record then.
        assert_eq!(statistics.total(), Counts { puts: 1, bytes_in: 8, ..Counts::default() });
    });
}

/// Accesses of any length, to the same pages, that begin and end anywhere: each counts once, and so does each byte.
#[test]
fn counts_equal_accesses_on_a_lossy_network() {
    on_a_lossy_network("counts_equal_accesses_on_a_lossy_network", || {
        const PAGES: u64 = 100;
        let world = world(PAGES);
        let statistics = AccessStatistics::of(&world.owner, &world.table).start().unwrap();
        let mut random = 1u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            (random >> 33) % below
        };
        let mut sum = Counts::default();
        let mut model = vec![Counts::default(); PAGES as usize];
        for round in 0..400 {
            let remote = &world.remotes[draw(2) as usize];
            let at = draw(PAGES * PAGE - 8) & !7;
            let longest = if draw(2) == 0 { 64 } else { PAGES * PAGE };
            let mut length = 8 * (1 + draw((PAGES * PAGE - at).min(longest) / 8));
            let mut counts = Counts::default();
            match round % 5 {
                0 | 1 => {
                    remote.get::<u8>(at, length as usize).unwrap().wait().unwrap();
                    counts.gets = 1;
                }
                2 | 3 => {
                    remote.put(at, vec![round as u8; length as usize]).wait().unwrap();
                    counts.puts = 1;
                }
                _ => {
                    remote.fetch_add(at, 1).wait().unwrap();
                    (length, counts.atomics) = (8, 1);
                }
            }
            let add = |to: &mut Counts, bytes: u64| {
                to.gets += counts.gets;
                to.puts += counts.puts;
                to.atomics += counts.atomics;
                *(if counts.gets > 0 { &mut to.bytes_out } else { &mut to.bytes_in }) += bytes;
            };
            add(&mut sum, length);
            for page in at / PAGE..=(at + length - 1) / PAGE {
                let bytes = (at + length).min((page + 1) * PAGE) - at.max(page * PAGE);
                add(&mut model[page as usize], bytes);
            }
        }
        assert_eq!(statistics.total(), sum);
        for (page, counts) in model.iter().enumerate() {
            assert_eq!(statistics.page(page), *counts, "page {page}");
        }
        assert_eq!(statistics.sources().len(), 2);
    });
}

/// A peer is one source, by whichever connections it came, and has a name.
#[test]
fn sources_are_peers() {
    on_each_path("sources_are_peers", || {
        let world = world(2);
        let statistics = AccessStatistics::of(&world.owner, &world.table).start().unwrap();
        for round in 0..4 {
            for (caller, remote) in world.callers.iter().zip(&world.remotes) {
                remote.put_value(0, 1u64).wait().unwrap();
                if round % 2 == 1 {
                    // Outside of the exported bytes: a refusal.
                    let key = world.table.export(Rights::READ).unwrap();
                    assert!(caller.open(&key).unwrap().put_value(0, 1u64).wait().is_err());
                }
            }
        }
        let sources = statistics.sources();
        assert_eq!(sources.len(), 2, "{sources:?}");
        let names = world.owner.sources();
        let mut found: Vec<_> = sources.iter().map(|(number, _)| names.find(*number)).collect();
        for caller in &world.callers {
            let source = Some(Source::Node { peer: caller.identity(), rank: None });
            found.remove(found.iter().position(|found| *found == source).unwrap());
        }
        assert!(sources.iter().all(|(_, counts)| counts.puts == 4), "{sources:?}");
    });
}
