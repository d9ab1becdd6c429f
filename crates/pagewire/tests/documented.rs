//! Each public item that programs use has an example in its documentation, which `cargo test --doc` runs.

use std::path::Path;

/// The files whose public items programs see.
const FILES: &[&str] = &[
    "bootstrap.rs",
    "operations/buffer.rs",
    "conditional/held.rs",
    "conditional/released.rs",
    "conditional/tag.rs",
    "error.rs",
    "operations/flush.rs",
    "nodes/conditional_writes.rs",
    "regions/heap.rs",
    "regions/mapped_file.rs",
    "nodes/node.rs",
    "operations/operation.rs",
    "regions/raw.rs",
    "regions/atomics.rs",
    "nodes/part.rs",
    "regions/region.rs",
    "regions/remote.rs",
    "regions/rights.rs",
    "regions/signal.rs",
    "regions/signals.rs",
    "operations/waits.rs",
    "regions/token.rs",
];

/// What a line declares, if that is public: its kind and name.
fn declared(line: &str) -> Option<String> {
    let mut words = line.trim_start().strip_prefix("pub ")?.split_whitespace();
    let kind = words.find(|word| !["unsafe", "async", "const"].contains(word))?;
    let is_meant = ["fn", "struct", "enum", "trait", "type"].contains(&kind);
    let name: String = words.next()?.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    is_meant.then(|| format!("{kind} {name}"))
}

/// The type that an `impl` of a line is of.
fn implemented(line: &str) -> Option<String> {
    let rest = line.strip_prefix("impl")?.split(" for ").last()?;
    let mut depth = 0;
    let outside = rest.chars().filter(|c| {
        depth += i32::from(*c == '<') - i32::from(*c == '>');
        depth == 0 && (c.is_alphanumeric() || *c == '_' || *c == ' ')
    });
    outside.collect::<String>().split_whitespace().next().map(str::to_owned)
}

#[test]
fn each_public_item_has_an_example() {
    let mut without = Vec::new();
    let mut found = 0;
    for file in FILES {
        let text =
            std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(file)).unwrap();
        let is_private = |name: &str| {
            let of = |visibility: &str| text.contains(&format!("\n{visibility}struct {name}"));
            of("") || of("pub(crate) ")
        };
        let (mut owner, mut has_example) = (None, false);
        for line in text.lines() {
            if line == "#[cfg(test)]" {
                break;
            }
            owner = implemented(line).or(owner);
            let item = declared(line);
            let is_of_private = owner.as_deref().is_some_and(is_private) && line.starts_with(' ');
            let is_inside_module = item.as_deref() == Some("trait Sealed");
            if let Some(item) = item.filter(|_| !is_of_private && !is_inside_module) {
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
    assert!(found > 100, "the search has found {found} items");
    assert!(without.is_empty(), "no example:\n{}", without.join("\n"));
}
