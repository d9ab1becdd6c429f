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
    for (page, program) in [("active", "reacts"), ("hash-table", "hash_table"), ("built-in", "built_in")] {
        prints_what_the_page_says(page, program);
    }
}

fn prints_what_the_page_says(page: &str, name: &str) {
    let page = file(&format!("../../docs/guide/{page}.md"));
    let program = file(&format!("examples/{name}.rs"));
    let (_, program) = program.split_once("\n\n").unwrap();
    assert_eq!(tokens(program), tokens(block(&page, "```rust\n// src/main.rs\n")));
    // Cargo builds the examples with the tests, beside them.
    let own = std::env::current_exe().unwrap();
    let built = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    let output = Command::new(&built).output().unwrap_or_else(|error| panic!("{}: {error}", built.display()));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), block(&page, "```text\n$ cargo run\n"));
}
