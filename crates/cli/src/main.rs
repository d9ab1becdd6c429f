//! The `pagewire` command: reads the command line and hands over to the library.
#![forbid(unsafe_code)]

use anstyle::{AnsiColor, Style};
use clap::Parser;
use pagewire_cli::arguments::{Arguments, Command, ProbeArguments, completion_script};
use pagewire_cli::interrupt::Interrupted;
use pagewire_cli::{bench, checkpoint, demo, doctor, explain, probe, reproduce, run, serve, top, transfer};
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "probe") {
        let arguments = ProbeArguments::parse_from(std::env::args_os().skip(1));
        return conclude(probe::serve(arguments.kind, &arguments.operands).map(|()| 0), 1);
    }
    let line: Vec<_> = std::env::args_os().collect();
    let arguments = match Arguments::of(&line) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        // Help and version, which may be redirected to where there is no room.
        Err(shown) => return conclude(shown.print().map(|()| 0).map_err(Into::into), 1),
    };
    // `run` reserves 125 for itself, so that a caller can tell Pagewire's failure from the program's.
    let failure = if matches!(arguments.command, Command::Run(_)) { run::FAILURE } else { 1 };
    conclude(dispatch(arguments.command), failure)
}

/// The exit status; `failure` is that of an error, which is told.
fn conclude(result: anyhow::Result<u8>, failure: u8) -> ExitCode {
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(Interrupted { signal }) = error.downcast_ref() {
                return ExitCode::from(128 + signal);
            }
            let style = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
            pagewire_cli::tell!("{style}pagewire:{style:#} {error:#}");
            if let Some(limit) = pagewire_cli::limit_in_the_way(&error) {
                pagewire_cli::tell!("{style}pagewire:{style:#} {limit}");
            }
            ExitCode::from(failure)
        }
    }
}

fn dispatch(command: Command) -> anyhow::Result<u8> {
    // `run` leaves its memory to the program, and the doctor says what is too little.
    if !matches!(command, Command::Run(_) | Command::Doctor(_)) {
        doctor::require_memory()?;
    }
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Top(arguments) => top::top(&arguments),
        Command::Serve(arguments) => serve::serve(&arguments),
        Command::Get(arguments) => transfer::get(&arguments),
        Command::Put(arguments) => transfer::put(&arguments),
        Command::Checkpoint(arguments) => checkpoint::checkpoint(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Reproduce(arguments) => reproduce::reproduce(&arguments),
        Command::Completions { shell } => {
            std::io::Write::write_all(&mut std::io::stdout(), &completion_script(shell))?;
            Ok(0)
        }
    }
}

/// A reader that has seen enough (`pagewire doctor | head`) is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
}
