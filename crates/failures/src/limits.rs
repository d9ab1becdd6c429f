//! The bounds of rules.

/// Rules of a process.
pub const MAX_RULES: usize = 256;

/// Bytes of the text of all rules.
pub const MAX_TEXT: usize = 64 << 10;

/// Threads times objects times rules whose events are counted; later ones meet no rule.
pub const MAX_COUNTERS: usize = 1 << 18;

/// The longest delay, in nanoseconds: an hour.
pub const MAX_DELAY: u64 = 3_600_000_000_000;
