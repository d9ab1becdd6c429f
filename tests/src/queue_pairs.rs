//! Many queue pairs of one process, connected to another's: `benches/queue_pairs.c`.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::Running;
use serde_json::Value;
use std::time::Instant;

/// How often they are made, used and destroyed: what the first time takes may be kept.
const TIMES: usize = 3;

/// What may differ from the second time to the third, in kilobytes: the allocator keeps some of what was freed.
const DIFFERENCE: i64 = 512;

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
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    let times: Vec<Value> = finished.output.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(times.len() == TIMES, "{}", finished.output);
    let figure =
        |time: &Value, name: &str| time[name].as_i64().with_context(|| format!("no {name} in {time}"));
    for name in ["kilobytes", "descriptors"] {
        let [before, after] = [figure(&times[1], name)?, figure(&times[2], name)?];
        let allowed = if name == "kilobytes" { DIFFERENCE } else { 0 };
        ensure!(after <= before + allowed, "{name} grew:\n{}", finished.output);
    }
    Ok(())
}
