//! How a command ends: what it says of an error, and its exit status. Programs of further commands end alike ([`crate::external`]).

use crate::interrupt::Interrupted;
use anstyle::{AnsiColor, Style};
use std::process::ExitCode;

/// The exit status; `failure` is that of an error, which is printed.
pub fn conclude(result: anyhow::Result<u8>, failure: u8) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(Interrupted { signal }) = error.downcast_ref() {
                return ExitCode::from(128 + signal);
            }
            let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
            crate::tell!("{style}pagewire:{style:#} {error:#}");
            if let Some(limit) = crate::limit_in_the_way(&error) {
                crate::tell!("{style}pagewire:{style:#} {limit}");
            }
            ExitCode::from(failure)
        }
    }
}

/// Prints what clap has in place of arguments: an error, or help and version.
pub fn conclude_unparsed(shown: &clap::Error) -> ExitCode {
    if shown.use_stderr() {
        shown.exit();
    }
    // Help and version may be redirected to where there is no room.
    conclude(shown.print().map(|()| 0).map_err(Into::into), 1)
}

/// A reader that has seen enough (`pagewire doctor | head`) is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
