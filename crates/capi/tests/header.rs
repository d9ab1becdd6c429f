//! Whether `include/pagewire.h`, `include/pagewire_experimental.h`, the version scripts and the declarations of the Python package are what the
//! sources say.
//!
//! `PAGEWIRE_HEADER=write cargo test -p pagewire-capi --test header` makes all but the version scripts anew.

use std::collections::BTreeSet;
use std::path::Path;

/// A header that cbindgen makes.
struct Header {
    /// Its file in `include`.
    name: &'static str,
    /// The file that says how cbindgen makes it.
    config: &'static str,
    /// In the order in which their items stand in the header.
    sources: &'static [&'static str],
    /// Its declarations for Python, in the folder of the package.
    declarations: &'static str,
    /// The version script of its symbols.
    map: &'static str,
    /// The file in `include` with its names from before the first release.
    renamed: &'static str,
}

const STABLE: Header = Header {
    name: "pagewire.h",
    config: "cbindgen.toml",
    sources: &[
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
    ],
    declarations: "_declarations.h",
    map: "pagewire.map",
    renamed: "pagewire/renamed.h",
};

const EXPERIMENTAL: Header = Header {
    name: "pagewire_experimental.h",
    config: "cbindgen-experimental.toml",
    sources: &[
        "experimental/global_memory",
        "experimental/sort",
        "experimental/stream",
        "experimental/transactions",
    ],
    declarations: "experimental/_declarations.h",
    map: "experimental.map",
    renamed: "pagewire/experimental/renamed.h",
};

const HEADERS: [Header; 2] = [STABLE, EXPERIMENTAL];

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

impl Header {
    fn config(&self) -> cbindgen::Config {
        cbindgen::Config::from_file(folder().join(self.config)).unwrap()
    }

    fn generated_by(&self, config: cbindgen::Config) -> String {
        let mut builder = cbindgen::Builder::new().with_config(config);
        for source in self.sources {
            builder = builder.with_src(folder().join("src").join(source).with_extension("rs"));
        }
        let mut header = Vec::new();
        builder.generate().unwrap().write(&mut header);
        String::from_utf8(header).unwrap()
    }

    fn generated(&self) -> String {
        self.generated_by(self.config())
    }

    /// Declarations alone, as cffi reads them.
    fn declarations(&self) -> String {
        let plain = cbindgen::Config {
            header: None,
            trailer: None,
            include_guard: None,
            sys_includes: Vec::new(),
            cpp_compat: false,
            documentation: false,
            ..self.config()
        };
        let kept = self.generated_by(plain);
        // Of macros it takes those that are numbers.
        kept.lines().filter(|line| !line.ends_with("_MAX")).map(|line| format!("{line}\n")).collect()
    }
}

fn hold(path: &Path, current: &str) {
    if std::env::var_os("PAGEWIRE_HEADER").is_some_and(|wish| wish == "write") {
        std::fs::write(path, current).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == current, "{} is not what the sources say: see the top of this file", path.display());
}

#[test]
fn headers_are_current() {
    for header in HEADERS {
        hold(&folder().join("include").join(header.name), &header.generated());
    }
}

#[test]
fn declarations_for_python_are_current() {
    let package = folder().join("../../python/src/pagewire");
    for header in HEADERS {
        hold(&package.join(header.declarations), &header.declarations());
    }
}

/// The functions that a header declares.
fn declared(header: &str) -> BTreeSet<&str> {
    let is_name =
        |text: &&str| text.starts_with("pw_") && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    // Declarations begin in the first column, and no comment does.
    header
        .lines()
        .filter(|line| {
            line.starts_with(|first: char| first.is_ascii_alphabetic()) && !line.starts_with("static inline")
        })
        .filter_map(|line| line.split_once('(').map(|(before, _)| before))
        .filter_map(|before| before.rsplit([' ', '*']).next())
        .filter(is_name)
        .collect()
}

#[test]
fn version_scripts_have_what_the_headers_declare() {
    for header in HEADERS {
        let map = std::fs::read_to_string(folder().join(header.map)).unwrap();
        let scripted: BTreeSet<&str> = map
            .lines()
            .filter_map(|line| line.trim().strip_suffix(';'))
            .filter(|name| name.starts_with("pw_"))
            .collect();
        let mut text = header.generated();
        if header.name == STABLE.name {
            // That for verbs programs is written by hand.
            text += &std::fs::read_to_string(folder().join("include/pagewire_verbs.h")).unwrap();
        }
        let declared = declared(&text);
        assert!(declared.len() > 30, "{declared:?}");
        assert_eq!(scripted, declared, "{}", header.map);
    }
}

/// Programs of the version node that never changes are compiled without what may change.
#[test]
fn stable_headers_name_nothing_experimental() {
    let experimental = EXPERIMENTAL.generated();
    let experimental = declared(&experimental);
    for name in ["pagewire.h", "pagewire_verbs.h", "pagewire.hpp"] {
        let text = std::fs::read_to_string(folder().join("include").join(name)).unwrap();
        assert!(!text.contains("<pagewire_experimental"), "{name}");
        assert!(declared(&text).is_disjoint(&experimental), "{name}");
    }
}

/// Each name from before the first release stands for one of today, and is none itself.
#[test]
fn renamed_names_stand_for_those_of_the_header() {
    for (header, least) in [(STABLE, 30), (EXPERIMENTAL, 10)] {
        let renamed = std::fs::read_to_string(folder().join("include").join(header.renamed)).unwrap();
        let text = header.generated();
        let words: BTreeSet<&str> = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).collect();
        let pairs: Vec<(&str, &str)> =
            renamed.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' ')).collect();
        assert!(pairs.len() > least, "{pairs:?}");
        for (old, new) in pairs {
            assert!(words.contains(new) && !words.contains(old), "{old} is now {new}");
        }
    }
}
