//! Where the output cannot be written the command says so, and does not succeed.

use std::fs::File;
use std::process::Command;

#[test]
fn help_that_cannot_be_written_is_an_error() {
    for words in [["--help"].as_slice(), &["--version"], &["help", "run"], &["completions", "bash"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
        let written = command.args(words).output().unwrap();
        assert!(written.status.success() && !written.stdout.is_empty(), "{words:?}");
        let refused =
            command.stdout(File::options().write(true).open("/dev/full").unwrap()).output().unwrap();
        assert_eq!(refused.status.code(), Some(1), "{words:?}");
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(told.contains("No space left on device"), "{words:?}: {told}");
    }
}

/// What is to be told and cannot be written changes nothing of what the command does.
#[test]
fn messages_that_cannot_be_written_are_left_out() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for (words, code) in [(["explain", "999999999"], 1), (["explain", "--frobnicate"], 2)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
        assert_eq!(command.args(words).stderr(full()).status().unwrap().code(), Some(code), "{words:?}");
    }
    // Nor is it a panic where the reason of a failure is lost with all else.
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagewire"));
    let status = command.arg("--help").stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(1));
}
