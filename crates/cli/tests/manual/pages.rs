//! What manual pages say, and whether the command line says the same: for the tests of each program that has commands.

use clap::Command;
use std::collections::BTreeSet;
use std::path::Path;

/// The text of a page.
pub fn page(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../man").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The text of the section `title`.
pub fn section<'a>(page: &'a str, title: &str) -> &'a str {
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

/// The commands that pagewire(1) lists.
pub fn listed() -> BTreeSet<String> {
    section(&page("pagewire.1"), "DESCRIPTION")
        .lines()
        .filter_map(|line| line.strip_prefix(".It Ic ")?.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The names of commands that are shown.
pub fn names(root: &Command) -> BTreeSet<String> {
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

/// The commands that have a page of their own.
pub fn commands(root: &Command) -> Vec<Command> {
    let has_page = |command: &&Command| !command.is_hide_set() && command.get_name() != "completions";
    root.get_subcommands().filter(has_page).cloned().collect()
}

/// Each page has the options of its command.
pub fn check_options(commands: &[Command]) {
    for command in commands {
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

/// Each page describes the values of its options.
pub fn check_values(commands: &[Command]) {
    for command in commands {
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

/// Each page has an exit status and an example, and so has the help.
pub fn check_ends(commands: &[Command]) {
    for command in commands {
        let page = page(&format!("pagewire-{}.1", command.get_name()));
        assert!(section(&page, "EXIT STATUS").contains('2'), "{}", command.get_name());
        let example = format!("pagewire {}", command.get_name());
        assert!(section(&page, "EXAMPLES").contains(&example), "{}", command.get_name());
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.contains("Exit status:") && help.contains(&example), "help of {}", command.get_name());
    }
}
