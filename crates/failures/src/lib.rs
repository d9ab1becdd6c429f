//! Failures on demand: the names of what may fail, and the rules that say what fails when.
//!
//! No I/O, no clock, no thread: whoever observes an event asks [`Rules::decide`], and applies the answer. [`parse`] has the text of rules,
//! [`checks`] what the specification forbids. Start at [`Rule`].

#![forbid(unsafe_code)]

mod action;
pub mod checks;
mod decide;
mod errno;
mod event;
pub mod limits;
mod parse;
mod possible;
mod record;
mod rule;
mod verb;

pub use action::{Action, NakKind, PacketFailure, RuleEvent, WorkStatus};
pub use decide::{Counters, Decision, Rules};
pub use errno::{errno_name, errno_of};
pub use event::{CmMessageKind, EventOpcode, FailureEvent, ObjectKind, ObjectOrdinal, Point};
pub use parse::ParseError;
pub use possible::{errnos, statuses};
pub use record::{Note, Record};
pub use rule::{OpcodeSelector, Rule, When};
pub use verb::Verb;
