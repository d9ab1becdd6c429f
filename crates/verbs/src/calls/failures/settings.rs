//! What the environment says of failures: `PAGEWIRE_FAIL`, `PAGEWIRE_FAIL_LOG`, `PAGEWIRE_ROLE`.

use crate::runtime::messages::say;
use pagewire_failures::{Rules, limits};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Rules, or `@FILE`.
pub const RULES_VARIABLE: &str = "PAGEWIRE_FAIL";
/// The file that gets a line for each failure.
pub const LOG_VARIABLE: &str = "PAGEWIRE_FAIL_LOG";
/// What the rules call this process.
pub const ROLE_VARIABLE: &str = "PAGEWIRE_ROLE";

/// The rules of a process, and where it logs what fires.
#[derive(Debug)]
pub struct FailureSettings {
    pub rules: Rules,
    log: Option<PathBuf>,
}

impl FailureSettings {
    /// What the environment says; `None`: nothing is to fail.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_environment() -> Result<Option<Self>, String> {
        Self::from(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// [`from_environment`](Self::from_environment) of another environment.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from(variable: impl Fn(&str) -> Option<OsString>) -> Result<Option<Self>, String> {
        let Some(value) = variable(RULES_VARIABLE) else { return Ok(None) };
        let value = value.into_string().map_err(|_| format!("{RULES_VARIABLE} is no text"))?;
        let text = match value.strip_prefix('@') {
            Some(file) => read(Path::new(file))
                .map_err(|error| format!("{RULES_VARIABLE}: {file} cannot be read: {error}"))?,
            None => value,
        };
        let role = variable(ROLE_VARIABLE).map_or(String::new(), |role| role.to_string_lossy().into_owned());
        let rules = Rules::parse(&text, &role).map_err(|error| format!("{RULES_VARIABLE}: {error}"))?;
        Ok(Some(FailureSettings { rules, log: variable(LOG_VARIABLE).map(PathBuf::from) }))
    }

    /// Whether there is a log.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Appends lines to the log, in one write, so that processes share it.
    pub fn append(&self, lines: &str) {
        let Some(file) = self.log.as_ref().filter(|_| !lines.is_empty()) else { return };
        let opened = OpenOptions::new().append(true).create(true).open(file);
        if let Err(error) = opened.and_then(|mut opened| opened.write_all(lines.as_bytes())) {
            say(format_args!("failures could not be logged in {}: {error}", file.display()));
        }
    }
}

/// The text of a file, of a bounded length.
fn read(file: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(file)?.take(limits::MAX_TEXT as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(value: &'static str) -> Result<Option<FailureSettings>, String> {
        FailureSettings::from(|name| match name {
            RULES_VARIABLE => Some(value.into()),
            ROLE_VARIABLE => Some("server".into()),
            _ => None,
        })
    }

    #[test]
    fn rules_come_from_text_or_file() {
        assert!(FailureSettings::from(|_| None).unwrap().is_none());
        let rules = with("verb=ibv_reg_mr role=server errno=ENOMEM; verb=ibv_reg_mr role=client errno=EIO");
        assert_eq!(rules.unwrap().unwrap().rules.own().count(), 1);
        assert!(with("verb=ibv_reg_mr errno=ENONE").unwrap_err().starts_with("PAGEWIRE_FAIL: rule 1: errno"));
        assert!(with("@/nowhere/rules").unwrap_err().contains("/nowhere/rules cannot be read"));
    }
}
