//! What the models predict, in the form of the papers' figures and tables.

use crate::computed::{InputSet, recorded};
use crate::right_axis::RightAxis;

/// A paper that is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Page faults during RDMA as errors of transmission.
    Part,
    /// RDMA with dynamic page pinning, onloaded.
    Jbmt,
    /// Overlapped registration and conditional writes.
    Frrwp,
    /// An allocator of registered memory.
    Reuse,
    /// Handlers on put and get.
    Active,
}

impl Paper {
    /// All of them.
    pub const ALL: [Paper; 5] = [Paper::Part, Paper::Jbmt, Paper::Frrwp, Paper::Reuse, Paper::Active];
}

/// Where a paper has numbers or curves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A figure, by its number.
    Figure(u32),
    /// A part of a figure, by the figure's number and its letter.
    Panel(u32, char),
    /// A part of a figure over networks that are longer on purpose: what this machine measures beside the paper's figure.
    Delayed(u32, char),
    /// A table, by its number.
    Table(u32),
    /// A section, by its number, of what its text alone has.
    Section(&'static str),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Figure(number) => write!(f, "figure {number}"),
            Place::Panel(number, letter) => write!(f, "figure {number}{letter}"),
            Place::Delayed(number, letter) => write!(f, "figure {number}{letter} by network delay"),
            Place::Table(number) => write!(f, "table {number}"),
            Place::Section(number) => write!(f, "section {number}"),
        }
    }
}

/// What one axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: &'static str,
    /// Whether it is drawn logarithmic.
    pub logarithmic: bool,
}

impl Axis {
    /// Bytes, logarithmic.
    pub const BYTES: Axis = Axis { label: "bytes", logarithmic: true };
    /// Microseconds, logarithmic.
    pub const MICROSECONDS: Axis = Axis { label: "us", logarithmic: true };
    /// Of hundred.
    pub const PERCENT: Axis = Axis { label: "%", logarithmic: false };
    /// Ratios, logarithmic.
    pub const RATIO: Axis = Axis { label: "x", logarithmic: true };
}

/// Where the points of a curve come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provenance {
    /// The paper's text states them.
    Stated,
    /// A model computed them from these inputs.
    Computed(InputSet),
    /// They were measured on this machine.
    Measured,
}

impl Provenance {
    /// That of what follows from both.
    pub const fn with(self, other: Provenance) -> Provenance {
        match (self, other) {
            (Provenance::Computed(one), Provenance::Computed(other)) => Provenance::Computed(one.with(other)),
            (Provenance::Measured, _) | (_, Provenance::Measured) => Provenance::Measured,
            (Provenance::Computed(inputs), _) | (_, Provenance::Computed(inputs)) => {
                Provenance::Computed(inputs)
            }
            (Provenance::Stated, Provenance::Stated) => Provenance::Stated,
        }
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Provenance::Stated => "stated",
            Provenance::Computed(_) => "computed",
            Provenance::Measured => "measured",
        }
    }

    /// What a model computed it from.
    pub const fn inputs(self) -> InputSet {
        match self {
            Provenance::Computed(inputs) => inputs,
            Provenance::Stated | Provenance::Measured => InputSet::EMPTY,
        }
    }
}

/// A value of x, and the least and the most that was measured or computed there.
pub type Interval = (f64, f64, f64);

/// A row of points under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// As in the paper.
    pub name: String,
    /// Where its points come from.
    pub provenance: Provenance,
    /// What is along the axes.
    pub points: Vec<(f64, f64)>,
    /// Around those points that are of several runs.
    pub intervals: Vec<Interval>,
}

impl Curve {
    /// Points that a model computes.
    pub(crate) fn computed(name: impl Into<String>, points: impl FnOnce() -> Vec<(f64, f64)>) -> Curve {
        let (points, inputs) = recorded(points);
        Curve { name: name.into(), provenance: Provenance::Computed(inputs), points, intervals: Vec::new() }
    }

    /// The means of runs that a model makes at each value of x, with the least and the most of them.
    pub(crate) fn of_runs(name: impl Into<String>, values: &[u64], runs: impl Fn(u64) -> Vec<f64>) -> Curve {
        let (all, inputs) = recorded(|| values.iter().map(|&x| (x as f64, runs(x))).collect::<Vec<_>>());
        let mean = |(x, runs): &(f64, Vec<f64>)| (*x, runs.iter().sum::<f64>() / runs.len() as f64);
        let ends = |(x, runs): &(f64, Vec<f64>)| {
            let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
            (*x, least, runs.iter().copied().fold(f64::NEG_INFINITY, f64::max))
        };
        let intervals = all.iter().map(ends).filter(|(_, least, most)| least < most).collect();
        let points = all.iter().map(mean).collect();
        Curve { name: name.into(), provenance: Provenance::Computed(inputs), points, intervals }
    }

    /// Points that the paper's text states.
    pub(crate) fn stated(name: impl Into<String>, points: Vec<(f64, f64)>) -> Curve {
        Curve { name: name.into(), provenance: Provenance::Stated, points, intervals: Vec::new() }
    }

    /// Points that were measured on this machine.
    pub fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Curve {
        Curve { name: name.into(), provenance: Provenance::Measured, points, intervals: Vec::new() }
    }
}

/// How a figure is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Curves.
    Curves,
    /// Parts one after the other: each curve is one, from its first point to its last.
    Course,
    /// At each size so many curves, the first, are parts of their sum; those behind them are compared with that.
    Parts(usize),
    /// A group of bars for each x, one a curve, under these names.
    Groups(&'static [&'static str]),
}

/// A figure, or a table whose rows can be drawn as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Where it is in the paper.
    pub place: Place,
    /// What it shows.
    pub title: &'static str,
    /// What its curves are of: the model, or what the paper measured and what is estimated from that.
    pub basis: &'static str,
    /// Along.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub curves: Vec<Curve>,
    /// How.
    pub shape: Shape,
    /// What it is of the figure before it, whose right-hand axis it has.
    pub right: Option<RightAxis>,
    /// What is to be said of it: what it lacks, or why it is as it is.
    pub notes: &'static [&'static str],
}

impl Figure {
    /// A figure of curves, each a function of the same values of x.
    pub(crate) fn of<C: Into<String>>(
        place: Place,
        title: &'static str,
        axes: (Axis, Axis),
        values: &[u64],
        curves: Vec<(C, &dyn Fn(u64) -> f64)>,
    ) -> Figure {
        let curve = |(name, function): (C, &dyn Fn(u64) -> f64)| {
            Curve::computed(name, || values.iter().map(|&value| (value as f64, function(value))).collect())
        };
        Figure::drawn(place, title, axes, curves.into_iter().map(curve).collect())
    }

    /// A figure of these curves.
    pub(crate) fn drawn(
        place: Place,
        title: &'static str,
        (x, y): (Axis, Axis),
        curves: Vec<Curve>,
    ) -> Figure {
        Figure { place, title, basis: "model", x, y, curves, shape: Shape::Curves, right: None, notes: &[] }
    }

    /// A figure of parts, one after the other, of names and microseconds.
    pub(crate) fn course<const N: usize>(
        place: Place,
        title: &'static str,
        parts: impl Fn() -> [(&'static str, f64); N],
    ) -> Figure {
        let names = crate::computed::recorded(&parts).0.map(|part| part.0);
        let curve = |(index, name): (usize, &str)| {
            let points = || {
                let lengths = parts().map(|part| part.1);
                let start: f64 = lengths[..index].iter().sum();
                let x = index as f64 + 1.0;
                vec![(x, start), (x, start + lengths[index])]
            };
            Curve::computed(name, points)
        };
        let linear = |label| Axis { label, logarithmic: false };
        let curves = names.into_iter().enumerate().map(curve).collect();
        Figure::drawn(place, title, (linear("part"), linear("us")), curves).shaped(Shape::Course)
    }

    /// Has the figure drawn in this shape.
    pub(crate) fn shaped(self, shape: Shape) -> Figure {
        Figure { shape, ..self }
    }

    /// Gives the figure these notes.
    pub(crate) fn noted(self, notes: &'static [&'static str]) -> Figure {
        Figure { notes, ..self }
    }

    /// What the paper draws on the right-hand axis of this figure.
    pub(crate) fn right(&self, right: RightAxis, title: &'static str) -> Figure {
        let curves = right.curves(&self.curves);
        Figure { right: Some(right), ..Figure::drawn(self.place, title, (self.x, right.axis()), curves) }
    }
}
