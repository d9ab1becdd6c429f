//! docs/VERBS.md: every verb and every symbol of libibverbs, what it answers, and a test that calls it. Where the table is not what the sources say
//! the test fails; `PAGEWIRE_SYMBOLS=write cargo test -p pagewire-verbs --test symbols` writes it anew.
#![forbid(unsafe_code)]

use pagewire_failures::Verb;
use pagewire_verbs::unsupported;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

const EXPORTS: &str = include_str!("../exports.txt");

/// Where the table stands: between these lines.
const BEGIN: &str = "| symbol | answers | called by |\n|---|---|---|\n";

/// Names that programs call: the exports that are not private to rdma-core's own libraries, and the verbs of a context's tables.
fn names() -> BTreeSet<String> {
    let exports = EXPORTS.lines().filter(|line| !line.starts_with('#') && !line.contains("PRIVATE"));
    let exported = exports.filter_map(|line| line.split('@').next()).map(|name| name.trim_start_matches('_'));
    let verbs = Verb::all().map(Verb::name).filter(|name| name.starts_with("ibv_"));
    exported.chain(verbs).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The words of each C program of the tests, with how often each stands there.
fn programs() -> BTreeMap<String, BTreeMap<String, usize>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let mut programs = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "c") {
            continue;
        }
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let mut words: BTreeMap<String, usize> = BTreeMap::new();
        let text = std::fs::read_to_string(&path).unwrap();
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            *words.entry(word.trim_start_matches('_').to_owned()).or_default() += 1;
        }
        programs.insert(name, words);
    }
    programs
}

#[test]
fn the_table_has_every_symbol_and_a_test_of_it() {
    let refused: BTreeSet<String> = unsupported::ALL.iter().map(unsupported::Unsupported::written).collect();
    let programs = programs();
    let mut table = String::from(BEGIN);
    let mut untested = Vec::new();
    for name in names() {
        let most = |(_, words): &(&String, &BTreeMap<String, usize>)| words.get(&name).copied().unwrap_or(0);
        // Of those that call it as often the first by name.
        let best = programs.iter().rev().max_by_key(most).filter(|program| most(program) > 0);
        let Some((program, _)) = best else {
            untested.push(name);
            continue;
        };
        let answer = if refused.contains(&name) { "`EOPNOTSUPP`" } else { "as specified" };
        writeln!(table, "| `{name}` | {answer} | `{program}` |").unwrap();
    }
    assert!(untested.is_empty(), "no program in tests/c calls {untested:?}");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/VERBS.md");
    let text = std::fs::read_to_string(&page).unwrap();
    let (before, _) = text.split_once(BEGIN).expect("docs/VERBS.md has the table");
    let expected = format!("{before}{table}");
    if std::env::var("PAGEWIRE_SYMBOLS").is_ok_and(|value| value == "write") {
        std::fs::write(&page, &expected).unwrap();
    } else {
        assert!(text == expected, "docs/VERBS.md is old: PAGEWIRE_SYMBOLS=write writes it anew");
    }
}
