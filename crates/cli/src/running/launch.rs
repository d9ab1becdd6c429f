//! The environment in which a program finds the engine in place of the system's libibverbs.

use crate::running::install::{Installation, LIBRARY, MALLOC_LIBRARY, VERBS_NAMES};
use crate::running::preload;
use pagewire_checker::report;
use pagewire_checkpoint::CheckpointChoice;
use pagewire_fabric::TlsChoice;
use pagewire_nic::{PageIn, PathChoice};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The environment variable by which the engine is told the path.
pub const PATH_VARIABLE: &str = "PAGEWIRE_PATH";

/// In the folder of the names of libibverbs: librdmacm, of an installation that carries one.
const FALLBACK: &str = "fallback";

/// Programs that connect look for this one.
const LIBRDMACM: &str = "librdmacm.so.1";

/// How a program is to run on Pagewire.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Where the engine is.
    pub library: PathBuf,
    /// The libraries that the program names: the runtimes of sanitizers among them stay first.
    pub needed: Vec<String>,
    /// The path asked for.
    pub path: PathChoice,
    /// Where connections go, if that was said ([`ConnectTo`](pagewire_fabric::ConnectTo)).
    pub connect_to: Option<String>,
    /// How what goes to other hosts is encrypted, if that was said.
    pub tls: Option<TlsChoice>,
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
    /// What is to fail, in words, if that was said.
    pub fail: Option<String>,
    /// The file that gets a line for each failure.
    pub fail_log: Option<PathBuf>,
    /// What rules call the process.
    pub role: Option<String>,
    /// The file to which counters are appended when the program ends, if any.
    pub stats: Option<PathBuf>,
    /// The file to which findings are appended when the program ends, if it is checked.
    pub check: Option<PathBuf>,
    /// Whether the buffers of requests are checked, too.
    pub check_buffers: bool,
}

impl Launch {
    /// A launch with the engine of `installation`, no capture and no counters.
    pub fn new(installation: &Installation, path: PathChoice) -> Launch {
        let library = installation.library.clone();
        Launch {
            library,
            needed: Vec::new(),
            path,
            connect_to: None,
            tls: None,
            page_faults: None,
            page_in: None,
            rate: None,
            device_name: None,
            device_files: None,
            heap: false,
            pcap: None,
            watch: None,
            checkpoint: None,
            fail: None,
            fail_log: None,
            role: None,
            stats: None,
            check: None,
            check_buffers: false,
        }
    }

    /// Sets the variables of `command`.
    ///
    /// Both LD_LIBRARY_PATH and LD_PRELOAD are set: the first answers the names libibverbs.so.1 and libibverbs.so, the second wins over
    /// a renamed libibverbs that a program carries along. The loader knows by inode that all are one file.
    pub fn apply(&self, command: &mut Command) {
        // One folder: the loader looks for each library of the program in all subfolders that a processor may have.
        let names = self.library.join(VERBS_NAMES);
        command.env("LD_LIBRARY_PATH", search_path(&names, has_librdmacm));
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let mut engine = self.library.join(LIBRARY).into_os_string();
        if self.heap {
            engine.push(":");
            engine.push(self.library.join(MALLOC_LIBRARY));
        }
        command.env("LD_PRELOAD", preload::order(&preloaded, &self.needed, &engine));
        command.env(PATH_VARIABLE, self.path.name());
        set(command, "PAGEWIRE_CONNECT_TO", self.connect_to.as_deref().map(Path::new));
        set(command, "PAGEWIRE_TLS", self.tls.as_ref().map(TlsChoice::to_string).as_deref().map(Path::new));
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
        set(command, "PAGEWIRE_FAIL", self.fail.as_deref().map(Path::new));
        set(command, "PAGEWIRE_FAIL_LOG", self.fail_log.as_deref());
        set(command, "PAGEWIRE_ROLE", self.role.as_deref().map(Path::new));
        set(command, "PAGEWIRE_STATS", self.stats.as_deref());
        set(command, report::FILE_VARIABLE, self.check.as_deref());
        set(command, report::BUFFERS_VARIABLE, self.check.is_some().then(|| word(self.check_buffers)));
    }
}

/// Where programs look for libraries: the names of libibverbs, what the caller's environment says, and last a librdmacm if only the
/// installation has one.
fn search_path(names: &Path, has_librdmacm: impl FnOnce() -> bool) -> OsString {
    let mut path = prepended("LD_LIBRARY_PATH", names.as_os_str());
    let fallback = names.join(FALLBACK);
    let is_listed = std::env::split_paths(&path).any(|folder| folder == fallback);
    if fallback.is_dir() && !is_listed && !has_librdmacm() {
        path.push(":");
        path.push(fallback);
    }
    path
}

/// Whether the system has a librdmacm, which programs get before the one that an installation carries (ld.so(8): the cache, then the default folders).
fn has_librdmacm() -> bool {
    let is_cached = std::fs::read("/etc/ld.so.cache")
        .is_ok_and(|cache| memchr::memmem::find(&cache, LIBRDMACM.as_bytes()).is_some());
    let folders = [
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
    ];
    is_cached || folders.iter().any(|folder| Path::new(folder).join(LIBRDMACM).exists())
}

fn set(command: &mut Command, variable: &str, value: Option<&Path>) {
    // Without the option, what the caller's environment says stays in force.
    if let Some(value) = value {
        command.env(variable, value);
    }
}

fn prepended(variable: &str, first: &OsStr) -> OsString {
    let rest = std::env::var_os(variable).unwrap_or_default();
    joined(first, rest.as_bytes())
}

/// A list of folders with `first` in front, and nowhere else: `pagewire run` may have set the list.
fn joined(first: &OsStr, rest: &[u8]) -> OsString {
    let mut value = first.to_os_string();
    if rest.is_empty() {
        return value;
    }
    for folder in rest.split(|byte| *byte == b':').filter(|folder| *folder != first.as_bytes()) {
        value.push(":");
        value.push(OsStr::from_bytes(folder));
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_stands_once_in_a_list() {
        let with = |rest: &str| joined("/e/pagewire".as_ref(), rest.as_bytes()).into_string().expect("UTF-8");
        assert_eq!(with(""), "/e/pagewire");
        assert_eq!(with("/a:/e/pagewire:/b"), "/e/pagewire:/a:/b");
        // An empty entry is the working directory (ld.so(8)).
        assert_eq!(with("/a::"), "/e/pagewire:/a::");
    }

    #[test]
    fn carried_librdmacm_is_found_where_system_has_none() {
        let names = tempfile::tempdir().expect("a directory");
        let ends = |path: OsString| path.to_string_lossy().ends_with("/fallback");
        assert!(!ends(search_path(names.path(), || panic!("nothing is carried"))));
        std::fs::create_dir(names.path().join(FALLBACK)).expect("made");
        assert!(!ends(search_path(names.path(), || true)));
        let path = search_path(names.path(), || false);
        assert!(path.to_string_lossy().starts_with(&*names.path().to_string_lossy()) && ends(path));
    }
}
