//! Whether `include/pagewire.h`, `pagewire.map` and the declarations of the Python package are what the sources say.
//!
//! `PAGEWIRE_HEADER=write cargo test -p pagewire-capi --test header` makes the first and the last anew.

use std::collections::BTreeSet;
use std::path::Path;

/// In the order in which their items stand in the header.
const SOURCES: [&str; 28] = [
    "version",
    "error",
    "node",
    "export",
    "heap",
    "mapped_file",
    "part",
    "remote",
    "atomics",
    "operation",
    "waits",
    "signal",
    "conditional",
    "handler",
    "access_log",
    "table",
    "table_elements",
    "durable_table",
    "access_statistics",
    "source",
    "checkpoint",
    "logged_process",
    "parity",
    "built_in",
    "batch",
    "global_space",
    "stream",
    "transactions",
];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated(config: cbindgen::Config) -> String {
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(folder().join("src").join(source).with_extension("rs"));
    }
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    String::from_utf8(header).unwrap()
}

fn config() -> cbindgen::Config {
    cbindgen::Config::from_file(folder().join("cbindgen.toml")).unwrap()
}

/// Declarations alone, as cffi reads them.
fn declarations() -> String {
    let plain = cbindgen::Config {
        header: None,
        trailer: None,
        include_guard: None,
        sys_includes: Vec::new(),
        cpp_compat: false,
        documentation: false,
        ..config()
    };
    let kept = generated(plain);
    // Of macros it takes those that are numbers.
    kept.lines().filter(|line| !line.ends_with("_MAX")).map(|line| format!("{line}\n")).collect()
}

fn hold(path: &Path, current: &str) {
    if std::env::var_os("PAGEWIRE_HEADER").is_some_and(|wish| wish == "write") {
        std::fs::write(path, current).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == current, "{} is not what the sources say: see the top of this file", path.display());
}

#[test]
fn the_header_is_current() {
    hold(&folder().join("include/pagewire.h"), &generated(config()));
}

#[test]
fn the_declarations_for_python_are_current() {
    hold(&folder().join("../../python/src/pagewire/_declarations.h"), &declarations());
}

#[test]
fn the_version_script_has_what_the_header_declares() {
    let map = std::fs::read_to_string(folder().join("pagewire.map")).unwrap();
    let scripted: BTreeSet<&str> = map
        .lines()
        .filter_map(|line| line.trim().strip_suffix(';'))
        .filter(|name| name.starts_with("pw_"))
        .collect();
    // That for verbs programs is written by hand.
    let by_hand = std::fs::read_to_string(folder().join("include/pagewire_verbs.h")).unwrap();
    let header = generated(config()) + &by_hand;
    let is_name =
        |text: &&str| text.starts_with("pw_") && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    // Declarations begin in the first column, and no comment does.
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| {
            line.starts_with(|first: char| first.is_ascii_alphabetic()) && !line.starts_with("static inline")
        })
        .filter_map(|line| line.split_once('(').map(|(before, _)| before))
        .filter_map(|before| before.rsplit([' ', '*']).next())
        .filter(is_name)
        .collect();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(scripted, declared);
}

/// Each name from before the first release stands for one of today, and is none itself.
#[test]
fn renamed_names_stand_for_those_of_the_header() {
    let renamed = std::fs::read_to_string(folder().join("include/pagewire/renamed.h")).unwrap();
    let header = generated(config());
    let words: BTreeSet<&str> = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
    let pairs: Vec<(&str, &str)> =
        renamed.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' ')).collect();
    assert!(pairs.len() > 40, "{pairs:?}");
    for (old, new) in pairs {
        assert!(words.contains(new) && !words.contains(old), "{old} is now {new}");
    }
}
