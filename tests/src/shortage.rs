//! Commands under limits that leave too few threads, descriptors or addresses: none panics, and each says which limit is in the way.

use crate::ground::Ground;
use crate::limits::RUN;
use anyhow::{Result, ensure};
use pagewire_cli::pair::Running;
use std::time::Instant;

/// Limits of an ordinary user, each of which is too small for an engine.
const LIMITS: [&str; 5] =
    ["ulimit -u 1", "ulimit -d 1000", "prlimit --pid $$ --nproc=2", "ulimit -n 16", "ulimit -v 200000"];

/// Commands, and whether each needs an engine.
const COMMANDS: [(&str, bool); 9] = [
    ("doctor", true),
    ("explain", false),
    ("top --once --interval 0.1", false),
    ("run -- ibv_rc_pingpong -g 0 -p 1 127.0.0.1", true),
    ("run --stats -- ibv_rc_pingpong -g 0 -p 1 127.0.0.1", true),
    ("demo --one-host", true),
    ("bench --rounds 1 reg_mr", true),
    ("reproduce part --figure 12", false),
    ("reproduce jbmt --table 1 --live --path local", true),
];

/// Every command under every limit.
///
/// # Errors
/// If one panics, is ended by a signal, or fails without the limit and how to raise it.
pub fn limits_are_named(ground: &Ground) -> Result<()> {
    for limit in LIMITS {
        for (words, needs_engine) in COMMANDS {
            let mut shell = ground.hosts.first.command("bash");
            // What whoever started the tests left open would count, too.
            let script = format!(
                "for open in {{3..255}}; do eval \"exec $open>&-\"; done; {limit} && exec \"$0\" {words}"
            );
            shell.arg("-c").arg(script).arg(&ground.stage.command);
            shell.env_remove("PAGEWIRE_PATH").env("RUST_BACKTRACE", "0");
            let finished = Running::start(shell)?.wait_until(Instant::now() + RUN);
            let code = finished.status.and_then(|status| status.code());
            let what = || format!("{limit}; pagewire {words}: {}\n{}", finished.verdict(), finished.output);
            ensure!(code.is_some(), "{}", what());
            ensure!(!finished.output.contains("panicked"), "{}", what());
            ensure!(!finished.output.contains("memory allocation of"), "{}", what());
            let says = finished.output.contains("raise that (ulimit -");
            ensure!(!needs_engine || code != Some(0), "an engine was had: {}", what());
            ensure!(code == Some(0) || says, "no limit is named: {}", what());
        }
    }
    Ok(())
}

/// What a limit kept the doctor from trying is unknown, not refused.
///
/// # Errors
/// If the doctor says that the local path or the second host cannot be had.
pub fn doctor_tells_untried_from_refused(ground: &Ground) -> Result<()> {
    let mut shell = ground.hosts.first.command("bash");
    shell.arg("-c").arg("ulimit -u 1 && exec \"$0\" doctor --json").arg(&ground.stage.command);
    let finished = Running::start(shell)?.wait_until(Instant::now() + RUN);
    for check in ["cross-memory attach", "namespaces"] {
        let start = format!("{{\"check\":\"{check}\",\"verdict\":\"costs\",\"found\":\"not tried: ");
        ensure!(finished.output.contains(&start), "{start} is missing in:\n{}", finished.output);
    }
    ensure!(!finished.output.contains("no local path"), "{}", finished.output);
    Ok(())
}
