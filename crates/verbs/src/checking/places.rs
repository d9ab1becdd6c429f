//! Places in the program: stacks of calls, as addresses while the process runs.

use crate::calls::stack::{capture_addresses, resolve};
use pagewire_checker::report::StackFrame;
use std::sync::Arc;

/// Return addresses of a stack that are kept.
const MAX_ADDRESSES: usize = 40;

/// Where the program called a verb.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallPlace(Arc<[usize]>);

impl CallPlace {
    /// Where the calling thread is.
    pub fn here() -> Self {
        let mut addresses = [0; MAX_ADDRESSES];
        let count = capture_addresses(&mut addresses);
        CallPlace(addresses[..count].into())
    }

    /// Its frames without those of the library, with the path of the program's file for its own.
    pub fn frames(&self) -> Vec<StackFrame> {
        resolve(&self.0).with_files()
    }
}
