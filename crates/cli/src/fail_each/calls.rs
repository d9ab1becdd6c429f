//! What a role called in the first run.

use crate::output::json_lines;
use anyhow::Result;
use pagewire_checker::call_count::{CallCount, CallKind};
use std::collections::BTreeMap;
use std::path::Path;

/// Reads what a role called: one count for each place, with its frames. A role that called nothing has no file.
///
/// # Errors
/// If the file cannot be read, or a line of it is in another format.
pub fn read(file: &Path) -> Result<Vec<CallCount>> {
    Ok(together(json_lines::read(file)?))
}

/// The lines of each place together. A later line of a process counts on.
fn together(lines: Vec<CallCount>) -> Vec<CallCount> {
    let mut calls: Vec<CallCount> = Vec::new();
    let mut known: BTreeMap<(CallKind, String, String, bool), usize> = BTreeMap::new();
    for line in lines {
        let key = (line.kind, line.name.clone(), line.stack.clone(), line.is_reliable);
        match known.get(&key) {
            // Of several processes of a role, the one that called most often reaches each call of the others.
            Some(&index) => calls[index].count = calls[index].count.max(line.count),
            None => {
                known.insert(key, calls.len());
                calls.push(line);
            }
        }
    }
    calls
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_checker::report::StackFrame;

    #[test]
    fn last_count_of_a_place_holds() {
        let line = |kind, name: &str, stack: &str, frames: &[StackFrame], count| CallCount {
            kind,
            name: name.to_owned(),
            stack: stack.to_owned(),
            frames: frames.to_vec(),
            is_reliable: true,
            count,
        };
        let frames = [StackFrame { module: "./p".to_owned(), offset: 16 }];
        let calls = together(vec![
            line(CallKind::Call, "ibv_reg_mr", "a1", &frames, 1),
            line(CallKind::Request, "SEND", "", &[], 4),
            line(CallKind::Call, "ibv_reg_mr", "b2", &[], 1),
            line(CallKind::Call, "ibv_reg_mr", "a1", &[], 9),
            line(CallKind::Call, "ibv_reg_mr", "a1", &frames, 3),
        ]);
        let shown: Vec<_> =
            calls.iter().map(|calls| (calls.name.as_str(), calls.stack.as_str(), calls.count)).collect();
        assert_eq!(shown, [("ibv_reg_mr", "a1", 9), ("SEND", "", 4), ("ibv_reg_mr", "b2", 1)]);
        assert_eq!(calls[0].frames, frames);
        assert_eq!(read(Path::new("/no/such/file")).expect("a role that called nothing"), []);
    }
}
