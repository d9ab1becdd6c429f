//! What a process has called: the lines that the library appends to a file, and that `pagewire fail-each` reads.

use crate::report::StackFrame;
use serde::{Deserialize, Serialize};

/// The variable that names the file.
pub const FILE_VARIABLE: &str = "PAGEWIRE_CALLS";

/// A line: all that one place of a process has counted so far. A later line of the same place counts on.
///
/// ```json
/// {"kind":"call","name":"ibv_reg_mr","stack":"9f0c6a","frames":[{"module":"/tmp/program","offset":4562}],"count":1}
/// {"kind":"request","name":"SEND","is_reliable":true,"count":4}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCount {
    pub kind: CallKind,
    /// The verb, the opcode of the requests, or the asynchronous event.
    pub name: String,
    /// The hash of the call stack, as `stack=` of a rule takes it; empty for requests.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub stack: String,
    /// The call stack, the innermost frame first: in the first line of a place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<StackFrame>,
    /// Of requests: whether the peer answers them.
    #[serde(default = "yes")]
    pub is_reliable: bool,
    pub count: u64,
}

const fn yes() -> bool {
    true
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// A verb, of one call stack.
    Call,
    /// Work requests of one opcode.
    Request,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_survives_a_round_trip() {
        let frames = vec![StackFrame { module: "/p".into(), offset: 16 }];
        let call = CallCount {
            kind: CallKind::Call,
            name: "ibv_reg_mr".into(),
            stack: "a1".into(),
            frames,
            is_reliable: true,
            count: 3,
        };
        let line = serde_json::to_string(&call).unwrap();
        assert_eq!(serde_json::from_str::<CallCount>(&line).unwrap(), call);
        let short = serde_json::from_str::<CallCount>("{\"kind\":\"request\",\"name\":\"SEND\",\"count\":4}")
            .unwrap();
        assert!(short.is_reliable && short.stack.is_empty() && short.frames.is_empty());
    }
}
