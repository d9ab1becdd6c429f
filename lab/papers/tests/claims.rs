//! The numbers that the papers' texts state: predicted within a tenth, or with a reason; and no reason without need. Which numbers
//! those are tests/text.rs says, and from which inputs they are computed tests/provenance.rs.

use pagewire_papers::part::{PageIn, Transfer, run};
use pagewire_papers::unit_costs::{APPLICATIONS, PartCosts};
use pagewire_papers::{
    Claim, Computed, Figure, InputSet, Paper, Place, Prediction, Shape, Verdict, claims, figures,
};

fn all() -> Vec<Claim> {
    Paper::ALL.map(claims).concat()
}

#[test]
fn each_number_is_predicted_within_a_tenth_or_explained() {
    let claims = all();
    for claim in &claims {
        let off = claim.deviation().map(|off| off * 100.0);
        println!(
            "{:?} {}: {}: {:?} {:?} {:?} {off:.1?} %",
            claim.verdict(),
            claim.place,
            claim.what,
            claim.stated,
            claim.predicted.range(),
            claim.varied
        );
    }
    for claim in claims {
        let explained = claim.reason.is_some_and(|reason| reason.len() > 20);
        let may_be = claim.needs_reason() || claim.verdict() == Verdict::Given;
        assert!(explained || !claim.needs_reason(), "{}: {}: {:?}", claim.place, claim.what, claim);
        assert!(may_be || !explained, "{}: {}: {:?}", claim.place, claim.what, claim);
    }
}

/// A number that belongs to a point of a curve is what the curve has there.
#[test]
fn a_number_that_is_a_point_of_a_curve_lies_on_it() {
    for paper in Paper::ALL {
        let figures = figures(paper);
        for claim in claims(paper) {
            let Some((name, x)) = claim.point else { continue };
            let here = |figure: &&Figure| figure.place == claim.place;
            let curves = figures.iter().filter(here).flat_map(|figure| &figure.curves);
            let points: Vec<f64> = curves
                .filter(|curve| curve.name == name)
                .flat_map(|curve| &curve.points)
                .filter(|point| point.0 == x)
                .map(|point| point.1)
                .collect();
            let [y] = points[..] else { panic!("{}: {name}: {points:?}", claim.place) };
            let scale = if claim.unit == "ms" { 1_000.0 } else { 1.0 };
            let value = claim.predicted.range().map_or(claim.stated.0, |(value, _)| value);
            assert!((value * scale / y - 1.0).abs() < 1e-9, "{}: {}: {y}", claim.place, claim.what);
        }
    }
}

/// What the papers counted of applications leads to one number alone, and that says so.
#[test]
fn one_number_is_an_estimate_from_counts_of_the_paper() {
    let estimated = |claim: &&Claim| matches!(claim.predicted, Prediction::Estimate(_));
    let estimates: Vec<Claim> = all().iter().filter(estimated).cloned().collect();
    let [claim] = &estimates[..] else { panic!("{estimates:?}") };
    assert_eq!(claim.place, Place::Table(2));
    assert!(claim.what.contains("counted"));
}

/// Both predictions are of one machine, but for the link; what no link is part of is the same with both.
#[test]
fn each_number_of_part_is_predicted_with_both_links() {
    let claims = claims(Paper::Part);
    let (mut alike, mut apart) = (0, 0);
    for claim in &claims {
        let other = claim.at_other_link.expect("PART's text has two links");
        assert_eq!(claim.predicted.range().is_some(), other.range().is_some(), "{}", claim.what);
        if claim.predicted == other { alike += 1 } else { apart += 1 }
    }
    assert!(alike > 20 && apart > 20, "{alike} {apart}");
    for paper in Paper::ALL.into_iter().filter(|paper| *paper != Paper::Part) {
        assert!(pagewire_papers::claims(paper).iter().all(|claim| claim.at_other_link.is_none()));
    }
}

/// What the reason of these numbers says.
#[test]
fn packets_that_come_further_apart_have_handler_runs_of_their_own() {
    let runs = |link| {
        let costs = PartCosts { link, ..PartCosts::PAPER };
        run(&costs, &Transfer::absent(&costs, 4 << 10, PageIn::One)).handler_runs
    };
    assert!(runs(PartCosts::PAPER.link) <= 5, "{}", runs(PartCosts::PAPER.link));
    assert_eq!(runs(PartCosts::PAPER.link / 5), 16);
    let stated = |application: &pagewire_papers::unit_costs::Application| {
        let claims = claims(Paper::Part);
        let start = format!("{}: handler runs for each ERR", application.name);
        claims.iter().find(|claim| claim.what.starts_with(&start)).expect("a claim").stated.0
    };
    for application in &APPLICATIONS {
        let ratio = application.handler_runs / application.errs;
        assert!((ratio - stated(application)).abs() < 0.05, "{}", application.name);
    }
}

#[test]
fn claims_and_figures_stand_in_the_order_of_the_paper_and_have_finite_values() {
    for paper in Paper::ALL {
        let figures = figures(paper);
        assert!(
            figures.is_sorted_by_key(|figure| figure.place)
                && claims(paper).is_sorted_by_key(|claim| claim.place)
        );
        for figure in figures {
            assert!(!figure.curves.is_empty());
            for curve in figure.curves {
                assert!(curve.points.iter().all(|(x, y)| x.is_finite() && y.is_finite()), "{}", curve.name);
                assert!(!curve.points.is_empty());
                let is_drawn = |(value, axis): (f64, pagewire_papers::Axis)| {
                    value > 0.0 || !axis.logarithmic || figure.shape != Shape::Curves
                };
                let points = || curve.points.iter();
                assert!(
                    points().all(|point| is_drawn((point.0, figure.x))),
                    "{}: {}",
                    figure.place,
                    curve.name
                );
                assert!(
                    points().all(|point| is_drawn((point.1, figure.y))),
                    "{}: {}",
                    figure.place,
                    curve.name
                );
            }
        }
    }
}

/// A number of no input.
fn plain(value: f64) -> Computed {
    Computed { value, inputs: InputSet::EMPTY }
}

#[test]
fn a_deviation_is_from_the_nearest_number_that_the_text_allows() {
    let any = claims(Paper::Jbmt).remove(0);
    let claim =
        |value| Claim { stated: (2.0, 4.0), predicted: Prediction::Value(plain(value)), ..any.clone() };
    assert_eq!(claim(3.0).deviation(), Some(0.0));
    assert_eq!(claim(1.0).deviation(), Some(-0.5));
    assert_eq!(claim(5.0).deviation(), Some(0.25));
    let open = |value| Claim { stated: (2.0, f64::INFINITY), ..claim(value) };
    assert_eq!((open(1.0).deviation(), open(9.0).deviation()), (Some(-0.5), Some(0.0)));
    let elsewhere = Claim { at_other_link: Some(Prediction::Value(plain(5.0))), ..claim(3.0) };
    assert_eq!(
        (elsewhere.deviation_at_other_link(), claim(3.0).deviation_at_other_link()),
        (Some(0.25), None)
    );
    assert!(claim(5.0).needs_reason() && claim(4.3).needs_reason() && !claim(3.0).needs_reason());
    let number = |value| Claim { stated: (4.0, 4.0), ..claim(value) };
    assert!(number(5.0).needs_reason() && !number(4.3).needs_reason());
    let range = |least, most| Claim { predicted: Prediction::Sum(plain(least), plain(most)), ..claim(0.0) };
    assert_eq!(range(1.0, 2.5).deviation(), Some(0.0));
    assert_eq!(range(0.5, 1.0).deviation(), Some(-0.5));
    assert_eq!(range(5.0, 9.0).deviation(), Some(0.25));
}

/// At the rate that the paper's own sum leaves for the link these numbers are met without any other change.
#[test]
fn with_the_link_that_the_papers_own_sum_implies_its_large_transfers_come_out() {
    let costs = PartCosts { link: 12_900, ..PartCosts::PAPER };
    let mut met = 0;
    for claim in pagewire_papers::part::claims(&costs) {
        let stated = PAPER_LINK
            .iter()
            .find(|(place, stated)| (claim.place, claim.stated.0) == (Place::Figure(*place), *stated));
        if stated.is_some() {
            met += 1;
            assert!(claim.deviation().is_some_and(|off| off.abs() <= 0.1), "{}: {}", claim.place, claim.what);
        }
    }
    assert_eq!(met, PAPER_LINK.len() + 1, "1.8 is stated of two sizes");
}

/// What the reasons say that the model says with other links.
#[test]
fn at_the_links_that_the_text_has_and_implies_the_model_says_what_the_reasons_say() {
    for (link, all_said) in OTHER_LINKS {
        let claims = pagewire_papers::part::claims(&PartCosts { link: *link, ..PartCosts::PAPER });
        for (place, what, said) in *all_said {
            let here = claims.iter().find(|c| c.place == Place::Figure(*place) && c.what == *what);
            let (value, _) = here.and_then(|claim| claim.predicted.range()).expect("predicted");
            assert_eq!(format!("{value:.1}"), *said, "{link} Mb/s: {what}");
        }
    }
    let plain = claims(Paper::Part);
    for (place, what, said) in OTHER_LINKS.iter().flat_map(|(_, all_said)| *all_said) {
        let here = plain.iter().find(|c| c.place == Place::Figure(*place) && c.what == *what);
        let reason = here.and_then(|claim| claim.reason);
        assert!(reason.is_none_or(|reason| reason.contains(said)), "{what}: {said}");
    }
}

/// The rates that the reasons name follow from what the paper states, with 3 us for a page.
#[test]
fn the_links_that_the_papers_numbers_imply_differ() {
    let rate = |bytes: u32, us: f64| format!("{:.1}", f64::from(bytes) * 8.0 / us / 1e3);
    let page_in = |bytes: u32| f64::from(bytes / 4_096) * 3.0;
    let (small, large, largest) = (64 << 10, 1 << 20, 4 << 20);
    assert_eq!(rate(small, page_in(small) / (6.2 / 3.5 - 1.0)), "8.4");
    assert_eq!(rate(large, page_in(large) / (2.0 - 1.0)), "10.9");
    let base = (PartCosts::PAPER.initiation + PartCosts::PAPER.network) as f64 / 1e3;
    assert_eq!(rate(small, page_in(small) / (6.2 / 3.5 - 1.0) - base), "9.0");
    assert_eq!(rate(large, page_in(large) / (2.0 - 1.0) - base), "11.0");
    assert_eq!(rate(largest, 5_700.0 - 3_100.0), "12.9");
    assert_eq!(rate(largest, 3_600.0 / 1.5), "14.0");
    assert_eq!(rate(largest, 1.46 * 3_600.0 - page_in(largest)), "15.4");
    assert_eq!(rate(largest, 7.1 * 3_600.0 / 12.5), "16.4");
}

type Said = (u32, &'static str, &'static str);

/// By rate: figure, number, and what is said of it.
const OTHER_LINKS: &[(u64, &[Said])] = &[
    (8_400, &[(14, "64 KB: PIA to transfer only", "3.5")]),
    (9_000, &[(14, "64 KB: PIA to transfer only", "3.6")]),
    (
        10_900,
        &[
            (12, "1 MB: PIA to transfer only", "2.1"),
            (12, "1 MB: touching first to transfer only", "2.0"),
            (12, "1 MB: PIA to touching first", "1.1"),
        ],
    ),
    (
        12_900,
        &[
            (12, "256 KB: PIA to transfer only (section 5.4)", "2.8"),
            (13, "4 MB: parts one after the other", "5.7"),
            (13, "4 MB: PIA as measured", "3.6"),
            (14, "4 MB: PIA better than PIO", "6.4"),
            (14, "4 MB: PIA to transfer only", "1.4"),
            (14, "1 MB: PIA to transfer only", "2.3"),
            (15, "4 MB: NTO", "5.8"),
        ],
    ),
    (16_400, &[(14, "4 MB: PIO to transfer only", "11.1")]),
    (
        17_000,
        &[
            (12, "1 MB: PIA to transfer only", "2.8"),
            (12, "1 MB: PIA to touching first", "1.1"),
            (12, "256 KB: PIA to transfer only (section 5.4)", "3.4"),
            (13, "4 MB: parts one after the other", "5.1"),
            (13, "4 MB: PIA as measured", "3.6"),
            (14, "4 MB: PIO to transfer only", "11.6"),
            (14, "4 MB: PIA better than PIO", "6.4"),
            (14, "4 MB: PIA to transfer only", "1.8"),
            (14, "1 MB: PIA to transfer only", "2.8"),
            (14, "64 KB: PIA to transfer only", "5.5"),
            (15, "4 MB: NTO", "5.2"),
        ],
    ),
];

const PAPER_LINK: [(u32, f64); 8] =
    [(13, 5.7), (13, 3.6), (13, 1.58), (14, 7.1), (14, 1.5), (14, 2.5), (15, 1.8), (15, 5.7)];
