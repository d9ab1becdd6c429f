//! The frame of a panel: heading, names, axes, and what is drawn in them, as SVG.

use super::axis::{Along, Scale};
use std::fmt::Write;

/// Pixels: what is left, right and above of the plot; the plot's height; a line of names.
const LEFT: f64 = 116.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 34.0;
const PLOT_HEIGHT: f64 = 380.0;
const BELOW: f64 = 64.0;
const KEY_HEIGHT: f64 = 20.0;
/// Of a letter of the names, on average and with room.
pub(super) const LETTER: f64 = 6.9;

/// Okabe and Ito's palette, with a grey in the place of the yellow, which is too weak on white.
const COLOURS: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000"];

/// Dashes of curves, so that one which covers another one lets it be seen.
const DASHES: [&str; 6] = ["", "8 4", "3 3", "10 3 3 3", "14 4", "6 2 2 2 2 2"];

/// Shapes of the points of curves, as paths around their middle; none is a filled diamond, which is what a paper states.
const SHAPES: [&str; 8] = [
    "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "m-3.5 -3.5h7v7h-7z",
    "m0 -4.5l4.5 8h-9z",
    "m0 4.5l4.5 -8h-9z",
    "m-4 -4l8 8m0 -8l-8 8",
    "m0 -5v10m-5 -5h10",
    "m-4.5 -2l4.5 -3l4.5 3l-2 5h-5z",
    "m-2.5 -4.5h5l2 4.5l-2 4.5h-5l-2 -4.5z",
];

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark {
    /// A curve.
    Line,
    /// A bar.
    Box,
    /// What a paper states.
    Diamond,
}

/// A name below the picture.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) style: usize,
    pub(super) mark: Mark,
}

impl Key {
    /// Of the numbers that the paper states.
    pub(super) fn stated() -> Key {
        Key {
            name: "stated in the paper, in the colour of what it is of".to_owned(),
            style: 6,
            mark: Mark::Diamond,
        }
    }
}

/// A panel that is being drawn.
pub(super) struct Canvas {
    svg: String,
    left: f64,
    width: f64,
    height: f64,
}

/// A panel as SVG without its frame, with its width and height.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    pub(super) body: String,
    pub(super) width: f64,
    pub(super) height: f64,
}

pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Where a text stands of its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

impl Canvas {
    /// With heading and names.
    pub(super) fn new((heading, width): (&str, f64), keys: &[Key]) -> Canvas {
        Canvas::with_left((heading, width), keys, LEFT)
    }

    /// With so much left of the plot.
    pub(super) fn with_left((heading, width): (&str, f64), keys: &[Key], left: f64) -> Canvas {
        let longest = keys.iter().map(|key| key.name.chars().count()).max().unwrap_or(0);
        let wide = LETTER * longest as f64 + 56.0;
        let columns = (((width - 40.0) / wide) as usize).clamp(1, 4);
        let rows = keys.len().div_ceil(columns);
        let height = TOP + PLOT_HEIGHT + BELOW + KEY_HEIGHT * rows as f64 + 10.0;
        let mut canvas = Canvas { svg: String::new(), left, width, height };
        if !heading.is_empty() {
            canvas.text((left, TOP - 12.0), Anchor::Start, heading);
        }
        for (index, key) in keys.iter().enumerate() {
            // Column by column, as a list is read.
            let x = 24.0 + wide.max((width - 40.0) / columns as f64) * (index / rows) as f64;
            let y = TOP + PLOT_HEIGHT + BELOW + KEY_HEIGHT * (index % rows) as f64;
            canvas.key(key, (x, y));
        }
        canvas
    }

    fn key(&mut self, key: &Key, (x, y): (f64, f64)) {
        match key.mark {
            Mark::Line => {
                self.path(&[(x, y), (x + 28.0, y)], key.style);
                self.point((x + 14.0, y), key.style);
            }
            Mark::Box => self.bar((x + 6.0, y - 6.0), (x + 20.0, y + 6.0), key.style),
            Mark::Diamond => self.diamond((x + 13.0, y), key.style),
        }
        self.text((x + 34.0, y + 4.5), Anchor::Start, &key.name);
    }

    /// A place of the plot in pixels; shares of its width, from the left, and of its height, from below.
    pub(super) fn place(&self, along: f64, upwards: f64) -> (f64, f64) {
        (self.left + along * (self.width - self.left - RIGHT), TOP + (1.0 - upwards) * PLOT_HEIGHT)
    }

    /// Grid, frame, numbers and labels; the numbers along are those of categories where the scale says so.
    pub(super) fn axes(&mut self, along: &Scale, upwards: &Scale, kind: Along) {
        for (value, text) in upwards.ticks() {
            let (from, to) = (self.place(0.0, upwards.share(*value)), self.place(1.0, upwards.share(*value)));
            self.rule(from, to, "#dddddd");
            self.text((from.0 - 8.0, from.1 + 4.5), Anchor::End, text);
        }
        for (value, text) in along.ticks() {
            let (from, to) = (self.place(along.share(*value), 0.0), self.place(along.share(*value), 1.0));
            if kind == Along::Numbers {
                self.rule(from, to, "#eeeeee");
            }
            self.text((from.0, from.1 + 18.0), Anchor::Middle, text);
        }
        self.rule(self.place(0.0, 0.0), self.place(1.0, 0.0), "#333333");
        self.rule(self.place(0.0, 0.0), self.place(0.0, 1.0), "#333333");
        let below = self.place(0.5, 0.0);
        self.text((below.0, below.1 + 38.0), Anchor::Middle, along.label());
        let (_, middle) = self.place(0.0, 0.5);
        let _ = writeln!(
            self.svg,
            "<text transform=\"translate(16 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escaped(upwards.label())
        );
    }

    /// A thin straight line.
    pub(super) fn rule(&mut self, from: (f64, f64), to: (f64, f64), stroke: &str) {
        let _ = writeln!(
            self.svg,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{stroke}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A curve, with its mark at each point.
    pub(super) fn line(&mut self, points: &[(f64, f64)], style: usize) {
        self.path(points, style);
        for &point in points {
            self.point(point, style);
        }
    }

    /// A line of a style; those behind the first six have other dashes and marks.
    fn path(&mut self, points: &[(f64, f64)], style: usize) {
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = DASHES[(style + style / COLOURS.len()) % DASHES.len()];
        let dash = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
        let _ = writeln!(
            self.svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{dash}/>",
            path.join(" "),
            colour(style)
        );
    }

    /// The mark of a point: hollow, so that what lies below it is seen.
    fn point(&mut self, (x, y): (f64, f64), style: usize) {
        let shape = SHAPES[(style + style / COLOURS.len()) % SHAPES.len()];
        let _ = writeln!(
            self.svg,
            "<path d=\"M{x:.1} {y:.1}{shape}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>",
            colour(style)
        );
    }

    /// An interval: from its least to its most, with a bar at each end.
    pub(super) fn interval(&mut self, (x, low): (f64, f64), high: f64, style: usize) {
        let (left, right) = (x - 4.0, x + 4.0);
        let _ = writeln!(
            self.svg,
            "<path class=\"interval\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}H{right:.1}M{left:.1} {high:.1}H{right:.1}\" \
             fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\"/>",
            colour(style)
        );
    }

    /// What a paper states: a diamond with a black edge, which no point of a curve looks like.
    pub(super) fn diamond(&mut self, (x, y): (f64, f64), index: usize) {
        let _ = writeln!(
            self.svg,
            "<path class=\"stated\" d=\"M{x:.1} {:.1}l8 8l-8 8l-8 -8z\" fill=\"{}\" stroke=\"black\" stroke-width=\"1.5\"/>",
            y - 8.0,
            colour(index)
        );
    }

    /// A filled rectangle between two corners.
    pub(super) fn bar(&mut self, (left, top): (f64, f64), (right, bottom): (f64, f64), index: usize) {
        let _ = writeln!(
            self.svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\" stroke=\"white\" \
             stroke-width=\"0.5\"/>",
            right - left,
            bottom - top,
            colour(index)
        );
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escaped(text)
        );
    }

    pub(super) fn finish(self) -> Drawn {
        Drawn { body: self.svg, width: self.width, height: self.height }
    }

    /// What names of this many letters need left of the plot.
    pub(super) fn left_of(letters: usize) -> f64 {
        (LETTER * letters as f64 + 24.0).max(LEFT)
    }
}
