//! Finished runs in a file of JSON lines, so that an interrupted command goes on where it was.
//!
//! The first line says of what machine, programs and input the runs are. Runs of another first line are never mixed with these.

use crate::limits::BUSY_PERCENT;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file, in the folder of `--out`.
const FILE: &str = "part-applications.jsonl";

/// What one run gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    /// Of the application's own clock.
    pub(super) seconds: f64,
    /// Accesses of the engine that found absent pages, in all processes; none without Pagewire.
    pub(super) page_faults: Option<u64>,
    /// Messages that the application sent, in all processes, and their bytes.
    pub(super) sends: u64,
    pub(super) send_bytes: u64,
    /// Calls that all processes of a communicator make together.
    pub(super) collectives: u64,
    /// Pages that were touched, counted each time.
    pub(super) touched_pages: u64,
    /// Bytes that were locked, counted each time.
    pub(super) pinned_bytes: u64,
    /// The application's version.
    pub(super) version: String,
}

/// One run of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FinishedRun {
    pub(super) cell: String,
    /// Runs of one number and group follow each other.
    pub(super) pair: u32,
    /// When it ended, in seconds since 1970.
    pub(super) unix_time: u64,
    /// Of the processors, what others used a moment before its pair; null where the kernel does not say.
    pub(super) busy_percent: Option<f64>,
    /// From the start to the end of all processes.
    pub(super) wall_seconds: f64,
    /// Null where the run failed.
    pub(super) measured: Option<Measured>,
    /// Why it failed.
    pub(super) failure: Option<String>,
}

impl FinishedRun {
    /// Whether others used the processors as its pair began.
    pub(super) fn is_busy(&self) -> bool {
        self.busy_percent.is_some_and(|percent| percent > BUSY_PERCENT)
    }
}

/// The file and what stands in it.
pub(super) struct Record {
    file: PathBuf,
    pub(super) provenance: Value,
    pub(super) runs: Vec<FinishedRun>,
}

impl Record {
    /// Reads the file in `directory`, or begins one. A last line that was cut off is dropped.
    ///
    /// # Errors
    /// If its runs are of another machine, program or input, or it cannot be read or written.
    pub(super) fn open(directory: &Path, provenance: Value) -> Result<Record> {
        let file = directory.join(FILE);
        let name = || file.display().to_string();
        let text = if file.exists() { fs::read_to_string(&file).with_context(name)? } else { String::new() };
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mut lines = whole.lines();
        let Some(first) = lines.next() else {
            fs::write(&file, format!("{}\n", json!({ "provenance": provenance }))).with_context(name)?;
            return Ok(Record { file, provenance, runs: Vec::new() });
        };
        let known: Value = serde_json::from_str(first).with_context(name)?;
        if known["provenance"] != provenance {
            bail!(
                "{} is of other runs: {}; these are of {provenance}: name another folder by --out",
                file.display(),
                known["provenance"]
            );
        }
        let runs = lines.map(serde_json::from_str).collect::<Result<_, _>>().with_context(name)?;
        if whole.len() < text.len() {
            fs::write(&file, whole).with_context(name)?;
        }
        Ok(Record { file, provenance, runs })
    }

    /// Whether this run is there.
    pub(super) fn has(&self, cell: &str, pair: u32) -> bool {
        self.runs.iter().any(|run| run.pair == pair && run.cell == cell)
    }

    /// Appends a run.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn add(&mut self, run: FinishedRun) -> Result<()> {
        let line = serde_json::to_string(&run)? + "\n";
        let name = || self.file.display().to_string();
        let mut file = OpenOptions::new().append(true).open(&self.file).with_context(name)?;
        file.write_all(line.as_bytes()).with_context(name)?;
        self.runs.push(run);
        Ok(())
    }

    /// The mean time of the runs of cells whose name begins so.
    pub(super) fn mean_seconds(&self, start: &str) -> Option<f64> {
        let times: Vec<f64> =
            self.runs.iter().filter(|run| run.cell.starts_with(start)).map(|run| run.wall_seconds).collect();
        (!times.is_empty()).then(|| times.iter().sum::<f64>() / times.len() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(cell: &str, pair: u32) -> FinishedRun {
        FinishedRun {
            cell: cell.to_owned(),
            pair,
            unix_time: 1,
            busy_percent: None,
            wall_seconds: 2.0,
            measured: None,
            failure: Some("exit status 1".to_owned()),
        }
    }

    #[test]
    fn runs_stay_and_a_line_that_was_cut_off_does_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let open = || Record::open(directory.path(), json!({ "machine": "a" }));
        open().expect("begun").add(run("LAMMPS, 2", 0)).expect("written");
        let file = directory.path().join(FILE);
        let whole = fs::read_to_string(&file).expect("text");
        fs::write(&file, format!("{whole}{{\"cell\":\"LAM")).expect("written");
        let mut record = open().expect("read");
        assert!(record.runs == [run("LAMMPS, 2", 0)] && record.has("LAMMPS, 2", 0));
        assert!(!record.has("LAMMPS, 2", 1) && !record.has("LAMMPS, 4", 0));
        record.add(run("LAMMPS, 2", 1)).expect("written");
        let record = open().expect("read");
        assert_eq!((record.runs.len(), record.mean_seconds("LAMMPS")), (2, Some(2.0)));
        assert_eq!(record.mean_seconds("HPL"), None);
    }

    #[test]
    fn runs_of_another_machine_are_not_mixed() {
        let directory = tempfile::tempdir().expect("a directory");
        Record::open(directory.path(), json!({ "machine": "a" })).expect("begun");
        let refused = Record::open(directory.path(), json!({ "machine": "b" })).err().expect("another");
        assert!(refused.to_string().contains("name another folder by --out"), "{refused}");
    }
}
