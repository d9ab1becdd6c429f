//! JBMT's model: credits, sections and fault threads do what the paper says of them.

use pagewire_papers::jbmt::{self, Get, run};
use pagewire_papers::unit_costs::{JbmtCosts, JbmtLimits};
use proptest::prelude::*;

const COSTS: JbmtCosts = JbmtCosts::PAPER;
const DISK: u64 = 8_000_000;

/// All pages of the remote buffer are absent.
fn swapped(pages: u64) -> Get {
    Get { remote_absent: vec![true; pages as usize], ..Get::resident(pages * 4_096) }
}

/// JBMT-4: 1 MB a section, so 10 MB are ten.
#[test]
fn jbmt_4_a_large_get_is_cut_into_sections() {
    let finished = run(&COSTS, &JbmtLimits::PLENTY, &[Get::resident(10 << 20)]);
    assert_eq!(finished.sections, (10, 10));
    assert_eq!(finished.pinned_most, (256, 256));
}

/// JBMT-4: "progress is ensured when [...] as little as a single page is pinned".
#[test]
fn jbmt_4_a_single_page_that_may_be_pinned_is_enough() {
    let limits = JbmtLimits { pinnable: 1, ..JbmtLimits::PLENTY };
    let finished = run(&COSTS, &limits, &[Get::resident(1 << 20), Get::resident(1 << 20)]);
    assert_eq!(finished.pinned_most, (1, 1));
    assert_eq!(finished.sections, (512, 512));
}

/// JBMT-5: a get whose pages are on the disk does not hold up one whose pages are in memory, at either side.
#[test]
fn jbmt_5_absent_pages_stop_nobody_else() {
    let limits = JbmtLimits { swap_in: DISK, ..JbmtLimits::PLENTY };
    let end = |gets: &[Get]| run(&COSTS, &limits, gets).gets.last().expect("some").1;
    let alone = end(&[Get::resident(65_536)]);
    let local = Get { local_absent: vec![true; 256], ..Get::resident(1 << 20) };
    for slow in [swapped(256), local] {
        let beside = end(&[slow, Get::resident(65_536)]);
        // Beside it stands only the work that the helpers do for the slow one before they give it away.
        assert!(beside < alone + 300_000, "{beside} {alone}");
    }
}

/// JBMT-5: several fault threads, in turn, serve several gets at once.
#[test]
fn jbmt_5_more_fault_threads_end_sooner() {
    let end = |fault_threads| {
        let limits = JbmtLimits { swap_in: DISK, fault_threads, ..JbmtLimits::PLENTY };
        let finished = run(&COSTS, &limits, &[swapped(8), swapped(8), swapped(8), swapped(8)]);
        assert_eq!(finished.page_ins, 32);
        finished.gets.iter().map(|(_, end)| *end).max().expect("some")
    };
    assert!(end(1) >= 32 * DISK && end(4) < 9 * DISK, "{} {}", end(1), end(4));
}

/// JBMT-6: without a remote credit the request is refused, what was taken is released, and a timer tries again.
#[test]
fn jbmt_6_a_refused_section_is_tried_again() {
    let limits = JbmtLimits { remote_credits: 1, ..JbmtLimits::PLENTY };
    let finished = run(&COSTS, &limits, &vec![Get::resident(1 << 20); 4]);
    assert!(finished.refused > 0);
    assert_eq!(finished.sections, (4 + finished.refused, 4));
    let plenty = run(&COSTS, &JbmtLimits::PLENTY, &vec![Get::resident(1 << 20); 4]);
    assert_eq!((plenty.refused, plenty.sections), (0, (4, 4)));
}

/// JBMT-6: a section reserves the control credits that its remote sections may need, and those are given back as they come; local
/// credits alone are not enough to begin another one.
#[test]
fn jbmt_6_few_control_credits_hold_sections_back() {
    let gets = vec![Get::resident(64 << 10); 4];
    let with = |local_credits, control_credits| {
        run(&COSTS, &JbmtLimits { local_credits, control_credits, ..JbmtLimits::PLENTY }, &gets)
    };
    let end = |finished: &jbmt::Finished| finished.gets.iter().map(|(_, end)| *end).max().expect("some");
    let (plenty, alone) = (with(4, 64), with(1, 64));
    assert_eq!((plenty.controls_most, alone.controls_most), (64, 16));
    assert!(end(&plenty) < end(&alone));
    // Enough for one of the four at a time.
    let one = with(4, 31);
    assert_eq!((one.controls_most, one.sections), (16, (4, 4)));
    assert!(end(&plenty) < end(&one) && end(&one) <= end(&alone));
    // Not enough for one: sections are shorter.
    let short = with(4, 8);
    assert_eq!((short.controls_most, short.sections), (8, (8, 8)));
    assert!(end(&short) > end(&one));
}

/// JBMT-6: what a remote section has used is free for the next local section before the first is over.
#[test]
fn jbmt_6_control_credits_come_back_with_each_remote_section() {
    let slow = Get { remote_absent: (0..16).map(|page| page >= 8).collect(), ..Get::resident(64 << 10) };
    let limits = JbmtLimits { control_credits: 16, swap_in: DISK, ..JbmtLimits::PLENTY };
    let finished = run(&COSTS, &limits, &[slow, Get::resident(32 << 10)]);
    // The second get's 8 pages go while the first waits for the disk.
    assert!(finished.gets[1].1 < DISK && finished.gets[0].1 > 8 * DISK, "{finished:?}");
    assert_eq!(finished.controls_most, 16);
}

/// JBMT-5: a fault thread brings in "a small portion of the accessed user buffer": behind that another get's page has its turn.
#[test]
fn jbmt_5_a_fault_thread_brings_in_a_small_portion() {
    let end = |fault_portion| {
        let limits = JbmtLimits { swap_in: DISK, fault_portion, fault_threads: 1, ..JbmtLimits::PLENTY };
        let finished = run(&COSTS, &limits, &[swapped(32), swapped(1)]);
        assert_eq!(finished.page_ins, 33);
        finished.gets[1].1 / DISK
    };
    assert_eq!([4, 16, 32].map(end), [5, 17, 33]);
}

/// The cost of pinning a page is another testbed's: whatever it is, the numbers of the text come out alike.
#[test]
fn no_number_of_the_text_is_decided_by_the_cost_of_pinning() {
    let with = |pin_page| pagewire_papers::jbmt::claims(&JbmtCosts { pin_page, ..COSTS });
    for (one, other) in with(0).into_iter().zip(with(2 * COSTS.pin_page)) {
        assert_eq!(one.predicted.range().is_some(), other.predicted.range().is_some());
        if let Some(((one, _), (other, _))) = one.predicted.range().zip(other.predicted.range()) {
            assert!((one / other - 1.0).abs() < 0.01, "{one} {other}");
        }
    }
}

/// The text has no number for any limit: with half of each and with twice as much the numbers of the text come out alike.
#[test]
fn no_number_of_the_text_is_decided_by_the_limits() {
    let ends = |limits: &JbmtLimits| {
        let end =
            |gets: &[Get]| run(&COSTS, limits, gets).gets.iter().map(|(_, end)| *end).max().expect("some");
        [end(&[Get::resident(1)]), end(&vec![Get::resident(16 << 20); 64])]
    };
    let plenty = JbmtLimits::PLENTY;
    let plain = ends(&plenty);
    for (times, parts) in [(1, 2), (2, 1)] {
        let few = |number: usize| number * times / parts;
        let limits = JbmtLimits {
            window: few(plenty.window),
            local_credits: few(plenty.local_credits),
            control_credits: few(plenty.control_credits as usize) as u64,
            remote_credits: few(plenty.remote_credits),
            pinnable: few(plenty.pinnable as usize) as u64,
            fault_threads: few(plenty.fault_threads),
            fault_portion: few(plenty.fault_portion as usize) as u64,
            retry: few(plenty.retry as usize) as u64,
            ..plenty
        };
        for (one, other) in plain.into_iter().zip(ends(&limits)) {
            assert!((one as f64 / other as f64 - 1.0).abs() < 0.01, "{one} {other}");
        }
    }
}

proptest! {
    /// Every get ends, whatever is scarce and absent; no more is pinned than may be; each absent page comes in once.
    #[test]
    fn every_get_ends(
        sizes in prop::collection::vec(1..300_000_u64, 1..8),
        credits in prop::collection::vec(1..4_usize, 4),
        control_credits in 1..100_u64,
        fault_portion in 1..8_u64,
        pinnable in 1..40_u64,
        seed in any::<u64>(),
    ) {
        let mut numbers = fastrand::Rng::with_seed(seed);
        let mut pages = |bytes: u64| (0..bytes.div_ceil(4_096)).map(|_| numbers.u8(..4) == 0).collect::<Vec<_>>();
        let gets: Vec<Get> = sizes
            .iter()
            .map(|&bytes| Get { bytes, local_absent: pages(bytes), remote_absent: pages(bytes) })
            .collect();
        let [window, local_credits, remote_credits, fault_threads] = credits[..] else { panic!() };
        let limits = JbmtLimits {
            window, local_credits, control_credits, remote_credits, fault_threads, pinnable, fault_portion, swap_in: 50_000, retry: 20_000,
        };
        let finished = run(&COSTS, &limits, &gets);
        prop_assert!(finished.gets.iter().all(|(posted, ended)| ended > posted));
        prop_assert!(finished.controls_most <= control_credits);
        prop_assert!(finished.pinned_most.0 <= pinnable && finished.pinned_most.1 <= pinnable);
        let absent = gets.iter().flat_map(|get| get.local_absent.iter().chain(&get.remote_absent)).filter(|a| **a);
        prop_assert_eq!(finished.page_ins, absent.count() as u64);
    }
}

/// Section 4.4: what figure 6 shows are the parts of which a get is made, one after the other.
#[test]
fn the_parts_of_a_get_of_one_section_are_all_of_it() {
    for bytes in [1, 4_096, 65_536, 1 << 20] {
        let parts: f64 = jbmt::serial_parts(&COSTS, bytes).iter().map(|(_, length)| length).sum();
        let (start, end) = run(&COSTS, &JbmtLimits::PLENTY, &[Get::resident(bytes)]).gets[0];
        let whole = (end - start) as f64 / 1_000.0;
        assert!((parts - whole).abs() < 0.01, "{bytes}: {parts} {whole}");
    }
}
