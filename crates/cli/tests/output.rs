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
