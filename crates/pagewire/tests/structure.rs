//! Whether the sources keep the shape that docs/ARCHITECTURE.md promises: the layers of `nic`, and names with one meaning.

use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The layers of nic, each of which uses those before it alone.
const LAYERS: [&str; 8] =
    ["types", "services", "completion", "access", "path", "queue_pair", "progress", "api"];

/// The per cent of type names that may have several definitions, and how many definitions a name may have. `Result` and `Error` are of a module
/// each.
const MOST_AMBIGUOUS: usize = 10;
const MOST_DEFINITIONS: usize = 4;

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Rust sources below a folder, without their tests and comments.
fn sources(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
            found.insert(path, lines.map(|line| format!("{line}\n")).collect());
        }
    }
    found
}

/// The layer of nic that a source stands in, as a place of [`LAYERS`].
fn layer_of(nic: &Path, file: &Path) -> Option<usize> {
    let first = file.strip_prefix(nic).ok()?.iter().next()?.to_str()?;
    LAYERS.iter().position(|layer| *layer == first.trim_end_matches(".rs"))
}

/// Imports of nic that name a layer above their own.
fn upward_imports(nic: &Path, files: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let import = Regex::new(r"crate::(\w+)").unwrap();
    let mut found = Vec::new();
    for (file, code) in files {
        let Some(layer) = layer_of(nic, file) else { continue };
        for name in import.captures_iter(code) {
            if LAYERS.iter().position(|other| *other == &name[1]).is_some_and(|other| other > layer) {
                found.push(format!("{}: {}", file.display(), &name[0]));
            }
        }
    }
    found
}

/// Inherent impls of nic that stand in another layer than their type.
fn misplaced_impls(nic: &Path, files: &BTreeMap<PathBuf, String>) -> Vec<String> {
    let definition = Regex::new(r"(?m)^(?:pub(?:\([\w: ]+\))? )?(?:struct|enum|union) (\w+)").unwrap();
    let inherent = Regex::new(r"(?m)^impl(?:<[^{]*?>)? (\w+)(?:<[^{]*>)? \{").unwrap();
    let mut defined: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    let mut of_file: BTreeSet<(&Path, &str)> = BTreeSet::new();
    for (file, code) in files {
        let Some(layer) = layer_of(nic, file) else { continue };
        for name in definition.captures_iter(code) {
            let name = name.get(1).unwrap().as_str();
            defined.entry(name).or_default().insert(layer);
            of_file.insert((file, name));
        }
    }
    let mut found = Vec::new();
    for (file, code) in files {
        let Some(layer) = layer_of(nic, file) else { continue };
        for block in inherent.captures_iter(code) {
            let name = block.get(1).unwrap().as_str();
            let Some(layers) = defined.get(name) else { continue };
            if of_file.contains(&(file, name)) || block[0].contains(" for ") {
                continue;
            }
            let import = Regex::new(&format!(r"use crate::(\w+)[^;]*\b{name}\b")).unwrap();
            let imported = import.captures(code);
            let its = imported.and_then(|it| LAYERS.iter().position(|other| *other == &it[1]));
            if its.map_or(!layers.contains(&layer), |its| its != layer) {
                found.push(format!("{}: impl {name}", file.display()));
            }
        }
    }
    found
}

/// How often each type name of the product is defined.
fn definitions() -> BTreeMap<String, usize> {
    // The types of a trait's impl (`type Target`) are no definitions: they are indented.
    let public = r"(?:pub(?:\([\w: ]+\))? )?";
    let pattern = format!(r"(?m)^(?: {{0,4}}{public}(?:struct|enum|union|trait)|{public}type) (\w+)");
    let definition = Regex::new(&pattern).unwrap();
    let mut counts = BTreeMap::new();
    for place in ["crates", "lab"] {
        for entry in std::fs::read_dir(project().join(place)).into_iter().flatten() {
            for code in sources(&entry.unwrap().path().join("src")).values() {
                for name in definition.captures_iter(code) {
                    *counts.entry(name[1].to_owned()).or_default() += 1;
                }
            }
        }
    }
    counts
}

#[test]
fn no_import_of_nic_runs_upward() {
    let nic = project().join("crates/nic/src");
    let upward = upward_imports(&nic, &sources(&nic));
    assert!(upward.is_empty(), "{}", upward.join("\n"));
}

#[test]
fn inherent_impls_of_nic_stand_in_the_layer_of_their_type() {
    let nic = project().join("crates/nic/src");
    let misplaced = misplaced_impls(&nic, &sources(&nic));
    assert!(misplaced.is_empty(), "{}", misplaced.join("\n"));
}

#[test]
fn a_misplaced_impl_and_an_upward_import_are_found() {
    let nic = Path::new("/nic");
    let files = BTreeMap::from([
        (nic.join("services.rs"), "pub struct Services<F> {}\nuse crate::access::Access;\n".to_owned()),
        (
            nic.join("access.rs"),
            "use crate::services::Services;\nimpl<F: Fabric> Services<F> {\n}\nimpl Drop for Services {\n}\n"
                .to_owned(),
        ),
    ]);
    assert_eq!(upward_imports(nic, &files), ["/nic/services.rs: crate::access"]);
    assert_eq!(misplaced_impls(nic, &files), ["/nic/access.rs: impl Services"]);
}

#[test]
fn few_type_names_have_several_meanings() {
    let counts: BTreeMap<_, _> =
        definitions().into_iter().filter(|(name, _)| name != "Result" && name != "Error").collect();
    let several: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
    let worst: Vec<_> = several.iter().filter(|(_, count)| **count > MOST_DEFINITIONS).collect();
    assert!(worst.is_empty(), "more than {MOST_DEFINITIONS} definitions: {worst:?}");
    let share = several.len() * 100 / counts.len();
    assert!(
        share <= MOST_AMBIGUOUS,
        "{share} % of {} type names have several definitions: {several:?}",
        counts.len()
    );
}
