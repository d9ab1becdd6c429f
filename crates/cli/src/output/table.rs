//! Tables of text, as wide as their longest cells, and the few styles of the command.

use anstyle::{AnsiColor, Style};
use std::io::{self, Write};

/// Rows under a heading.
#[derive(Clone, Debug)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Below the row of the same index.
    notes: Vec<String>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(head: &[&str]) -> Table {
        Table {
            head: head.iter().map(|&name| name.to_owned()).collect(),
            rows: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Appends a row; missing cells are empty, surplus ones are dropped.
    pub fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.head.len(), String::new());
        self.rows.push(cells);
        self.notes.push(String::new());
    }

    /// Puts a line of text below the last row; an empty one is no line.
    pub fn note(&mut self, text: String) {
        if let Some(last) = self.notes.last_mut() {
            *last = text;
        }
    }

    /// Writes the table, each line behind `indent`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, out: &mut impl Write, indent: &str) -> io::Result<()> {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                self.rows.iter().chain([&self.head]).map(|row| width(&row[column])).max().unwrap_or(0)
            })
            .collect();
        let head = heading();
        writeln!(out, "{indent}{head}{}{head:#}", line(&self.head, &widths))?;
        for (row, note) in self.rows.iter().zip(&self.notes) {
            writeln!(out, "{indent}{}", line(row, &widths))?;
            if !note.is_empty() {
                writeln!(out, "{indent}    {note}")?;
            }
        }
        Ok(())
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut text = String::new();
    for (cell, &wanted) in cells.iter().zip(widths) {
        text.push_str(cell);
        text.extend(std::iter::repeat_n(' ', wanted - width(cell) + 2));
    }
    text.trim_end().to_owned()
}

/// The columns that `text` takes, escape sequences of styles not counted.
fn width(text: &str) -> usize {
    anstream::adapter::strip_str(text).map(|part| part.chars().count()).sum()
}

/// For headings.
pub const fn heading() -> Style {
    Style::new().bold()
}

/// For what is well.
pub const fn good() -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Green)))
}

/// For what costs something.
pub const fn warning() -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Yellow)))
}

/// For what failed.
pub const fn bad() -> Style {
    Style::new().bold().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Red)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_the_style() {
        let style = good();
        let mut table = Table::new(&["a", "b"]);
        table.row(vec![format!("{style}long{style:#}"), "x".to_owned()]);
        table.row(vec!["s".to_owned(), "y".to_owned()]);
        let mut out = Vec::new();
        table.write(&mut out, "").expect("memory");
        let text = anstream::adapter::strip_str(&String::from_utf8(out).expect("UTF-8")).to_string();
        assert_eq!(text, "a     b\nlong  x\ns     y\n");
    }
}
