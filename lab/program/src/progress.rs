//! What is seen of long work, on standard error: a bar on a terminal, plain lines elsewhere.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;

/// How far it is.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Of so many steps.
    pub fn new(steps: u64) -> Progress {
        let bar = (std::io::stderr().is_terminal() && pagewire_cli::threads_can_be_had()).then(|| {
            let bar = ProgressBar::new(steps);
            // The template is a constant and valid; the plain bar would do as well.
            if let Ok(style) = ProgressStyle::with_template("{bar:20} {pos}/{len}  {msg}  {elapsed}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        Progress { bar }
    }

    /// What is measured now.
    pub fn start(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => pagewire_cli::tell!("measuring: {what}"),
        }
    }

    /// One step more is done.
    pub fn step(&self) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// Prints something that the bar must not be in the way of.
    pub fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
