//! A place from which an unprivileged user can run this installation, and leave counters in.
//!
//! Root's own directories are often closed to others (a checkout under /root); then a copy is made for the time.

use crate::hosts::Host;
use crate::install::Installation;
use crate::pair::Running;
use anyhow::{Context, Result};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The place; dropping it removes it.
#[derive(Debug)]
pub struct Stage {
    /// The command, in a place where everybody may run it.
    pub command: PathBuf,
    /// The helper programs.
    pub helpers: PathBuf,
    directory: TempDir,
}

impl Stage {
    /// Prepares `installation` for programs on [`Host`]s.
    ///
    /// # Errors
    /// If no temporary directory can be had, or the installation cannot be copied.
    pub fn prepare(installation: &Installation) -> Result<Stage> {
        let directory = tempfile::Builder::new().prefix("pagewire-").tempdir()?;
        // Programs run as another user append their counters here.
        fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
        let mut stage =
            Stage { command: installation.command.clone(), helpers: installation.helpers.clone(), directory };
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

    /// A file of the given name in the place; it does not exist yet.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
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
        copy_files(&installation.helpers, &prefix.join("libexec/pagewire"), "")?;
        self.command = prefix.join("bin").join(name);
        self.helpers = prefix.join("libexec/pagewire");
        Ok(())
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
