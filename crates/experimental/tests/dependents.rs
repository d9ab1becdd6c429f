//! What the experimental applications depend on, and what depends on them: the product does without them, but for the C library behind a feature.

use std::path::{Path, PathBuf};

const NAME: &str = "pagewire-experimental";

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A dependency of a manifest: its section, and its line.
struct Dependency {
    section: String,
    line: String,
}

impl Dependency {
    fn name(&self) -> &str {
        self.line.split(['.', '=', ' ']).next().unwrap_or_default()
    }

    fn is_for_tests(&self) -> bool {
        self.section.ends_with("dev-dependencies")
    }
}

fn dependencies(manifest: &str) -> Vec<Dependency> {
    let (mut section, mut found) = (String::new(), Vec::new());
    for line in manifest.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
            // `[dependencies.NAME]` is a dependency, too.
            if let Some((section, name)) = name.split_once("dependencies.") {
                found.push(Dependency { section: format!("{section}dependencies"), line: name.to_owned() });
            }
        } else if section.ends_with("dependencies") && line.contains('=') && !line.starts_with('#') {
            found.push(Dependency { section: section.clone(), line: line.to_owned() });
        }
    }
    found
}

/// The crates of the product, by the names of their folders.
fn crates() -> Vec<String> {
    let folder = std::fs::read_dir(project().join("crates")).unwrap();
    let names = folder.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| project().join("crates").join(name).join("Cargo.toml").exists()).collect()
}

#[test]
fn product_depends_on_none_of_it() {
    let mut dependents = Vec::new();
    let crates = crates();
    assert!(crates.len() > 10, "{crates:?}");
    for name in crates {
        let manifest = read(project().join("crates").join(&name).join("Cargo.toml"));
        let of_it = dependencies(&manifest).into_iter().filter(|dependency| dependency.line.contains(NAME));
        for dependency in of_it.filter(|dependency| !dependency.is_for_tests()) {
            assert!(dependency.line.contains("optional = true"), "{name}: {}", dependency.line);
            dependents.push(name.clone());
        }
    }
    assert_eq!(dependents, ["capi"]);
}

#[test]
fn capi_has_it_behind_its_feature() {
    let capi = project().join("crates/capi");
    assert!(read(capi.join("Cargo.toml")).contains("experimental = [\"dep:pagewire-experimental\"]"));
    let gated = "#[cfg(feature = \"experimental\")]\npub mod experimental;\n";
    assert!(read(capi.join("src/lib.rs")).contains(gated));
    for entry in std::fs::read_dir(capi.join("src")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path);
            assert!(!text.contains("pagewire_experimental::"), "{}", path.display());
            assert!(!text.contains("crate::experimental"), "{}", path.display());
        }
    }
}

#[test]
fn it_uses_public_interfaces_alone() {
    // The locks have the interface of the crate parking_lot, by whose name the workspace has them.
    const PUBLIC: [&str; 2] = ["pagewire", "pagewire-active"];
    for dependency in dependencies(&read(project().join("crates/experimental/Cargo.toml"))) {
        let (name, line) = (dependency.name(), &dependency.line);
        assert!(!line.contains("pagewire") || PUBLIC.contains(&name), "{line}");
    }
}
