//! What many runs of a cell come to: medians with intervals, and the comparison with the first cell of the group.

use super::cells::{Cell, Group};
use super::record::{FinishedRun, Measured, Record};
use pagewire_cli::median;

/// A median, and between which values that of all possible runs lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    pub(super) median: f64,
    /// With 95 % at least; none of fewer than six values.
    pub(super) interval: Option<(f64, f64)>,
}

impl Estimate {
    /// None of no values.
    pub(super) fn of(mut values: Vec<f64>) -> Option<Estimate> {
        let median = median(&mut values)?;
        Some(Estimate { median, interval: interval(&values) })
    }
}

/// Order statistics that hold the median of all possible values with 95 % at least: each value is above it with a half, so how many
/// are is binomial.
fn interval(sorted: &[f64]) -> Option<(f64, f64)> {
    let count = sorted.len();
    let mut probability = 0.5_f64.powi(i32::try_from(count).ok()?);
    let (mut tail, mut outside) = (0.0, None);
    for below in 0..count / 2 {
        tail += probability;
        if tail > 0.025 {
            break;
        }
        outside = Some(below);
        probability *= (count - below) as f64 / (below + 1) as f64;
    }
    outside.map(|outside| (sorted[outside], sorted[count - 1 - outside]))
}

/// All runs of a cell.
pub(super) struct CellSummary<'a> {
    pub(super) cell: &'a Cell,
    /// Runs that succeeded; if some began on an idle machine, these alone.
    pub(super) measured: Vec<&'a Measured>,
    /// Runs that are left out because they began on a busy machine.
    pub(super) left_out: usize,
    /// Whether all runs began on a busy machine.
    pub(super) is_busy: bool,
    /// Why others failed.
    pub(super) failures: Vec<&'a str>,
    pub(super) seconds: Option<Estimate>,
    /// By how many percent the first cell of the group takes longer, pair by pair; negative: less long.
    pub(super) first_longer: Option<Estimate>,
}

impl CellSummary<'_> {
    /// The median of a count.
    pub(super) fn median_of(&self, count: impl Fn(&Measured) -> Option<u64>) -> Option<f64> {
        let mut counts: Vec<f64> = self.measured.iter().filter_map(|run| Some(count(run)? as f64)).collect();
        median(&mut counts)
    }

    /// Whether no page was absent in it although that is what it is about: it says nothing then.
    pub(super) fn is_void(&self) -> bool {
        self.cell.must_fault() && self.median_of(|run| run.page_faults) == Some(0.0)
    }
}

/// The runs that count: those that began on an idle machine, or all if there are none.
fn counted<'a>(runs: &[&'a FinishedRun]) -> Vec<&'a FinishedRun> {
    let idle: Vec<&FinishedRun> = runs.iter().copied().filter(|run| !run.is_busy()).collect();
    if idle.is_empty() { runs.to_vec() } else { idle }
}

/// The cells of a group, as far as there are runs.
pub(super) fn summarize<'a>(group: &'a Group, record: &'a Record) -> Vec<CellSummary<'a>> {
    let runs = |cell: &Cell| -> Vec<&'a FinishedRun> {
        let key = cell.key();
        record.runs.iter().filter(|run| run.cell == key).collect()
    };
    let Some(first) = group.cells.first().map(|cell| counted(&runs(cell))) else { return Vec::new() };
    let of_cell = |cell: &'a Cell| {
        let made = runs(cell);
        let all = counted(&made);
        let (left_out, is_busy) = (made.len() - all.len(), all.iter().any(|run| run.is_busy()));
        let measured: Vec<&Measured> = all.iter().filter_map(|run| run.measured.as_ref()).collect();
        let failures = made.iter().filter_map(|run| run.failure.as_deref()).collect();
        let seconds = Estimate::of(measured.iter().map(|run| run.seconds).collect());
        let pairs = all.iter().filter_map(|run| {
            let other = first.iter().find(|other| other.pair == run.pair)?;
            let (first, here) = (other.measured.as_ref()?.seconds, run.measured.as_ref()?.seconds);
            Some((first / here - 1.0) * 100.0)
        });
        let first_longer =
            if *cell == group.cells[0] { None } else { Estimate::of(pairs.collect::<Vec<_>>()) };
        CellSummary { cell, measured, left_out, is_busy, failures, seconds, first_longer }
    };
    group
        .cells
        .iter()
        .map(of_cell)
        .filter(|cell| !cell.measured.is_empty() || !cell.failures.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::cells::groups;
    use super::super::programs::Application;
    use super::*;
    use serde_json::json;

    #[test]
    fn interval_drops_as_many_values_as_the_binomial_distribution_allows() {
        let values = |count: u32| (1..=count).map(f64::from).collect::<Vec<_>>();
        assert_eq!(interval(&values(5)), None);
        assert_eq!(interval(&values(6)), Some((1.0, 6.0)));
        // Table of order statistics for the median: 20 values, ranks 6 and 15.
        assert_eq!(interval(&values(20)), Some((6.0, 15.0)));
        let estimate = Estimate::of(vec![3.0, 1.0, 2.0]).expect("values");
        assert_eq!(estimate, Estimate { median: 2.0, interval: None });
        assert_eq!(Estimate::of(Vec::new()), None);
    }

    #[test]
    fn comparison_is_pair_by_pair_and_no_fault_is_void() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut record = Record::open(directory.path(), json!({})).expect("begun");
        let group = &groups(&[Application::Lammps], None, 1)[0];
        let mut add = |cell: &Cell, (pair, busy): (u32, f64), seconds: Option<f64>| {
            let measured = seconds.map(|seconds| Measured {
                seconds,
                page_faults: Some(0),
                sends: 1,
                send_bytes: 8,
                collectives: 0,
                touched_pages: 0,
                pinned_bytes: 0,
                version: String::new(),
            });
            let failure = measured.is_none().then(|| "exit status 1".to_owned());
            let (unix_time, busy_percent, wall_seconds) = (0, Some(busy), 1.0);
            let cell = cell.key();
            let run = FinishedRun { cell, pair, unix_time, busy_percent, wall_seconds, measured, failure };
            record.add(run).expect("written");
        };
        for (pair, first, second) in
            [(0, Some(1.0), Some(2.0)), (1, Some(3.0), Some(2.0)), (2, None, Some(9.0))]
        {
            add(&group.cells[0], (pair, 1.0), first);
            add(&group.cells[1], (pair, 1.0), second);
        }
        add(&group.cells[1], (3, 90.0), Some(99.0));
        add(&group.cells[2], (3, 90.0), Some(5.0));
        let cells = summarize(group, &record);
        assert_eq!(cells.len(), 3);
        // A run of a busy machine counts only where there is no other.
        assert_eq!((cells[1].measured.len(), cells[1].left_out, cells[1].is_busy), (3, 1, false));
        assert_eq!((cells[2].measured.len(), cells[2].left_out, cells[2].is_busy), (1, 0, true));
        assert_eq!((cells[0].first_longer, cells[0].failures.len()), (None, 1));
        // The pairs give -50 % and +50 %; of the third there is one run.
        assert_eq!(cells[1].first_longer.map(|estimate| estimate.median), Some(50.0));
        assert!(cells[0].is_void() && !cells[1].is_void());
    }
}
