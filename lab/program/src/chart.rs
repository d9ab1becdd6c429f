//! Pictures of figures: SVG files of one look, whoever draws them.
//!
//! A picture has panels side by side: what a paper states, a model, this machine. It has no title inside: the caption is the document's. Colour,
//! dashes and mark belong to a name, in a palette that colour-blind readers can tell apart (Okabe and Ito), and are the same in each panel. What a
//! paper states is a diamond in the colour of its curve, and an interval a bar with two ends. Names stand below their panel, where they hide nothing.

mod axis;
mod bars;
mod canvas;
mod sheet;

use self::axis::{Along, Scale};
use self::canvas::{Canvas, Drawn, Key, escaped};
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

pub use self::axis::{Unit, size};
pub use self::sheet::{Row, Sheet};

/// Curves that are told apart at a glance; more are, by their marks and dashes.
pub const CURVES: usize = 6;

/// Pixels of the width of a panel that stands alone, and of one beside others.
const ALONE: f64 = 860.0;
const BESIDE: f64 = 640.0;

/// A row of points under a name.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// In the list of names.
    pub name: String,
    /// Curves of one style show one thing, in whichever panel they are.
    pub style: usize,
    /// In the order in which they are joined.
    pub points: Vec<(f64, f64)>,
    /// Around some points: the value along, and the least and the most.
    pub intervals: Vec<(f64, f64, f64)>,
}

/// A number that a paper states, at the curve of that style.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stated {
    /// That of its curve.
    pub style: usize,
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
        /// As many as there are.
        curves: Vec<Curve>,
        /// What the paper states.
        stated: Vec<Stated>,
        /// Points of other panels, so that all have the same axes.
        beside: Vec<(f64, f64)>,
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
        /// Beside the axes.
        labels: Labels,
        /// Of the groups.
        categories: Vec<String>,
        /// A bar of each group.
        bars: Vec<Part>,
    },
    /// Text in place of a plot.
    Lines(Vec<String>),
}

/// What stands along and beside a plot of categories.
pub type Labels = (&'static str, &'static str);

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

/// A part of a picture.
#[derive(Clone, Debug)]
pub struct Panel {
    /// Whose it is, where there are several.
    pub heading: String,
    /// What is drawn.
    pub drawing: Drawing,
}

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    /// What is shown, and of which paper: for those who do not see it, and for captions.
    pub title: String,
    /// Where it comes from.
    pub source: String,
    /// From left to right.
    pub panels: Vec<Panel>,
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
        let Some(svg) = self.svg() else { return Ok(false) };
        fs::write(file, svg).with_context(|| file.display().to_string())?;
        Ok(true)
    }

    fn svg(&self) -> Option<String> {
        let width = if self.panels.len() > 1 { BESIDE } else { ALONE };
        let drawn: Vec<Drawn> = self.panels.iter().filter_map(|panel| panel.drawn(width)).collect();
        let height = drawn.iter().map(|panel| panel.height).reduce(f64::max)?;
        let mut body =
            format!("<title>{}</title>\n<desc>{}</desc>\n", escaped(&self.title), escaped(&self.source));
        let mut x = 0.0;
        for panel in drawn {
            body += &format!("<g transform=\"translate({x} 0)\">\n{}</g>\n", panel.body);
            x += panel.width;
        }
        Some(framed((x, height), &body))
    }
}

/// A line as lines of so many letters at most, if no word is longer; those behind the first are indented.
fn broken(line: &str, letters: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let last = lines.last_mut().expect("one at least");
        if !last.trim().is_empty() && last.chars().count() + 1 + word.chars().count() > letters {
            lines.push(format!("    {word}"));
        } else {
            *last = format!("{last} {word}").trim_start_matches(' ').to_owned();
        }
    }
    lines
}

/// An SVG document of this size, on white.
fn framed((width, height): (f64, f64), body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
    )
}

impl Panel {
    /// The panel, of that width; nothing where there is nothing to draw.
    fn drawn(&self, width: f64) -> Option<Drawn> {
        match &self.drawing {
            Drawing::Curves { axes, curves, stated, beside } => {
                self.curves(width, *axes, (curves, stated), beside)
            }
            Drawing::Course { unit, spans } => self.course(width, *unit, spans),
            Drawing::Shares { unit, categories, parts, beside, stated } => {
                self.shares(width, (*unit, categories), (parts, beside), stated)
            }
            Drawing::Groups { unit, labels, categories, bars } => {
                self.groups(width, (*unit, *labels), categories, bars)
            }
            Drawing::Lines(lines) => Some(self.lines(width, lines)),
        }
    }

    /// Lines of text, the long ones broken.
    fn lines(&self, width: f64, lines: &[String]) -> Drawn {
        const MARGIN: f64 = 20.0;
        const HEIGHT: f64 = 18.0;
        let letters = ((width - 2.0 * MARGIN) / canvas::LETTER) as usize;
        let mut canvas = Canvas::with_left((&self.heading, width), &[], MARGIN);
        let (left, top) = canvas.place(0.0, 1.0);
        let broken = lines.iter().flat_map(|line| broken(line, letters));
        for (index, line) in broken.enumerate() {
            canvas.text((left, top + HEIGHT * (index as f64 + 1.0)), canvas::Anchor::Start, &line);
        }
        canvas.finish()
    }

    fn curves(
        &self,
        width: f64,
        (x, y): (Axis, Axis),
        (curves, stated): (&[Curve], &[Stated]),
        beside: &[(f64, f64)],
    ) -> Option<Drawn> {
        let shown = |&(a, b): &(f64, f64)| (!x.logarithmic || a > 0.0) && (!y.logarithmic || b > 0.0);
        let stated: Vec<&Stated> = stated.iter().filter(|stated| shown(&stated.at)).collect();
        let own = curves.iter().flat_map(|curve| &curve.points).chain(stated.iter().map(|stated| &stated.at));
        own.clone().find(|point| shown(point))?;
        let ends = |&(x, least, most): &(f64, f64, f64)| [(x, least), (x, most)];
        let intervals = curves.iter().flat_map(|curve| &curve.intervals).flat_map(ends);
        let all: Vec<(f64, f64)> =
            own.chain(beside).copied().chain(intervals.clone()).filter(shown).collect();
        let along = Scale::along(x, &all.iter().map(|point| point.0).collect::<Vec<_>>());
        let upwards = Scale::upwards(y, &all.iter().map(|point| point.1).collect::<Vec<_>>());
        let key =
            |curve: &Curve| Key { name: curve.name.clone(), style: curve.style, mark: canvas::Mark::Line };
        let mut keys: Vec<Key> = curves.iter().map(key).collect();
        keys.extend((!stated.is_empty()).then(Key::stated));
        let mut canvas = Canvas::new((&self.heading, width), &keys);
        canvas.axes(&along, &upwards, Along::Numbers);
        let place = |canvas: &Canvas, (a, b)| canvas.place(along.share(a), upwards.share(b));
        for curve in curves {
            for &(x, least, most) in
                curve.intervals.iter().filter(|interval| shown(&(interval.0, interval.1)))
            {
                let (low, high) = (place(&canvas, (x, least)), place(&canvas, (x, most)));
                canvas.interval(low, high.1, curve.style);
            }
            let path: Vec<_> =
                curve.points.iter().copied().filter(shown).map(|point| place(&canvas, point)).collect();
            canvas.line(&path, curve.style);
        }
        for Stated { style, at } in stated {
            let at = place(&canvas, *at);
            canvas.diamond(at, *style);
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
        let panels = vec![Panel { heading: "model".to_owned(), drawing }];
        let picture = Picture { title: "what".to_owned(), source: "whence".to_owned(), panels };
        picture.draw(&file).expect("written").then(|| fs::read_to_string(&file).expect("text"))
    }

    const AXES: (Axis, Axis) = (
        Axis { label: "message size", unit: Unit::Bytes, logarithmic: true },
        Axis { label: "time", unit: Unit::Microseconds, logarithmic: true },
    );

    fn curve(name: &str, style: usize, points: &[(f64, f64)]) -> Curve {
        Curve { name: name.to_owned(), style, points: points.to_vec(), intervals: Vec::new() }
    }

    fn of_curves(curves: Vec<Curve>, stated: Vec<Stated>) -> Drawing {
        Drawing::Curves { axes: AXES, curves, stated, beside: Vec::new() }
    }

    /// Sizes and times have their units, and a number of the paper is no point of a curve. There is no title inside.
    #[test]
    fn a_picture_of_curves_says_what_is_what() {
        let points = [(4096.0, 10.0), (1_048_576.0, 2_000.0)];
        let with_interval = Curve { intervals: vec![(4096.0, 5.0, 15.0)], ..curve("again", 1, &points) };
        let curves = vec![curve("own & <other>", 0, &points), with_interval];
        let stated = vec![Stated { style: 0, at: (4096.0, 20.0) }];
        let svg = drawn(of_curves(curves, stated)).expect("points");
        for wanted in [
            "<title>what</title>",
            "<desc>whence</desc>",
            "class=\"interval\"",
            ">model</text>",
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
        assert!(!svg.contains(">what</text>"));
    }

    /// Of curves that cover each other each is seen: no two of twelve have the same colour, dashes and mark.
    #[test]
    fn twelve_curves_differ() {
        let points = [(4096.0, 10.0), (1_048_576.0, 2_000.0)];
        let looks = (0..12).map(|style| {
            let svg = drawn(of_curves(vec![curve("one", style, &points)], vec![])).expect("points");
            let line = svg.lines().filter(|line| line.contains("<polyline") || line.contains("<path"));
            line.map(|line| {
                line.split_once("stroke=").map_or("", |(_, rest)| rest).to_owned()
                    + line.split('m').nth(1).unwrap_or_default()
            })
            .collect::<String>()
        });
        let looks: std::collections::BTreeSet<String> = looks.collect();
        assert_eq!(looks.len(), 12);
    }

    /// Panels that show one thing have the same axes, whatever each has of it.
    #[test]
    fn panels_have_the_same_axes() {
        let panel = |points: &[(f64, f64)], beside: &[(f64, f64)]| {
            let curves = vec![curve("one", 0, points)];
            drawn(Drawing::Curves { axes: AXES, curves, stated: vec![], beside: beside.to_vec() })
                .expect("points")
        };
        let (low, high) = ([(4096.0, 10.0), (8192.0, 20.0)], [(4096.0, 900.0), (8192.0, 1_500.0)]);
        let ticks = |svg: &str| {
            svg.lines()
                .filter(|line| line.contains(" us<") || line.contains(" ms<"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(ticks(&panel(&low, &high)), ticks(&panel(&high, &low)));
        assert_ne!(ticks(&panel(&low, &[])), ticks(&panel(&high, &[])));
    }

    #[test]
    fn long_lines_are_broken_between_words() {
        assert_eq!(broken("one two three four", 9), ["one two", "    three", "    four"]);
        assert_eq!(broken("one", 2), ["one"]);
        let svg = drawn(Drawing::Lines(vec!["a & b".to_owned(), "word ".repeat(60)])).expect("lines");
        assert!(
            svg.contains(">a &amp; b<")
                && svg.matches(">word").count() + svg.matches(">    word").count() > 2
        );
    }

    #[test]
    fn what_cannot_be_drawn_is_no_picture() {
        for points in [&[][..], &[(0.0, 1.0)], &[(1.0, 0.0)]] {
            assert!(drawn(of_curves(vec![curve("own", 0, points)], vec![])).is_none());
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
        let svg = drawn(Drawing::Groups {
            unit: Unit::Count,
            labels: ("application", "runs of it"),
            categories,
            bars,
        })
        .expect("bars");
        assert!(svg.contains(">application<") && svg.contains(">runs of it<"));
        assert!(svg.contains(">1,489<") && svg.contains(">318<") && svg.contains(">runs<"), "{svg}");
    }
}
