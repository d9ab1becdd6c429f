//! Words of this process that peers set or add to behind their puts.

use crate::boundary::{Result, array, call, optional, place};
use crate::error::{Refusal, pw_error};
use crate::node::{node_of, pw_node};
use pagewire::{Node, Signal};
use std::cell::Cell;
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
/// The word is more than the value.
pub const PW_GREATER: u32 = 4;
/// The word is less than the value.
pub const PW_LESS: u32 = 5;

/// A time without a bound.
pub const PW_FOREVER: u64 = u64::MAX;

/// What a word of this process is to be, for waits for several.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_signal_wish {
    /// The word, aligned to 8 bytes. NULL: the wish is passed over.
    pub word: *mut u64,
    /// What it is compared with.
    pub value: u64,
    /// Gets the word as the wait saw it last.
    pub seen: u64,
    /// PW_EQUAL, PW_NOT_EQUAL, PW_GREATER, PW_AT_LEAST, PW_LESS or PW_AT_MOST.
    pub wish: u32,
}

type Comparison = fn(&u64, &u64) -> bool;

fn comparison(wish: u32) -> Result<Comparison> {
    Ok(match wish {
        PW_EQUAL => u64::eq,
        PW_NOT_EQUAL => u64::ne,
        PW_GREATER => u64::gt,
        PW_AT_LEAST => u64::ge,
        PW_LESS => u64::lt,
        PW_AT_MOST => u64::le,
        _ => return Err(Refusal::argument(format!("'wish' is {wish}, which is no comparison"))),
    })
}

/// # Safety
/// As for [`Node::signal_raw`].
unsafe fn signal_at(node: &Node, word: NonNull<u64>) -> Result<Signal<'_>> {
    if !word.is_aligned() {
        let sentence = format!("a signal at {word:?}, which is no multiple of 8");
        return Err(Refusal::new(pw_error::PW_ALIGNMENT, sentence));
    }
    // SAFETY: the caller's promise; the word is aligned.
    Ok(unsafe { node.signal_raw(word) })
}

/// Waits until a word of this process, which peers change behind their puts, is as wished. Bytes that were put before the signal are visible
/// then.
///
/// word: aligned to 8 bytes. wish: PW_EQUAL, PW_NOT_EQUAL, PW_GREATER, PW_AT_LEAST, PW_LESS or PW_AT_MOST value, of numbers without a sign. nanoseconds: for
/// how long at most, or PW_FOREVER; 0 looks once. seen: gets the word, also after PW_TIMEOUT; NULL if nobody asks.
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
        let holds = comparison(wish)?;
        let to = optional(seen, "seen")?;
        // SAFETY: a word of the caller that stays, and that nobody changes but as an atomic (pagewire.h).
        let signal = unsafe { signal_at(node, word) }?;
        let wished = |word| holds(&word, &value);
        let result = match nanoseconds {
            PW_FOREVER => signal.wait_until(wished),
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

/// Wishes that are waited for together.
struct Wishes<'n> {
    first: NonNull<pw_signal_wish>,
    /// The places of those that are not passed over.
    places: Vec<usize>,
    signals: Vec<Signal<'n>>,
    conditions: Vec<(Comparison, u64)>,
}

impl<'n> Wishes<'n> {
    /// # Safety
    /// `count` wishes, whose words stay, and that nobody changes but as atomics.
    unsafe fn new(node: &'n Node, wishes: *mut pw_signal_wish, count: usize) -> Result<Self> {
        // SAFETY: `wishes` has `count` elements, valid for the call (pagewire.h); `array` checks NULL and alignment.
        let all = unsafe { array(wishes, count, "wishes") }?;
        let first = NonNull::new(wishes).unwrap_or(NonNull::dangling());
        let mut kept = Wishes { first, places: Vec::new(), signals: Vec::new(), conditions: Vec::new() };
        for (place, wish) in all.iter().enumerate() {
            let Some(word) = NonNull::new(wish.word) else { continue };
            kept.places.push(place);
            kept.conditions.push((comparison(wish.wish)?, wish.value));
            // SAFETY: `word` stays until the wait ends, and threads change it as an atomic only (`# Safety` of this function).
            kept.signals.push(unsafe { signal_at(node, word) }?);
        }
        Ok(kept)
    }

    fn holds(&self, index: usize, word: u64) -> bool {
        let (holds, value) = &self.conditions[index];
        holds(&word, value)
    }

    /// Waits until one is as wished, and gives the places of all that are. Empty: none in time.
    fn wait_some(&self, nanoseconds: u64) -> Result<Vec<usize>> {
        let patience = Duration::from_nanos(nanoseconds);
        let found =
            pagewire::signal_wait_some(&self.signals, patience, |index, word| self.holds(index, word))?;
        for index in 0..self.signals.len() {
            let seen = found.iter().find(|(place, _)| *place == index).map(|(_, word)| *word);
            self.tell(index, seen);
        }
        Ok(found.into_iter().map(|(index, _)| self.places[index]).collect())
    }

    /// Waits until all are as wished. False: they were not in time.
    fn wait_all(&self, nanoseconds: u64) -> Result<bool> {
        let seen: Vec<Cell<u64>> = self.signals.iter().map(|_| Cell::new(0)).collect();
        let patience = Duration::from_nanos(nanoseconds);
        let holds = pagewire::signal_wait_all(&self.signals, patience, |index, word| {
            seen[index].set(word);
            self.holds(index, word)
        })?;
        for (index, seen) in seen.iter().enumerate() {
            // Behind one that was not as wished nobody has looked.
            self.tell(index, holds.then(|| seen.get()));
        }
        Ok(holds)
    }

    /// Writes what a word was; `None`: what it is now.
    fn tell(&self, index: usize, seen: Option<u64>) {
        let seen = seen.unwrap_or_else(|| self.signals[index].value());
        // SAFETY: a place of the caller's wishes (pagewire.h), which nobody else uses during the call.
        unsafe { (*self.first.add(self.places[index]).as_ptr()).seen = seen };
    }
}

fn late() -> Refusal {
    Refusal::new(pw_error::PW_TIMEOUT, "the signals that were waited for were not as wished in time")
}

/// Waits until one of several words of this process is as wished, each with its own wish. As pw_signal_wait().
///
/// wishes: count of them; seen of each is written, also after PW_TIMEOUT. nanoseconds: for how long at most, or PW_FOREVER; 0 looks once. index: gets the
/// first place of one that is as wished; count if all are passed over.
///
/// PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_signal_wait_any(
    node: *mut pw_node,
    wishes: *mut pw_signal_wish,
    count: usize,
    nanoseconds: u64,
    index: *mut usize,
) -> pw_error {
    call(|| {
        let to = place(index, "index")?;
        // SAFETY: a pointer of this library, and so many wishes of the caller (pagewire.h).
        let wishes = unsafe { Wishes::new(node_of(node)?, wishes, count) }?;
        let first = match wishes.places.is_empty() {
            true => count,
            false => *wishes.wait_some(nanoseconds)?.first().ok_or_else(late)?,
        };
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(first) };
        Ok(())
    })
}

/// Waits until at least one of several words is as wished, and names all that are. As pw_signal_wait_any().
///
/// indices: gets the places, in order: space for count. found: gets how many these are; 0 if all are passed over, and after PW_TIMEOUT.
///
/// PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_signal_wait_some(
    node: *mut pw_node,
    wishes: *mut pw_signal_wish,
    count: usize,
    nanoseconds: u64,
    indices: *mut usize,
    found: *mut usize,
) -> pw_error {
    call(|| {
        let (first, to) = (place(indices, "indices")?, place(found, "found")?);
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(0) };
        // SAFETY: a pointer of this library, and so many wishes of the caller (pagewire.h).
        let wishes = unsafe { Wishes::new(node_of(node)?, wishes, count) }?;
        if wishes.places.is_empty() {
            return Ok(());
        }
        let met = wishes.wait_some(nanoseconds)?;
        for (number, index) in met.iter().enumerate() {
            // SAFETY: the caller's space for `count` of them (pagewire.h), and each place is named once.
            unsafe { first.add(number).write(*index) };
        }
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(met.len()) };
        if met.is_empty() { Err(late()) } else { Ok(()) }
    })
}

/// Waits until all of several words are as wished at once. As pw_signal_wait_any().
///
/// PW_TIMEOUT, PW_ALIGNMENT, PW_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_signal_wait_all(
    node: *mut pw_node,
    wishes: *mut pw_signal_wish,
    count: usize,
    nanoseconds: u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and so many wishes of the caller (pagewire.h).
        let wishes = unsafe { Wishes::new(node_of(node)?, wishes, count) }?;
        if wishes.wait_all(nanoseconds)? { Ok(()) } else { Err(late()) }
    })
}
