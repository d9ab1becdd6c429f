//! How much of a stack the verbs take: `tests/stack/main.c` measures it.
//!
//! Here and not beside the other C programs of the verbs, since a library that was not optimised needs more.

use crate::compile;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Result, ensure};
use pagewire_cli::pair::Running;
use std::time::Instant;

/// The verbs take no more of their caller's stack than the manual says.
///
/// # Errors
/// If the program ends otherwise than well.
pub fn little_is_enough(ground: &Ground, setting: Setting) -> Result<()> {
    let program = ground.stage.file("stack");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/stack/main.c");
    compile::once(&program, || compile::c([source], &program, &["-libverbs"]))?;
    let mut command = ground.ends(setting).0.command(&ground.stage.command);
    command.args(["run", "--path", setting.path().name(), "--"]).arg(&program);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    Ok(())
}
