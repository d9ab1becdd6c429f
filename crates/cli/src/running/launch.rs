//! The environment in which a program finds the engine in place of the system's libibverbs.

use crate::running::install::{Installation, LIBRARY, MALLOC_LIBRARY, VERBS_NAMES};
use crate::running::preload;
use pagewire_checkpoint::CheckpointChoice;
use pagewire_nic::{PageIn, PathChoice};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The environment variable by which the engine is told the path.
pub const PATH_VARIABLE: &str = "PAGEWIRE_PATH";

/// How a program is to run on Pagewire.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Where the engine is.
    pub library: PathBuf,
    /// The libraries that the program names: the runtimes of sanitizers among them stay first.
    pub needed: Vec<String>,
    /// The path asked for.
    pub path: PathChoice,
    /// What becomes of packets that find a page absent, if that was said ([`PageFaultChoice`](pagewire_nic::PageFaultChoice)).
    pub page_faults: Option<String>,
    /// How much is brought in where pages are absent, if that was said.
    pub page_in: Option<PageIn>,
    /// What ports say that they carry, in Gb/s, if that was said.
    pub rate: Option<String>,
    /// How the first device is named, if that was said.
    pub device_name: Option<String>,
    /// Whether the program finds files of the devices, if that was said.
    pub device_files: Option<bool>,
    /// Whether the program's malloc(3) takes its memory from the registered heap.
    pub heap: bool,
    /// The packet capture, if any.
    pub pcap: Option<PathBuf>,
    /// Which accesses of peers are counted, if that was said.
    pub watch: Option<String>,
    /// Where regions are saved, and how often, if that was said.
    pub checkpoint: Option<CheckpointChoice>,
    /// The file to which counters are appended when the program ends, if any.
    pub stats: Option<PathBuf>,
}

impl Launch {
    /// A launch with the engine of `installation`, no capture and no counters.
    pub fn new(installation: &Installation, path: PathChoice) -> Launch {
        let library = installation.library.clone();
        Launch {
            library,
            needed: Vec::new(),
            path,
            page_faults: None,
            page_in: None,
            rate: None,
            device_name: None,
            device_files: None,
            heap: false,
            pcap: None,
            watch: None,
            checkpoint: None,
            stats: None,
        }
    }

    /// Sets the variables of `command`.
    ///
    /// Both LD_LIBRARY_PATH and LD_PRELOAD are set: the first answers the names libibverbs.so.1 and libibverbs.so, the second wins over
    /// a renamed libibverbs that a program carries along. The loader knows by inode that all are one file.
    pub fn apply(&self, command: &mut Command) {
        // One folder: the loader looks for each library of the program in all subfolders that a processor may have.
        let names = self.library.join(VERBS_NAMES);
        command.env("LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", names.as_os_str()));
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let mut engine = self.library.join(LIBRARY).into_os_string();
        if self.heap {
            engine.push(":");
            engine.push(self.library.join(MALLOC_LIBRARY));
        }
        command.env("LD_PRELOAD", preload::order(&preloaded, &self.needed, &engine));
        command.env(PATH_VARIABLE, self.path.name());
        set(command, "PAGEWIRE_PAGE_FAULTS", self.page_faults.as_deref().map(Path::new));
        set(command, "PAGEWIRE_PAGE_IN", self.page_in.map(PageIn::name).map(Path::new));
        set(command, "PAGEWIRE_RATE", self.rate.as_deref().map(Path::new));
        set(command, "PAGEWIRE_DEVICE_NAME", self.device_name.as_deref().map(Path::new));
        let word = |shown| Path::new(if shown { "yes" } else { "no" });
        set(command, "PAGEWIRE_DEVICE_FILES", self.device_files.map(word));
        set(command, "PAGEWIRE_PCAP", self.pcap.as_deref());
        set(command, "PAGEWIRE_WATCH", self.watch.as_deref().map(Path::new));
        let checkpoint = self.checkpoint.as_ref().map(CheckpointChoice::to_word);
        set(command, "PAGEWIRE_CHECKPOINT", checkpoint.as_deref().map(Path::new));
        // The program replaces this process: its engine says at the end that nothing was saved since now.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let started = checkpoint.map(|_| format!("{}:{since}", std::process::id()));
        set(command, "PAGEWIRE_CHECKPOINT_STARTED", started.as_deref().map(Path::new));
        set(command, "PAGEWIRE_STATS", self.stats.as_deref());
    }
}

fn set(command: &mut Command, variable: &str, value: Option<&Path>) {
    // Without the option, what the caller's environment says stays in force.
    if let Some(value) = value {
        command.env(variable, value);
    }
}

fn prepended(variable: &str, first: &OsStr) -> OsString {
    let mut value = first.to_os_string();
    if let Some(rest) = std::env::var_os(variable).filter(|rest| !rest.is_empty()) {
        value.push(":");
        value.push(rest);
    }
    value
}
