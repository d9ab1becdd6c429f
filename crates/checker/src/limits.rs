//! Bounds of what a checker remembers.

/// Objects and keys that ended, and of which a later use is known.
pub const MAX_ENDED: usize = 4096;
/// Different findings that are kept; the others are only counted.
pub const MAX_FINDINGS: usize = 256;
/// Findings of one rule at one object for which the place is looked at; more of them count at the first of these.
pub const MAX_PLACES: u32 = 16;
/// Objects with findings of a rule whose number is known. Of an object that was forgotten the place is looked at again.
pub const MAX_PLACED_OBJECTS: usize = 4096;
/// Requests of a queue that are remembered. More are outstanding only where completions are lost: the oldest are forgotten.
pub const MAX_REQUESTS: usize = 1 << 16;
