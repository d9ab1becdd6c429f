//! Words of this process that peers set or add to behind their puts.

use crate::boundary::{call, optional};
use crate::error::{Refusal, pw_error};
use crate::node::{node_of, pw_node};
use std::ptr::NonNull;
use std::time::Duration;

/// The word is the value.
pub const PW_EQUAL: u32 = 0;
/// The word is not the value.
pub const PW_NOT_EQUAL: u32 = 1;
/// The word is the value or more.
pub const PW_AT_LEAST: u32 = 2;
/// The word is the value or less.
pub const PW_AT_MOST: u32 = 3;

/// A time without a bound.
pub const PW_FOREVER: u64 = u64::MAX;

/// Waits until a word of this process, which peers change behind their puts, is as wished. Bytes that were put before the signal are visible
/// then.
///
/// word: aligned to 8 bytes. wish: PW_EQUAL, PW_NOT_EQUAL, PW_AT_LEAST or PW_AT_MOST value. nanoseconds: for how long at most, or PW_FOREVER;
/// 0 looks once. seen: gets the word, also after PW_TIMEOUT; NULL if nobody asks.
///
/// PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_signal_wait(
    node: *mut pw_node,
    word: *mut u64,
    wish: u32,
    value: u64,
    nanoseconds: u64,
    seen: *mut u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let word = NonNull::new(word).ok_or_else(|| Refusal::argument("'word' is NULL"))?;
        if !word.is_aligned() {
            let sentence = format!("a signal at {word:?}, which is no multiple of 8");
            return Err(Refusal::new(pw_error::PW_ALIGNMENT, sentence));
        }
        let holds: fn(&u64, &u64) -> bool = match wish {
            PW_EQUAL => u64::eq,
            PW_NOT_EQUAL => u64::ne,
            PW_AT_LEAST => u64::ge,
            PW_AT_MOST => u64::le,
            _ => return Err(Refusal::argument(format!("'wish' is {wish}, which is no comparison"))),
        };
        let to = optional(seen, "seen")?;
        // SAFETY: a word of the caller that stays, and that nobody changes but as an atomic (pagewire.h).
        let signal = unsafe { node.signal_raw(word) };
        let wished = |word| holds(&word, &value);
        let result = match nanoseconds {
            PW_FOREVER => Ok(signal.wait_until(wished)),
            bound => signal.wait_until_within(Duration::from_nanos(bound), wished),
        };
        if let Some(to) = to {
            let found = result.as_ref().copied().unwrap_or_else(|_| signal.value());
            // SAFETY: the caller's place for it (pagewire.h).
            unsafe { to.write(found) };
        }
        result?;
        Ok(())
    })
}
