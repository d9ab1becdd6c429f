//! Experimental applications: the examples of the guide, and what callers may do wrong.

use super::{
    compiled, compiled_plus_plus, guide_has, not_checked, output, run, run_in_folder, run_job, run_job_of,
    said, shown,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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

/// What the program of the guide prints of a part of the sorted keys.
fn sorted_part(rank: usize, size: usize, count: usize) -> String {
    let key = |index: u64| (index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut keys: Vec<u64> = (0..(size * count) as u64).map(key).collect();
    keys.sort_unstable();
    let part = &keys[rank * count..(rank + 1) * count];
    let sum = part.iter().fold(0u64, |sum, key| sum.wrapping_add(*key));
    let (first, last) = (part[0], part[count - 1]);
    format!(
        "process {rank}: {count} keys from position {} on, {first:016x} to {last:016x}, their sum {sum:016x}\n",
        rank * count
    )
}

/// Two processes sort. One is killed when both have begun, and started again.
#[test]
fn a_sort_survives_the_death_of_a_process() {
    const KEYS: usize = 30_000;
    run_in_folder(&compiled("tests/c/sort.c"), "");
    guide_has("experimental-sort", "sort");
    let program = compiled("examples/sort.c");
    let start = |folder: &Path, path: &str, rank: usize| -> Child {
        let mut command = Command::new(&program);
        command.arg(folder).args([rank.to_string(), "2".to_owned(), KEYS.to_string()]);
        command.env("PAGEWIRE_PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    for path in ["local", "udp"] {
        let folder = tempfile::tempdir().unwrap();
        let (survivor, mut victim) = (start(folder.path(), path, 0), start(folder.path(), path, 1));
        let begun = Instant::now();
        while !["token-0", "token-1"].iter().all(|name| folder.path().join(name).exists()) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{path}: no process has begun");
            std::thread::sleep(Duration::from_millis(1));
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        let heir = start(folder.path(), path, 1);
        for (rank, process) in [survivor, heir].into_iter().enumerate() {
            let ended = process.wait_with_output().unwrap();
            assert_eq!(said(&ended), sorted_part(rank, 2, KEYS), "{path}");
        }
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
