//! Chains of steps, and how they run on words of memory.

use super::words::{Words, index, out_of_bounds, update};
use pagewire::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io;
use std::ops::Range;

/// Bytes that a compare-swap compares and changes at most.
pub const MAX_COMPARED: usize = 32;
/// Bytes that the steps of a chain write and read together at most.
pub const MAX_MOVED: usize = 32 << 10;

/// Where a step works. Offsets are bytes from the beginning of the region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// At an offset.
    At(u64),
    /// So many bytes behind the offset that the word at an offset has: a pointer.
    Behind {
        /// Where the pointer lies.
        pointer: u64,
        /// Bytes to go on from there.
        by: u64,
    },
    /// So many bytes behind the offset that an earlier step of the chain has found: by number, the first one is 0.
    Found {
        /// The number of the step.
        step: usize,
        /// Bytes to go on from there.
        by: u64,
    },
}

impl From<u64> for Place {
    fn from(offset: u64) -> Self {
        Place::At(offset)
    }
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Action {
    FetchAdd { at: Place, add: u64 },
    CompareSwap { at: Place, masked: Masked },
    Read { at: Place, length: usize },
    Write { at: Place, bytes: Vec<u8> },
    Xor { at: Place, bytes: Vec<u8> },
    Append { area: u64, bytes: Vec<u8> },
}

/// What a compare-swap compares, what it writes, and which bits of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Masked {
    compare: Vec<u8>,
    compared: Vec<u8>,
    swap: Vec<u8>,
    swapped: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    action: Action,
    /// It runs only if all compare-swaps before it have swapped.
    if_swapped: bool,
}

/// What a step has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Of a fetch-add: what the word was. Of an append: the offset that the bytes have.
    Word(u64),
    /// Of a read, or of an XOR: what was there.
    Bytes(Vec<u8>),
    /// Of a compare-swap: what was there, and whether it was swapped.
    Swap {
        /// What was there.
        found: Vec<u8>,
        /// Whether it was what was compared with.
        swapped: bool,
    },
    /// Of a write.
    Done,
    /// A compare-swap before it has not swapped.
    NotRun,
}

/// Steps that run one after the other at the owner of the memory, in one message (PRISM's chains). Each step is an atomic of its own; the chain as
/// a whole is none.
///
/// ```
/// use pagewire_active::built_in::{Chain, Place};
/// // Appends a value to the area at 64, and has the pointer at 0 name it if that is 0 still.
/// let chain = Chain::new().append(64, b"value").if_swapped().compare_swap(0, &0u64.to_le_bytes(), &128u64.to_le_bytes());
/// // Reads 16 bytes at the offset that the word at 8 has.
/// let read = Chain::new().read(Place::Behind { pointer: 8, by: 0 }, 16);
/// assert_ne!(chain, read);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    steps: Vec<Step>,
    /// Whether the next step is one that runs only if compare-swaps have swapped.
    if_swapped: bool,
}

impl Chain {
    /// No steps.
    pub fn new() -> Chain {
        Chain::default()
    }

    fn then(mut self, action: Action) -> Chain {
        let if_swapped = std::mem::take(&mut self.if_swapped);
        self.steps.push(Step { action, if_swapped });
        self
    }

    /// The next step runs only if all compare-swaps before it have swapped.
    pub fn if_swapped(mut self) -> Chain {
        self.if_swapped = true;
        self
    }

    /// Adds to a word of 8 bytes, and gives what it was.
    pub fn fetch_add(self, at: impl Into<Place>, add: u64) -> Chain {
        self.then(Action::FetchAdd { at: at.into(), add })
    }

    /// Puts `swap` in the place of `compare`, if that is there, and gives what was there: as many bytes as both have, up to [`MAX_COMPARED`].
    pub fn compare_swap(self, at: impl Into<Place>, compare: &[u8], swap: &[u8]) -> Chain {
        let ones = |bytes: &[u8]| vec![0xFF; bytes.len()];
        self.masked_compare_swap(at, (compare, &ones(compare)), (swap, &ones(swap)))
    }

    /// As [`compare_swap`](Self::compare_swap), of the bits that are 1 in the second slice of each pair.
    pub fn masked_compare_swap(
        self,
        at: impl Into<Place>,
        compare: (&[u8], &[u8]),
        swap: (&[u8], &[u8]),
    ) -> Chain {
        let masked = Masked {
            compare: compare.0.to_vec(),
            compared: compare.1.to_vec(),
            swap: swap.0.to_vec(),
            swapped: swap.1.to_vec(),
        };
        self.then(Action::CompareSwap { at: at.into(), masked })
    }

    /// Reads bytes.
    pub fn read(self, at: impl Into<Place>, length: usize) -> Chain {
        self.then(Action::Read { at: at.into(), length })
    }

    /// Writes bytes.
    pub fn write(self, at: impl Into<Place>, bytes: &[u8]) -> Chain {
        self.then(Action::Write { at: at.into(), bytes: bytes.to_vec() })
    }

    /// Changes bytes to their XOR with others, and gives what they were.
    pub fn xor(self, at: impl Into<Place>, bytes: &[u8]) -> Chain {
        self.then(Action::Xor { at: at.into(), bytes: bytes.to_vec() })
    }

    /// Takes space for bytes in an area (see [`begin_area`](super::begin_area)), writes them there, and gives their offset. What is appended begins
    /// at a multiple of 8.
    pub fn append(self, area: u64, bytes: &[u8]) -> Chain {
        self.then(Action::Append { area, bytes: bytes.to_vec() })
    }

    /// Whether each step changes one word of 8 bytes at most, so that whoever has the memory mapped may run it.
    pub(super) fn is_narrow(&self) -> bool {
        self.steps.iter().all(|step| match &step.action {
            Action::CompareSwap { at, masked } => {
                matches!(at, Place::At(offset) if offset % 8 + masked.compare.len() as u64 <= 8)
            }
            Action::Xor { at, bytes } => {
                matches!(at, Place::At(offset) if offset % 8 + bytes.len() as u64 <= 8)
            }
            Action::FetchAdd { .. } | Action::Read { .. } | Action::Write { .. } | Action::Append { .. } => {
                true
            }
        })
    }

    /// Checks what can be checked without the memory.
    pub(super) fn check(&self) -> Result<()> {
        let mut moved = 0usize;
        for Step { action, .. } in &self.steps {
            let moves = match action {
                Action::FetchAdd { .. } => 8,
                Action::CompareSwap { masked: Masked { compare, compared, swap, swapped }, .. } => {
                    let length = compare.len();
                    if length == 0
                        || length > MAX_COMPARED
                        || [compared, swap, swapped].iter().any(|other| other.len() != length)
                    {
                        return Err(refused(format!(
                            "a compare-swap takes 1 to {MAX_COMPARED} bytes, and as many of each mask"
                        )));
                    }
                    length
                }
                Action::Read { length, .. } => *length,
                Action::Write { bytes, .. } | Action::Xor { bytes, .. } | Action::Append { bytes, .. } => {
                    bytes.len()
                }
            };
            moved = moved.saturating_add(moves);
            if moved > MAX_MOVED {
                return Err(refused(format!(
                    "its steps move more than {MAX_MOVED} bytes: make several of it"
                )));
            }
        }
        Ok(())
    }

    /// Runs the steps on memory.
    pub(super) fn run(&self, words: &(impl Words + ?Sized)) -> Result<Vec<Outcome>> {
        self.check()?;
        let mut run = Run { words, found: Vec::with_capacity(self.steps.len()), swapped: true };
        for Step { action, if_swapped } in &self.steps {
            let outcome = if *if_swapped && !run.swapped { Outcome::NotRun } else { run.step(action)? };
            if let Outcome::Swap { swapped, .. } = outcome {
                run.swapped &= swapped;
            }
            run.found.push(outcome);
        }
        Ok(run.found)
    }
}

/// A chain that runs.
struct Run<'w, W: ?Sized> {
    words: &'w W,
    found: Vec<Outcome>,
    /// All compare-swaps so far have.
    swapped: bool,
}

impl<W: Words + ?Sized> Run<'_, W> {
    fn step(&self, action: &Action) -> Result<Outcome> {
        Ok(match action {
            Action::FetchAdd { at, add } => {
                let word = index(self.words, self.offset(at)?)?;
                Outcome::Word(self.words.fetch_add(word, *add)?)
            }
            Action::CompareSwap { at, masked } => self.compare_swap(self.offset(at)?, masked)?,
            Action::Read { at, length } => Outcome::Bytes(self.read(self.offset(at)?, *length)?),
            Action::Write { at, bytes } => {
                self.change(self.offset(at)?, bytes.len(), |index, _| bytes[index])?;
                Outcome::Done
            }
            Action::Xor { at, bytes } => {
                Outcome::Bytes(self.change(self.offset(at)?, bytes.len(), |index, byte| byte ^ bytes[index])?)
            }
            Action::Append { area, bytes } => self.append(*area, bytes)?,
        })
    }

    fn offset(&self, place: &Place) -> Result<u64> {
        let (base, by) = match *place {
            Place::At(offset) => (offset, 0),
            Place::Behind { pointer, by } => (self.words.load(index(self.words, pointer)?)?, by),
            Place::Found { step, by } => match self.found.get(step) {
                Some(Outcome::Word(word)) => (*word, by),
                Some(Outcome::Bytes(found) | Outcome::Swap { found, .. }) if found.len() >= 8 => {
                    let mut word = [0; 8];
                    word.copy_from_slice(&found[..8]);
                    (u64::from_le_bytes(word), by)
                }
                _ => return Err(refused(format!("step {step} has found no offset"))),
            },
        };
        base.checked_add(by).ok_or_else(|| out_of_bounds(self.words, base, by))
    }

    /// The words that some bytes lie in.
    fn words_of(&self, offset: u64, length: usize) -> Result<Range<u64>> {
        let bytes = self.words.count().saturating_mul(8);
        let end = offset.checked_add(length as u64).filter(|end| *end <= bytes);
        let end = end.ok_or_else(|| out_of_bounds(self.words, offset, length as u64))?;
        Ok(offset / 8..end.div_ceil(8).max(offset / 8))
    }

    fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(length + 16);
        for word in self.words_of(offset, length)? {
            bytes.extend_from_slice(&self.words.load(word)?.to_le_bytes());
        }
        let skipped = (offset % 8) as usize;
        Ok(bytes[skipped..skipped + length].to_vec())
    }

    /// Changes bytes, word by word as atomics, and gives what they were. Their neighbours stay as they are.
    fn change(&self, offset: u64, length: usize, new: impl Fn(usize, u8) -> u8) -> Result<Vec<u8>> {
        let mut old = Vec::with_capacity(length);
        let mut skipped = (offset % 8) as usize;
        for word in self.words_of(offset, length)? {
            let count = (8 - skipped).min(length - old.len());
            let changed = |value: u64| {
                let mut bytes = value.to_le_bytes();
                for (index, byte) in bytes[skipped..skipped + count].iter_mut().enumerate() {
                    *byte = new(old.len() + index, *byte);
                }
                Some(u64::from_le_bytes(bytes))
            };
            let (before, _) = update(self.words, word, changed)?;
            old.extend_from_slice(&before.to_le_bytes()[skipped..skipped + count]);
            skipped = 0;
        }
        Ok(old)
    }

    fn compare_swap(&self, offset: u64, masked: &Masked) -> Result<Outcome> {
        let Masked { compare, compared, swap, swapped } = masked;
        let equal = |found: &[u8]| {
            (0..found.len()).all(|index| (found[index] ^ compare[index]) & compared[index] == 0)
        };
        let new = |index: usize, byte: u8| byte & !swapped[index] | swap[index] & swapped[index];
        let words = self.words_of(offset, compare.len())?;
        if words.end - words.start == 1 {
            let skipped = (offset % 8) as usize;
            let place = skipped..skipped + compare.len();
            let swap_if_equal = |value: u64| {
                let mut bytes = value.to_le_bytes();
                let is_equal = equal(&bytes[place.clone()]);
                bytes[place.clone()]
                    .iter_mut()
                    .enumerate()
                    .for_each(|(index, byte)| *byte = new(index, *byte));
                is_equal.then_some(u64::from_le_bytes(bytes))
            };
            let (value, swapped) = update(self.words, words.start, swap_if_equal)?;
            return Ok(Outcome::Swap { found: value.to_le_bytes()[place].to_vec(), swapped });
        }
        // Only the owner's handler comes here, which runs one chain at a time.
        let found = self.read(offset, compare.len())?;
        let is_equal = equal(&found);
        if is_equal {
            self.change(offset, found.len(), new)?;
        }
        Ok(Outcome::Swap { found, swapped: is_equal })
    }

    fn append(&self, area: u64, bytes: &[u8]) -> Result<Outcome> {
        let (next, end) = (index(self.words, area)?, index(self.words, area.saturating_add(8))?);
        let end = self.words.load(end)?;
        if end == 0 {
            return Err(refused(format!("no area was begun at {area}: its owner begins it")));
        }
        let count = bytes.len().next_multiple_of(8) as u64;
        let take = |offset: u64| offset.checked_add(count).filter(|taken| *taken <= end);
        let (at, is_taken) = update(self.words, next, take)?;
        if !is_taken {
            let left = end.saturating_sub(at);
            return Err(refused(format!("the area at {area} is full: {left} bytes are left")));
        }
        self.change(at, bytes.len(), |index, _| bytes[index])?;
        Ok(Outcome::Word(at))
    }
}

pub(super) fn refused(why: String) -> Error {
    Error::System {
        what: "a chain of built-in handlers".into(),
        why: io::Error::new(io::ErrorKind::InvalidInput, why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn words(count: usize) -> Vec<AtomicU64> {
        (0..count).map(|_| AtomicU64::new(0)).collect()
    }

    #[test]
    fn each_step_does_what_it_says() {
        let words = words(64);
        let run = |chain: Chain| chain.run(&words[..]);
        assert_eq!(
            run(Chain::new().fetch_add(8, 5).fetch_add(8, 1)).unwrap(),
            [Outcome::Word(0), Outcome::Word(5)]
        );
        run(Chain::new().write(19, b"across words")).unwrap();
        assert_eq!(run(Chain::new().read(19, 12)).unwrap(), [Outcome::Bytes(b"across words".to_vec())]);
        assert_eq!(
            run(Chain::new().read(16, 3)).unwrap(),
            [Outcome::Bytes(vec![0; 3])],
            "the neighbours stay"
        );
        assert_eq!(run(Chain::new().xor(19, b"AC")).unwrap(), [Outcome::Bytes(b"ac".to_vec())]);
        assert_eq!(run(Chain::new().read(19, 3)).unwrap(), [Outcome::Bytes(vec![0x20, 0x20, b'r'])]);
        words[0].store(256, Ordering::Relaxed);
        let indirect = Place::Behind { pointer: 0, by: 8 };
        run(Chain::new().write(indirect, b"pointed")).unwrap();
        assert_eq!(run(Chain::new().read(264, 7)).unwrap(), [Outcome::Bytes(b"pointed".to_vec())]);
    }

    #[test]
    fn steps_behind_a_failed_compare_swap_may_not_run() {
        let words = words(64);
        let chain = || {
            Chain::new().compare_swap(0, &[0; 32], &[7; 32]).if_swapped().write(100, b"won").fetch_add(200, 1)
        };
        let won = chain().run(&words[..]).unwrap();
        assert_eq!(won[0], Outcome::Swap { found: vec![0; 32], swapped: true });
        assert_eq!(won[1..], [Outcome::Done, Outcome::Word(0)]);
        let lost = chain().run(&words[..]).unwrap();
        assert_eq!(lost[0], Outcome::Swap { found: vec![7; 32], swapped: false });
        assert_eq!(lost[1..], [Outcome::NotRun, Outcome::Word(1)]);
        // Only the low half is compared, and only one bit swapped.
        let masked = Chain::new().masked_compare_swap(0, (&[7, 9], &[0xFF, 0]), (&[0, 0x80], &[0, 0x80]));
        assert_eq!(masked.run(&words[..]).unwrap(), [Outcome::Swap { found: vec![7, 7], swapped: true }]);
        assert_eq!(words[0].load(Ordering::Relaxed).to_le_bytes()[..3], [7, 0x87, 7]);
    }

    #[test]
    fn what_is_appended_is_found_by_the_steps_behind_it() {
        let words = words(64);
        super::super::begin_area(&words[..], 64, 128..160).unwrap();
        let chain = || Chain::new().append(64, b"twelve bytes").read(Place::Found { step: 0, by: 7 }, 5);
        assert_eq!(chain().run(&words[..]).unwrap(), [Outcome::Word(128), Outcome::Bytes(b"bytes".to_vec())]);
        assert_eq!(chain().run(&words[..]).unwrap()[0], Outcome::Word(144));
        assert!(chain().run(&words[..]).unwrap_err().to_string().contains("full"));
    }

    fn place() -> impl Strategy<Value = Place> {
        let near = prop_oneof![0u64..600, any::<u64>()];
        prop_oneof![
            near.clone().prop_map(Place::At),
            (near.clone(), 0u64..600).prop_map(|(pointer, by)| Place::Behind { pointer, by }),
            (0usize..4, near).prop_map(|(step, by)| Place::Found { step, by }),
        ]
    }

    fn action() -> impl Strategy<Value = Action> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..40);
        prop_oneof![
            (place(), any::<u64>()).prop_map(|(at, add)| Action::FetchAdd { at, add }),
            (place(), bytes(), bytes(), bytes(), bytes()).prop_map(
                |(at, compare, compared, swap, swapped)| {
                    Action::CompareSwap { at, masked: Masked { compare, compared, swap, swapped } }
                }
            ),
            (place(), prop_oneof![0usize..100, any::<usize>()])
                .prop_map(|(at, length)| Action::Read { at, length }),
            (place(), bytes()).prop_map(|(at, bytes)| Action::Write { at, bytes }),
            (place(), bytes()).prop_map(|(at, bytes)| Action::Xor { at, bytes }),
            (0u64..600, bytes()).prop_map(|(area, bytes)| Action::Append { area, bytes }),
        ]
    }

    proptest! {
        /// Whatever a hostile caller asks for is an error or an outcome.
        #[test]
        fn any_chain_ends(actions in prop::collection::vec((action(), any::<bool>()), 0..8)) {
            let words = words(64);
            let steps = actions.into_iter().map(|(action, if_swapped)| Step { action, if_swapped }).collect();
            let _ = Chain { steps, if_swapped: false }.run(&words[..]);
        }
    }
}
