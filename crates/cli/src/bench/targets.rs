//! WRITEs on one host to targets that do this or that: to one that polls its completion queue beside what UCX calls put,
//! to others beside one that polls.
//!
//! The work is done by the helper program `targets` (benches/targets.c), a plain verbs program.

use super::ground::Ground;
use crate::hosts::Host;
use crate::limits::BENCH_RUN;
use crate::pair::Running;
use anyhow::Result;
use serde::Deserialize;
use std::time::Instant;

/// A benchmark of this kind.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) name: &'static str,
    /// What the target does, as the helper calls it.
    does: &'static str,
    pub(super) sizes: &'static [u64],
}

/// WRITEs to and fro, both sides poll; the peer is UCX.
pub(super) const PING_PONG: Target = Target { name: "write_to_polling", does: "pingpong", sizes: &[8] };

/// One WRITE after the other; the peer is the same to a target that polls.
pub(super) const TARGETS: [Target; 3] = [
    Target { name: "write_to_sleeping", does: "sleeps", sizes: SIZES },
    Target { name: "write_to_computing", does: "computes", sizes: SIZES },
    Target { name: "write_to_stopped", does: "stopped", sizes: SIZES },
];

const SIZES: &[u64] = &[8, 1 << 20];

/// What [`TARGETS`] are compared with.
pub(super) const POLLING: Target = Target { name: "write_to_polling", does: "polls", sizes: SIZES };

#[derive(Deserialize)]
struct Figure {
    microseconds: f64,
}

impl Target {
    /// One run; the inner error says what went wrong with it.
    pub(super) fn measure(self, ground: &Ground, size: u64) -> Result<Result<f64, String>> {
        let helper = ground.stage.helpers.join("targets");
        if !helper.is_file() {
            return Ok(Err(format!(
                "{} is missing (built where libibverbs-dev is installed)",
                helper.display()
            )));
        }
        // Its two processes go to their processors themselves.
        let mut command = Host::here().command(&ground.stage.command);
        command.args(["run", "--path", "local", "--"]).arg(&helper);
        command.args([self.does, &size.to_string()]);
        if let Some(processors) = ground.processors {
            command.args(processors.map(|processor| processor.to_string()));
        }
        let finished = Running::start(command)?.wait_until(Instant::now() + BENCH_RUN);
        if !finished.success() {
            return Ok(Err(format!("{}\n{}", finished.verdict(), finished.output.trim())));
        }
        let figure: Result<Figure, _> = serde_json::from_str(finished.output.trim());
        Ok(figure.map(|figure| figure.microseconds).map_err(|error| format!("{error}: {}", finished.output)))
    }
}
