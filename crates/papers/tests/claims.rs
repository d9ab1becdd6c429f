//! Every number that the papers' texts state: predicted within a tenth, or with a reason; and no reason without need.

use pagewire_papers::unit_costs::PartCosts;
use pagewire_papers::{Claim, Paper, Place, Prediction, claims, figures};

fn all() -> Vec<Claim> {
    [Paper::Part, Paper::Jbmt].map(claims).concat()
}

#[test]
fn each_number_is_predicted_within_a_tenth_or_explained() {
    for claim in all() {
        let off = claim.deviation().map(|off| off * 100.0);
        println!("{}: {}: {:?} {:?} {off:.1?} %", claim.place, claim.what, claim.stated, claim.predicted);
    }
    for claim in all() {
        let explained = claim.reason.is_some_and(|reason| reason.len() > 20);
        assert_eq!(explained, claim.needs_reason(), "{}: {}: {:?}", claim.place, claim.what, claim);
    }
}

/// The numbers that the brief descriptions of both papers name are among them.
#[test]
fn the_numbers_that_the_papers_lead_with_are_among_them() {
    for stated in [38.0, 31.0, 1.46, 7.1, 5.7, 3.6, 1.8, 1.93, 2.6, 3.2, 1.2, 3.5, 112.0, 19.0] {
        assert!(all().iter().any(|claim| claim.stated == (stated, stated)), "{stated}");
    }
}

#[test]
fn claims_and_figures_stand_in_the_order_of_the_paper_and_have_finite_values() {
    for paper in [Paper::Part, Paper::Jbmt] {
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
            }
        }
    }
}

#[test]
fn a_deviation_is_from_the_nearest_number_that_the_text_allows() {
    let claim = |value| Claim { stated: (2.0, 4.0), predicted: Prediction::Value(value), ..all()[0].clone() };
    assert_eq!(claim(3.0).deviation(), Some(0.0));
    assert_eq!(claim(1.0).deviation(), Some(-0.5));
    assert_eq!(claim(5.0).deviation(), Some(0.25));
    assert!(claim(5.0).needs_reason() && !claim(4.3).needs_reason());
    let range = |least, most| Claim { predicted: Prediction::Sum(least, most), ..claim(0.0) };
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
    assert_eq!(rate(largest, 5_700.0 - 3_100.0), "12.9");
    assert_eq!(rate(largest, 3_600.0 / 1.5), "14.0");
    assert_eq!(rate(largest, 1.46 * 3_600.0 - page_in(largest)), "15.4");
}

type Said = (u32, &'static str, &'static str);

/// By rate: figure, number, and what is said of it.
const OTHER_LINKS: &[(u64, &[Said])] = &[
    (8_400, &[(14, "64 KB: PIA to transfer only", "3.5")]),
    (
        10_900,
        &[(12, "1 MB: PIA to transfer only", "2.1"), (12, "1 MB: touching first to transfer only", "2.0")],
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
        ],
    ),
    (
        17_000,
        &[
            (12, "1 MB: PIA to transfer only", "2.8"),
            (12, "256 KB: PIA to transfer only (section 5.4)", "3.4"),
            (13, "4 MB: parts one after the other", "5.1"),
            (13, "4 MB: PIA as measured", "3.6"),
            (14, "4 MB: PIA better than PIO", "6.4"),
            (14, "4 MB: PIA to transfer only", "1.8"),
            (14, "1 MB: PIA to transfer only", "2.8"),
            (14, "64 KB: PIA to transfer only", "5.5"),
        ],
    ),
];

const PAPER_LINK: [(u32, f64); 7] =
    [(13, 5.7), (13, 3.6), (13, 1.58), (14, 7.1), (14, 1.5), (14, 2.5), (15, 1.8)];
