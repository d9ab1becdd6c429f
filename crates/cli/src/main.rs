//! The `pagewire` command: reads the command line and hands over to the library.
#![forbid(unsafe_code)]

use clap::Parser;
use pagewire_cli::arguments::{Arguments, Command, ProbeArguments, completion_script};
use pagewire_cli::exit::{conclude, conclude_unparsed};
use pagewire_cli::external::External;
use pagewire_cli::{cdi, checkpoint, demo, doctor, explain, fail_each, probe, run, serve, top, transfer};
use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == "probe") {
        let arguments = ProbeArguments::parse_from(std::env::args_os().skip(1));
        return conclude(probe::serve(arguments.kind, &arguments.operands).map(|()| 0), 1);
    }
    if std::env::args_os().nth(1).is_some_and(|word| word == fail_each::supervisor::WORD) {
        return conclude(fail_each::supervisor::serve().map(|()| 0), 1);
    }
    let line: Vec<_> = std::env::args_os().collect();
    if let Some(external) = External::asked_for(&line) {
        return conclude(Err(external.execute()), 1);
    }
    let arguments = match Arguments::of(&line) {
        Ok(arguments) => arguments,
        Err(shown) => return conclude_unparsed(&shown),
    };
    // `run` reserves 125 for itself, so that a caller can tell Pagewire's failure from the program's.
    let failure = match arguments.command {
        Command::Run(_) => run::FAILURE,
        Command::FailEach(_) => fail_each::FAILURE,
        _ => 1,
    };
    conclude(dispatch(arguments.command), failure)
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
        Command::FailEach(arguments) => fail_each::fail_each(&arguments),
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Cdi(arguments) => cdi::cdi(&arguments),
        Command::Completions { shell } => {
            std::io::Write::write_all(&mut std::io::stdout(), &completion_script(shell))?;
            Ok(0)
        }
    }
}
