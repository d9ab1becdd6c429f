//! The frame of a picture: title, names, axes, and what is drawn in them, as SVG.

use super::Picture;
use super::axis::{Along, Scale};
use std::fmt::Write;

/// Pixels: the picture's width; what is left, right and above of the plot; the plot's height; a line of names.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 70.0;
const PLOT_HEIGHT: f64 = 380.0;
const BELOW: f64 = 64.0;
const KEY_HEIGHT: f64 = 20.0;
/// Of a letter of the names, on average and with room.
const LETTER: f64 = 6.9;

/// Okabe and Ito's palette, with a grey in the place of the yellow, which is too weak on white.
const COLOURS: [&str; 8] =
    ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#999999", "#000000"];

/// What stands before a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mark {
    /// A curve; dashed or not.
    Line(bool),
    /// A bar.
    Box,
    /// What a paper states.
    Diamond,
}

/// A name below the picture.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) colour: usize,
    pub(super) mark: Mark,
}

impl Key {
    /// Of the numbers that the paper states.
    pub(super) fn stated() -> Key {
        Key {
            name: "stated in the paper, in the colour of what it is of".to_owned(),
            colour: 6,
            mark: Mark::Diamond,
        }
    }
}

/// A picture that is being drawn.
pub(super) struct Canvas {
    svg: String,
    left: f64,
}

pub(super) fn colour(index: usize) -> &'static str {
    COLOURS[index % COLOURS.len()]
}

fn escaped(text: &str) -> String {
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
    /// With title, source and names.
    pub(super) fn new(picture: &Picture, keys: &[Key]) -> Canvas {
        Canvas::with_left(picture, keys, LEFT)
    }

    /// With so much left of the plot.
    pub(super) fn with_left(picture: &Picture, keys: &[Key], left: f64) -> Canvas {
        let longest = keys.iter().map(|key| key.name.chars().count()).max().unwrap_or(0);
        let wide = LETTER * longest as f64 + 56.0;
        let columns = (((WIDTH - 40.0) / wide) as usize).clamp(1, 4);
        let rows = keys.len().div_ceil(columns);
        let height = TOP + PLOT_HEIGHT + BELOW + KEY_HEIGHT * rows as f64 + 10.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        // A long title is set smaller, so that it fits.
        let fitting =
            |text: &str, size: f64| size.min(1.55 * (WIDTH - 40.0) / text.chars().count().max(1) as f64);
        for (text, y, size, weight) in
            [(&picture.title, 28.0, 18.0, "bold"), (&picture.source, 50.0, 13.0, "normal")]
        {
            let size = fitting(text, size);
            let text = escaped(text);
            let _ = writeln!(
                svg,
                "<text x=\"20\" y=\"{y}\" font-size=\"{size:.1}\" font-weight=\"{weight}\">{text}</text>"
            );
        }
        let mut canvas = Canvas { svg, left };
        for (index, key) in keys.iter().enumerate() {
            // Column by column, as a list is read.
            let x = 24.0 + wide.max((WIDTH - 40.0) / columns as f64) * (index / rows) as f64;
            let y = TOP + PLOT_HEIGHT + BELOW + KEY_HEIGHT * (index % rows) as f64;
            canvas.key(key, (x, y));
        }
        canvas
    }

    fn key(&mut self, key: &Key, (x, y): (f64, f64)) {
        match key.mark {
            Mark::Line(dashed) => self.line(&[(x, y), (x + 26.0, y)], key.colour, dashed),
            Mark::Box => self.bar((x + 6.0, y - 6.0), (x + 20.0, y + 6.0), key.colour),
            Mark::Diamond => self.diamond((x + 13.0, y), key.colour),
        }
        self.text((x + 34.0, y + 4.5), Anchor::Start, &key.name);
    }

    /// A place of the plot in pixels; shares of its width, from the left, and of its height, from below.
    pub(super) fn place(&self, along: f64, upwards: f64) -> (f64, f64) {
        (self.left + along * (WIDTH - self.left - RIGHT), TOP + (1.0 - upwards) * PLOT_HEIGHT)
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
            "<text transform=\"translate(20 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
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

    /// A curve, with a dot at each point where it has more than those of a key.
    pub(super) fn line(&mut self, points: &[(f64, f64)], index: usize, dashed: bool) {
        let stroke = colour(index);
        let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dash = if dashed { " stroke-dasharray=\"7 4\"" } else { "" };
        let _ = writeln!(
            self.svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{stroke}\" stroke-width=\"2\"{dash}/>",
            path.join(" ")
        );
        let fill = if dashed { "white" } else { stroke };
        for (x, y) in points {
            let _ = writeln!(
                self.svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{fill}\" stroke=\"{stroke}\" stroke-width=\"1.5\"/>"
            );
        }
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

    pub(super) fn finish(mut self) -> String {
        self.svg += "</svg>\n";
        self.svg
    }

    /// What names of this many letters need left of the plot.
    pub(super) fn left_of(letters: usize) -> f64 {
        (LETTER * letters as f64 + 24.0).max(LEFT)
    }
}
