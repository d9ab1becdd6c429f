//! What the papers draw on the right-hand axes of their figures: ratios of the curves on the left.

use crate::figure::{Axis, Curve};

/// How such a curve follows from those on the left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightAxis {
    /// Each curve to itself without page faults.
    Slowdown,
    /// The curve without timeouts, whose name begins with "NTO", to the first one.
    SpeedUp,
    /// The curve "by hand" of each system to each other one of it. The system stands before a colon.
    Faster,
    /// What the curve "AA" is less than each other one, in percent.
    Less,
    /// What the curve "conditional" of each cost is less than its curve "traditional", in percent of the longer one. The cost stands before a colon.
    Saved,
}

impl RightAxis {
    /// In names of files.
    pub const fn name(self) -> &'static str {
        match self {
            RightAxis::Slowdown => "slowdown",
            RightAxis::SpeedUp => "speed-up",
            RightAxis::Faster => "faster",
            RightAxis::Less => "less",
            RightAxis::Saved => "saved",
        }
    }

    /// What it shows.
    pub const fn axis(self) -> Axis {
        match self {
            RightAxis::Less | RightAxis::Saved => Axis::PERCENT,
            _ => Axis::RATIO,
        }
    }

    /// What follows from these curves; none from one that lacks what it is compared with.
    pub fn curves(self, left: &[Curve]) -> Vec<Curve> {
        match self {
            RightAxis::Slowdown => left.iter().filter_map(slowdown).collect(),
            RightAxis::SpeedUp => speed_up(left).into_iter().collect(),
            RightAxis::Faster => left.iter().filter_map(|curve| faster(curve, left)).collect(),
            RightAxis::Less => left.iter().filter_map(|curve| less(curve, left)).collect(),
            RightAxis::Saved => left.iter().filter_map(|curve| saved(curve, left)).collect(),
        }
    }
}

/// A curve that follows from two others.
fn derived(name: String, one: &Curve, other: &Curve, points: Vec<(f64, f64)>) -> Curve {
    Curve { name, provenance: one.provenance.with(other.provenance), points, intervals: Vec::new() }
}

fn slowdown(curve: &Curve) -> Option<Curve> {
    let (_, without) = curve.points.iter().find(|(frequency, _)| *frequency == 0.0)?;
    let points = curve.points.iter().map(|(frequency, with)| (*frequency, with / without)).collect();
    Some(derived(format!("slowdown of {}", curve.name), curve, curve, points))
}

fn speed_up(curves: &[Curve]) -> Option<Curve> {
    let (first, without) = (curves.first()?, curves.iter().find(|curve| curve.name.starts_with("NTO"))?);
    let at = |x: f64| without.points.iter().find(|point| point.0 == x).map(|point| point.1);
    let points = first.points.iter().filter_map(|&(x, y)| Some((x, at(x)? / y))).collect();
    Some(derived(format!("speed-up of {} over {}", first.name, without.name), first, without, points))
}

fn faster(curve: &Curve, all: &[Curve]) -> Option<Curve> {
    let system = |name: &str| name.split_once(": ").map(|(system, _)| system.to_owned());
    let is_by_hand = |other: &&Curve| {
        other.name.ends_with("by hand")
            && system(&other.name) == system(&curve.name)
            && other.name != curve.name
    };
    let by_hand = all.iter().find(is_by_hand)?;
    let at = |x: f64| by_hand.points.iter().find(|point| point.0 == x).map(|point| point.1);
    let points = curve.points.iter().filter_map(|&(x, y)| Some((x, at(x)? / y))).collect();
    Some(derived(format!("{}, sooner than by hand", curve.name), curve, by_hand, points))
}

fn less(curve: &Curve, all: &[Curve]) -> Option<Curve> {
    let active = all.iter().find(|other| other.name == "AA" && curve.name != "AA")?;
    let at = |x: f64| active.points.iter().find(|point| point.0 == x).map(|point| point.1);
    let points = curve.points.iter().filter_map(|&(x, y)| Some((x, (1.0 - at(x)? / y) * 100.0))).collect();
    Some(derived(format!("AA less than {}", curve.name), curve, active, points))
}

fn saved(conditional: &Curve, all: &[Curve]) -> Option<Curve> {
    let cost = conditional.name.strip_suffix(": conditional")?;
    let traditional = all.iter().find(|other| other.name == format!("{cost}: traditional"))?;
    let at = |x: f64| traditional.points.iter().find(|point| point.0 == x).map(|point| point.1);
    let part = |conditional: f64, traditional: f64| {
        (traditional - conditional) / traditional.max(conditional) * 100.0
    };
    let points = conditional.points.iter().filter_map(|&(x, y)| Some((x, part(y, at(x)?)))).collect();
    Some(derived(format!("{cost}: saved"), conditional, traditional, points))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, points: &[(f64, f64)]) -> Curve {
        Curve::measured(name, points.to_vec())
    }

    #[test]
    fn a_slowdown_is_to_the_same_curve_without_faults() {
        let left = [curve("PIO", &[(0.0, 4.0), (100.0, 40.0)]), curve("PIA", &[(100.0, 40.0)])];
        let right = RightAxis::Slowdown.curves(&left);
        assert_eq!(right, [curve("slowdown of PIO", &[(0.0, 1.0), (100.0, 10.0)])]);
    }

    #[test]
    fn what_is_faster_is_compared_within_its_system() {
        let left = [
            curve("A: slabs", &[(1.0, 2.0), (2.0, 2.0)]),
            curve("B: by hand", &[(1.0, 9.0)]),
            curve("A: by hand", &[(1.0, 6.0)]),
        ];
        assert_eq!(RightAxis::Faster.curves(&left), [curve("A: slabs, sooner than by hand", &[(1.0, 3.0)])]);
        assert_eq!(RightAxis::Faster.curves(&left[..2]), []);
    }

    #[test]
    fn what_is_less_is_compared_with_aa() {
        let left = [curve("AA", &[(1.0, 2.0)]), curve("AM", &[(1.0, 4.0), (2.0, 9.0)])];
        assert_eq!(RightAxis::Less.curves(&left), [curve("AA less than AM", &[(1.0, 50.0)])]);
        assert_eq!(RightAxis::Less.curves(&left[1..]), []);
    }

    #[test]
    fn what_is_saved_is_compared_within_its_cost() {
        let left = [
            curve("A: traditional", &[(1.0, 10.0), (2.0, 10.0)]),
            curve("A: conditional", &[(1.0, 40.0), (2.0, 7.5)]),
            curve("B: conditional", &[(1.0, 1.0)]),
        ];
        let right = RightAxis::Saved.curves(&left);
        let [saved] = &right[..] else { panic!("{right:?}") };
        assert_eq!(saved.name, "A: saved");
        assert_eq!(saved.points, [(1.0, -75.0), (2.0, 25.0)]);
    }

    #[test]
    fn a_speed_up_is_that_of_the_first_curve_where_both_have_a_point() {
        let left =
            [curve("TO 1", &[(1.0, 2.0), (2.0, 2.0)]), curve("TO 2", &[]), curve("NTO", &[(2.0, 3.0)])];
        assert_eq!(RightAxis::SpeedUp.curves(&left), [curve("speed-up of TO 1 over NTO", &[(2.0, 1.5)])]);
        assert_eq!(RightAxis::SpeedUp.curves(&left[..2]), []);
    }
}
