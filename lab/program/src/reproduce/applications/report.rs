//! What was measured of applications, as tables, CSV and JSON, beside what the paper has.

use super::cells::{Buffers, Cell, Difference, Group};
use super::programs::Application;
use super::record::Record;
use super::summary::{CellSummary, Estimate, summarize};
use crate::reproduce::files::csv_cell;
use crate::reproduce::words::{number, with_unit};
use anyhow::Result;
use pagewire_cli::table::{Table, bad, heading, warning};
use pagewire_papers::unit_costs::{APPLICATIONS, LAMMPS_SECONDS};
use pagewire_papers::{Paper, Place};
use serde_json::{Value, json};
use std::io::Write;

/// Cells with what they differ in.
pub(super) struct Report<'a> {
    record: &'a Record,
    groups: Vec<(Difference, Vec<CellSummary<'a>>)>,
    /// By how much HPL and HPCG may be slower in the paper.
    bounds: Vec<(Application, f64)>,
}

impl<'a> Report<'a> {
    pub(super) fn of(groups: &'a [Group], record: &'a Record) -> Report<'a> {
        let summaries = groups.iter().map(|group| (group.difference, summarize(group, record)));
        let claims = pagewire_papers::claims(Paper::Part);
        let bound = |application: Application| {
            let place = Place::Table(application.table());
            let claim =
                claims.iter().find(|claim| claim.place == place && claim.what.contains("slower by at most"));
            claim.map(|claim| (application, claim.stated.1))
        };
        let bounds = [Application::Hpl, Application::Hpcg].into_iter().filter_map(bound).collect();
        Report { record, groups: summaries.filter(|(_, cells)| !cells.is_empty()).collect(), bounds }
    }

    fn cells(&self) -> impl Iterator<Item = (Difference, &CellSummary<'a>)> {
        self.groups.iter().flat_map(|(difference, cells)| cells.iter().map(move |cell| (*difference, cell)))
    }

    /// Whether a run failed that this machine allows.
    pub(super) fn has_failed(&self) -> bool {
        self.cells().any(|(_, cell)| cell.failures.iter().any(|failure| !super::run::is_refused(failure)))
    }

    /// A table for each kind of difference, and what table 5 counts.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn print(&self, out: &mut impl Write) -> Result<()> {
        let style = heading();
        for difference in Difference::ALL {
            let cells: Vec<&CellSummary> =
                self.cells().filter(|(of, _)| *of == difference).map(|(_, cell)| cell).collect();
            if cells.is_empty() {
                continue;
            }
            writeln!(out, "{style}{}{style:#}", difference.title())?;
            self.table(difference, &cells).write(out, "")?;
            writeln!(out)?;
        }
        let counted = self.counts();
        if let Some(table) = counted {
            writeln!(out, "{style}What the applications send (table 5){style:#}")?;
            table.write(out, "")?;
            writeln!(
                out,
                "\nTable 5 of the paper has 16 processes; of the calls and bytes in it the text has no numbers."
            )?;
        }
        Ok(())
    }

    fn table(&self, difference: Difference, cells: &[&CellSummary]) -> Table {
        let longer = format!("{} takes longer by", difference.first());
        let mut head = vec!["table", "application", "processes", "hosts", "path", "with", "runs", "seconds"];
        head.extend(["95 % interval", longer.as_str(), "absent pages"]);
        head.extend((difference == Difference::Buffers).then_some("paper"));
        let mut table = Table::new(&head);
        for cell in cells {
            let absent =
                cell.median_of(|run| run.page_faults).map_or_else(|| "-".to_owned(), |n| format!("{n}"));
            let mut row = vec![
                cell.cell.application.table().to_string(),
                cell.cell.application.name().to_owned(),
                cell.cell.processes.to_string(),
                cell.cell.hosts.to_string(),
                cell.cell.transport.name().to_owned(),
                variant(difference, cell.cell),
                cell.measured.len().to_string(),
                cell.seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.3}", seconds.median)),
                interval(cell.seconds, 3),
                percent(cell.first_longer),
                absent,
            ];
            row.extend((difference == Difference::Buffers).then(|| self.paper(cell.cell)));
            table.row(row);
            table.note(note(cell));
        }
        table
    }

    /// What the paper has of a cell.
    fn paper(&self, cell: &Cell) -> String {
        let longer = paper_longer(cell).map(|longer| format!("{longer:+.1} %"));
        let bound = self.bounds.iter().find(|(application, _)| *application == cell.application);
        let bound =
            bound.filter(|_| cell.buffers == Buffers::Touched).map(|(_, most)| format!("<= {most} %"));
        let seconds = paper_seconds(cell).map(|seconds| format!("{seconds} s"));
        seconds.into_iter().chain(longer).chain(bound).collect::<Vec<_>>().join(", ")
    }

    fn counts(&self) -> Option<Table> {
        let columns = [
            "application",
            "processes",
            "hosts",
            "path",
            "sends",
            "bytes a send",
            "MB sent",
            "collectives",
            "absent pages",
        ];
        let paper = ["handler runs (paper)", "ERRs (paper)"];
        let mut table = Table::new(&[columns.as_slice(), &paper].concat());
        let plain = |(difference, cell): &(Difference, &CellSummary)| {
            *difference == Difference::Buffers
                && cell.cell.buffers == Buffers::Plain
                && cell.cell.transport.path().is_some()
        };
        let mut is_empty = true;
        for (_, cell) in self.cells().filter(plain) {
            let (Some(sends), Some(bytes)) =
                (cell.median_of(|run| Some(run.sends)), cell.median_of(|run| Some(run.send_bytes)))
            else {
                continue;
            };
            is_empty = false;
            let count = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value}"));
            let counted = APPLICATIONS.iter().find(|counted| counted.name == cell.cell.application.name());
            table.row(vec![
                cell.cell.application.name().to_owned(),
                cell.cell.processes.to_string(),
                cell.cell.hosts.to_string(),
                cell.cell.transport.name().to_owned(),
                format!("{sends}"),
                if sends > 0.0 { format!("{:.0}", bytes / sends) } else { "-".to_owned() },
                number(bytes / 1e6),
                count(cell.median_of(|run| Some(run.collectives))),
                count(cell.median_of(|run| run.page_faults)),
                count(counted.map(|counted| counted.handler_runs)),
                count(counted.map(|counted| counted.errs)),
            ]);
        }
        (!is_empty).then_some(table)
    }

    /// The first line says of what runs, then a line for each cell.
    pub(super) fn json(&self) -> Vec<Value> {
        let first = json!({ "paper": "part", "provenance": self.record.provenance });
        [first].into_iter().chain(self.cells().map(|(difference, cell)| of_cell(difference, cell))).collect()
    }

    /// A line for each cell, with columns as in JSON (RFC 4180).
    pub(super) fn csv(&self) -> String {
        let rows: Vec<Value> = self.cells().map(|(difference, cell)| of_cell(difference, cell)).collect();
        let columns: Vec<String> = rows
            .first()
            .and_then(Value::as_object)
            .map(|row| row.keys().cloned().collect())
            .unwrap_or_default();
        let mut text = columns.join(",") + "\r\n";
        for row in &rows {
            let cells: Vec<String> = columns.iter().map(|column| csv_cell(&row[column])).collect();
            text += &(cells.join(",") + "\r\n");
        }
        text
    }
}

/// What a cell has in which those of its group differ.
fn variant(difference: Difference, cell: &Cell) -> String {
    match difference {
        Difference::Buffers => cell.buffers.title().to_owned(),
        Difference::Policy => format!("{} with {}", cell.page_faults.name(), cell.page_in.name()),
        Difference::Loss => format!("{} % lost", f64::from(cell.lost) / 1e4),
    }
}

fn note(cell: &CellSummary) -> String {
    let (bad, warning) = (bad(), warning());
    let mut notes = Vec::new();
    if cell.is_void() {
        notes.push(format!("{warning}void: no page was absent{warning:#}"));
    }
    if cell.left_out > 0 {
        notes.push(format!("{} more began on a busy machine and do not count", cell.left_out));
    }
    if cell.is_busy {
        notes.push(format!("{warning}all began on a busy machine: do not rely on them{warning:#}"));
    }
    if let Some(failure) = cell.failures.first() {
        let text = failure.split_whitespace().collect::<Vec<_>>().join(" ");
        notes.push(format!("{bad}{} runs failed{bad:#}: {text}", cell.failures.len()));
    }
    notes.join("; ")
}

fn interval(estimate: Option<Estimate>, digits: usize) -> String {
    let ends = estimate.and_then(|estimate| estimate.interval);
    ends.map_or_else(|| "-".to_owned(), |(least, most)| format!("{least:.digits$} to {most:.digits$}"))
}

fn percent(estimate: Option<Estimate>) -> String {
    let Some(Estimate { median, interval }) = estimate else { return String::new() };
    let ends = interval.map_or_else(String::new, |(least, most)| format!(" ({least:+.1} to {most:+.1})"));
    with_unit(&format!("{median:+.1}{ends}"), "%")
}

/// The paper's loop time of LAMMPS: with page faults for what is never pinned, without for what is touched.
fn paper_seconds(cell: &Cell) -> Option<f64> {
    let (_, without, with) = lammps_of_paper(cell)?;
    match cell.buffers {
        Buffers::Plain => Some(with),
        Buffers::Touched => Some(without),
        Buffers::Pinned => None,
    }
}

/// By how many percent the paper's LAMMPS takes longer with page faults than with touched buffers.
fn paper_longer(cell: &Cell) -> Option<f64> {
    let (_, without, with) = lammps_of_paper(cell)?;
    (cell.buffers == Buffers::Touched).then(|| (with / without - 1.0) * 100.0)
}

fn lammps_of_paper(cell: &Cell) -> Option<(u64, f64, f64)> {
    let is_of_paper = cell.application == Application::Lammps && cell.transport.path().is_some();
    let row = LAMMPS_SECONDS.into_iter().find(|(processes, ..)| *processes == u64::from(cell.processes));
    row.filter(|_| is_of_paper)
}

fn of_cell(difference: Difference, summary: &CellSummary) -> Value {
    let cell = summary.cell;
    let ends = |estimate: Option<Estimate>| estimate.and_then(|estimate| estimate.interval).unzip();
    let (seconds_least, seconds_most) = ends(summary.seconds);
    let (longer_least, longer_most) = ends(summary.first_longer);
    let is_in_paper = difference == Difference::Buffers;
    json!({
        "paper": "part",
        "table": cell.application.table(),
        "application": cell.application.name(),
        "version": summary.measured.last().map(|run| run.version.as_str()),
        "processes": cell.processes,
        "hosts": cell.hosts,
        "path": cell.transport.name(),
        "buffers": cell.buffers.title(),
        "page_faults_policy": cell.page_faults.name(),
        "page_in": cell.page_in.name(),
        "lost_ppm": cell.lost,
        "runs": summary.measured.len(),
        "left_out": summary.left_out,
        "is_busy": summary.is_busy,
        "failed": summary.failures.len(),
        "failure": summary.failures.first(),
        "seconds": summary.seconds.map(|seconds| seconds.median),
        "seconds_least": seconds_least,
        "seconds_most": seconds_most,
        "compared": difference.first(),
        "compared_longer_percent": summary.first_longer.map(|longer| longer.median),
        "compared_longer_least": longer_least,
        "compared_longer_most": longer_most,
        "page_faults": summary.median_of(|run| run.page_faults),
        "is_void": summary.is_void(),
        "sends": summary.median_of(|run| Some(run.sends)),
        "send_bytes": summary.median_of(|run| Some(run.send_bytes)),
        "collectives": summary.median_of(|run| Some(run.collectives)),
        "touched_pages": summary.median_of(|run| Some(run.touched_pages)),
        "pinned_bytes": summary.median_of(|run| Some(run.pinned_bytes)),
        "paper_seconds": paper_seconds(cell).filter(|_| is_in_paper),
        "paper_longer_percent": paper_longer(cell).filter(|_| is_in_paper),
    })
}
