//! A program that was started with `pagewire run --checkpoint` and has registered nothing: it ends with a line that says so.
//!
//! Its engine may never have started, so the line comes from the end of the shared object. A program that ends by _exit(2) or a signal says nothing.

use crate::runtime::messages::say;
use crate::runtime::settings::Settings;
use pagewire_memory::Uncancelled;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Of the process that `pagewire run` became: its PID, and the second in which it began.
const STARTED: &str = "PAGEWIRE_CHECKPOINT_STARTED";

// The loader calls it when the process ends by exit(3).
#[used]
// SAFETY: the section has pointers to functions of no arguments (System V ABI, "Initialization and Termination Functions").
#[unsafe(link_section = ".fini_array")]
static AT_END: extern "C" fn() = at_end;

extern "C" fn at_end() {
    let Some(started) = std::env::var_os(STARTED) else { return };
    let _uncancelled = Uncancelled::begin();
    // Nothing unwinds into the loader. A panic has said what it is.
    let _ended = catch_unwind(AssertUnwindSafe(|| say_if_unused(&started.to_string_lossy())));
}

fn say_if_unused(started: &str) {
    let Some((pid, since)) = parsed(started) else { return };
    // Programs that this one has started are other processes.
    if pid != std::process::id() || pagewire_watching::checkpoint::has_begun() {
        return;
    }
    let Ok(Settings { checkpoint: Some(chosen), .. }) = Settings::from_environment() else { return };
    if !has_folder_since(&chosen.folder, since) {
        say(format_args!(
            "no region was saved to {}: neither this program nor one that it has started has registered memory with verbs. A program of \
             the native interface saves by its own calls (pw_checkpoint_open)",
            chosen.folder.display()
        ));
    }
}

fn parsed(started: &str) -> Option<(u32, i64)> {
    let (pid, since) = started.split_once(':')?;
    Some((pid.parse().ok()?, since.parse().ok()?))
}

/// Whether a process has made its folder there since a second. Where that cannot be seen, nothing is said.
fn has_folder_since(folder: &Path, since: i64) -> bool {
    let Ok(entries) = fs::read_dir(folder) else { return true };
    entries
        .flatten()
        .any(|entry| entry.metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.ctime() >= since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_count_from_the_start_on() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), b"").unwrap();
        assert!(!has_folder_since(folder.path(), 0));
        fs::create_dir(folder.path().join("program.7")).unwrap();
        assert!(has_folder_since(folder.path(), 0));
        assert!(!has_folder_since(folder.path(), i64::MAX));
        assert!(has_folder_since(&folder.path().join("absent"), 0));
        assert_eq!((parsed("7:9"), parsed("7"), parsed("a:9")), (Some((7, 9)), None, None));
    }
}
