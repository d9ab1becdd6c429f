//! PART's model: whatever is absent, wherever, everything arrives, and what the paper says of mechanisms holds.

use pagewire_papers::Claim;
use pagewire_papers::part::{
    Before, Errors, Fate, Operation, PageIn, Report, Resend, Transfer, all_absent, claims, overlap_gain, run,
    sometimes_absent, touched_below, with_preparation,
};
use pagewire_papers::translation::{Eviction, Geometry, WalkerLimits};
use pagewire_papers::unit_costs::PartCosts;
use proptest::prelude::*;

const COSTS: PartCosts = PartCosts::PAPER;

fn absent(bytes: u64, page_in: PageIn) -> Transfer {
    Transfer::absent(&COSTS, bytes, page_in)
}

fn transfers() -> impl Strategy<Value = Transfer> {
    let page_in = prop_oneof![Just(PageIn::One), Just(PageIn::Block), Just(PageIn::All)];
    let resend = prop_oneof![
        Just(Resend::ErrAndTimeout(1_000_000)),
        Just(Resend::ErrAndTimeout(100_000)),
        Just(Resend::Timeout(500_000)),
        Just(Resend::Err),
        Just(Resend::EarlyErr),
    ];
    let operation = prop_oneof![Just(Operation::Write), Just(Operation::Read)];
    (1..400_000_u64, page_in, resend, operation, any::<bool>()).prop_flat_map(
        |(bytes, page_in, resend, operation, warm)| {
            let pages = bytes.div_ceil(4_096) as usize;
            let present = || prop::collection::vec(prop::bool::weighted(0.7), pages);
            (present(), present()).prop_map(move |(source, destination)| Transfer {
                bytes,
                operation,
                source,
                destination,
                warm,
                page_in,
                resend,
                errors: Errors::default(),
                taken_away: Vec::new(),
            })
        },
    )
}

proptest! {
    /// PART-9: faults at the source, at the destination and at both; each page comes in once. Had an ERR been lost, NTO would stand still.
    #[test]
    fn part_9_everything_arrives_and_each_absent_page_comes_in_once(transfer in transfers()) {
        let report = run(&COSTS, &transfer);
        let missing = transfer.source.iter().chain(&transfer.destination).filter(|present| !**present).count();
        prop_assert_eq!(report.page_ins, missing as u64);
        let resident = Transfer {
            source: vec![true; transfer.source.len()],
            destination: vec![true; transfer.source.len()],
            ..transfer.clone()
        };
        let best = run(&COSTS, &resident);
        prop_assert!(report.latency >= best.latency, "{} {}", report.latency, best.latency);
        prop_assert_eq!((best.handler_runs, best.errs, best.timeouts), (0, 0, 0));
        if matches!(transfer.resend, Resend::Timeout(_)) {
            prop_assert_eq!(report.errs, 0);
        }
        if matches!(transfer.resend, Resend::Err | Resend::EarlyErr) {
            prop_assert_eq!(report.timeouts, 0);
        }
        prop_assert_eq!(report, run(&COSTS, &transfer));
    }
}

fn errors() -> impl Strategy<Value = Errors> {
    (0..20_000_u32, 0..20_000_u32, 0..50_000_u32, any::<u64>()).prop_map(
        |(lost, corrupted, lost_answers, seed)| Errors { lost, corrupted, lost_answers, of_one: None, seed },
    )
}

proptest! {
    /// PART-5: whatever is lost or corrupted, with timeouts everything arrives, and each absent page comes in once. Nothing is sooner for it.
    #[test]
    fn part_5_with_timeouts_everything_arrives(transfer in transfers(), errors in errors()) {
        let has_timeouts = matches!(transfer.resend, Resend::ErrAndTimeout(_) | Resend::Timeout(_));
        let errors = if has_timeouts { errors } else { Errors { lost_answers: 0, ..errors } };
        let missing = transfer.source.iter().chain(&transfer.destination).filter(|present| !**present).count();
        let report = run(&COSTS, &Transfer { errors, ..transfer.clone() });
        prop_assert_eq!((report.unfinished, report.page_ins), (0, missing as u64));
        if (report.lost_packets, report.corrupted_packets, report.lost_answers) == (0, 0, 0) {
            prop_assert_eq!(report, run(&COSTS, &transfer));
        }
    }
}

/// One packet of one block of a WRITE, all in memory.
fn with_fate(bytes: u64, number: u64, fate: Fate, resend: Resend) -> Report {
    let errors = Errors { of_one: Some((number, fate)), ..Errors::default() };
    run(&COSTS, &Transfer { errors, resend, ..Transfer::resident(&COSTS, bytes) })
}

/// PART, section 4.2: NACKs "trigger retransmission, depending on their qualifier": of a wrong CRC at once, without the timeout.
#[test]
fn part_5_a_corrupted_packet_sends_its_block_again_by_a_nack() {
    let plain = run(&COSTS, &Transfer::resident(&COSTS, 64 << 10));
    for resend in [Resend::ErrAndTimeout(1_000_000), Resend::Err] {
        let report = with_fate(64 << 10, 70, Fate::Corrupted, resend);
        assert_eq!((report.corrupted_packets, report.timeouts, report.transmissions), (1, 0, 4 + 1));
        assert_eq!((report.errs, report.handler_runs), (0, 0), "no page fault");
        assert!(report.latency > plain.latency && report.latency < plain.latency + 100_000);
    }
}

/// PART, section 4.2: "Missing ACKs trigger timeouts and block-level retransmissions", in NTO, too: only a page fault cancels the timeout.
#[test]
fn part_5_a_lost_packet_sends_its_block_again_by_the_timeout() {
    for (resend, timeout) in [
        (Resend::ErrAndTimeout(100_000), 100_000),
        (Resend::Timeout(500_000), 500_000),
        (Resend::Err, 1_000_000),
    ] {
        let report = with_fate(64 << 10, 70, Fate::Lost, resend);
        assert_eq!((report.lost_packets, report.timeouts, report.transmissions), (1, 1, 4 + 1));
        assert!(report.latency > timeout && report.latency < timeout + 200_000, "{report:?}");
    }
}

/// PART, section 4.4: "older packets (i.e., with smaller ids) that arrive later in time will be dropped".
#[test]
fn part_5_packets_of_older_transmissions_are_dropped() {
    let late = |more| with_fate(64 << 10, 70, Fate::Late(more), Resend::Timeout(100_000));
    let plain =
        run(&COSTS, &Transfer { resend: Resend::Timeout(100_000), ..Transfer::resident(&COSTS, 64 << 10) });
    // Its block is sent again by the timeout before it comes, and complete by then.
    let report = late(300_000);
    assert_eq!(
        (report.stale_packets, report.timeouts, report.transmissions, report.unfinished),
        (1, 1, 5, 0)
    );
    // A little late it is of the newest transmission still.
    let report = late(10_000);
    assert_eq!((report.stale_packets, report.timeouts, report.transmissions), (0, 0, 4));
    assert!(report.latency >= plain.latency && plain.stale_packets == 0);
}

/// NTO's NACK cancels the timeout; if its ERR is lost then, nothing sends the block again. With the timeout as a safety net it arrives.
#[test]
fn part_6_without_a_timeout_a_lost_err_ends_the_transfer() {
    let stands_still = |resend| {
        (0..50).any(|seed| {
            let errors = Errors { lost_answers: 300_000, seed, ..Errors::default() };
            run(&COSTS, &Transfer { errors, resend, ..absent(64 << 10, PageIn::All) }).unfinished > 0
        })
    };
    assert!(stands_still(Resend::Err));
    assert!(!stands_still(Resend::ErrAndTimeout(1_000_000)));
}

/// PART, section 4.3: "we invalidate the SMMU's TLB entries when the OS modifies existing entries": what is taken away during a
/// transfer fails as if it never had been there, and comes in again.
#[test]
fn part_3_pages_that_are_taken_away_during_a_transfer_come_in_again() {
    let resident = Transfer::resident(&COSTS, 64 << 10);
    let plain = run(&COSTS, &resident);
    assert_eq!((plain.walks, plain.page_ins), (0, 0), "the SMMU knows all 16 pages");
    for page_in in [PageIn::One, PageIn::All] {
        let taken = |at, pages| Transfer { page_in, taken_away: vec![(at, pages)], ..resident.clone() };
        // Half of the pages have been written by then, and are not needed again.
        let half = run(&COSTS, &taken(plain.latency / 2, 0..16));
        assert!((1..16).contains(&half.page_ins), "{half:?}");
        assert!(half.latency > plain.latency && half.walks > 0 && half.failed_packets > 0);
        assert_eq!(run(&COSTS, &taken(0, 0..16)).page_ins, 16);
        assert_eq!(run(&COSTS, &taken(plain.latency + 1, 0..16)), plain);
    }
    let never_ending = Transfer {
        taken_away: (0..50).map(|time| (time * 20_000, 0..16)).collect(),
        ..Transfer::absent(&COSTS, 64 << 10, PageIn::All)
    };
    assert!(run(&COSTS, &never_ending).page_ins > 16);
}

/// PART, section 3.3: page-in and transfer overlap because accesses that hit go on while others of their process wait for a page.
#[test]
fn part_4_without_hits_under_faults_page_in_and_transfer_do_not_overlap() {
    let held = PartCosts { hit_under_fault: false, ..COSTS };
    let latency =
        |costs, resend| run(costs, &Transfer { resend, ..absent(1 << 20, PageIn::All) }).latency as f64;
    let gain = |costs| latency(costs, Resend::Err) / latency(costs, Resend::ErrAndTimeout(100_000));
    assert!(gain(&COSTS) > 1.7 && gain(&held) < 1.1, "{} {}", gain(&COSTS), gain(&held));
    // Nothing that is in memory waits for anything.
    let resident = Transfer::resident(&COSTS, 64 << 10);
    assert_eq!(run(&held, &resident), run(&COSTS, &resident));
}

/// PART, section 4.3: 2,048 translations. Of twice as many pages, written again in their order, none is known still where the one used
/// longest ago makes room: that is the next one. At random some are.
#[test]
fn part_3_of_more_pages_than_the_smmu_knows_random_eviction_keeps_some() {
    let walks = |eviction| {
        let buffers = Geometry { eviction, ..COSTS.buffers };
        run(&PartCosts { buffers, ..COSTS }, &Transfer::resident(&COSTS, 4_096 * 4_096)).walks
    };
    assert_eq!(walks(Eviction::LeastRecentlyUsed), 4_096);
    for seed in 1..=3 {
        let random = walks(Eviction::Random { seed });
        assert!((2_048..4_000).contains(&random), "{random}");
    }
}

/// A page that fails again before its entry of the FIFO is read is asked for in its last transmission; an ERR for the first one would be
/// dropped, and nothing else would come.
#[test]
fn part_6_an_err_names_the_last_transmission_that_failed() {
    let transfer = Transfer {
        source: vec![true, false, true, true, false, true],
        destination: vec![false, false, false, true, true, false],
        operation: Operation::Read,
        warm: false,
        resend: Resend::Err,
        ..absent(21_538, PageIn::Block)
    };
    assert_eq!(run(&COSTS, &transfer).page_ins, 6);
}

/// PART, section 5.3: 16 packets of a page are one fault, one run of the tasklet, one ERR.
#[test]
fn part_6_the_packets_of_a_page_are_served_together() {
    let report = run(&COSTS, &absent(4_096, PageIn::One));
    let Report { failed_packets, tasklet_runs, errs, transmissions, page_ins, .. } = report;
    assert_eq!((failed_packets, tasklet_runs, errs, transmissions, page_ins), (16, 1, 1, 2, 1));
}

/// The depth of the NI FIFO is not in the text: for the pages of two blocks, 8, it makes no difference.
#[test]
fn a_fifo_for_two_blocks_is_deep_enough() {
    for (page_in, percent) in
        [(PageIn::One, 100), (PageIn::Block, 100), (PageIn::All, 100), (PageIn::One, 40)]
    {
        let latency = |fifo| sometimes_absent(&PartCosts { fifo, ..COSTS }, 1 << 20, page_in, percent);
        assert!((latency(8) - latency(COSTS.fifo)).abs() < 1e-9);
        assert!(latency(1) > latency(8) || page_in != PageIn::One);
    }
}

/// Nor are the SMMU's walk caches and which entry makes room: without caches, with many, and at random all numbers come out alike, but
/// for a run of the handler more, 1 us.
#[test]
fn no_number_of_the_text_is_decided_by_what_the_smmu_is_assumed_to_be() {
    let with = |cache_entries, eviction| PartCosts {
        walker: WalkerLimits { cache_entries, ..COSTS.walker },
        buffers: Geometry { eviction, ..COSTS.buffers },
        ..COSTS
    };
    let value = |claim: &Claim| claim.predicted.range().map(|(value, _)| value);
    let plain = claims(&COSTS);
    for (entries, eviction) in [(0, Eviction::Random { seed: 1 }), (512, Eviction::LeastRecentlyUsed)] {
        for (one, other) in plain.iter().zip(claims(&with(entries, eviction))) {
            let (one_value, other_value) = (value(one).unwrap_or(0.0), value(&other).unwrap_or(0.0));
            let allowed = if matches!(one.unit, "us" | "") { 1.0 } else { 0.04 * one_value };
            let is_alike = (one_value - other_value).abs() <= allowed + 1e-9;
            assert!(is_alike, "{}: {}: {one_value} {other_value}", one.place, one.what);
        }
    }
}

/// PART, section 5.4: "it may be beneficial to touch the buffers of small transfers (e.g., less than 64 or 256KB)"; of 4 MB PIA is better.
#[test]
fn part_10_touching_small_transfers_first_is_better_than_leaving_all_to_pia() {
    for threshold in [64 << 10, 256 << 10] {
        for bytes in [4 << 10, 16 << 10, 64 << 10, 256 << 10, 4 << 20] {
            let mixed = touched_below(&COSTS, bytes, threshold);
            let pia = all_absent(&COSTS, bytes, PageIn::All);
            let touch = with_preparation(&COSTS, bytes, Before::TouchAbsent);
            assert!(if bytes < threshold { mixed < pia } else { mixed <= pia }, "{bytes}");
            assert!(bytes >= threshold || (mixed - touch).abs() < 1e-9, "{bytes}");
        }
    }
    let large = with_preparation(&COSTS, 4 << 20, Before::TouchAbsent);
    assert!(touched_below(&COSTS, 4 << 20, 256 << 10) < large);
}

/// PART, section 5.3: with PIA all blocks but the first two outstanding ones succeed at the first try.
#[test]
fn part_7_pia_leaves_faults_to_the_first_two_blocks_alone() {
    let transfer = absent(4 << 20, PageIn::All);
    let report = run(&COSTS, &transfer);
    assert_eq!(report.transmissions, 256 + 2);
    assert_eq!(report.failed_packets, 2 * 64);
    assert!(run(&COSTS, &absent(4 << 20, PageIn::One)).handler_runs > 50 * report.handler_runs);
}

/// PART, section 5.3: PIA "has the same latency for transfers up to 16KB", and PI4 "behaves similarly or even better than PIO".
#[test]
fn part_7_within_a_block_all_schemes_are_alike() {
    let latency = |bytes, page_in| run(&COSTS, &absent(bytes, page_in)).latency;
    for bytes in [4 << 10, 16 << 10] {
        assert_eq!(latency(bytes, PageIn::All), latency(bytes, PageIn::One));
    }
    for bytes in [16 << 10, 64 << 10, 1 << 20] {
        assert!(latency(bytes, PageIn::Block) <= latency(bytes, PageIn::One));
    }
}

/// PART, section 6.1.2: "in 4MB transfers [...] the latency with TO equals to 100 and 500 us is similar (yet they both outperform the
/// case of TO=1ms)"; without timeouts nothing overlaps.
#[test]
fn part_8_an_early_timeout_overlaps_page_in_and_transfer() {
    let latency = |resend| run(&COSTS, &Transfer { resend, ..absent(4 << 20, PageIn::All) }).latency as f64;
    let [short, middle, long] =
        [100_000, 500_000, 1_000_000].map(|timeout| latency(Resend::ErrAndTimeout(timeout)));
    assert!(short < middle && middle < long && long < latency(Resend::Err));
    assert!(middle / short < long / middle * 1.01);
    assert!(
        (overlap_gain(&COSTS, 1 << 24, 1_000_000) / overlap_gain(&COSTS, 1 << 24, 100_000) - 1.0).abs()
            < 0.001
    );
}

/// PART, section 3.3: "one could send the ERR before resolving all page faults [...] to achieve a better overlap without relying on the
/// timeout".
#[test]
fn part_8_early_errs_overlap_without_any_timeout() {
    for bytes in [64 << 10, 256 << 10, 1 << 20, 4 << 20] {
        let report = |resend| run(&COSTS, &Transfer { resend, ..absent(bytes, PageIn::All) });
        let early = report(Resend::EarlyErr);
        assert!(early.latency < report(Resend::Err).latency, "{bytes}");
        assert!(early.latency < report(Resend::ErrAndTimeout(100_000)).latency, "{bytes}");
        assert_eq!(early.timeouts, 0);
    }
}

/// PART, section 6.1.2: up to 16 KB the timeouts make no difference.
#[test]
fn part_8_small_transfers_end_before_any_timeout() {
    for bytes in [4_096, 16_384] {
        let report = |resend| run(&COSTS, &Transfer { resend, ..absent(bytes, PageIn::All) });
        assert_eq!(report(Resend::ErrAndTimeout(100_000)), report(Resend::Err), "{bytes}");
    }
}

/// PART, section 6.2: a READ is a WRITE by the target, which has to be asked.
#[test]
fn a_read_costs_the_request_more_than_a_write() {
    for transfer in [Transfer::resident(&COSTS, 65_536), absent(65_536, PageIn::All)] {
        let read = run(&COSTS, &Transfer { operation: Operation::Read, ..transfer.clone() });
        assert_eq!(read.latency, run(&COSTS, &transfer).latency + COSTS.initiation + COSTS.network);
    }
}

/// PART, section 6.1.1 and figure 14: nothing absent costs nothing; more absent pages cost PIO more, and PIA less than PIO.
#[test]
fn latency_grows_with_the_frequency_of_faults() {
    let size = 1 << 20;
    let alone = with_preparation(&COSTS, size, Before::Nothing);
    let pio = [0, 5, 20, 40, 80, 100].map(|f| sometimes_absent(&COSTS, size, PageIn::One, f));
    assert!((pio[0] - alone).abs() < 1e-9 && pio.is_sorted(), "{pio:?}");
    assert!(sometimes_absent(&COSTS, size, PageIn::All, 80) * 2.0 < pio[4]);
}

/// PART, section 6.1.1: "page faults occur only for configurations with s f >= 1".
#[test]
fn less_than_one_absent_page_is_none() {
    for (size, percent) in [(4 << 10, 80), (16 << 10, 20), (64 << 10, 5), (256 << 10, 1)] {
        for page_in in [PageIn::One, PageIn::All] {
            let latency = |percent| sometimes_absent(&COSTS, size, page_in, percent);
            assert!((latency(percent) - latency(0)).abs() < 1e-9, "{size}");
        }
    }
}
