//! The check of this process (`pagewire run --check`): it observes the calls of verbs, tells a [`Checker`] of them, and appends what that found
//! to a file when the process exits. It changes no call but one on an object that has ended, which it refuses.
//!
//! A forked child begins with nothing: what its parent made is its parent's. Start at [`CheckObserver`].

mod arguments;
mod contents;
mod ended_structures;
mod observer;
mod places;
mod report;

pub use ended_structures::retire;
pub use observer::CheckObserver;

use pagewire_checker::Checker;
use pagewire_checker::report::{BUFFERS_VARIABLE, FILE_VARIABLE};
use pagewire_memory::fork::PerProcess;
use places::CallPlace;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What the environment asks of the check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckSettings {
    /// `PAGEWIRE_CHECK`: the file to which one line of JSON is appended at exit.
    pub file: PathBuf,
    /// `PAGEWIRE_CHECK_BUFFERS`: sums over the source buffers of requests are compared at post and completion.
    pub buffers: bool,
}

impl CheckSettings {
    /// What the variables ask for; `None`: no check.
    ///
    /// # Errors
    /// What is wrong with a value.
    pub fn from(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, String> {
        let buffers = match variable(BUFFERS_VARIABLE).map(|value| value.to_string_lossy().into_owned()) {
            None => false,
            Some(value) if value == "yes" => true,
            Some(value) if value == "no" => false,
            Some(value) => return Err(format!("{BUFFERS_VARIABLE} is '{value}': it must be yes or no")),
        };
        Ok(variable(FILE_VARIABLE).map(|file| CheckSettings { file: file.into(), buffers }))
    }

    /// [`from`](Self::from) of the environment, read once: a program that changes it later changes no check. A wrong value is no check; whoever
    /// looks for devices is told of it.
    fn of_process() -> Option<&'static Self> {
        static SETTINGS: OnceLock<Option<CheckSettings>> = OnceLock::new();
        let read = || {
            let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
            CheckSettings::from(variable).ok().flatten()
        };
        SETTINGS.get_or_init(read).as_ref()
    }
}

/// What this process was seen to do.
static CHECKER: PerProcess<Checker<CallPlace>> = PerProcess::new();

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Option<CheckSettings>, String> {
        let pairs: Vec<(String, OsString)> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), value.into())).collect();
        CheckSettings::from(|asked| {
            pairs.iter().find(|(name, _)| name == asked).map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn environment_asks_for_check() {
        assert_eq!(with(&[]), Ok(None));
        assert_eq!(with(&[(BUFFERS_VARIABLE, "yes")]), Ok(None));
        let file = PathBuf::from("/tmp/found");
        let settings = CheckSettings { file, buffers: false };
        assert_eq!(with(&[(FILE_VARIABLE, "/tmp/found")]), Ok(Some(settings.clone())));
        let both = with(&[(FILE_VARIABLE, "/tmp/found"), (BUFFERS_VARIABLE, "yes")]);
        assert_eq!(both, Ok(Some(CheckSettings { buffers: true, ..settings })));
        assert!(with(&[(BUFFERS_VARIABLE, "maybe")]).unwrap_err().contains("yes or no"));
    }
}
