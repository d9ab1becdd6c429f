//! Who keeps the buffer of an operation, in C++: what would let it end first does not compile.

use crate::{compiled, compiled_plus_plus, crate_folder, run_in_folder};
use std::process::{Command, Output};

#[test]
fn operations_keep_their_buffers_in_c_plus_plus() {
    if let Some(program) = compiled_plus_plus("tests/cpp/operations.cpp") {
        run_in_folder(&program, "file");
    }
}

#[test]
fn files_are_mapped() {
    run_in_folder(&compiled("tests/c/mapped_file.c"), "");
}

/// Checks a statement, in a function that has what it names. `None`: there is no compiler.
fn checked(standard: &str, statement: &str) -> Option<Output> {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("statement.cpp");
    let program = format!(
        "#include <pagewire.hpp>\n#include <string_view>\n\
         std::vector<int> made();\n\
         void f(pw::node &node, pw::remote &remote, pw::conditional_request &request, const pw::peer &peer, std::vector<int> &kept,\n\
         const std::vector<int> &constant, const std::vector<pw_piece> &pieces, const pw::signal &change)\n\
         {{\n    {statement};\n    (void)node, (void)remote, (void)request, (void)peer, (void)kept, (void)constant, (void)pieces, (void)change;\n}}\n"
    );
    std::fs::write(&source, program).unwrap();
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(["-fsyntax-only", "-Wall", "-Wextra", "-Werror"]);
    command.arg(format!("-I{}", crate_folder().join("include").display())).arg(source);
    match command.output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            crate::not_checked::tell("buffers in C++, for want of a C++ compiler (Debian package g++)");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Each is refused where it stands, and not for another cause.
const REFUSED: [&str; 18] = [
    "remote.put(0, kept).wait()",
    "remote.put(0, constant).wait()",
    "remote.put(0, std::string_view(\"view\")).wait()",
    "remote.get(0, kept).wait()",
    "remote.put_signal(0, kept, change).wait()",
    "remote.put_scattered(pieces, kept).wait()",
    "remote.get_scattered(pieces, kept).wait()",
    "remote.put(0, pw::borrowed(made())).wait()",
    "remote.put(0, pw::borrowed(std::move(kept))).wait()",
    "remote.put(0, pw::borrowed(std::move(constant))).wait()",
    "remote.get(0, pw::borrowed(std::vector<int>(3))).wait()",
    "remote.get(0, pw::borrowed(constant)).wait()",
    "remote.put_signal(0, pw::borrowed(made()), change).wait()",
    "node.conditional_write(peer, 1, kept).wait()",
    "node.conditional_write(peer, 1, pw::borrowed(made())).wait()",
    "request.supply(kept).wait()",
    "request.supply(pw::borrowed(made())).wait()",
    // Nobody has the operation.
    "remote.put(0, made())",
];

const TAKEN: &str = "remote.put(0, made()).wait(); kept = remote.put(0, std::move(kept)).wait(); remote.put(0, pw::borrowed(kept)).wait();\
    remote.put(0, pw::borrowed(constant)).wait(); remote.put(0, pw::borrowed(std::string_view(\"view\"))).wait();\
    remote.get(0, pw::borrowed(kept)).wait(); kept = remote.get(0, std::move(kept)).wait(); kept = remote.get<int>(0, 3).wait();\
    kept = node.conditional_write(peer, 1, std::move(kept)).wait(); kept = request.supply(std::move(kept)).wait()";

#[test]
fn buffers_that_end_first_do_not_compile() {
    // A view is another type there.
    for (standard, refused) in [("c++17", &REFUSED[..]), ("c++20", &REFUSED[2..3])] {
        let Some(output) = checked(standard, TAKEN) else { return };
        assert!(output.status.success(), "{standard}: {}", String::from_utf8_lossy(&output.stderr));
        for statement in refused {
            let Some(output) = checked(standard, statement) else { return };
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{standard}: this compiles: {statement}");
            // The seventh line is the statement.
            let first = errors.lines().find(|line| line.contains(": error:")).unwrap_or_default();
            assert!(first.contains("statement.cpp:7:"), "{standard}: {statement}\n{errors}");
        }
    }
}
