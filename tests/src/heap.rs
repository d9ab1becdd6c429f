//! Programs of other people whose malloc(3) comes from the registered heap: `pagewire run --heap`.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Result, ensure};
use pagewire_cli::pair::Running;
use pagewire_cli::perftest::rows;
use std::time::Instant;

/// Programs of perftest; their buffers are malloc's.
pub const PERFTEST: [&str; 4] = ["ib_write_bw", "ib_write_lat", "ib_read_bw", "ib_send_bw"];

/// Large messages, so that their buffers are runs of units; `all`: all sizes. Shorter ones where both ends watch their memory: nothing there yields, so
/// on a busy machine each message waits for its turn.
///
/// # Errors
/// If a run fails, or has no figures.
pub fn perftest_runs(ground: &Ground, setting: Setting, program: &str, all: bool) -> Result<()> {
    let (sizes, least): (&[&str], _) = match (program, all) {
        ("ib_write_lat", _) => (&["-s", "100000"], 1),
        (_, true) => (&["-a"], 20),
        (_, false) => (&["-s", "5000000"], 1),
    };
    let arguments = [&["-F", "-u", "18", "-n", "20"], sizes].concat();
    let outcome = ground.must_run_with(&["--heap"], setting, program, &arguments)?;
    let client = outcome.pair.client.map(|client| client.output).unwrap_or_default();
    ensure!(rows(&client).len() >= least, "not all sizes are in the client's output:\n{client}");
    Ok(())
}

/// Every byte is looked at.
///
/// # Errors
/// If one is another.
pub fn bytes_are_right(ground: &Ground, setting: Setting) -> Result<()> {
    let arguments = ["-g", "0", "-c", "-n", "200", "-s", "100000"];
    ground.must_run_with(&["--heap"], setting, "ibv_rc_pingpong", &arguments).map(drop)
}

/// A heap that cannot be had is an error before the program begins, which names what to do. So those above do have one.
///
/// # Errors
/// If the program runs, or something else is said.
pub fn refusals_name_the_variable(ground: &Ground) -> Result<()> {
    for (range, said) in [("1", "multiple of 32 MiB"), ("many", "no number of bytes")] {
        let mut command = ground.hosts.first.command(&ground.stage.command);
        command.args(["run", "--heap", "--", "ib_write_bw", "--version"]).env("PAGEWIRE_HEAP_RANGE", range);
        let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
        ensure!(!finished.success(), "a heap of {range} bytes was no error:\n{}", finished.output);
        ensure!(finished.output.contains(said), "{range}: {said} is not in:\n{}", finished.output);
    }
    Ok(())
}
