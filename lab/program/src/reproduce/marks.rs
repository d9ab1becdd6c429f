//! The paper's numbers that are points of a figure's curves.

use pagewire_papers::{Claim, Figure};
use serde::Serialize;

/// A number of the paper in a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Mark {
    /// The curve to which it belongs.
    pub(super) curve: &'static str,
    pub(super) x: f64,
    /// In the figure's unit.
    pub(super) y: f64,
}

/// Those of these claims.
pub(super) fn marks(figure: &Figure, claims: &[Claim]) -> Vec<Mark> {
    let mark = |claim: &Claim| {
        let (curve, x) = claim.point?;
        let is_here = claim.place == figure.place && figure.curves.iter().any(|own| own.name == curve);
        let scale = if claim.unit == "ms" { 1_000.0 } else { 1.0 };
        let (least, most) = claim.stated;
        let y = if most.is_finite() { most } else { least };
        is_here.then_some(Mark { curve, x, y: y * scale })
    };
    claims.iter().filter_map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_papers::{Paper, Place};

    #[test]
    fn each_number_that_is_a_point_is_in_one_figure() {
        for paper in Paper::ALL {
            let claims = pagewire_papers::claims(paper);
            let figures = pagewire_papers::figures(paper);
            let drawn: usize = figures.iter().map(|figure| marks(figure, &claims).len()).sum();
            assert_eq!(drawn, claims.iter().filter(|claim| claim.point.is_some()).count());
            assert!(drawn >= 2);
        }
    }

    #[test]
    fn a_number_without_a_most_is_drawn_as_its_least() {
        let claims = pagewire_papers::claims(Paper::Frrwp);
        let figures = pagewire_papers::figures(Paper::Frrwp);
        let savings = figures.iter().find(|figure| figure.place == Place::Section("4")).expect("savings");
        assert!(marks(savings, &claims).contains(&Mark { curve: "WRITE", x: 1.0, y: 22.0 }));
        let all = figures.iter().flat_map(|figure| marks(figure, &claims));
        assert!(all.map(|mark| mark.y).all(f64::is_finite));
    }

    #[test]
    fn milliseconds_are_drawn_as_microseconds_and_ratios_on_the_right() {
        let claims = pagewire_papers::claims(Paper::Part);
        let figures = pagewire_papers::figures(Paper::Part);
        let of = |number| -> Vec<Vec<Mark>> {
            let here = figures.iter().filter(|figure| figure.place == Place::Figure(number));
            here.map(|figure| marks(figure, &claims)).collect()
        };
        assert!(of(13)[0].contains(&Mark { curve: "PIA, with overlap", x: 4_194_304.0, y: 3_600.0 }));
        let [left, right] = &of(14)[..] else { panic!("two axes") };
        assert_eq!(left[..], [Mark { curve: "PIO 4 KiB", x: 100.0, y: 40.0 }]);
        assert!(right.contains(&Mark { curve: "slowdown of PIA 4 MiB", x: 100.0, y: 1.5 }));
    }
}
