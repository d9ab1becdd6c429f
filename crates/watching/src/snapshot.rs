//! The counts of a process in a file beside its statistics, for who waits for it: a process that a signal ends writes no statistics.
//!
//! The counting thread writes the file now and then, while something is counted. What a signal loses is what was counted since.

use crate::limits::{SNAPSHOT_MILLISECONDS, SNAPSHOT_SHARE};
use crate::{hooks, watch};
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// When the next one is due.
pub struct Snapshots {
    file: Option<PathBuf>,
    next: Instant,
    has_failed: bool,
}

#[derive(Serialize)]
struct Snapshot {
    pid: u32,
    program: String,
    watch: watch::WatchReport,
}

impl Snapshots {
    pub fn new() -> Snapshots {
        let file = hooks::statistics();
        let next = Instant::now() + Duration::from_millis(SNAPSHOT_MILLISECONDS);
        Snapshots { file: file.map(|file| beside(&file)), next, has_failed: false }
    }

    /// Whether one is to be written, if something was counted.
    pub fn is_due(&self) -> bool {
        self.file.is_some() && Instant::now() >= self.next
    }

    /// Writes one.
    pub fn write(&mut self) {
        let start = Instant::now();
        let Some(file) = &self.file else { return };
        if let Err(error) = write(file)
            && !std::mem::replace(&mut self.has_failed, true)
        {
            log::warn!("{}: {error}: if a signal ends the process, its counts are lost", file.display());
        }
        // Many pages take their time: it is a small part of all.
        let end = Instant::now();
        self.next = end + Duration::from_millis(SNAPSHOT_MILLISECONDS).max((end - start) * SNAPSHOT_SHARE);
    }
}

fn beside(statistics: &Path) -> PathBuf {
    let mut name = statistics.to_owned().into_os_string();
    name.push(format!(".watch.{}", std::process::id()));
    name.into()
}

fn write(file: &Path) -> io::Result<()> {
    // Without it the log is a checkpoint's alone.
    let Some(watch) = watch::report() else { return Ok(()) };
    let snapshot = Snapshot { pid: std::process::id(), program: crate::program(), watch };
    let mut line = serde_json::to_vec(&snapshot)?;
    line.push(b'\n');
    // Whoever reads it has an old one or a new one.
    let mut new = file.to_owned().into_os_string();
    new.push(".new");
    std::fs::write(&new, line)?;
    std::fs::rename(&new, file)
}

/// The statistics have the counts now.
pub fn remove(statistics: &Path) {
    let file = beside(statistics);
    match std::fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => log::debug!("{}: {error}", file.display()),
        _ => {}
    }
}
