//! `pagewire checkpoint` on files that a program has saved to.

use pagewire::Node;
use pagewire_active::Checkpoint;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

fn pagewire(words: &[&str], file: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagewire")).arg("checkpoint").args(words).arg(file).output().unwrap()
}

#[test]
fn a_file_is_listed_and_verified_while_its_program_runs() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("table.checkpoint");
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(100 * 512).unwrap();
    let mut checkpoint = Checkpoint::open(&node, &file).unwrap();
    for page in [3, 50] {
        table.set(page * 512, 7).unwrap();
        checkpoint.save_all(&[&table], b"a note").unwrap();
    }
    let output = pagewire(&["--verify"], &file);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.contains("regions of 409600 bytes"), "{text}");
    assert!(text.contains("all data are what was saved; 2 is the last"), "{text}");
    let text = String::from_utf8(pagewire(&["--json"], &file).stdout).unwrap();
    let object: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&object["regions"], &object["unfinished"]), (&json!([409_600]), &json!(0)));
    let first = &object["checkpoints"][0];
    assert_eq!((&first["number"], &first["kind"], &first["pages"]), (&json!(1), &json!("full"), &json!(1)));
    assert_eq!(object["checkpoints"][1]["note"], json!(6));
    // Damage is seen where data are read, and an unfinished one at once.
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[4096 + 100] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    assert!(pagewire(&[], &file).status.success());
    let output = pagewire(&["--verify"], &file);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("is damaged at byte 4096"), "{text}");
    bytes[4096 + 100] ^= 1;
    bytes.truncate(bytes.len() - 5);
    std::fs::write(&file, &bytes).unwrap();
    let text = String::from_utf8(pagewire(&["--verify"], &file).stdout).unwrap();
    assert!(text.contains("bytes of one that is not finished") && text.contains("1 is the last"), "{text}");
    std::fs::write(&file, b"text").unwrap();
    assert_eq!(pagewire(&[], &file).status.code(), Some(1));
}
