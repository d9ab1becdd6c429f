//! Where the parts of an installation lie, seen from the command's own file.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The environment variable that names the directory of libpagewire.so.1, before any other place.
pub const LIBRARY_VARIABLE: &str = "PAGEWIRE_LIB";

/// The engine's file name.
pub const LIBRARY: &str = "libpagewire.so.1";

/// An installation, found from the running command: `bin/pagewire`, `lib/`, `libexec/pagewire/`.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The command's own file.
    pub command: PathBuf,
    /// The directory that holds libpagewire.so.1.
    pub library: PathBuf,
    /// The directory of the helper programs; it need not exist.
    pub helpers: PathBuf,
}

impl Installation {
    /// Finds the installation that the running command belongs to.
    ///
    /// # Errors
    /// If libpagewire.so.1 is neither in `$PAGEWIRE_LIB` nor in `../lib` beside the command.
    pub fn find() -> Result<Installation> {
        let command = std::env::current_exe().context("cannot find the command's own file")?;
        Installation::of(&command)
    }

    /// Finds the installation that the file `command` (`PREFIX/bin/pagewire`) belongs to.
    ///
    /// # Errors
    /// As [`Installation::find`].
    pub fn of(command: &Path) -> Result<Installation> {
        let prefix = command.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let library = match std::env::var_os(LIBRARY_VARIABLE).filter(|directory| !directory.is_empty()) {
            Some(directory) => std::path::absolute(PathBuf::from(directory))?,
            None => prefix.join("lib"),
        };
        let engine = library.join(LIBRARY);
        if !engine.is_file() {
            bail!(
                "{} is missing: build it (make build), or name its directory in {LIBRARY_VARIABLE}",
                engine.display()
            );
        }
        // The loader separates LD_PRELOAD by colons and spaces and knows no quoting.
        if library.to_str().is_none_or(|text| text.contains([':', ' ', ';', '$'])) {
            bail!("{}: the loader cannot preload from a directory of that name", library.display());
        }
        let helpers = prefix.join("libexec/pagewire");
        Ok(Installation { command: command.to_path_buf(), library, helpers })
    }
}

/// The first executable file called `program` in `$PATH`.
pub fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    first_executable(program, std::env::split_paths(&path))
}

/// The first executable file called `program` in `$PATH` or, as for tools of the administrator, in /usr/sbin and
/// /sbin.
pub fn find_program(program: &str) -> Option<PathBuf> {
    let places = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    in_path(program).or_else(|| first_executable(program, places))
}

fn first_executable(program: &str, directories: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    directories.into_iter().map(|directory| directory.join(program)).find(|file| is_executable(file))
}

/// Whether `file` is a regular file that somebody may execute.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
