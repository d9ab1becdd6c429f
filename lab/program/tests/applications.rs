//! The applications of PART as a user runs them: LAMMPS with two processes on one host and on two. Needs LAMMPS, Open MPI and an install tree (`make build`,
//! or `PAGEWIRE_BUILD`).

#[path = "../../../tests/src/not_checked.rs"]
mod not_checked;

use pagewire_cli::hosts::Hosts;
use pagewire_cli::install::in_path;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// This program beside an installed engine; or what is missing.
fn installed() -> Result<TempDir, String> {
    for (program, package) in
        [("lmp", "lammps"), ("mpirun", "openmpi-bin"), ("mpicc", "libopenmpi-dev"), ("ucx_info", "ucx-utils")]
    {
        in_path(program).ok_or_else(|| format!("{program} is missing ({package})"))?;
    }
    let tree = std::env::var_os("PAGEWIRE_BUILD")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build"), PathBuf::from);
    let tree = tree.canonicalize().map_err(|error| format!("{} (make build): {error}", tree.display()))?;
    let prefix = tempfile::tempdir().unwrap();
    // Else programs of another user could not start what lies there, and all of it would be copied.
    fs::set_permissions(prefix.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let helpers = prefix.path().join("libexec/pagewire");
    fs::create_dir_all(&helpers).unwrap();
    for folder in ["bin", "lib"] {
        symlink(tree.join(folder), prefix.path().join(folder)).unwrap();
    }
    let (own, lab) = (Path::new(env!("CARGO_BIN_EXE_pagewire-lab")), helpers.join("lab"));
    fs::hard_link(own, &lab).or_else(|_| fs::copy(own, &lab).map(drop)).unwrap();
    Ok(prefix)
}

/// One run: the budget is used up after it.
fn run(prefix: &Path, out: &Path, options: &[&str]) -> Output {
    let words = ["reproduce", "part", "--applications", "--table", "2", "--pairs", "1", "--budget", "0"];
    let mut command = Command::new(prefix.join("libexec/pagewire/lab"));
    command.args(words).arg("--out").arg(out).args(options).output().unwrap()
}

#[test]
fn lammps_goes_on_where_it_was_and_wrong_result_fails() {
    let prefix = match installed() {
        Ok(prefix) => prefix,
        Err(why) => return not_checked::tell(format!("LAMMPS over Pagewire: {why}")),
    };
    let out = prefix.path().join("out");
    let runs = || fs::read_to_string(out.join("part-applications.jsonl")).unwrap();
    let done = run(prefix.path(), &out, &["--path", "udp", "--json"]);
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() == 2 && lines[0]["provenance"]["kernel"].is_string(), "{text}");
    let plain = &lines[1];
    assert_eq!((&plain["buffers"], &plain["runs"]), (&"never pinned".into(), &1.into()));
    assert!(plain["seconds"].as_f64().unwrap() > 0.0 && plain["sends"].as_f64().unwrap() > 0.0);
    assert!(plain["page_faults"].as_f64().unwrap() > 0.0 && plain["touched_pages"] == 0.0, "{plain}");
    assert_eq!(plain["paper_seconds"], 79.21);

    let first = runs();
    let done = run(prefix.path(), &out, &["--path", "udp"]);
    assert!(done.status.success(), "{done:?}");
    assert!(runs().starts_with(&first) && runs().lines().count() == 3, "{}", runs());
    let touched: Value = serde_json::from_str(runs().lines().last().unwrap()).unwrap();
    assert!(touched["measured"]["touched_pages"].as_u64().unwrap() > 0, "{touched}");
    let csv = fs::read_to_string(out.join("part-applications.csv")).unwrap();
    assert!(csv.lines().count() == 3 && csv.contains("\"touched before each use\""), "{csv}");

    // One digit of one atom.
    let reference = out.join("part-lammps-2.reference");
    let right = fs::read_to_string(&reference).unwrap();
    fs::write(&reference, right.trim_end().to_owned() + "0\n").unwrap();
    let done = run(prefix.path(), &out, &["--path", "udp"]);
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(text.contains("its result is not that of UCX's shared memory"), "{text}");
}

/// The result is that of one host in all digits, or the run would have failed.
#[test]
fn lammps_has_one_process_on_each_of_two_hosts() {
    let prefix = match installed() {
        Ok(prefix) => prefix,
        Err(why) => return not_checked::tell(format!("LAMMPS on two hosts: {why}")),
    };
    if let Err(why) = Hosts::make(1500) {
        return not_checked::tell(format!("LAMMPS on two hosts: {why:#}"));
    }
    let out = prefix.path().join("out");
    for path in ["udp", "tcp"] {
        let done = run(prefix.path(), &out, &["--hosts", "2", "--path", path, "--json"]);
        assert!(done.status.success(), "{done:?}");
        let text = String::from_utf8(done.stdout).unwrap();
        let cell: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(cell["path"], path, "{text}");
        let counts = ["hosts", "processes", "runs", "failed"].map(|name| cell[name].as_u64());
        assert_eq!(counts, [2, 2, 1, 0].map(Some), "{text}");
        assert!(cell["sends"].as_f64().unwrap() > 0.0 && cell["page_faults"].as_f64().unwrap() > 0.0);
    }
    let runs = fs::read_to_string(out.join("part-applications.jsonl")).unwrap();
    assert!(runs.contains("LAMMPS, 2, udp, plain, 2 hosts"), "{runs}");

    // Runs on one host stand beside them in the folder.
    let done = run(prefix.path(), &out, &["--path", "udp", "--json"]);
    let text = String::from_utf8(done.stdout).unwrap();
    assert!(done.status.success() && text.lines().count() == 2 && text.contains("\"hosts\":1"), "{text}");
}

/// Open MPI over Pagewire and over TCP without it, each in every kind of a group: all have the result of one host.
#[test]
fn every_cell_of_two_hosts_has_the_result_of_one_host() {
    let prefix = match installed() {
        Ok(prefix) => prefix,
        Err(why) => return not_checked::tell(format!("LAMMPS on two hosts: {why}")),
    };
    if let Err(why) = Hosts::make(1500) {
        return not_checked::tell(format!("LAMMPS on two hosts: {why:#}"));
    }
    let out = prefix.path().join("out");
    let mut last = String::new();
    // Never pinned, touched, pinned, UCX's TCP, Open MPI's.
    for _ in 0..5 {
        let done = run(prefix.path(), &out, &["--hosts", "2", "--path", "tcp"]);
        last = String::from_utf8(done.stdout).unwrap();
        // A user may not lock memory, which is no failure.
        assert!(done.status.success(), "{last}");
    }
    let runs = fs::read_to_string(out.join("part-applications.jsonl")).unwrap();
    assert!(runs.lines().count() == 6 && last.contains("Open MPI tcp"), "{runs}{last}");
}
