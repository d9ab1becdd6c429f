//! Pictures of figures: SVG files of one look, whoever draws them.
//!
//! A title says what is shown, a line below it where it comes from. A colour belongs to a name, in a palette that colour-blind
//! readers can tell apart (Okabe and Ito); a second set of the same names is dashed. What a paper states is a diamond in the colour of
//! its curve. Names stand below the picture, where they hide nothing.

mod axis;
mod bars;
mod canvas;

use self::axis::{Along, Scale};
use self::canvas::{Canvas, Key};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

pub use self::axis::{Unit, size};

/// Curves that one picture may hold.
pub const CURVES: usize = 6;

/// A row of points under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// In the list of names.
    pub name: String,
    /// Curves of one colour show one thing, measured twice.
    pub colour: usize,
    /// Of a second set.
    pub dashed: bool,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// A number that a paper states, at the curve of that colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// That of its curve.
    pub colour: usize,
    /// Where it is.
    pub at: (f64, f64),
}

/// A part of a course: its name, when it begins, when it ends.
pub type Span = (String, f64, f64);

/// Values by category under a name; none where there is nothing.
pub type Part = (String, Vec<Option<f64>>);

/// What is drawn.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// Functions of a number.
    Curves {
        /// Along, and upwards.
        axes: (Axis, Axis),
        /// At most [`CURVES`].
        curves: Vec<Curve>,
        /// What the paper states.
        stated: Vec<Stated>,
    },
    /// Parts one after the other.
    Course {
        /// Of the times.
        unit: Unit,
        /// From the first to the last.
        spans: Vec<Span>,
    },
    /// Parts of a whole, each a share of it, on a bar for each category.
    Shares {
        /// Of the whole.
        unit: Unit,
        /// Of the bars.
        categories: Vec<String>,
        /// From the lowest to the highest.
        parts: Vec<Part>,
        /// What is compared with the whole: a dash across the bar.
        beside: Vec<Part>,
        /// What the paper states of the whole (`None`) or of one of `beside`: category and value.
        stated: Vec<(Option<usize>, usize, f64)>,
    },
    /// A group of bars for each category.
    Groups {
        /// Of the values.
        unit: Unit,
        /// Of the groups.
        categories: Vec<String>,
        /// A bar of each group.
        bars: Vec<Part>,
    },
}

/// What one axis shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Beside it.
    pub label: &'static str,
    /// Of its numbers.
    pub unit: Unit,
    /// A logarithmic axis leaves out what is not above 0.
    pub logarithmic: bool,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What is shown, and of which paper.
    pub title: String,
    /// Where it comes from.
    pub source: String,
    /// What is drawn.
    pub drawing: Drawing,
}

/// Makes sure that files can be made in `directory`; makes it if it does not exist.
///
/// # Errors
/// If not; the error names the option that gave it, and the directory.
pub fn prepare(option: &str, directory: &Path) -> Result<()> {
    let refused = || format!("{option} {}: no files can be made there", directory.display());
    fs::create_dir_all(directory).with_context(refused)?;
    tempfile::tempfile_in(directory).map(drop).with_context(refused)
}

impl Picture {
    /// Draws it into `file`; false: nothing can be drawn, and there is no file.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn draw(&self, file: &Path) -> Result<bool> {
        let svg = match &self.drawing {
            Drawing::Curves { axes, curves, stated } => self.curves(*axes, curves, stated),
            Drawing::Course { unit, spans } => self.course(*unit, spans),
            Drawing::Shares { unit, categories, parts, beside, stated } => {
                self.shares(*unit, categories, (parts, beside), stated)
            }
            Drawing::Groups { unit, categories, bars } => self.groups(*unit, categories, bars),
        };
        let Some(svg) = svg else { return Ok(false) };
        fs::write(file, svg).with_context(|| file.display().to_string())?;
        Ok(true)
    }

    fn curves(&self, (x, y): (Axis, Axis), curves: &[Curve], stated: &[Stated]) -> Option<String> {
        let shown = |&(a, b): &(f64, f64)| (!x.logarithmic || a > 0.0) && (!y.logarithmic || b > 0.0);
        let points = || curves.iter().flat_map(|curve| &curve.points).copied().filter(shown);
        let stated: Vec<&Stated> = stated.iter().filter(|stated| shown(&stated.at)).collect();
        let all = || points().chain(stated.iter().map(|stated| stated.at));
        all().next()?;
        let along = Scale::along(x, &points().map(|point| point.0).collect::<Vec<_>>());
        let upwards = Scale::upwards(y, &all().map(|point| point.1).collect::<Vec<_>>());
        let mut keys: Vec<Key> = curves
            .iter()
            .map(|curve| Key {
                name: curve.name.clone(),
                colour: curve.colour,
                mark: canvas::Mark::Line(curve.dashed),
            })
            .collect();
        keys.extend((!stated.is_empty()).then(Key::stated));
        let mut canvas = Canvas::new(self, &keys);
        canvas.axes(&along, &upwards, Along::Numbers);
        for curve in curves {
            let path: Vec<(f64, f64)> = curve.points.iter().copied().filter(shown).collect();
            let path: Vec<_> =
                path.iter().map(|&(a, b)| canvas.place(along.share(a), upwards.share(b))).collect();
            canvas.line(&path, curve.colour, curve.dashed);
        }
        for Stated { colour, at } in stated {
            let at = canvas.place(along.share(at.0), upwards.share(at.1));
            canvas.diamond(at, *colour);
        }
        Some(canvas.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(drawing: Drawing) -> Option<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("a.svg");
        let picture = Picture { title: "what".to_owned(), source: "whence".to_owned(), drawing };
        picture.draw(&file).expect("written").then(|| fs::read_to_string(&file).expect("text"))
    }

    const AXES: (Axis, Axis) = (
        Axis { label: "message size", unit: Unit::Bytes, logarithmic: true },
        Axis { label: "time", unit: Unit::Microseconds, logarithmic: true },
    );

    fn curve(name: &str, colour: usize, dashed: bool, points: &[(f64, f64)]) -> Curve {
        Curve { name: name.to_owned(), colour, dashed, points: points.to_vec() }
    }

    /// Sizes and times have their units, a second set is dashed, and a number of the paper is no point of a curve.
    #[test]
    fn a_picture_of_curves_says_what_is_what() {
        let points = [(4096.0, 10.0), (1_048_576.0, 2_000.0)];
        let curves = vec![curve("own & <other>", 0, false, &points), curve("again", 0, true, &points)];
        let stated = vec![Stated { colour: 0, at: (4096.0, 20.0) }];
        let svg = drawn(Drawing::Curves { axes: AXES, curves, stated }).expect("points");
        for wanted in [
            ">what<",
            ">whence<",
            ">4 KiB<",
            ">1 MiB<",
            ">10 us<",
            ">1 ms<",
            "own &amp; &lt;other&gt;",
            ">again<",
            "stated in the paper",
            "message size",
            "stroke-dasharray",
            "class=\"stated\"",
        ] {
            assert!(svg.contains(wanted), "{wanted} in {svg}");
        }
        assert_eq!(svg.matches("stroke-dasharray").count(), 2, "the curve and its key");
    }

    #[test]
    fn what_cannot_be_drawn_is_no_picture() {
        for points in [&[][..], &[(0.0, 1.0)], &[(1.0, 0.0)]] {
            let curves = vec![curve("own", 0, false, points)];
            assert!(drawn(Drawing::Curves { axes: AXES, curves, stated: vec![] }).is_none());
        }
        assert!(drawn(Drawing::Course { unit: Unit::Microseconds, spans: vec![] }).is_none());
    }

    #[test]
    fn bars_have_the_names_of_their_categories_and_parts() {
        let spans = vec![("request".to_owned(), 0.0, 4.0), ("data".to_owned(), 4.0, 9.5)];
        let svg = drawn(Drawing::Course { unit: Unit::Microseconds, spans }).expect("spans");
        assert!(svg.contains(">request<") && svg.contains(">data<") && svg.contains(">5.5 us<"), "{svg}");
        let part = |name: &str, values: [f64; 2]| (name.to_owned(), values.map(Some).to_vec());
        let categories = vec!["4 KiB".to_owned(), "1 MiB".to_owned()];
        let svg = drawn(Drawing::Shares {
            unit: Unit::Microseconds,
            categories: categories.clone(),
            parts: vec![part("one", [1.0, 2.0]), part("two", [3.0, 2.0])],
            beside: vec![part("overlapped", [3.5, 3.0])],
            stated: vec![(None, 1, 3.6)],
        })
        .expect("parts");
        for wanted in [">4 KiB<", ">one<", ">two<", ">overlapped<", ">4 us<", "class=\"stated\"", ">100 %<"] {
            assert!(svg.contains(wanted), "{wanted} in {svg}");
        }
        let bars = vec![part("runs", [1489.0, 318.0])];
        let svg = drawn(Drawing::Groups { unit: Unit::Count, categories, bars }).expect("bars");
        assert!(svg.contains(">1,489<") && svg.contains(">318<") && svg.contains(">runs<"), "{svg}");
    }
}
