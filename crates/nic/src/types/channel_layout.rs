//! Where a channel between two processes has its parts, in words.

/// Words of one direction of a channel.
pub const DIRECTION_WORDS: usize = 1 << 19;
/// The words of a channel, which a fabric must provide.
pub const CHANNEL_WORDS: usize = 2 * DIRECTION_WORDS;
/// Slots for hazards of the process that writes this direction.
pub const HAZARDS: usize = 16;
/// How many.
pub const HAZARD_SLOTS: usize = 16;
