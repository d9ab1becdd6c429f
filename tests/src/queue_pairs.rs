//! Many queue pairs of one process, connected to another's: `lab/helpers/queue_pairs.c`.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::Running;
use serde_json::Value;
use std::time::Instant;

/// How often they are made, used and destroyed.
const TIMES: usize = 8;

/// Many times that, one after the other, take so many times as long as other runs where processors are busy.
const LONGER: u32 = 3;

/// By how much the last time may exceed each one of the first half, in hundredths. The allocator keeps some of what was freed, and what
/// waited while a processor was busy. 250 bytes that each queue pair leaves behind each time are more.
const MEMORY_PERCENT: i64 = 10;

/// By how many open files it may: the sockets of some connections close later.
const DESCRIPTORS: i64 = 16;

/// Makes, uses and destroys so many queue pairs several times: nothing grows.
///
/// # Errors
/// If memory or open files grew, or with what the program says.
pub fn nothing_grows(ground: &Ground, setting: Setting, count: usize) -> Result<()> {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command
        .args(["run", "--path", setting.path().name(), "--"])
        .arg(ground.stage.helpers.join("queue_pairs"));
    command.args([count, TIMES].map(|number| number.to_string()));
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN * LONGER);
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    let times: Vec<Value> = finished.output.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(times.len() == TIMES, "{}", finished.output);
    let figure =
        |time: &Value, name: &str| time[name].as_i64().with_context(|| format!("no {name} in {time}"));
    for name in ["kilobytes", "descriptors"] {
        let figures: Vec<i64> = times.iter().map(|time| figure(time, name)).collect::<Result<_>>()?;
        let last = figures.last().context("no figures")?;
        let most = figures[..TIMES / 2].iter().max().context("no figures")?;
        let allowed = if name == "kilobytes" { most * MEMORY_PERCENT / 100 } else { DESCRIPTORS };
        ensure!(*last <= most + allowed, "{name} grew:\n{}", finished.output);
    }
    Ok(())
}
