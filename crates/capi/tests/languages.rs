//! Whether each operation stands in `languages.tsv`, by its name in each language or with the reason why the language has none.
//!
//! A call that is public and not in the table fails, and so does a name in the table that is gone: no language falls behind unseen.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const LANGUAGES: [&str; 4] = ["rust", "c", "c++", "python"];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files below a folder, in order of their names.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|other| other == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The word that stands before the first of these in a text.
fn word_before<'t>(text: &'t str, end: &str) -> Option<&'t str> {
    let before = text.split_once(end)?.0;
    before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next().filter(|word| is_word(word))
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

/// The public calls of a crate: of each type that its public modules have or re-export.
struct Crate {
    source: PathBuf,
    types: BTreeSet<String>,
    functions: BTreeSet<String>,
}

impl Crate {
    fn calls(name: &str, prefix: &str) -> BTreeSet<String> {
        let source = project().join("crates").join(name).join("src");
        let mut this = Crate { source: source.clone(), types: BTreeSet::new(), functions: BTreeSet::new() };
        this.take_module(&source.join("lib.rs"));
        let mut calls = this.functions.clone();
        for file in files(&source, "rs") {
            this.take_methods(&read(file), &mut calls);
        }
        calls.into_iter().map(|call| format!("{prefix}{call}")).collect()
    }

    /// What a public module declares and re-exports, at its first column.
    fn take_module(&mut self, file: &Path) {
        let text = read(file);
        let mut is_hidden = false;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line.starts_with("#[") {
                is_hidden |= line.contains("doc(hidden)") || line.contains("cfg(test)");
                continue;
            }
            if !std::mem::take(&mut is_hidden) {
                self.take_item(line, &mut lines, file);
            } else if line.starts_with("///") {
                is_hidden = true;
            }
        }
    }

    fn take_item<'t>(&mut self, line: &'t str, lines: &mut impl Iterator<Item = &'t str>, file: &Path) {
        let Some(item) = line.strip_prefix("pub ") else { return };
        if let Some(module) = item.strip_prefix("mod ").and_then(|item| item.strip_suffix(';')) {
            let folder = if file.ends_with("lib.rs") { self.source.clone() } else { file.with_extension("") };
            self.take_module(&folder.join(module).with_extension("rs"));
        } else if item.starts_with("use ") {
            let mut whole = item.to_owned();
            while !whole.ends_with(';') {
                whole += lines.next().expect("a use ends");
            }
            if let Some(module) = self.reexported_module(&whole) {
                return self.take_module(&module);
            }
            let names = whole.split(['{', '}', ',', ':', ';', ' ']).filter(|name| is_word(name));
            let (types, others): (Vec<_>, Vec<_>) =
                names.partition(|name| name.starts_with(char::is_uppercase));
            self.types.extend(types.into_iter().map(str::to_owned));
            // A path's modules are no functions, and those of a list stand in braces.
            let listed = whole.split_once('{').map_or("", |(_, list)| list);
            self.functions
                .extend(others.into_iter().filter(|name| listed.contains(*name)).map(str::to_owned));
        } else if let Some(rest) = item.split_once("fn ").map(|(_, rest)| rest) {
            self.functions.insert(first_word(rest).to_owned());
        } else {
            let kind = ["struct ", "enum ", "trait "].into_iter().find_map(|kind| item.strip_prefix(kind));
            self.types.extend(kind.map(|name| first_word(name).to_owned()));
        }
    }

    /// The file of a module that `lib.rs` makes public by `use`.
    fn reexported_module(&self, item: &str) -> Option<PathBuf> {
        let path = item.strip_prefix("use ")?.strip_suffix(';')?;
        let file = self.source.join(path.replace("::", "/")).with_extension("rs");
        file.exists().then_some(file)
    }

    /// The public methods of its types in a file. Implementations begin in the first column, as rustfmt has them.
    fn take_methods(&self, text: &str, calls: &mut BTreeSet<String>) {
        let (mut of, mut is_hidden) = (None, false);
        for line in text.lines() {
            if line.starts_with("mod tests {") {
                return;
            }
            if line.starts_with("impl") && !line.contains(" for ") {
                let rest = line.strip_prefix("impl").unwrap();
                // Behind the parameters.
                let mut depth = 0;
                let named = rest.find(|c: char| {
                    depth += i32::from(c == '<') - i32::from(c == '>');
                    depth == 0 && c == ' '
                });
                of = named.map(|at| first_word(&rest[at + 1..])).filter(|name| self.types.contains(*name));
            } else if line.starts_with('}') {
                of = None;
            }
            let line = line.trim_start();
            is_hidden |= line.contains("#[doc(hidden)]");
            if let (Some(of), Some(item)) = (of, line.strip_prefix("pub ")) {
                let function = item.split_once("fn ").filter(|(kind, _)| !kind.contains('('));
                if let Some((_, rest)) = function.filter(|_| !is_hidden) {
                    calls.insert(format!("{of}::{}", first_word(rest)));
                }
            }
            if !line.starts_with(['#', '/']) {
                is_hidden = false;
            }
        }
    }
}

/// The functions of the headers for C.
fn c() -> BTreeSet<String> {
    let folder = project().join("crates/capi/include");
    let text = read(folder.join("pagewire.h")) + &read(folder.join("pagewire_verbs.h"));
    let text = text + &read(folder.join("pagewire_experimental.h"));
    let declared = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_alphabetic()));
    let named =
        declared.filter(|line| !line.starts_with("typedef")).filter_map(|line| word_before(line, "("));
    named.filter(|name| name.starts_with("pw_")).map(str::to_owned).collect()
}

/// The public functions of the headers for C++, at the indentation that these have.
fn c_plus_plus() -> BTreeSet<String> {
    let folder = project().join("crates/capi/include");
    let mut calls = BTreeSet::new();
    for file in files(&folder, "hpp") {
        let (mut of, mut is_public, mut is_internal) = (None::<String>, false, false);
        for line in read(file).lines() {
            let is_inner = line.contains("detail") || line.contains("Kokkos");
            if line.starts_with("namespace pw") || line.starts_with("} // namespace") && is_inner {
                is_internal = false;
            } else if line.starts_with("namespace ") {
                is_internal |= is_inner;
            }
            let item = line
                .strip_prefix("template <")
                .and_then(|rest| rest.split_once("> "))
                .map_or(line, |(_, item)| item);
            let class = ["class ", "struct "].into_iter().find_map(|kind| item.strip_prefix(kind));
            if let Some(class) = class.filter(|class| class.ends_with('{')) {
                let class = class.strip_prefix("[[nodiscard]] ").unwrap_or(class);
                of = Some(first_word(class).to_owned());
                is_public = item.starts_with("struct ");
            } else if line.starts_with('}') {
                of = None;
            } else if line.starts_with("public:") {
                is_public = true;
            } else if line.starts_with("private:") || line.starts_with("protected:") {
                is_public = false;
            }
            let call = if is_internal { None } else { function_of(line, of.as_deref(), is_public) };
            calls.extend(call);
        }
    }
    calls
}

/// The function that a line declares, in a class or outside of any.
fn function_of(line: &str, class: Option<&str>, is_public: bool) -> Option<String> {
    let indentation = if class.is_some() { "    " } else { "" };
    let item = line.strip_prefix(indentation)?;
    let starts = item.starts_with(|c: char| c.is_ascii_alphabetic() || c == '[');
    let is_other =
        ["using ", "friend ", "return ", "static_assert", "namespace ", "template <class Object, auto End>"];
    if !starts || is_other.iter().any(|other| item.starts_with(other)) || item.contains("operator") {
        return None;
    }
    let item =
        item.strip_prefix("template <").and_then(|rest| rest.split_once("> ")).map_or(item, |(_, item)| item);
    let before = item.split_once('(')?.0;
    let name = word_before(item, "(")?;
    // A constructor, a destructor, or the body of something.
    if before.ends_with(['=', '~']) || before.contains('=') || before.contains('~') || Some(name) == class {
        return None;
    }
    match class {
        Some(class) if is_public => Some(format!("{class}::{name}")),
        Some(_) => None,
        // A definition of a function has a type before its name.
        None => before.contains(' ').then(|| name.to_owned()),
    }
}

/// The public functions and methods of what the Python packages have in `__all__`.
fn python() -> BTreeSet<String> {
    const OPERATORS: [&str; 5] = ["__getitem__", "__setitem__", "__delitem__", "__contains__", "__await__"];
    let folder = project().join("python/src/pagewire");
    let packages = ["__init__.pyi", "experimental/__init__.py"].map(|file| read(folder.join(file)));
    let listed: BTreeSet<&str> = packages
        .iter()
        .flat_map(|package| package.split_once("__all__").unwrap().1.split('"'))
        .filter(|name| is_word(name))
        .collect();
    let mut calls = BTreeSet::new();
    for file in files(&folder, "py") {
        let mut of = None::<String>;
        for line in read(file).lines() {
            let item = line.trim_start();
            let is_inner = line.starts_with("    ") && !line.starts_with("     ");
            let function = item.strip_prefix("async ").unwrap_or(item).strip_prefix("def ").map(first_word);
            if let Some(class) = line.strip_prefix("class ") {
                of = Some(first_word(class).to_owned()).filter(|name| listed.contains(name.as_str()));
            } else if let Some(name) = function.filter(|_| line == item) {
                of = None;
                calls.extend(listed.contains(name).then(|| name.to_owned()));
            } else if let (Some(of), Some(name), true) = (&of, function, is_inner) {
                if !name.starts_with('_') || OPERATORS.contains(&name) {
                    calls.insert(format!("{of}.{name}"));
                }
            }
        }
    }
    calls
}

fn calls() -> BTreeMap<&'static str, BTreeSet<String>> {
    let mut rust = Crate::calls("pagewire", "");
    rust.extend(Crate::calls("active", "active::"));
    rust.extend(Crate::calls("experimental", "experimental::"));
    BTreeMap::from([("rust", rust), ("c", c()), ("c++", c_plus_plus()), ("python", python())])
}

/// The reasons, and for each language the names of the table, with the line of each.
struct Table {
    reasons: BTreeSet<String>,
    used: BTreeSet<String>,
    names: BTreeMap<&'static str, BTreeMap<String, usize>>,
    faults: Vec<String>,
}

impl Table {
    fn read(text: &str) -> Self {
        let mut this = Table {
            reasons: BTreeSet::new(),
            used: BTreeSet::new(),
            names: BTreeMap::new(),
            faults: Vec::new(),
        };
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
            if let Some(comment) = line.strip_prefix('#') {
                let reason = comment.trim().split_once(": ").map(|(reason, _)| reason);
                this.reasons.extend(reason.filter(|reason| reason.starts_with('-')).map(str::to_owned));
                continue;
            }
            let cells: Vec<&str> = line.split('\t').collect();
            if cells.len() != 5 {
                this.faults.push(format!("line {at} has {} cells, not 5", cells.len()));
                continue;
            }
            for (language, cell) in LANGUAGES.into_iter().zip(&cells[1..]) {
                this.take_cell(at, language, cell);
            }
        }
        this
    }

    fn take_cell(&mut self, at: usize, language: &'static str, cell: &str) {
        if cell.starts_with('-') {
            if !self.reasons.contains(cell) {
                self.faults.push(format!("line {at}: {cell} is no reason that the table explains"));
            }
            self.used.insert(cell.to_owned());
            return;
        }
        if cell.split_whitespace().next().is_none() {
            self.faults.push(format!("line {at}: {language} has neither a name nor a reason"));
        }
        for name in cell.split_whitespace() {
            if let Some(other) = self.names.entry(language).or_default().insert(name.to_owned(), at) {
                self.faults.push(format!("lines {other} and {at}: {language} has {name} twice"));
            }
        }
    }
}

#[test]
fn each_operation_is_in_the_table() {
    let mut table = Table::read(&read(project().join("crates/capi/tests/languages.tsv")));
    for (language, calls) in calls() {
        assert!(calls.len() > 100, "{language}: {calls:?}");
        let names = table.names.remove(language).unwrap_or_default();
        for call in &calls {
            if !names.contains_key(call) {
                table.faults.push(format!("{language} has {call}, and languages.tsv does not"));
            }
        }
        for (name, line) in names {
            if !calls.contains(&name) {
                table.faults.push(format!("line {line}: {language} has no {name}"));
            }
        }
    }
    for reason in table.reasons.difference(&table.used) {
        table.faults.push(format!("no line has the reason {reason}"));
    }
    assert!(table.faults.is_empty(), "{}", table.faults.join("\n"));
}

#[test]
fn a_table_with_faults_is_refused() {
    let faults = |lines: &str| Table::read(&format!("# -none: there is no need\n{lines}")).faults;
    assert_eq!(faults("put\tput\tpw_put\tput\t-none"), Vec::<String>::new());
    assert_eq!(
        faults("put\tput\tpw_put\tput\t-other"),
        ["line 2: -other is no reason that the table explains"]
    );
    assert_eq!(faults("put\tput\tpw_put\tput"), ["line 2 has 4 cells, not 5"]);
    assert_eq!(faults("put\tput\tpw_put\tput\t"), ["line 2: python has neither a name nor a reason"]);
    assert_eq!(faults("put\ta\ta\ta\ta\nget\tb\ta\tb\tb"), ["lines 2 and 3: c has a twice"]);
}
