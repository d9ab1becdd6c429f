//! The manual pages and the command line say the same.

#[path = "../../../crates/cli/tests/manual/pages.rs"]
mod pages;

use clap::CommandFactory;
use pages::{check_ends, check_options, check_values, commands, listed, names};
use pagewire_lab::arguments::Arguments;

#[test]
fn pages_say_what_the_command_line_says() {
    let commands = commands(&Arguments::command());
    check_options(&commands);
    check_values(&commands);
    check_ends(&commands);
}

#[test]
fn overview_lists_the_commands_of_both_programs() {
    let mut expected = names(&pagewire_cli::arguments::Arguments::command());
    expected.extend(names(&Arguments::command()));
    expected.insert("help".to_owned());
    assert_eq!(listed(), expected);
}
