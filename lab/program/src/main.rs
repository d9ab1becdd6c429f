//! `pagewire bench` and `pagewire reproduce`: reads the command line and hands over to the library.
#![forbid(unsafe_code)]

use clap::{CommandFactory, Parser};
use pagewire_cli::doctor;
use pagewire_cli::exit::{conclude, conclude_unparsed};
use pagewire_cli::external::{DESCRIBE, describe};
use pagewire_lab::arguments::{Arguments, Command, ProbeArguments};
use pagewire_lab::{bench, probe, reproduce};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(word) if word == "probe" => {
            let arguments = ProbeArguments::parse_from(std::env::args_os().skip(1));
            return conclude(probe::serve(arguments.kind, &arguments.operands).map(|()| 0), 1);
        }
        Some(word) if word == DESCRIBE => {
            let text = describe(Arguments::command());
            return conclude(writeln!(std::io::stdout(), "{text}").map(|()| 0).map_err(Into::into), 1);
        }
        _ => {}
    }
    // Before the command line is read, which takes memory, too.
    if let Err(error) = doctor::require_memory() {
        return conclude(Err(error), 1);
    }
    match Arguments::try_parse() {
        Ok(arguments) => conclude(dispatch(&arguments.command), 1),
        Err(shown) => conclude_unparsed(&shown),
    }
}

fn dispatch(command: &Command) -> anyhow::Result<u8> {
    match command {
        Command::Bench(arguments) => bench::bench(arguments),
        Command::Reproduce(arguments) => reproduce::reproduce(arguments),
    }
}
