//! Whether the product stands without the lab: no crate of `crates/` names one of `lab/`.

use std::path::{Path, PathBuf};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The manifests of the crates in a folder of the project.
fn manifests(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(project().join(folder)).into_iter().flatten();
    entries.map(|entry| entry.unwrap().path().join("Cargo.toml")).filter(|file| file.exists()).collect()
}

/// The name of a crate, by its manifest.
fn name(manifest: &Path) -> String {
    let text = std::fs::read_to_string(manifest).unwrap();
    let name = text.lines().find_map(|line| line.strip_prefix("name = ")).expect("a crate has a name");
    name.trim_matches('"').to_owned()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Which of these crates a text mentions, as packages or as modules.
fn mentioned<'a>(text: &str, crates: &'a [String]) -> Vec<&'a str> {
    let words: Vec<&str> = text.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).collect();
    let is_mentioned =
        |name: &&String| words.contains(&name.as_str()) || words.contains(&&*name.replace('-', "_"));
    crates.iter().filter(is_mentioned).map(String::as_str).collect()
}

#[test]
fn product_names_no_crate_of_the_lab() {
    let lab: Vec<String> = manifests("lab").iter().map(|manifest| name(manifest)).collect();
    let product = manifests("crates");
    assert!(product.len() > 10, "{product:?}");
    for manifest in product {
        let folder = manifest.parent().unwrap();
        for file in sources(folder).into_iter().chain([manifest.clone()]) {
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(
                mentioned(&text, &lab).is_empty(),
                "{} names {:?}",
                file.display(),
                mentioned(&text, &lab)
            );
        }
    }
}

#[test]
fn crate_is_found_as_package_and_as_module() {
    let lab = ["pagewire-x".to_owned()];
    for text in ["pagewire-x = { path = \"a\" }", "use pagewire_x::y;", "p = { package = \"pagewire-x\" }"] {
        assert_eq!(mentioned(text, &lab), ["pagewire-x"], "{text}");
    }
    assert!(mentioned("pagewire-xy pagewire_x_y pagewire x", &lab).is_empty());
}
