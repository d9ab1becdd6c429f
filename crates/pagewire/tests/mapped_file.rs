//! Files as regions, accessed by another process on both paths.

use pagewire::*;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Whole pages, and a part of one.
const LENGTH: usize = 3 * (1 << 20) + 5;

/// What the other process is given: the token in hexadecimal digits, and the file's name.
const TOKEN: &str = "PAGEWIRE_TEST_TOKEN";
const NAME: &str = "PAGEWIRE_TEST_FILE";

fn contents() -> Vec<u8> {
    (0..LENGTH as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// The token and the file, in the other process.
fn given() -> Option<(Token, PathBuf)> {
    let digits = std::env::var(TOKEN).ok()?;
    let bytes: Vec<u8> =
        (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect();
    Some((Token::from_bytes(&bytes).unwrap(), std::env::var_os(NAME).unwrap().into()))
}

/// Runs the test `name` in another process, over `path`, and waits for it.
fn run_other(name: &str, path: &str, token: &Token, file: &std::path::Path) {
    let digits: String = token.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(TOKEN, digits).env(NAME, file);
    let output = command.env("PAGEWIRE_PATH", path).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("1 passed"), "{path}: {told}");
}

fn new_file(directory: &tempfile::TempDir, name: &str) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, contents()).unwrap();
    path
}

#[test]
fn a_file_that_is_truncated_is_an_error_at_the_caller() {
    if let Some((token, path)) = given() {
        let node = Node::alone().unwrap();
        let remote = node.open(&token).unwrap();
        assert_eq!(remote.get::<u8>(0, LENGTH).unwrap().wait().unwrap(), contents());
        File::options().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
        for (offset, count) in [(2 << 20, 1), (2 << 20, 1 << 20), ((1 << 20) - 8, 16), (0, LENGTH)] {
            let error = remote.get::<u8>(offset, count).unwrap().wait().unwrap_err();
            match error.failure {
                Failure::Refused { side: Side::Target, rule: Rule::Memory, .. } => {}
                other => panic!("{offset} {count}: {other}"),
            }
        }
        let before = remote.get::<u8>(0, 1 << 20).unwrap().wait().unwrap();
        assert!(before == contents()[..1 << 20], "what is still there is had");
        return;
    }
    let node = Node::alone().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for path in ["local", "udp"] {
        let file = new_file(&directory, path);
        let region = node.map_file(&file).unwrap();
        assert_eq!(region.bytes(), LENGTH as u64);
        let token = region.export(Rights::READ).unwrap();
        run_other("a_file_that_is_truncated_is_an_error_at_the_caller", path, &token, &file);
    }
}

#[test]
fn what_peers_put_is_in_the_file() {
    if let Some((token, _)) = given() {
        let node = Node::alone().unwrap();
        let remote = node.open(&token).unwrap();
        remote.put(8, contents()[8..].to_vec()).wait().unwrap();
        assert_eq!(remote.fetch_add(0, 5).wait().unwrap(), 0);
        return;
    }
    let node = Node::alone().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for path in ["local", "udp"] {
        let file = directory.path().join(path);
        let region = node.map_file_writable(&file, Some(LENGTH as u64)).unwrap();
        let token = region.export(Rights::all()).unwrap();
        run_other("what_peers_put_is_in_the_file", path, &token, &file);
        region.sync().unwrap();
        let there = fs::read(&file).unwrap();
        assert_eq!(there[..8], 5u64.to_ne_bytes());
        assert!(there[8..] == contents()[8..] && there.len() == LENGTH);
    }
}

#[test]
fn a_file_gives_what_it_was_mapped_for() {
    let node = Node::alone().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = new_file(&directory, "file");
    let region = node.map_file(&file).unwrap();
    for rights in [Rights::WRITE, Rights::ATOMIC, Rights::READ | Rights::WRITE] {
        let refused = region.export(rights).unwrap_err();
        assert!(refused.to_string().contains("read-only"), "{refused}");
    }
    assert!(matches!(region.export_part(1..LENGTH as u64 + 1, Rights::READ), Err(Error::Range { .. })));
    let part = region.export_part(4095..4100, Rights::READ).unwrap();
    let remote = node.open(&part).unwrap();
    assert_eq!(remote.get::<u8>(0, 5).unwrap().wait().unwrap(), contents()[4095..4100]);
    assert!(remote.get::<u8>(1, 5).unwrap().wait().is_err());
    drop(region);
    let gone = remote.get::<u8>(0, 5).unwrap().wait().unwrap_err();
    assert!(matches!(gone.failure, Failure::Refused { rule: Rule::Key, .. }), "{gone}");
}

#[test]
fn what_is_no_file_is_refused_by_name() {
    let node = Node::alone().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().join("none"), directory.path().to_owned(), "/dev/zero".into()] {
        for refused in [node.map_file(&path), node.map_file_writable(&path, None)] {
            let refused = refused.err().unwrap().to_string();
            assert!(refused.contains(&path.display().to_string()), "{refused}");
        }
    }
    let empty = directory.path().join("empty");
    File::create(&empty).unwrap().flush().unwrap();
    let region = node.map_file(&empty).unwrap();
    assert_eq!(region.bytes(), 0);
    let remote = node.open(&region.export(Rights::READ).unwrap()).unwrap();
    assert!(remote.get::<u8>(0, 1).unwrap().wait().is_err());
    assert!(remote.get::<u8>(0, 0).unwrap().wait().unwrap().is_empty());
}

#[test]
fn a_node_is_at_the_address_that_it_is_given() {
    let node = Node::alone_at("127.0.0.1".parse().unwrap()).unwrap();
    let token = node.zeroed::<u8>(1).unwrap().export(Rights::READ).unwrap();
    assert!(node.explain(&token).unwrap().contains("127.0.0.1"));
    let refused = Node::alone_at("192.0.2.1".parse().unwrap()).err().unwrap();
    assert!(matches!(refused, Error::Address(_)) && refused.to_string().contains("192.0.2.1"), "{refused}");
}
