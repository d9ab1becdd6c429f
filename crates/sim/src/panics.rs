//! Panics of the code under test, which must not take the seed with them.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `part`.
///
/// # Errors
/// With the message, if it panics. What it was about is half done then, and only good for being thrown away.
pub fn caught<T>(part: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(part)).map_err(|panic| {
        match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(text), _) => text.clone(),
            (None, Some(text)) => (*text).to_owned(),
            (None, None) => "a panic without a message".to_owned(),
        }
    })
}

/// How the words of a violation begin that is a panic.
pub(crate) const PANIC: &str = "panic";

/// The words of such a violation.
pub(crate) fn told(message: &str) -> String {
    format!("{PANIC}: {message}")
}
