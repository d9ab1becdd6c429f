//! What the models predict, in the form of the papers' figures and tables.

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

/// A row of points under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// As in the paper.
    pub name: String,
    /// What is along the axes.
    pub points: Vec<(f64, f64)>,
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
        let curve = |(name, function): (C, &dyn Fn(u64) -> f64)| Curve {
            name: name.into(),
            points: values.iter().map(|&value| (value as f64, function(value))).collect(),
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

    /// A figure of parts, one after the other: where each begins and ends, in microseconds.
    pub(crate) fn course(
        place: Place,
        title: &'static str,
        parts: impl IntoIterator<Item = (&'static str, f64)>,
    ) -> Figure {
        let mut end = 0.0;
        let curves = (1..).zip(parts).map(|(part, (name, length))| {
            let start = (f64::from(part), end);
            end += length;
            Curve { name: name.to_owned(), points: vec![start, (f64::from(part), end)] }
        });
        let linear = |label| Axis { label, logarithmic: false };
        let curves = curves.collect();
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
