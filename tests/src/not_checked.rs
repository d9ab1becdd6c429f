//! What a test could not look at. The line that it says passes by the capture of output, so that `scripts/test` counts it.

use std::fmt::Display;
use std::io::Write;

/// Says that something was not looked at, and why.
pub fn tell(why: impl Display) {
    // In one write: other tests say something at the same time.
    let line = format!("not checked: {}\n", why.to_string().trim().replace('\n', "; "));
    std::io::stderr().write_all(line.as_bytes()).expect("the standard error output");
}
