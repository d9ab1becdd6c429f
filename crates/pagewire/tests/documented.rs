//! Each public type that programs use has an example in its documentation, which `cargo test --doc` runs.

use std::path::Path;

/// The files whose public types programs see.
const FILES: &[&str] = &[
    "bootstrap.rs",
    "operations/buffer.rs",
    "conditional/held.rs",
    "conditional/released.rs",
    "conditional/tag.rs",
    "error.rs",
    "operations/flush.rs",
    "regions/mapped_file.rs",
    "nodes/node.rs",
    "operations/operation.rs",
    "regions/raw.rs",
    "nodes/part.rs",
    "regions/region.rs",
    "regions/remote.rs",
    "regions/rights.rs",
    "regions/signal.rs",
    "operations/waits.rs",
    "regions/token.rs",
];

/// The type that a line declares, if that is public: its kind and name.
fn declared(line: &str) -> Option<String> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace();
    let kind = words.find(|word| *word != "unsafe")?;
    let is_type = ["struct", "enum", "trait", "type"].contains(&kind);
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    is_type.then(|| format!("{kind} {name}"))
}

#[test]
fn each_public_type_has_an_example() {
    let mut without = Vec::new();
    let mut found = 0;
    for file in FILES {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
        let mut has_example = false;
        for line in text.lines().take_while(|line| *line != "#[cfg(test)]") {
            // The trait that seals another one is inside a module.
            if let Some(item) = declared(line).filter(|item| item != "trait Sealed") {
                found += 1;
                if !has_example {
                    without.push(format!("{file}: {item}"));
                }
            }
            match line.trim_start() {
                doc if doc.starts_with("///") => has_example |= doc.contains("```"),
                // Nobody sees it.
                hidden if hidden.starts_with("#[doc(hidden)]") => has_example = true,
                attribute if attribute.starts_with('#') => {}
                _ => has_example = false,
            }
        }
    }
    assert!(found > 30, "the search has found {found} types");
    assert!(without.is_empty(), "no example:\n{}", without.join("\n"));
}
