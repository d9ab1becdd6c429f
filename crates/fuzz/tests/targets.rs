//! The targets by name are those that libFuzzer drives: `fuzz/`, a workspace of its own, is not compiled with the others.

use clap::ValueEnum;
use pagewire_fuzz::FuzzTarget;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names() -> BTreeSet<String> {
    FuzzTarget::ALL.iter().map(|target| target.name().to_owned()).collect()
}

#[test]
fn none_is_missing() {
    assert_eq!(FuzzTarget::ALL, FuzzTarget::value_variants());
}

#[test]
fn each_has_a_file_and_each_file_is_of_one() {
    let mut files = BTreeSet::new();
    for entry in fs::read_dir(folder().join("fuzz_targets")).unwrap() {
        let file = entry.unwrap().path();
        assert_eq!(file.extension().unwrap(), "rs", "{}", file.display());
        files.insert(file.file_stem().unwrap().to_str().unwrap().to_owned());
    }
    assert_eq!(files, names());
    for target in FuzzTarget::ALL {
        let file = format!("fuzz_targets/{}.rs", target.name());
        let source = fs::read_to_string(folder().join(&file)).unwrap();
        assert!(source.contains(&format!("Target::{target:?}.run(")), "{file} runs another target");
    }
}

/// Cargo is told of each (no target is found by itself: they have no `main`).
#[test]
fn each_is_a_program() {
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).unwrap();
    let mut programs = BTreeSet::new();
    for program in manifest.split("[[bin]]").skip(1) {
        let field = |name: &str| {
            let line = program.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            line.unwrap_or_else(|| panic!("no {name} in:{program}")).trim_matches('"').to_owned()
        };
        let name = field("name");
        assert_eq!(field("path"), format!("fuzz_targets/{name}.rs"));
        programs.insert(name);
    }
    assert_eq!(programs, names());
}

#[test]
fn each_has_a_corpus_and_each_corpus_is_of_one() {
    let corpora = fs::read_dir(folder().join("corpus")).unwrap();
    let corpora: BTreeSet<String> =
        corpora.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(corpora, names());
}
