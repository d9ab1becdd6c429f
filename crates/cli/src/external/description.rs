//! A command line as JSON: what a program says of its commands, and what help and completions need of them.
//!
//! It has names, texts and values. What is checked stays with the program, which parses its own command line.

use anyhow::Result;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, Command, ValueHint};
use serde::{Deserialize, Serialize};

/// A command.
#[derive(Serialize, Deserialize)]
struct CommandText {
    name: String,
    about: String,
    arguments: Vec<ArgumentText>,
}

/// An option of it, or a word.
#[derive(Serialize, Deserialize)]
struct ArgumentText {
    id: String,
    /// The option's name; a word has none.
    long: Option<String>,
    help: String,
    is_required: bool,
    /// Whether it may be given several times.
    is_repeated: bool,
    /// How many values it takes: of a flag none.
    values: (usize, usize),
    value_names: Vec<String>,
    possible_values: Vec<ValueText>,
    value_hint: String,
    conflicts: Vec<String>,
}

/// A value that an argument may have.
#[derive(Serialize, Deserialize)]
struct ValueText {
    name: String,
    help: Option<String>,
}

/// What a program prints that is asked for its commands, the subcommands of `root`: one line.
pub fn describe(mut root: Command) -> String {
    root.build();
    let commands = root.get_subcommands().filter(|command| command.get_name() != "help");
    let texts: Vec<CommandText> = commands.map(CommandText::of).collect();
    // Texts and numbers alone can always be written.
    serde_json::to_string(&texts).unwrap_or_default()
}

/// The commands that a program has printed.
///
/// # Errors
/// If it is no such text.
pub fn described(printed: &str) -> Result<Vec<Command>> {
    // Warnings of the loader, or of the program, may stand before it.
    let line = printed.trim().lines().last().unwrap_or_default();
    let texts: Vec<CommandText> = serde_json::from_str(line)?;
    Ok(texts.into_iter().map(CommandText::command).collect())
}

impl CommandText {
    fn of(command: &Command) -> CommandText {
        // Each command has these, whoever builds it.
        let of_all = |argument: &&Arg| ["help", "version"].contains(&argument.get_id().as_str());
        let arguments = command.get_arguments().filter(|argument| !of_all(argument));
        CommandText {
            name: command.get_name().to_owned(),
            about: command.get_about().map(ToString::to_string).unwrap_or_default(),
            arguments: arguments.map(|argument| ArgumentText::of(command, argument)).collect(),
        }
    }

    fn command(self) -> Command {
        let arguments = self.arguments.into_iter().map(ArgumentText::argument);
        Command::new(self.name).about(self.about).args(arguments)
    }
}

impl ArgumentText {
    fn of(command: &Command, argument: &Arg) -> ArgumentText {
        let values = argument.get_num_args().unwrap_or_default();
        let takes_values = argument.get_action().takes_values();
        // A flag's own values, true and false, are never written.
        let possible =
            argument.get_possible_values().into_iter().filter(|value| takes_values && !value.is_hide_set());
        let conflicts = command.get_arg_conflicts_with(argument).into_iter();
        ArgumentText {
            id: argument.get_id().to_string(),
            long: argument.get_long().map(str::to_owned),
            help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
            is_required: argument.is_required_set(),
            is_repeated: matches!(argument.get_action(), ArgAction::Append),
            values: (values.min_values(), values.max_values()),
            value_names: argument
                .get_value_names()
                .unwrap_or_default()
                .iter()
                .map(ToString::to_string)
                .collect(),
            possible_values: possible
                .map(|value| ValueText {
                    name: value.get_name().to_owned(),
                    help: value.get_help().map(ToString::to_string),
                })
                .collect(),
            value_hint: format!("{:?}", argument.get_value_hint()),
            conflicts: conflicts.map(|other| other.get_id().to_string()).collect(),
        }
    }

    fn argument(self) -> Arg {
        let action = match (self.values.1, self.is_repeated) {
            (0, _) => ArgAction::SetTrue,
            (_, true) => ArgAction::Append,
            _ => ArgAction::Set,
        };
        let mut argument =
            Arg::new(self.id).help(self.help).action(action).conflicts_with_all(self.conflicts);
        if let Some(long) = self.long {
            argument = argument.long(long);
        }
        if self.values.1 == 0 {
            return argument;
        }
        argument = argument.required(self.is_required).num_args(self.values.0..=self.values.1);
        if !self.value_names.is_empty() {
            argument = argument.value_names(self.value_names);
        }
        if self.possible_values.is_empty() {
            return argument.value_hint(self.value_hint.parse().unwrap_or(ValueHint::Unknown));
        }
        let values = self.possible_values.into_iter().map(ValueText::value);
        argument.value_parser(PossibleValuesParser::new(values))
    }
}

impl ValueText {
    fn value(self) -> PossibleValue {
        let value = PossibleValue::new(self.name);
        match self.help {
            Some(help) => value.help(help),
            None => value,
        }
    }
}
