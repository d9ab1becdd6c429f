//! WRITEs on one host to targets that do this or that: to one that polls its completion queue beside what UCX calls put,
//! to others beside one that polls.
//!
//! The work is done by the helper program `targets` (lab/helpers/targets.c), a plain verbs program.

use super::ground::Ground;
use crate::helper::{Helper, Rights};
use anyhow::Result;
use serde::Deserialize;

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
        let helper = match Helper::find(&ground.stage, "targets") {
            Ok(helper) => helper,
            Err(failure) => return Ok(Err(failure.text)),
        };
        let mut words = vec![self.does.to_owned(), size.to_string()];
        // Its two processes go to their processors themselves.
        if let Some(processors) = ground.processors {
            words.extend(processors.map(|processor| processor.to_string()));
        }
        let output = match helper.run(Rights::User, &["--path", "local"], &words)? {
            Ok(output) => output,
            Err(failure) => return Ok(Err(failure.text)),
        };
        let figure: Result<Figure, _> = serde_json::from_str(output.trim());
        Ok(figure.map(|figure| figure.microseconds).map_err(|error| format!("{error}: {output}")))
    }
}
