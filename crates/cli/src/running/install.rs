//! Where the parts of an installation lie, seen from the command's own file.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The environment variable that names the directory of libpagewire.so.1, before any other place.
pub const LIBRARY_VARIABLE: &str = "PAGEWIRE_LIB";

/// The engine's file name.
pub const LIBRARY: &str = "libpagewire.so.1";

/// The file that gives programs the registered heap for malloc(3).
pub const MALLOC_LIBRARY: &str = "libpagewire-malloc.so.1";

/// The directory beside the engine in which it has the names of libibverbs.
pub const VERBS_NAMES: &str = "pagewire";

/// The folder of the programs that the command starts, in the folder of an installation.
pub const HELPERS: &str = "libexec/pagewire";

/// The library's folder in a distribution's package, of which libraries of other packages see nothing.
const SYSTEM_LIBRARY: &str = "lib/pagewire";

/// The folder of a Python package that carries the library, beside those of other packages.
const PYTHON_LIBRARY: &str = "pagewire/lib";

/// An installation, found from the running command: `bin/pagewire`, `lib/`, `libexec/pagewire/`.
///
/// A wheel has its files elsewhere: pip puts the command into `bin/`, and the library into the folder of Python's packages.
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
    /// If libpagewire.so.1 is neither in `$PAGEWIRE_LIB`, nor in `../lib` beside the command, nor in a Python package of this version there.
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
            None => [prefix.join("lib"), prefix.join(SYSTEM_LIBRARY)]
                .into_iter()
                .find(|folder| folder.join(LIBRARY).is_file())
                .or_else(|| python_library(prefix))
                .unwrap_or_else(|| prefix.join("lib")),
        };
        let engine = library.join(LIBRARY);
        if !engine.is_file() {
            bail!(
                "{} is missing: install Pagewire again (pip, apt or make install), or name its directory in {LIBRARY_VARIABLE}",
                engine.display()
            );
        }
        if let Some(obstacle) = obstacle(&library) {
            bail!(
                "{}: its name has {obstacle}, and the loader (ld.so(8)) cannot preload from such a directory: rename it, install \
                 Pagewire elsewhere, or name a link to it in {LIBRARY_VARIABLE} (ln -s '{}' ~/pagewire-lib; export \
                 {LIBRARY_VARIABLE}=~/pagewire-lib)",
                library.display(),
                library.display(),
            );
        }
        Ok(Installation { command: command.to_path_buf(), library, helpers: prefix.join(HELPERS) })
    }

    /// Finds the installation that the running program belongs to, which is one of its [`HELPERS`].
    ///
    /// # Errors
    /// As [`Installation::find`], or if the installation has no command.
    pub fn of_helper() -> Result<Installation> {
        let program = std::env::current_exe().context("cannot find the program's own file")?;
        let folder = program.parent().unwrap_or(Path::new("/"));
        let prefix =
            folder.ancestors().nth(Path::new(HELPERS).components().count()).unwrap_or(Path::new("/"));
        let installation = Installation::of(&prefix.join("bin/pagewire"))?;
        if !is_executable(&installation.command) {
            bail!(
                "{} is missing: {} is to be installed in {HELPERS} beside it (make build)",
                installation.command.display(),
                program.display()
            );
        }
        Ok(installation)
    }
}

/// The library's folder in a Python package of this command's version: of an environment (`lib/python3.N/site-packages`), of a
/// distribution's Python (`dist-packages`), or of `pip install --target` (the prefix itself).
///
/// An environment of two Pythons may have two versions, so pip's own record of the version decides.
fn python_library(prefix: &Path) -> Option<PathBuf> {
    let record = concat!("pagewire-", env!("CARGO_PKG_VERSION"), ".dist-info");
    let of = |packages: PathBuf| {
        let library = packages.join(PYTHON_LIBRARY);
        (packages.join(record).is_dir() && library.join(LIBRARY).is_file()).then_some(library)
    };
    let pythons = ["lib", "lib64"].into_iter().flat_map(|folder| {
        let entries = std::fs::read_dir(prefix.join(folder)).into_iter().flatten().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
    });
    let packages =
        pythons.flat_map(|python| ["site-packages", "dist-packages"].map(|name| python.path().join(name)));
    packages.chain([prefix.to_path_buf()]).find_map(of)
}

/// The folder of the programs that the running command starts; it need not exist.
///
/// # Errors
/// If the command's own file cannot be found.
pub fn helper_folder() -> Result<PathBuf> {
    let command = std::env::current_exe().context("cannot find the command's own file")?;
    Ok(command.parent().and_then(Path::parent).unwrap_or(Path::new("/")).join(HELPERS))
}

/// What in a directory's name keeps the loader from preloading a file of it: it separates LD_PRELOAD by colons and spaces,
/// LD_LIBRARY_PATH by semicolons, too, expands what follows a dollar sign, and knows no quoting.
fn obstacle(directory: &Path) -> Option<String> {
    let text = directory.to_string_lossy();
    text.chars().find_map(|character| match character {
        ' ' => Some("a space".to_owned()),
        ':' => Some("a colon (:)".to_owned()),
        ';' => Some("a semicolon (;)".to_owned()),
        '$' => Some("a dollar sign ($)".to_owned()),
        _ => None,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wheel_is_found_by_record_of_version() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |folder: &Path, version: &str| {
            std::fs::create_dir_all(folder.join(PYTHON_LIBRARY)).expect("made");
            std::fs::create_dir_all(folder.join(format!("pagewire-{version}.dist-info"))).expect("made");
            std::fs::write(folder.join(PYTHON_LIBRARY).join(LIBRARY), "").expect("written");
        };
        let of = |prefix: &Path| Installation::of(&prefix.join("bin/pagewire")).map(|found| found.library);
        let own = env!("CARGO_PKG_VERSION");
        for (name, packages) in [
            ("environment", "lib/python3.11/site-packages"),
            ("lib64", "lib64/python3.9/site-packages"),
            ("distribution", "lib/python3/dist-packages"),
            ("target", ""),
        ] {
            let prefix = directory.path().join(name);
            put(&prefix.join("lib/python3.10/site-packages"), "0.0.1");
            assert!(of(&prefix).is_err(), "{name}: another version");
            put(&prefix.join(packages), own);
            assert_eq!(of(&prefix).expect(name), prefix.join(packages).join(PYTHON_LIBRARY));
        }
        let prefix = directory.path().join("system");
        std::fs::create_dir_all(prefix.join(SYSTEM_LIBRARY)).expect("made");
        std::fs::write(prefix.join(SYSTEM_LIBRARY).join(LIBRARY), "").expect("written");
        assert_eq!(of(&prefix).expect("system"), prefix.join(SYSTEM_LIBRARY));
    }

    #[test]
    fn the_character_that_the_loader_cannot_take_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, said) in [
            ("a b", Some("a space")),
            ("a:b", Some("a colon (:)")),
            ("a;b", Some("a semicolon (;)")),
            ("a$b", Some("a dollar sign ($)")),
            ("\u{fc}ml\u{e4}ut", None),
        ] {
            let prefix = directory.path().join(name);
            std::fs::create_dir_all(prefix.join("lib")).expect("made");
            std::fs::write(prefix.join("lib").join(LIBRARY), "").expect("written");
            let found = Installation::of(&prefix.join("bin/pagewire"));
            match (found, said) {
                (Ok(_), None) => {}
                (Err(error), Some(said)) => {
                    let text = error.to_string();
                    assert!(text.contains(&format!("its name has {said}, ")), "{text}");
                    assert!(text.contains("ln -s ") && text.contains(LIBRARY_VARIABLE), "{text}");
                }
                (found, _) => panic!("{name}: {found:?}"),
            }
        }
    }
}
