//! What the models predict, in the form of the papers' figures and tables.

/// A paper that is reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// Page faults during RDMA as errors of transmission.
    Part,
    /// RDMA with dynamic page pinning, onloaded.
    Jbmt,
}

/// A figure or a table of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// A figure, by its number.
    Figure(u32),
    /// A table, by its number.
    Table(u32),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Figure(number) => write!(f, "figure {number}"),
            Place::Table(number) => write!(f, "table {number}"),
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
}

/// A row of points under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// As in the paper.
    pub name: String,
    /// What is along the axes.
    pub points: Vec<(f64, f64)>,
}

/// A figure, or a table whose rows can be drawn as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Where it is in the paper.
    pub place: Place,
    /// What it shows.
    pub title: &'static str,
    /// Along.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What is drawn.
    pub curves: Vec<Curve>,
}

impl Figure {
    /// A figure of curves, each a function of the same values of x.
    pub(crate) fn of<C: Into<String>>(
        place: Place,
        title: &'static str,
        (x, y): (Axis, Axis),
        values: &[u64],
        curves: Vec<(C, &dyn Fn(u64) -> f64)>,
    ) -> Figure {
        let curve = |(name, function): (C, &dyn Fn(u64) -> f64)| Curve {
            name: name.into(),
            points: values.iter().map(|&value| (value as f64, function(value))).collect(),
        };
        Figure { place, title, x, y, curves: curves.into_iter().map(curve).collect() }
    }
}
