//! A bar for each file that is transferred, on a terminal.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// All bars of a run.
pub(super) struct Bars(Option<MultiProgress>);

/// That of one file.
pub(super) struct Bar(Option<ProgressBar>);

impl Bars {
    pub(super) fn new() -> Bars {
        Bars((std::io::stderr().is_terminal() && crate::threads_can_be_had()).then(MultiProgress::new))
    }

    /// A bar of so many bytes.
    pub(super) fn add(&self, name: &str, length: u64) -> Bar {
        Bar(self.0.as_ref().map(|bars| {
            let bar = bars.add(ProgressBar::new(length));
            // The template is a constant and valid; the plain bar would do as well.
            let template = "{msg} {bar:20} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_message(crate::output::report::printable(name));
            bar
        }))
    }

    /// Prints something that the bars must not be in the way of.
    pub(super) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        match &self.0 {
            Some(bars) => bars.suspend(print),
            None => print(),
        }
    }
}

impl Bar {
    /// So many bytes are there.
    pub(super) fn set(&self, bytes: u64) {
        if let Some(bar) = &self.0 {
            bar.set_position(bytes);
        }
    }

    /// What it waits for.
    pub(super) fn say(&self, what: String) {
        if let Some(bar) = &self.0 {
            bar.set_message(what);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
