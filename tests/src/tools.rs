//! Programs under tools that look into a process, and programs that ask for what is not built: what they say of it.

use crate::ground::Ground;
use crate::limits::RUN;
use crate::{compile, not_checked};
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::{Finished, Running, run_pair};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

fn run(command: Command) -> Result<Finished> {
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

/// With the suppressions that are installed valgrind finds nothing in a program that does nothing wrong, on both paths.
///
/// # Errors
/// If it does.
pub fn valgrind_is_content(ground: &Ground) -> Result<()> {
    let suppressions = ground.stage.file("valgrind.supp");
    std::fs::copy(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/share/pagewire/valgrind.supp"),
        &suppressions,
    )
    .context("the install tree has no suppressions (make build)")?;
    for (path, port) in [("local", 18_530_u16), ("udp", 18_531)] {
        let end = || {
            let mut command = ground.hosts.first.command(&ground.stage.command);
            command.args([
                "run",
                "--path",
                path,
                "--",
                "valgrind",
                "--leak-check=full",
                "--show-leak-kinds=all",
            ]);
            command.args(["--errors-for-leak-kinds=all", "--error-exitcode=99"]);
            command.arg(format!("--suppressions={}", suppressions.display()));
            command.args(["ibv_rc_pingpong", "-g", "0", "-n", "20", "-c", "-p", &port.to_string()]);
            command
        };
        let mut client = end();
        client.arg(ground.hosts.first.address.to_string());
        let pair = run_pair(end(), client, port, RUN)?;
        ensure!(pair.success(), "{path}: {}", pair.complaint());
        ensure!(pair.server.output.contains("ERROR SUMMARY: 0 errors"), "{}", pair.server.output);
    }
    Ok(())
}

/// A verbs program that is built with AddressSanitizer starts: its runtime stays the first library. One whose runtime the caller
/// preloads does, too.
///
/// # Errors
/// If it does not.
pub fn a_sanitized_program_runs(ground: &Ground) -> Result<()> {
    let source = ground.stage.file("sanitized.c");
    std::fs::write(
        &source,
        "#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void) { int n = 0; struct ibv_device **l = \
         ibv_get_device_list(&n); struct ibv_context *c = n ? ibv_open_device(l[0]) : 0; printf(\"devices %d %d\\n\", n, !!c); \
         if (c) ibv_close_device(c); ibv_free_device_list(l); return !c; }\n",
    )?;
    let program = ground.stage.file("sanitized");
    let mut asked = Command::new("cc");
    asked.arg("-print-file-name=libasan.so");
    // The bare name where there is none.
    let runtime = PathBuf::from(run(asked)?.output.trim());
    if !runtime.is_file() {
        not_checked::tell("tools::a_sanitized_program_runs: the C compiler has no libasan.so");
        return Ok(());
    }
    compile::c([&source], &program, &["-fsanitize=address", "-libverbs"])?;
    for preloaded in [false, true] {
        let mut command = ground.hosts.first.command(&ground.stage.command);
        command.args(["run", "--"]).arg(&program).env("ASAN_OPTIONS", "detect_leaks=0");
        if preloaded {
            command.env("LD_PRELOAD", runtime.canonicalize()?);
        }
        let finished = run(command)?;
        ensure!(finished.success(), "{preloaded:?}: {}\n{}", finished.verdict(), finished.output);
        ensure!(
            finished.output.contains("devices ") && !finished.output.contains("come first"),
            "{}",
            finished.output
        );
    }
    Ok(())
}

/// A peer that asks queue pair 1 for a connection is refused.
///
/// # Errors
/// If it is left without an answer, or with another one.
pub fn a_peer_that_asks_to_connect_is_refused(ground: &Ground) -> Result<()> {
    let port = "18532";
    let mut server = ground.hosts.first.command(&ground.stage.command);
    server.args(["run", "--path", "udp", "--", "ibv_rc_pingpong", "-g", "0", "-p", port]);
    let mut server = Running::start(server)?;
    ensure!(server.wait_listening(port.parse()?), "the server did not listen");
    let mut peer = ground.hosts.second.privileged("/usr/bin/python3");
    peer.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("management/request.py"));
    peer.arg(ground.hosts.first.address.to_string());
    let finished = run(peer)?;
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    ensure!(finished.output.matches("refused: ").count() == 2, "{}", finished.output);
    Ok(())
}

/// A demonstration that is killed takes its programs with it, and the next one removes what it left in the directory of temporary
/// files.
///
/// # Errors
/// If not.
pub fn a_killed_demonstration_is_cleaned_up(ground: &Ground) -> Result<()> {
    let temporary = ground.stage.file("killed");
    std::fs::create_dir(&temporary)?;
    std::fs::set_permissions(&temporary, std::os::unix::fs::PermissionsExt::from_mode(0o777))?;
    let places = || -> Result<usize> { Ok(std::fs::read_dir(&temporary)?.count()) };
    let demo = || {
        let mut demo = ground.hosts.first.command(&ground.stage.command);
        demo.args(["demo", "--one-host"]).env("TMPDIR", &temporary);
        demo
    };
    let killed = Running::start(demo())?;
    let patience = Instant::now() + RUN;
    let children =
        |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    // A program of it runs: it is the command that runs a program, no probe.
    let mut seen = Vec::new();
    while seen.is_empty() {
        ensure!(Instant::now() < patience, "no program was started");
        seen = children(killed.pid())
            .split_whitespace()
            .filter(|child| {
                let words = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
                words.starts_with(b"ib")
            })
            .map(str::to_owned)
            .collect();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let pid = nix::unistd::Pid::from_raw(killed.pid() as i32);
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL)?;
    while !killed.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    for child in seen {
        let lives = || {
            std::fs::read_to_string(format!("/proc/{child}/status"))
                .is_ok_and(|status| !status.lines().any(|line| line.starts_with("State:\tZ")))
        };
        while lives() {
            ensure!(Instant::now() < patience, "the program {child} lives on");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
    ensure!(places()? == 1, "a killed one leaves its directory: {}", places()?);
    // One that has just been made may be about to be locked.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    let next = Running::start(demo())?;
    while places()? != 1 || children(next.pid()).is_empty() {
        ensure!(Instant::now() < patience, "{} directories", places()?);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(next.pid() as i32), nix::sys::signal::Signal::SIGTERM)?;
    let finished = next.wait_until(patience);
    ensure!(places()? == 0, "{} directories are left: {}", places()?, finished.output);
    Ok(())
}
