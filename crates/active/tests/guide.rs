//! The guide "Memory that reacts": its program is the example, and prints what the page says.

use std::path::Path;
use std::process::Command;

fn file(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The text of a block of the page.
fn block<'p>(page: &'p str, begins: &str) -> &'p str {
    let (_, rest) = page.split_once(begins).unwrap_or_else(|| panic!("the page has no {begins:?}"));
    rest.split_once("```").unwrap().0
}

/// Code as far as rustfmt(1) does not decide it.
fn tokens(code: &str) -> String {
    code.split_whitespace().collect()
}

#[test]
fn the_programs_of_the_guide_print_what_the_pages_say() {
    let programs = [
        ("active", "reacts"),
        ("hash-table", "hash_table"),
        ("built-in", "built_in"),
        ("batches", "batch"),
        ("access-statistics", "access_statistics"),
        ("parity", "parity"),
        ("logged-process", "logged_process"),
    ];
    for (page, name) in programs {
        let (mut program, expected) = program_of(page, name);
        let folder = tempfile::tempdir().unwrap();
        // Where those that save do it.
        assert_eq!(said(program.arg(folder.path())), expected);
    }
}

/// The second run finds what the first one has saved.
#[test]
fn the_checkpoint_of_the_guide_survives_its_process() {
    let (mut program, expected) = program_of("checkpoint", "checkpoint");
    let (first, second) = expected.split_once("$ cargo run\n").unwrap();
    let folder = tempfile::tempdir().unwrap();
    program.arg(folder.path().join("counter.checkpoint"));
    let said = [said(&mut program), said(&mut program)];
    // What the page shows needs a kernel that tells what a process writes.
    if pagewire_active::LocalWrites::best() == pagewire_active::LocalWrites::WriteProtect {
        assert_eq!(said, [first, second]);
    }
    assert!(said[1].starts_with("checkpoint 3: the counter is 3\n"), "{said:?}");
}

/// So does its hash table.
#[test]
fn the_durable_table_of_the_guide_survives_its_process() {
    let (mut program, expected) = program_of("durable-tables", "durable_table");
    let folder = tempfile::tempdir().unwrap();
    program.arg(folder.path());
    let (first, second) = expected.split_once("$ cargo run\n").unwrap();
    assert_eq!([said(&mut program), said(&mut program)], [first, second]);
}

fn said(program: &mut Command) -> String {
    let output = program.output().unwrap_or_else(|error| panic!("{program:?}: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The example that a page has, and what the page says that it prints.
fn program_of(page: &str, name: &str) -> (Command, String) {
    let (page, program) =
        (file(&format!("../../docs/guide/{page}.md")), file(&format!("examples/{name}.rs")));
    let (_, program) = program.split_once("\n\n").unwrap();
    assert_eq!(tokens(program), tokens(block(&page, "```rust\n// src/main.rs\n")));
    // Cargo builds the examples with the tests, beside them.
    let own = std::env::current_exe().unwrap();
    let built = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    (Command::new(built), block(&page, "```text\n$ cargo run\n").to_owned())
}
