//! Whether the documents name each crate and file that has `unsafe`, and no other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The crates whose sources have `unsafe`; of `pagewire` the files.
fn found() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let crates = ["crates", "lab"].map(|folder| std::fs::read_dir(project().join(folder)).unwrap());
    for entry in crates.into_iter().flatten() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let source = entry.path().join("src");
        let with =
            files(&source).into_iter().filter(|file| has_unsafe(&std::fs::read_to_string(file).unwrap()));
        let relative = with.map(|file| file.strip_prefix(&source).unwrap().display().to_string());
        match name.as_str() {
            "pagewire" => found.extend(relative),
            _ => found.extend((relative.count() > 0).then_some(name)),
        }
    }
    found
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Whether a source has the keyword, outside of comments and texts.
fn has_unsafe(source: &str) -> bool {
    source.lines().any(|line| {
        let code = line.split("//").next().unwrap_or_default();
        let outside: String = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
        let words = outside.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        words.into_iter().any(|word| word == "unsafe")
    })
}

/// The names in the sentence of a document that says where `unsafe` is.
fn said(document: &str) -> BTreeSet<String> {
    let text = std::fs::read_to_string(project().join(document)).unwrap();
    let line = text.lines().find(|line| line.contains("contain `unsafe`")).expect("the document says it");
    let (list, _) = line.split_once(" contain `unsafe`").unwrap();
    let mut names: BTreeSet<String> = list.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(names.remove("pagewire"), "{document} names files of pagewire");
    names
}

#[test]
fn the_documents_name_what_has_unsafe() {
    for document in ["docs/ARCHITECTURE.md", "CONTRIBUTING.md"] {
        assert_eq!(said(document), found(), "{document}");
    }
}

#[test]
fn comments_and_texts_are_no_code() {
    assert!(has_unsafe("let x = unsafe { f() };") && has_unsafe("unsafe impl Send for X {}"));
    assert!(!has_unsafe("// unsafe\n/// `unsafe`\n\"unsafe\"; let unsafe_code = 1;"));
}
