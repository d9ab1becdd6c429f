//! Experimental applications: the examples of the guide, and what callers may do wrong.

use super::{compiled, compiled_plus_plus, not_checked, output, run, run_job, run_job_of, said, shown};
use std::process::Command;

/// The kernel may have no such memory, or not for this user.
#[test]
fn processes_share_global_memory() {
    let program = compiled("tests/c/global_memory.c");
    let said = run_job_of(2, &program);
    if said.iter().any(|said| said.contains("none")) {
        return not_checked::tell("global memory from C: userfaultfd(2) is not to be had");
    }
    assert_eq!(said, ["", ""]);
    run(&program, "");
    let program = compiled("examples/global_memory.c");
    run(&program, &shown("experimental-gas", "global_memory"));
    for said in run_job_of(2, &program) {
        let sum = "make 536854528\n";
        assert_eq!(
            said,
            format!("the words of process 0 {sum}the words of process 1 {sum}all have counted to 2000\n")
        );
    }
}

#[test]
fn streams_keep_their_promises() {
    assert_eq!(run_job(&compiled("tests/c/stream.c")), ["", ""]);
    run(&compiled("examples/stream.c"), &shown("experimental-stream", "stream"));
}

#[test]
fn transactions_keep_their_promises() {
    let program = compiled("tests/c/transactions.c");
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(&program);
        command.arg(folder.path().join("journal")).env("PAGEWIRE_PATH", path);
        assert_eq!(said(&output(&mut command)), "", "{path}");
    }
    run(&compiled("examples/transactions.c"), &shown("experimental-transactions", "transactions"));
}

#[test]
fn applications_go_from_c_plus_plus() {
    if let Some(program) = compiled_plus_plus("tests/cpp/experimental.cpp") {
        run(&program, "");
    }
}
