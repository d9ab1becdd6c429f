//! The names of calls in sentences of errors: as each language has them.
//!
//! A sentence names a call as the crate does that made it, in Rust or in C. So here is one list of what stands in sentences, and what each language says
//! instead. A test finds names that the list lacks.

/// A language whose programs read sentences of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    C = 0,
    Cpp = 1,
    Python = 2,
}

impl Language {
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// A part of a sentence, and what it is in C, in C++ and in Python.
type Phrase = (&'static str, [&'static str; Language::COUNT]);

/// Longer ones stand before those that are parts of them.
const PHRASES: &[Phrase] = &[
    ("`Scheme::Operations`", ["PW_BY_OPERATIONS", "PW_BY_OPERATIONS", "Scheme.BY_OPERATIONS"]),
    ("`Scheme::Handler`", ["PW_BY_HANDLER", "PW_BY_HANDLER", "Scheme.BY_HANDLER"]),
    ("`Scheme::Nearest`", ["PW_NEAREST", "PW_NEAREST", "Scheme.NEAREST"]),
    ("name their log by `to`, or `to_fault_log`", ["name their log"; 3]),
    ("call `replay`", ["call pw_logged_process_replay()", "call replay()", "call replay()"]),
    ("to `connect`", ["to pw_logged_process_connect()", "to connect()", "to connect()"]),
    (
        "`put` and `get` of a LoggedProcess",
        [
            "pw_logged_process_put() and pw_logged_process_get()",
            "put() and get() of a pw::logged_process",
            "put() and get() of a LoggedProcess",
        ],
    ),
    ("drop a heap, or share one by `HeapRef`", ["end one of them"; 3]),
    ("`HeapOptions::range`", ["PAGEWIRE_HEAP_RANGE"; 3]),
    ("set `HeapOptions::ceiling` to more", ["give it a higher ceiling"; 3]),
    ("or ask for `Heap::fork_copies` there", ["or run the parent by 'pagewire run --heap'"; 3]),
    ("call `Heap::set_export_owner` before the first export", ["make a node first"; 3]),
    ("PW_BY_OPERATIONS", ["PW_BY_OPERATIONS", "PW_BY_OPERATIONS", "Scheme.BY_OPERATIONS"]),
    ("PW_BY_HANDLER", ["PW_BY_HANDLER", "PW_BY_HANDLER", "Scheme.BY_HANDLER"]),
    ("PW_NEAREST", ["PW_NEAREST", "PW_NEAREST", "Scheme.NEAREST"]),
    (
        "PW_READ, PW_WRITE or PW_ATOMIC, or several of them by OR",
        [
            "PW_READ, PW_WRITE or PW_ATOMIC, or several of them by OR",
            "PW_READ, PW_WRITE or PW_ATOMIC, or several of them by OR",
            "read=True, write=True or atomic=True, or several of them",
        ],
    ),
    ("pw_batches_end:", ["pw_batches_end:", "end of batches:", "close():"]),
    ("pw_log_free:", ["pw_log_free:", "end of a log:", "close():"]),
    ("pw_log_poll:", ["pw_log_poll:", "poll():", "poll():"]),
    ("pw_log_serve_polling()", ["pw_log_serve_polling()", "serve_polling()", "serve_polling()"]),
    ("pw_node_leave:", ["pw_node_leave:", "leave():", "leave():"]),
    ("pw_transaction_store_serve()", ["pw_transaction_store_serve()", "serve()", "serve()"]),
    (
        "no object of pw_malloc()",
        ["no object of pw_malloc()", "no object of pw_malloc()", "no array of node.empty() or node.zeros()"],
    ),
];

/// A sentence of an error as programs of a language read it.
pub fn in_language(sentence: &str, language: Language) -> String {
    let mut sentence = sentence.to_owned();
    for (phrase, names) in PHRASES {
        let name = names[language as usize];
        if *phrase != name && sentence.contains(phrase) {
            sentence = sentence.replace(phrase, name);
        }
    }
    sentence
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::{Path, PathBuf};

    const LANGUAGES: [Language; Language::COUNT] = [Language::C, Language::Cpp, Language::Python];

    fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && path.file_stem().is_some_and(|stem| stem != "tests")
            {
                into.push(path);
            }
        }
    }

    /// The literals of strings of a file, but for those of its tests, of comments and of attributes.
    fn literals(source: &str) -> Vec<String> {
        let code = source.split("#[cfg(test)]\nmod tests").next().unwrap();
        let lines =
            code.lines().filter(|line| !line.trim_start().starts_with("//") && !line.contains("#[must_use"));
        let code = lines.collect::<Vec<_>>().join("\n").replace("'\"'", "' '");
        let (mut found, mut literal, mut characters) = (Vec::new(), None::<String>, code.chars().peekable());
        while let Some(character) = characters.next() {
            match (character, &mut literal) {
                ('"', None) => literal = Some(String::new()),
                ('"', Some(_)) => found.extend(literal.take()),
                // A line that goes on in the next one.
                ('\\', Some(_)) if characters.peek() == Some(&'\n') => {
                    while characters.next_if(|next| next.is_whitespace()).is_some() {}
                }
                ('\\', Some(text)) => text.extend(characters.next()),
                (character, Some(text)) => text.push(character),
                (_, None) => {}
            }
        }
        found
    }

    /// Whether a sentence still has a name of Rust: a path or a call between backticks.
    fn has_rust_name(sentence: &str) -> bool {
        let names = sentence.split('`').skip(1).step_by(2);
        names.into_iter().any(|name| {
            !name.is_empty()
                && name.chars().all(|character| character.is_alphanumeric() || "_:()".contains(character))
        })
    }

    #[test]
    fn sentences_have_no_names_of_rust() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut files = Vec::new();
        for name in ["pagewire", "active", "experimental", "heap", "checkpoint"] {
            sources(&crates.join(name).join("src"), &mut files);
        }
        let mut named = 0;
        for file in files {
            for sentence in literals(&std::fs::read_to_string(&file).unwrap()) {
                named += usize::from(has_rust_name(&sentence));
                for language in LANGUAGES {
                    let said = in_language(&sentence, language);
                    assert!(!has_rust_name(&said), "{}, {language:?}: {said}", file.display());
                }
            }
        }
        assert!(named >= 10, "{named} sentences with names: are the sources read?");
    }

    /// What C++ and Python programs read has no call of C, but for those that programs of C alone make.
    #[test]
    fn sentences_have_calls_of_their_language() {
        // Of verbs programs, and of the wrappers themselves; the names of the calls that all processes make.
        let of_c = [
            "pw_checkpoint_region",
            "pw_handler_failed",
            "pw_conditional_write",
            "pw_all_gather",
            "pw_broadcast",
        ];
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        files.retain(|file| file.file_stem().is_some_and(|stem| stem != "language"));
        for file in files {
            for sentence in literals(&std::fs::read_to_string(&file).unwrap()) {
                // One word is a mark of an object, or a name for programs.
                if !sentence.contains(' ') || of_c.iter().any(|call| sentence.contains(call)) {
                    continue;
                }
                let said = in_language(&sentence, Language::Python);
                assert!(!said.contains("pw_"), "{}: {said}", file.display());
            }
        }
    }

    #[test]
    fn a_sentence_names_what_its_language_has() {
        let sentence = "take `Scheme::Nearest` or `Scheme::Handler`";
        assert_eq!(in_language(sentence, Language::C), "take PW_NEAREST or PW_BY_HANDLER");
        assert_eq!(in_language(sentence, Language::Python), "take Scheme.NEAREST or Scheme.BY_HANDLER");
    }
}
