//! What a test could not look at. The line that it says passes by the capture of output, so that `scripts/test` counts it.

use std::fmt::Display;
use std::io::Write;

/// The environment variable that, set to 1, lets tests pass that cannot be run here.
const VARIABLE: &str = "PAGEWIRE_MAY_SKIP";

/// Says that something was not looked at, and why.
pub fn tell(why: impl Display) {
    // In one write: other tests say something at the same time.
    let line = format!("not checked: {}\n", why.to_string().trim().replace('\n', "; "));
    std::io::stderr().write_all(line.as_bytes()).expect("the standard error output");
}

/// Ends a test that cannot be run here: as a failure, unless the environment permits that.
pub fn skip(why: impl Display) {
    let permitted = std::env::var_os(VARIABLE).is_some_and(|value| value == "1");
    assert!(permitted, "cannot be run here: {why} ({VARIABLE}=1 lets such tests pass)");
    tell(why);
}
