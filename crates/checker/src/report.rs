//! The report of a process: one line of JSON, which the command completes with names and lines of the source.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The variable that names the file to which each process appends its report.
pub const FILE_VARIABLE: &str = "PAGEWIRE_CHECK";

/// The variable that says whether the buffers of requests are summed up: `yes` or `no`.
pub const BUFFERS_VARIABLE: &str = "PAGEWIRE_CHECK_BUFFERS";

/// What was found in one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFindings {
    pub pid: u32,
    pub program: String,
    pub findings: Vec<ReportedFinding>,
    /// Findings beyond the bound.
    pub left_out: u64,
}

/// A finding, without the texts of its rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedFinding {
    /// The name of its [`Rule`](crate::Rule).
    pub rule: String,
    pub verb: String,
    pub detail: String,
    pub count: u64,
    /// The program's frames, the innermost first.
    pub place: Vec<StackFrame>,
    pub related: Vec<ReportedCall>,
}

/// Another call that has to do with a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedCall {
    /// What it did, such as "deregistered".
    pub what: String,
    pub verb: String,
    pub place: Vec<StackFrame>,
}

/// A frame of a call stack: a file, and the distance of an instruction in it from its base, which does not depend on where the loader put it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StackFrame {
    /// The path of the program or library; empty: in no file.
    pub module: String,
    /// What `addr2line` wants of a shared object.
    pub offset: u64,
}

/// As `module+0xOFFSET`.
impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:#x}", self.module, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_survives_a_round_trip() {
        let frame = StackFrame { module: "/usr/bin/program".into(), offset: 0x10 };
        let call = ReportedCall {
            what: "deregistered".into(),
            verb: "ibv_dereg_mr".into(),
            place: vec![frame.clone()],
        };
        let finding = ReportedFinding {
            rule: "deregistered-key".into(),
            verb: "ibv_post_send".into(),
            detail: "key 0x1".into(),
            count: 2,
            place: vec![frame],
            related: vec![call],
        };
        let report =
            ProcessFindings { pid: 1, program: "program".into(), findings: vec![finding], left_out: 0 };
        let line = serde_json::to_string(&report).unwrap();
        assert_eq!(serde_json::from_str::<ProcessFindings>(&line).unwrap(), report);
    }
}
