//! A place from which an unprivileged user can run this installation, and leave counters in.
//!
//! Root's own directories are often closed to others (a checkout under /root); then a copy is made for the time.
//! Nobody but the caller can make, replace or remove files in it: a link in the place of one would have programs write to, or
//! the caller read, what it points to.

use crate::running::hosts::{Host, NOBODY, programs_become_nobody};
use crate::running::install::{HELPERS, Installation, VERBS_NAMES};
use crate::running::pair::Running;
use anyhow::{Context, Result};
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The beginning of the names of places.
const PREFIX: &str = "pagewire-stage-";

/// The file in a place that is locked while it is used.
const LOCK: &str = "lock";

/// A place as young as this may be about to be locked.
const JUST_MADE: Duration = Duration::from_secs(2);

/// The place; dropping it removes it, and the next one to be made removes those of processes that were killed.
#[derive(Debug)]
pub struct Stage {
    /// The command, in a place where everybody may run it.
    pub command: PathBuf,
    /// The helper programs.
    pub helpers: PathBuf,
    directory: TempDir,
    /// Held for as long as the place is used: one whose lock can be had was left behind.
    _lock: Flock<File>,
}

impl Stage {
    /// Prepares `installation` for programs on [`Host`]s.
    ///
    /// # Errors
    /// If no temporary directory can be had, or the installation cannot be copied.
    pub fn prepare(installation: &Installation) -> Result<Stage> {
        let temporary = std::env::temp_dir();
        remove_left_behind(&temporary);
        let directory = new_folder(&temporary)?;
        let lock = File::create_new(directory.path().join(LOCK))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno)?;
        // Another user's programs pass through it to the copy and to their counters.
        let mode = if programs_become_nobody() { 0o755 } else { 0o700 };
        fs::set_permissions(directory.path(), Permissions::from_mode(mode))?;
        let mut stage = Stage {
            command: installation.command.clone(),
            helpers: installation.helpers.clone(),
            directory,
            _lock: lock,
        };
        if !stage.is_open(installation)? {
            stage.copy(installation).context("copying the installation to where others may run it")?;
        }
        Ok(stage)
    }

    /// The directory of the engine.
    ///
    /// # Errors
    /// If it is not there.
    pub fn library(&self) -> Result<PathBuf> {
        Ok(Installation::of(&self.command)?.library)
    }

    /// A file of the given name in the place; it does not exist yet. Only the caller can make it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Makes an empty file of the given name, which programs on [`Host`]s can write, as for their counters.
    ///
    /// # Errors
    /// If it is there already, or cannot be made.
    pub fn writable_file(&self, name: &str) -> Result<PathBuf> {
        let path = self.file(name);
        let made = || -> io::Result<()> {
            let file = File::create_new(&path)?;
            if programs_become_nobody() {
                // In a user namespace they stay who the caller is: the owner.
                fchown(&file, None, Some(NOBODY))?;
                file.set_permissions(Permissions::from_mode(0o660))
            } else {
                file.set_permissions(Permissions::from_mode(0o600))
            }
        };
        made().with_context(|| format!("making {}", path.display()))?;
        Ok(path)
    }

    fn is_open(&self, installation: &Installation) -> Result<bool> {
        let mut command = Host::here().command("sh");
        command.args(["-c", "test -x \"$0\" && test -r \"$1\"/libpagewire.so.1"]);
        command.arg(&installation.command).arg(&installation.library);
        Ok(Running::start(command)?.wait_until(Instant::now() + Duration::from_secs(5)).success())
    }

    fn copy(&mut self, installation: &Installation) -> Result<()> {
        let prefix = self.directory.path().join("copy");
        fs::create_dir_all(prefix.join("bin"))?;
        let name = installation.command.file_name().context("the command has no name")?;
        fs::copy(&installation.command, prefix.join("bin").join(name))?;
        copy_files(&installation.library, &prefix.join("lib"), "lib")?;
        copy_files(&installation.library.join(VERBS_NAMES), &prefix.join("lib").join(VERBS_NAMES), "lib")?;
        copy_files(&installation.helpers, &prefix.join(HELPERS), "")?;
        self.command = prefix.join("bin").join(name);
        self.helpers = prefix.join(HELPERS);
        Ok(())
    }
}

/// A folder in `temporary`, for a place.
fn new_folder(temporary: &Path) -> Result<TempDir> {
    let made = tempfile::Builder::new().prefix(PREFIX).tempdir_in(temporary);
    made.with_context(|| {
        format!("no folder can be made in {} (TMPDIR names another place)", temporary.display())
    })
}

/// Removes the places in `temporary` whose processes were killed: nobody holds their locks. What cannot be removed, as another
/// user's, stays.
fn remove_left_behind(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_place = entry.file_name().to_string_lossy().starts_with(PREFIX);
        // Who has just made one may not hold its lock yet.
        let is_old = entry
            .metadata()
            .and_then(|about| about.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age > JUST_MADE));
        if !is_place || !is_old || entry.metadata().map_or(true, |about| about.uid() != geteuid().as_raw()) {
            continue;
        }
        let is_held = File::open(entry.path().join(LOCK))
            .is_ok_and(|lock| Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_err());
        if !is_held {
            if let Err(error) = fs::remove_dir_all(entry.path()) {
                crate::tell!("pagewire: {} was left behind: {error}", entry.path().display());
            }
        }
    }
}

/// Copies the files of one directory whose names begin with `start`, links as links; a directory that does not exist
/// has none.
fn copy_files(from: &Path, to: &Path, start: &str) -> Result<()> {
    fs::create_dir_all(to)?;
    if !from.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if !entry.file_name().to_string_lossy().starts_with(start) {
            continue;
        } else if entry.file_type()?.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a process that was killed nobody holds the lock; that of one that lives stays.
    #[test]
    fn place_that_cannot_be_made_names_variable() {
        let said = format!("{:#}", new_folder(Path::new("/no/such/folder")).expect_err("no folder"));
        assert!(said.contains("in /no/such/folder (TMPDIR names another place)"), "{said}");
    }

    #[test]
    fn what_was_left_behind_is_removed() {
        let temporary = tempfile::tempdir().expect("a directory");
        let place = |name: &str| {
            let place = temporary.path().join(name);
            fs::create_dir(&place).expect("made");
            let lock = File::create_new(place.join(LOCK)).expect("made");
            (place, lock)
        };
        let (left, _) = place("pagewire-stage-left");
        let (used, lock) = place("pagewire-stage-used");
        let (other, _) = place("another");
        let lock =
            Flock::lock(lock, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| errno).expect("free");
        remove_left_behind(temporary.path());
        assert!(left.exists(), "it may have been made just now");
        std::thread::sleep(JUST_MADE + Duration::from_millis(100));
        remove_left_behind(temporary.path());
        assert!(!left.exists() && used.exists() && other.exists());
        drop(lock);
        remove_left_behind(temporary.path());
        assert!(!used.exists());
    }

    #[test]
    fn only_the_caller_makes_files_in_the_place_and_programs_append_to_them() {
        // The shell stands for the command; as there is no engine beside it, it is copied.
        let directory = tempfile::tempdir().expect("a directory");
        let installation = Installation {
            command: "/bin/sh".into(),
            library: directory.path().to_path_buf(),
            helpers: directory.path().join("helpers"),
        };
        let stage = Stage::prepare(&installation).expect("a place");
        let about = stage.directory.path().metadata().expect("it is there");
        let expected = if programs_become_nobody() { 0o755 } else { 0o700 };
        assert_eq!((about.mode() & 0o7777, about.uid()), (expected, nix::unistd::geteuid().as_raw()));

        let file = stage.writable_file("0-server.jsonl").expect("a file");
        let about = file.metadata().expect("it is there");
        assert_eq!(about.mode() & 0o7007, 0, "it is closed to others");
        assert!(stage.writable_file("0-server.jsonl").is_err(), "what is there is not taken");
        let shell = |script: &str| {
            let mut command = Host::here().command("sh");
            command.args(["-c", script]).arg(&file);
            Running::start(command).expect("sh").wait_until(Instant::now() + Duration::from_secs(60))
        };
        let appended = shell("echo counters >> \"$0\"");
        assert!(appended.success(), "{}", appended.output);
        assert_eq!(fs::read_to_string(&file).expect("readable"), "counters\n");
        if programs_become_nobody() {
            assert!(!shell("rm -f \"$0\" && ln -s /etc/passwd \"$0\"").success());
            assert!(file.symlink_metadata().expect("it is there").is_file());
        }
    }
}
