//! How C sources of the tests are compiled; the tests of other crates include this file.

use std::path::Path;
use std::process::Command;

/// A command that compiles `sources` into `program`. What to link with is to be added, and other options; of two levels of
/// optimisation the last counts.
pub fn command(sources: impl IntoIterator<Item = impl AsRef<Path>>, program: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    command.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]);
    command.args(["-O2", "-g", "-o"]).arg(program);
    sources.into_iter().for_each(|source| {
        command.arg(source.as_ref());
    });
    command.arg("-lpthread");
    command
}
