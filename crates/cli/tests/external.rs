//! Commands that are programs of their own: `pagewire NAME` runs `libexec/pagewire/pagewire-NAME`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// An installation with the command and one program beside it, for the command `echo`.
fn installation() -> TempDir {
    let prefix = tempfile::tempdir().unwrap();
    fs::create_dir_all(prefix.path().join("bin")).unwrap();
    fs::create_dir_all(prefix.path().join("libexec/pagewire")).unwrap();
    // Found by its own file: a link would lead to where it was built.
    let copied =
        Command::new("cp").arg(env!("CARGO_BIN_EXE_pagewire")).arg(prefix.path().join("bin")).status();
    assert!(copied.unwrap().success());
    let about = r#"[{"name":"echo","about":"Say it again","arguments":[]}]"#;
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = describe ] && echo '{about}' && exit\nprintf '%s,' \"$VARIABLE\" \"$@\"\nexit 7\n"
    );
    install(prefix.path(), "pagewire-echo", &script);
    prefix
}

/// Another process writes it: a file that is open for writing, here or in what a test beside this one starts, cannot be executed.
fn install(prefix: &Path, name: &str, script: &str) {
    let mut shell = Command::new("sh");
    shell.args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""]);
    let written = shell.arg(prefix.join("libexec/pagewire").join(name)).arg(script).status();
    assert!(written.unwrap().success());
}

fn pagewire(prefix: &TempDir, words: &[&str]) -> Output {
    Command::new(prefix.path().join("bin/pagewire")).args(words).env("VARIABLE", "value").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn program_gets_arguments_and_environment_and_gives_its_status() {
    let prefix = installation();
    for (words, printed) in [
        (&["echo", "a b", "--help", ""][..], "value,echo,a b,--help,,"),
        (&["echo"], "value,echo,"),
        (&["help", "echo"], "value,echo,--help,"),
    ] {
        let done = pagewire(&prefix, words);
        assert_eq!((text(&done.stdout).as_str(), done.status.code()), (printed, Some(7)), "{words:?}");
    }
}

#[test]
fn help_and_completions_have_commands_of_programs_before_the_last() {
    let prefix = installation();
    let help = text(&pagewire(&prefix, &["--help"]).stdout);
    let place = |word: &str| help.find(&format!("\n  {word} ")).unwrap_or_else(|| panic!("{word}: {help}"));
    assert!(place("demo") < place("echo") && place("echo") < place("completions"), "{help}");
    assert!(place("completions") < place("help") && help.contains("Say it again"), "{help}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(text(&pagewire(&prefix, &["completions", shell]).stdout).contains("echo"), "{shell}");
    }
}

/// A program that says nothing of itself is run, and listed by its name.
#[test]
fn program_without_description_is_listed() {
    let prefix = installation();
    install(prefix.path(), "pagewire-silent", "#!/bin/sh\nexit 3\n");
    let help = pagewire(&prefix, &["--help"]);
    assert!(text(&help.stdout).contains("\n  silent"), "{help:?}");
    assert!(
        text(&help.stderr).contains("pagewire-silent does not describe its commands: exit status 3"),
        "{help:?}"
    );
    assert_eq!(pagewire(&prefix, &["silent"]).status.code(), Some(3));
}

#[test]
fn missing_program_is_an_error_that_says_where_and_what_to_do() {
    let prefix = installation();
    let folder = prefix.path().join("libexec/pagewire");
    for words in [&["bench", "write_lat"][..], &["help", "bench"]] {
        let refused = pagewire(&prefix, words);
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        for part in ["'bench'", "pagewire-bench", folder.to_str().unwrap(), "make install"] {
            assert!(message.contains(part), "{part} is missing in: {message}");
        }
    }
}

#[test]
fn only_name_of_command_that_pagewire_has_is_to_be_installed() {
    let prefix = installation();
    for words in [&["explan"][..], &[""], &["../x"], &["help", "explan"]] {
        let refused = pagewire(&prefix, words);
        let message = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(message.contains("unrecognized subcommand") && !message.contains("install"), "{message}");
    }
}

#[test]
fn help_has_help() {
    let prefix = installation();
    for words in [["help", "--help"], ["help", "-h"]] {
        let shown = pagewire(&prefix, &words);
        let message = text(&shown.stdout);
        assert!(shown.status.success() && message.contains("\n  doctor "), "{words:?}: {shown:?}");
    }
}

#[test]
fn program_that_cannot_be_executed_is_an_error_that_names_it() {
    let prefix = installation();
    install(prefix.path(), "pagewire-broken", "#!/no/such/interpreter\n");
    let refused = pagewire(&prefix, &["broken"]);
    let message = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{message}");
    assert!(
        message.contains("libexec/pagewire/pagewire-broken") && message.contains("make install"),
        "{message}"
    );
}

#[test]
fn own_command_is_never_looked_for_in_the_folder() {
    let prefix = installation();
    install(prefix.path(), "pagewire-completions", "#!/bin/sh\nexit 3\n");
    assert!(pagewire(&prefix, &["completions", "bash"]).status.success());
}
