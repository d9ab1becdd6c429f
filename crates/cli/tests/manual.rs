//! The manual pages and the command line say the same.

use clap::{Command, CommandFactory};
use pagewire_cli::arguments::Arguments;
use std::collections::BTreeSet;
use std::path::Path;

fn page(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../man").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The text of the section `title`.
fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let start = format!(".Sh {title}\n");
    let from = page.find(&start).unwrap_or_else(|| panic!("no section {title}")) + start.len();
    let rest = &page[from..];
    &rest[..rest.find("\n.Sh ").map_or(rest.len(), |end| end + 1)]
}

/// The long options behind `macro_name`, each written `Fl -name`.
fn options(text: &str, macro_name: &str) -> BTreeSet<String> {
    let start = format!(".{macro_name} Fl -");
    text.lines()
        .filter_map(|line| line.strip_prefix(&start)?.split_whitespace().next())
        .filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()))
        .map(str::to_owned)
        .collect()
}

/// The commands that have a page of their own.
fn commands() -> Vec<Command> {
    Arguments::command()
        .get_subcommands()
        .filter(|command| !command.is_hide_set() && command.get_name() != "completions")
        .cloned()
        .collect()
}

#[test]
fn options_are_those_of_the_command_line() {
    for command in commands() {
        let page = page(&format!("pagewire-{}.1", command.get_name()));
        let expected: BTreeSet<String> =
            command.get_opts().filter_map(|option| option.get_long()).map(str::to_owned).collect();
        assert!(!expected.is_empty());
        assert_eq!(options(section(&page, "SYNOPSIS"), "Op"), expected, "synopsis of {}", command.get_name());
        assert_eq!(
            options(section(&page, "DESCRIPTION"), "It"),
            expected,
            "options of {}",
            command.get_name()
        );
    }
}

#[test]
fn values_of_options_are_described() {
    for command in commands() {
        let page = page(&format!("pagewire-{}.1", command.get_name()));
        for argument in command.get_arguments() {
            // A flag's own values, true and false, are never written.
            let flag = !argument.get_action().takes_values();
            for value in argument.get_possible_values().iter().filter(|_| !flag) {
                // bench measures two of the paths; all of them is the same as no choice.
                if command.get_name() == "bench" && value.get_name() == "auto" {
                    continue;
                }
                // Some share a line: ".Cm 10 , 20".
                let mut lines = page
                    .lines()
                    .filter_map(|line| line.strip_prefix(".Cm ").or_else(|| line.strip_prefix(".It Cm ")));
                let described =
                    lines.any(|line| line.split_whitespace().any(|word| word == value.get_name()));
                assert!(described, "{} of {}", value.get_name(), command.get_name());
            }
        }
    }
}

/// What explain, --stats and top count has a place in the manual, under the name that it has in JSON.
#[test]
fn every_counter_is_described() {
    let page = page("pagewire-explain.1");
    let described: BTreeSet<&str> = section(&page, "COUNTERS")
        .lines()
        .filter_map(|line| line.strip_prefix(".Li ").or_else(|| line.strip_prefix(".It Li ")))
        .flat_map(str::split_whitespace)
        .collect();
    let of_faults = pagewire_fabric::FaultCounters::default();
    let counters = pagewire_fabric::Counters::default().all().collect::<Vec<_>>();
    let counters = counters.into_iter().chain(pagewire_nic::ProtocolCounters::default().all());
    let counters = counters.chain(pagewire_nic::FaultCounts::default().all()).chain(of_faults.all());
    let names: BTreeSet<&str> = counters.map(|(name, _)| name).collect();
    assert!(names.len() > 40, "{names:?}");
    let missing: Vec<&&str> = names.difference(&described).collect();
    assert!(missing.is_empty(), "not in pagewire-explain(1): {missing:?}");
}

#[test]
fn every_command_is_in_the_overview() {
    let overview = page("pagewire.1");
    let listed: BTreeSet<&str> = section(&overview, "DESCRIPTION")
        .lines()
        .filter_map(|line| line.strip_prefix(".It Ic ")?.split_whitespace().next())
        .collect();
    let root = Arguments::command();
    let mut expected: BTreeSet<&str> =
        root.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name).collect();
    expected.insert("help");
    assert_eq!(listed, expected);
}

#[test]
fn every_page_has_an_exit_status_and_an_example_and_so_has_the_help() {
    for command in commands() {
        let page = page(&format!("pagewire-{}.1", command.get_name()));
        assert!(section(&page, "EXIT STATUS").contains('2'), "{}", command.get_name());
        let example = format!("pagewire {}", command.get_name());
        assert!(section(&page, "EXAMPLES").contains(&example), "{}", command.get_name());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Exit status:") && help.contains(&example), "help of {}", command.get_name());
    }
}
