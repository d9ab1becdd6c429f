//! Forked children: each call of the C interface on an object of the parent, and each that takes none.
//!
//! The calls are made of the headers, so that a new one is not forgotten: one with an object goes into `forked_calls.h`, and one without is to
//! stand in `tests/c/forked.c`.

use super::{compile, crate_folder, finish, library, output, run_job_of, said};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// The headers whose calls a child makes.
const HEADERS: [&str; 3] =
    ["include/pagewire.h", "include/pagewire_experimental.h", "include/pagewire_verbs.h"];

/// A declaration of a header.
struct Call {
    result: String,
    name: String,
    arguments: Vec<String>,
}

fn read(name: &str) -> String {
    std::fs::read_to_string(crate_folder().join(name)).unwrap()
}

/// The code of a header, without comments and lines of the preprocessor.
fn code(header: &str) -> String {
    let mut code = String::new();
    let mut rest = header;
    while let Some((before, comment)) = rest.split_once("/*") {
        code += before;
        rest = comment.split_once("*/").unwrap().1;
    }
    code += rest;
    code.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// The declarations of functions `pw_*`.
fn calls() -> Vec<Call> {
    let code = HEADERS.map(|header| code(&read(header))).concat();
    let of_one = |statement: &str| {
        let statement = statement.split('}').next_back()?.split_whitespace().collect::<Vec<_>>().join(" ");
        let (head, arguments) = statement.split_once('(')?;
        let (arguments, behind) = arguments.rsplit_once(')')?;
        let start = head.rfind("pw_")?;
        let (result, name) = head.split_at(start);
        let is_call = behind.is_empty()
            && !result.contains("typedef")
            && !result.contains("static")
            && !result.trim().is_empty();
        let is_call = is_call
            && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
            && !result.contains("= ");
        is_call.then(|| Call {
            result: result.trim().into(),
            name: name.into(),
            arguments: arguments.split(',').map(|argument| argument.trim().into()).collect(),
        })
    };
    code.split(';').filter_map(of_one).collect()
}

/// The names that the shared object exports.
fn exported() -> BTreeSet<String> {
    let map = read("pagewire.map") + &read("experimental.map");
    let names = map.split(|char: char| !char.is_ascii_alphanumeric() && char != '_');
    names.filter(|name| name.starts_with("pw_")).map(str::to_owned).collect()
}

/// Types of pointers that C programs hold, and get of calls.
fn object_types() -> BTreeSet<String> {
    let code = code(&read("include/pagewire.h")) + &code(&read("include/pagewire_experimental.h"));
    let of_one = |statement: &str| {
        let words: Vec<_> = statement.split_whitespace().collect();
        match words[..] {
            ["typedef", "struct", tag, name] if tag == name => Some(name.to_owned()),
            _ => None,
        }
    };
    let verbs = ["struct ibv_mr", "struct ibv_qp"].map(str::to_owned);
    code.split([';', '}']).filter_map(of_one).chain(verbs).collect()
}

/// The type of an argument that is a pointer to an object.
fn object<'a>(argument: &str, types: &'a BTreeSet<String>) -> Option<&'a String> {
    let (kind, name) = argument.rsplit_once('*')?;
    let kind = kind.trim().trim_start_matches("const ");
    types.get(kind).filter(|_| !name.contains('*'))
}

/// What a call gets. Objects are the parent's; all else is what a call could use.
fn value(argument: &str, types: &BTreeSet<String>) -> String {
    if let Some(object) = object(argument, types) {
        return format!("object_{}", object.trim_start_matches("struct "));
    }
    let (kind, _) = argument.rsplit_once([' ', '*']).unwrap();
    let is_pointer = argument.contains('*');
    match kind.trim().trim_start_matches("const ").trim_end_matches([' ', '*']) {
        "pw_handler" => "sees_access".into(),
        "pw_batch_handler" => "sees_batched_put".into(),
        "pw_page_handler" => "sees_page".into(),
        "pw_element_function" => "sees_element".into(),
        "pw_token" => "&shared_token".into(),
        "pw_peer" => "&a_peer".into(),
        "char" => "path".into(),
        "pw_remote *const" => "&object_pw_remote".into(),
        _ if is_pointer => "(void *)place_of_result".into(),
        _ => "1".into(),
    }
}

/// A function of C that makes each call which takes an object.
fn calls_on_objects(calls: &[Call], types: &BTreeSet<String>) -> String {
    let mut text = "static void calls_on_objects(void)\n{\n".to_owned();
    for Call { result, name, arguments } in calls {
        if !arguments.iter().any(|argument| object(argument, types).is_some()) {
            continue;
        }
        let values: Vec<_> = arguments.iter().map(|argument| value(argument, types)).collect();
        let call = format!("{name}({})", values.join(", "));
        let checked = match result.as_str() {
            "pw_error" => format!("check_code(\"{name}\", PW_FORKED, {call})"),
            _ => format!("(void){call};\n    check_message(\"{name}\")"),
        };
        writeln!(text, "    begin_call(\"{name}\");\n    {checked};").unwrap();
    }
    text + "}\n"
}

fn program() -> std::path::PathBuf {
    let (calls, types) = (calls(), object_types());
    let text = calls_on_objects(&calls, &types);
    let source = crate_folder().join("tests/c/forked.c");
    let children = std::fs::read_to_string(&source).unwrap();
    let declared: BTreeSet<_> = calls.iter().map(|call| call.name.clone()).collect();
    for name in exported() {
        assert!(declared.contains(&name), "{name} is exported, and stands in no header");
        let name = name.strip_suffix("_for").unwrap_or(&name);
        let is_made = [&text, &children].iter().any(|text| text.contains(&format!("{name}(")));
        assert!(is_made, "no forked child calls {name}: add it to tests/c/forked.c");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forked");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("forked_calls.h"), text).unwrap();
    let program = library().parent().unwrap().join("forked");
    let mut compiler: Command = compile::command([&source], &program);
    compiler.arg(format!("-I{}", folder.display())).arg("-lpthread");
    finish(compiler, &source);
    program
}

#[test]
fn each_call_in_forked_child() {
    let program = program();
    for path in ["local", "udp"] {
        let ended = output(Command::new(&program).env("PAGEWIRE_PATH", path));
        assert_eq!(said(&ended), "children of process 0: ok\n", "{path}");
        assert!(ended.stderr.is_empty(), "{path}: {}", String::from_utf8_lossy(&ended.stderr));
    }
    for said in run_job_of(2, &program) {
        assert_eq!(said, "children of process 0: ok\nchildren of process 1: ok\n");
    }
}
