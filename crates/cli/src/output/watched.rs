//! What a process tells of accesses to its regions (`pagewire run --watch`): how many there were, and the pages with the most.

use crate::output::report::{self, ProcessReport};
use crate::output::table::Table;
use anyhow::Result;
use serde_json::{Map, Value, json};
use std::io::{self, Write};
use std::path::Path;

/// Pages that are shown to people.
pub const SHOWN_PAGES: usize = 10;

/// Columns of the pages.
pub const COLUMNS: [&str; 6] = ["page", "writes", "bytes written", "reads", "bytes read", "atomics"];

/// What was counted of one process.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'r>(&'r Map<String, Value>);

impl<'r> Watch<'r> {
    /// What a process tells. `None`: nothing of it is watched.
    pub fn of(process: &'r Map<String, Value>) -> Option<Self> {
        process.get("watch").and_then(Value::as_object).map(Watch)
    }

    fn number(self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or_default()
    }

    /// All accesses, in a sentence.
    pub fn sentence(self) -> String {
        let accesses = self.0.get("accesses").and_then(Value::as_object);
        let count =
            |name: &str| accesses.and_then(|all| all.get(name)).and_then(Value::as_u64).unwrap_or_default();
        let mut text = format!(
            "peers made {} writes ({} bytes), {} reads ({} bytes) and {} atomics in {} watched regions of {} bytes",
            count("writes"),
            count("written_bytes"),
            count("reads"),
            count("read_bytes"),
            count("atomics"),
            self.number("regions"),
            self.number("bytes"),
        );
        if self.number("uncertain") > 0 {
            text += &format!("; of {} more it is not known whether they were made", self.number("uncertain"));
        }
        text
    }

    /// The pages with the most accesses, as cells of [`COLUMNS`].
    pub fn pages(self) -> Vec<[String; 6]> {
        let pages = self.0.get("pages").and_then(Value::as_array).into_iter().flatten();
        let cells = |page: &Map<String, Value>| {
            let count = |name: &str| page.get(name).and_then(Value::as_u64).unwrap_or_default();
            let counts = ["writes", "written_bytes", "reads", "read_bytes", "atomics"]
                .map(|name| count(name).to_string());
            let [writes, written, reads, read, atomics] = counts;
            [format!("{:#x}", count("address")), writes, written, reads, read, atomics]
        };
        pages.filter_map(Value::as_object).map(cells).collect()
    }

    /// Writes it for people.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "  {}", self.sentence())?;
        let pages = self.pages();
        if !pages.is_empty() {
            let mut table = Table::new(&COLUMNS);
            pages.iter().take(SHOWN_PAGES).for_each(|cells| table.row(cells.to_vec()));
            table.write(out, "  ")?;
        }
        let left_out = pages.len().saturating_sub(SHOWN_PAGES) as u64 + self.number("pages_left_out");
        if left_out > 0 {
            writeln!(out, "  and {left_out} more pages")?;
        }
        for region in self.0.get("unwatched").and_then(Value::as_array).into_iter().flatten() {
            let number = |name: &str| region.get(name).and_then(Value::as_u64).unwrap_or_default();
            let reason = region.get("reason").and_then(Value::as_str).unwrap_or("?");
            writeln!(
                out,
                "  not watched: the region of {} bytes at {:#x}: {reason}",
                number("length"),
                number("address")
            )?;
        }
        Ok(())
    }
}

/// Prints what was counted of each process, to the standard error output: the standard output is the program's.
///
/// # Errors
/// If it cannot be written.
pub fn print(reports: &[ProcessReport], as_json: bool) -> Result<()> {
    let mut out = anstream::stderr().lock();
    for report in reports {
        let Some(watch) = Watch::of(&report.process) else { continue };
        let field = |name: &str| report.process.get(name).cloned().unwrap_or_default();
        if as_json {
            let object = json!({"pid": field("pid"), "program": field("program"), "watch": watch.0});
            writeln!(out, "{object}")?;
            continue;
        }
        writeln!(out, "{} (PID {})", field("program").as_str().unwrap_or("?"), field("pid"))?;
        watch.write(&mut out)?;
    }
    Ok(())
}

/// The counts of processes that have written no statistics to a file: what they had written beside it before (`crates/verbs/src/watching/watch_snapshot.rs`).
///
/// # Errors
/// If they cannot be read.
pub fn left_behind(statistics: &Path, reports: &[ProcessReport]) -> Result<Vec<ProcessReport>> {
    let Some((directory, name)) = statistics.parent().zip(statistics.file_name()) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{}.watch.", name.to_string_lossy());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse::<u32>().ok());
        let Some(pid) = pid else { continue };
        let is_told =
            |report: &ProcessReport| report.process.get("pid").and_then(Value::as_u64) == Some(pid.into());
        if !reports.iter().any(is_told) {
            found.extend(report::read_file(&entry.path())?);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_the_hottest_pages() {
        let pages: Vec<Value> = (0..12)
            .map(|page| json!({"address": 4096 * (page + 16), "writes": 30 - page, "written_bytes": 5}))
            .collect();
        let told = json!({"watch": {
            "regions": 2, "bytes": 131072, "uncertain": 1, "pages": pages, "pages_left_out": 7,
            "accesses": {"writes": 294, "written_bytes": 60, "reads": 0, "read_bytes": 0, "atomics": 0},
            "unwatched": [{"address": 4096, "length": 7, "reason": "it is odd"}]}});
        let mut text = Vec::new();
        Watch::of(told.as_object().unwrap()).unwrap().write(&mut text).unwrap();
        let text = anstream::adapter::strip_str(std::str::from_utf8(&text).unwrap()).to_string();
        assert!(
            text.starts_with(
                "  peers made 294 writes (60 bytes), 0 reads (0 bytes) and 0 atomics in 2 watched"
            ),
            "{text}"
        );
        assert!(text.contains("0x10000  30") && !text.contains("0x1a000"), "{text}");
        assert!(
            text.contains("and 9 more pages\n  not watched: the region of 7 bytes at 0x1000: it is odd"),
            "{text}"
        );
        assert!(Watch::of(&Map::new()).is_none());
    }
}
