//! A sheet of pictures: a row for each figure, what the paper states beside the model beside this machine.

use super::canvas::{Drawn, escaped};
use super::{Panel, framed};
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Pixels of a panel as it is drawn, and how much smaller it is on the sheet.
const PANEL: f64 = 640.0;
const SCALE: f64 = 0.6;
/// Of the line above a row.
const TITLE: f64 = 30.0;

/// A figure of the sheet.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which figure it is, and what it shows.
    pub title: String,
    /// From left to right.
    pub panels: Vec<Panel>,
}

/// Rows one below the other.
#[derive(Clone, Debug)]
pub struct Sheet {
    /// For those who do not see it.
    pub title: String,
    /// What is to be known before anything else, a line each.
    pub lines: Vec<String>,
    /// From the top.
    pub rows: Vec<Row>,
}

impl Sheet {
    /// Draws the sheet into two files, as SVG and as PNG.
    ///
    /// # Errors
    /// If one cannot be written.
    pub fn draw(&self, svg_file: &Path, png_file: &Path) -> Result<()> {
        let svg = self.svg();
        fs::write(svg_file, &svg).with_context(|| svg_file.display().to_string())?;
        let png = raster(&svg).with_context(|| png_file.display().to_string())?;
        fs::write(png_file, png).with_context(|| png_file.display().to_string())
    }

    fn svg(&self) -> String {
        let mut body = format!("<title>{}</title>\n", escaped(&self.title));
        for (index, line) in self.lines.iter().enumerate() {
            let y = 20.0 + 18.0 * index as f64;
            let _ = writeln!(body, "<text x=\"14\" y=\"{y:.1}\">{}</text>", escaped(line));
        }
        let (mut y, mut width) = (self.lines.len() as f64 * 18.0, 0.0_f64);
        for row in &self.rows {
            let drawn: Vec<Drawn> = row.panels.iter().filter_map(|panel| panel.drawn(PANEL)).collect();
            // A long title is set smaller, so that it fits.
            let room = PANEL * SCALE * row.panels.len() as f64 - 28.0;
            let size = (1.6 * room / row.title.chars().count().max(1) as f64).min(15.0);
            let _ = writeln!(
                body,
                "<text x=\"14\" y=\"{:.1}\" font-size=\"{size:.1}\" font-weight=\"bold\">{}</text>",
                y + TITLE - 8.0,
                escaped(&row.title)
            );
            let mut x = 0.0;
            for panel in &drawn {
                let _ = writeln!(
                    body,
                    "<g transform=\"translate({x:.1} {:.1}) scale({SCALE})\">\n{}</g>",
                    y + TITLE,
                    panel.body
                );
                x += panel.width * SCALE;
            }
            width = width.max(x);
            y += TITLE + SCALE * drawn.iter().map(|panel| panel.height).fold(0.0, f64::max);
        }
        framed((width, y), &body)
    }
}

/// A picture as PNG, with the fonts of this machine.
fn raster(svg: &str) -> Result<Vec<u8>> {
    use resvg::{tiny_skia, usvg};
    let mut options = usvg::Options::default();
    options.fontdb_mut().load_system_fonts();
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size();
    let mut pixels = tiny_skia::Pixmap::new(size.width(), size.height()).context("a sheet without a size")?;
    resvg::render(&tree, tiny_skia::Transform::identity(), &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}

#[cfg(test)]
mod tests {
    use super::super::Drawing;
    use super::*;

    #[test]
    fn sheet_has_a_row_for_each_figure_and_is_two_files() {
        let panel = |heading: &str| Panel {
            heading: heading.to_owned(),
            drawing: Drawing::Lines(vec![format!("nothing of {heading}")]),
        };
        let row = |title: &str| Row { title: title.to_owned(), panels: vec![panel("paper"), panel("model")] };
        let sheet = Sheet {
            title: "all".to_owned(),
            lines: vec!["busy".to_owned()],
            rows: vec![row("figure 1: one"), row("figure 2: two")],
        };
        let directory = tempfile::tempdir().expect("a directory");
        let [svg, png] = ["a.svg", "a.png"].map(|name| directory.path().join(name));
        sheet.draw(&svg, &png).expect("written");
        let text = fs::read_to_string(svg).expect("text");
        for wanted in ["figure 1: one", "figure 2: two", ">busy<", ">paper<", ">nothing of model<"] {
            assert!(text.contains(wanted), "{wanted}");
        }
        assert!(fs::read(png).expect("bytes").starts_with(b"\x89PNG"));
        assert!(raster("no picture").is_err());
    }
}
