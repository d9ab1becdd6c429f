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
    assert!(text.contains("none is whole"), "{text}");
    bytes[4096 + 100] ^= 1;
    bytes.truncate(bytes.len() - 5);
    std::fs::write(&file, &bytes).unwrap();
    let text = String::from_utf8(pagewire(&["--verify"], &file).stdout).unwrap();
    assert!(text.contains("bytes of one that is not finished") && text.contains("1 is the last"), "{text}");
}

/// Damage that a later checkpoint does not need is told, and the file is good for that one.
#[test]
fn damage_that_was_saved_anew_harms_only_what_is_before() {
    let directory = tempfile::tempdir().unwrap();
    let (file, out) = (directory.path().join("table.checkpoint"), directory.path().join("bytes"));
    let node = Node::alone().unwrap();
    let table = node.zeroed::<u64>(10 * 512).unwrap();
    let mut checkpoint = Checkpoint::open(&node, &file).unwrap();
    for value in 1..=3 {
        table.set(3 * 512, value).unwrap();
        checkpoint.save(&table).unwrap();
    }
    let mut bytes = std::fs::read(&file).unwrap();
    // The one page of the first checkpoint, which both others have again.
    bytes[4096] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let output = pagewire(&["--verify"], &file);
    let (text, told) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success(), "{told}");
    assert!(told.contains("checkpoint 1 cannot be restored: checkpoint 3, the last one, is whole"), "{told}");
    assert!(text.contains("damaged at byte 4096"), "{text}");
    let text = String::from_utf8(pagewire(&["--verify", "--json"], &file).stdout).unwrap();
    let object: Value = serde_json::from_str(&text).unwrap();
    let whole: Vec<_> = (0..3).map(|index| object["checkpoints"][index]["whole"].clone()).collect();
    assert_eq!(
        (whole, &object["checkpoints"][0]["damaged_at"]),
        (vec![json!(false), json!(true), json!(true)], &json!(4096))
    );
    // What can be restored can be extracted, whole or not at all.
    let to = ["--extract", out.to_str().unwrap()];
    let refused = pagewire(&[&to[..], &["--number", "1"]].concat(), &file);
    assert!(refused.status.code() == Some(1) && !out.exists());
    let refused = pagewire(&[&to[..], &["--number", "4"]].concat(), &file);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && told.contains("it has 1 to 3"), "{told}");
    assert!(pagewire(&to, &file).status.success());
    let mut expected = vec![0; 10 * 4096];
    expected[3 * 4096] = 3;
    assert!(std::fs::read(&out).unwrap() == expected);
    assert!(!pagewire(&to, &file).status.success(), "it is there already");
}

/// Files that are none are refused, and nothing is waited for.
#[test]
fn what_is_no_file_of_checkpoints_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    for (bytes, why) in [
        (&b"text"[..], "it begins otherwise"),
        (b"", "it is empty"),
        (&[0; 10], "it begins with zeros"),
        (&[0; 20_000], "it begins with zeros"),
    ] {
        std::fs::write(&file, bytes).unwrap();
        for words in [&[][..], &["--verify"]] {
            let output = pagewire(words, &file);
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(output.status.code() == Some(1) && text.contains(why), "{text}");
        }
        let node = Node::alone().unwrap();
        assert!(bytes.is_empty() || Checkpoint::open(&node, &file).is_err());
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "somebody's file stays as it is");
    }
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for file in [pipe.as_path(), Path::new("/dev/zero"), directory.path()] {
        let output = pagewire(&["--verify"], file);
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && text.contains("it is no regular file"), "{text}");
    }
    // One that was opened to save, and has no checkpoint yet.
    let node = Node::alone().unwrap();
    let new = directory.path().join("new");
    let _checkpoint = Checkpoint::open(&node, &new).unwrap();
    let (listed, verified) = (pagewire(&[], &new), pagewire(&["--verify"], &new));
    assert!(listed.status.success() && String::from_utf8(listed.stdout).unwrap().contains("no checkpoint"));
    let told = String::from_utf8(verified.stderr).unwrap();
    assert!(verified.status.code() == Some(1) && told.contains("nothing can be restored"), "{told}");
    let refused = pagewire(&["--now", &std::process::id().to_string()], Path::new("--json"));
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(refused.status.code() == Some(1) && told.contains("pagewire run --checkpoint"), "{told}");
}
