//! What `pagewire` shows of the commands of this program is what they are.

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

/// The completion script of `pagewire` with these commands.
fn script(shell: Shell, commands: Vec<Command>) -> String {
    let mut all = Command::new("pagewire").version("1").propagate_version(true).subcommands(commands);
    let mut script = Vec::new();
    generate(shell, &mut all, "pagewire", &mut script);
    String::from_utf8(script).unwrap()
}

#[test]
fn described_commands_complete_as_the_commands_themselves() {
    let own: Vec<Command> =
        pagewire_lab::arguments::Arguments::command().get_subcommands().cloned().collect();
    let text = pagewire_cli::external::describe(pagewire_lab::arguments::Arguments::command());
    let described = pagewire_cli::external::described(&text).unwrap();
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
        assert_eq!(script(shell, described.clone()), script(shell, own.clone()), "{shell}");
    }
}

/// As `pagewire` asks it.
#[test]
fn program_describes_its_commands() {
    let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_pagewire-lab"));
    let printed = program.arg(pagewire_cli::external::DESCRIBE).output().unwrap();
    let commands = pagewire_cli::external::described(&String::from_utf8(printed.stdout).unwrap()).unwrap();
    let names: Vec<&str> = commands.iter().map(Command::get_name).collect();
    assert_eq!(names, ["bench", "reproduce"]);
}
