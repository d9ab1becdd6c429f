//! What the reader of a ring tells its writer of records, in place of acknowledgements that would be records themselves.
//!
//! The writer of a record whose request wants an acknowledgement names a slot in it. The reader writes its verdict there
//! once it has done with the record: executed and thereby acknowledged, or that whatever there is to say follows as a
//! record. Verdicts come in the order of the records, and acknowledge no more than an acknowledgement with the record's PSN
//! would. A slot is used again only after the writer has seen the verdict. A reader that lies harms those whose peer it is.

use super::ring::{VERDICT, VERDICT_SLOTS, VERDICTS};
use pagewire_iommu::words::SharedWords;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Verdict {
    /// The request was executed: as an acknowledgement of it.
    Acknowledged = 1,
    /// Nothing yet. What there is to say comes as a record, if anything.
    Open = 2,
}

/// Tells the writer of the direction that begins at `base` what became of a record.
pub fn tell<W: SharedWords>(words: &W, base: usize, slot: u8, verdict: Verdict) {
    words.store(VERDICT, base + VERDICTS + usize::from(slot), verdict as u64);
}

/// A request whose verdict is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Awaited {
    /// The queue pair that sent it, if it is still for it.
    pub queue_pair: Option<u32>,
    /// Its PSN.
    pub psn: u32,
}

/// The first slot to be looked at, for whoever does not hold the ring; [`NONE`] if no verdict is awaited.
#[derive(Debug)]
pub struct Next(AtomicU32);

const NONE: u32 = u32::MAX;

impl Default for Next {
    fn default() -> Self {
        Next(AtomicU32::new(NONE))
    }
}

impl Next {
    /// Whether a verdict has come in the direction that begins at `base`.
    pub fn has_come<W: SharedWords>(&self, words: &W, base: usize) -> bool {
        let slot = self.0.load(Ordering::Acquire);
        slot != NONE && words.load(base + VERDICTS + slot as usize) != 0
    }
}

/// The writer's side: what it waits for, in the order of the records.
#[derive(Debug, Default)]
pub struct Verdicts {
    awaited: VecDeque<(u8, Awaited)>,
    /// Slots in use, one bit each.
    used: u32,
}

const _: () = assert!(VERDICT_SLOTS <= u32::BITS as usize);

impl Verdicts {
    /// A free slot, for the record that is written next; `None`: it does without.
    pub fn free_slot(&self) -> Option<u8> {
        let slot = self.used.trailing_ones();
        ((slot as usize) < VERDICT_SLOTS).then_some(slot as u8)
    }

    /// The record that names the slot is about to be written.
    pub fn expect(&mut self, slot: u8, awaited: Awaited, next: &Next) {
        self.used |= 1 << slot;
        self.awaited.push_back((slot, awaited));
        self.tell_next(next);
    }

    /// What a queue pair has sent is not its own any more: it begins anew.
    pub fn forget(&mut self, queue_pair: u32) {
        for (_, awaited) in &mut self.awaited {
            awaited.queue_pair = awaited.queue_pair.filter(|&sender| sender != queue_pair);
        }
    }

    /// It was not written.
    pub fn withdraw_last(&mut self, next: &Next) {
        if let Some((slot, _)) = self.awaited.pop_back() {
            self.used &= !(1 << slot);
        }
        self.tell_next(next);
    }

    fn tell_next(&self, next: &Next) {
        next.0.store(self.awaited.front().map_or(NONE, |&(slot, _)| u32::from(slot)), Ordering::Release);
    }

    /// Takes the oldest verdict, if it has come.
    pub fn take<W: SharedWords>(
        &mut self,
        words: &W,
        base: usize,
        next: &Next,
    ) -> Option<(Awaited, Verdict)> {
        let &(slot, awaited) = self.awaited.front()?;
        let at = base + VERDICTS + usize::from(slot);
        let verdict = match words.load(at) {
            0 => return None,
            told if told == Verdict::Acknowledged as u64 => Verdict::Acknowledged,
            _ => Verdict::Open,
        };
        words.store(VERDICT, at, 0);
        self.awaited.pop_front();
        self.used &= !(1 << slot);
        self.tell_next(next);
        Some((awaited, verdict))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::DIRECTION_WORDS;
    use super::*;
    use pagewire_iommu::ProcessWords;

    fn awaited(psn: u32) -> Awaited {
        Awaited { queue_pair: Some(7), psn }
    }

    #[test]
    fn verdicts_are_taken_in_the_order_of_the_records() {
        let words = ProcessWords::new(DIRECTION_WORDS);
        let (mut verdicts, next) = (Verdicts::default(), Next::default());
        let slots: Vec<u8> = (0..VERDICT_SLOTS as u32)
            .map(|psn| {
                let slot = verdicts.free_slot().unwrap();
                verdicts.expect(slot, awaited(psn), &next);
                slot
            })
            .collect();
        assert_eq!(verdicts.free_slot(), None);
        tell(&words, 0, slots[1], Verdict::Open);
        assert!(!next.has_come(&words, 0));
        assert_eq!(verdicts.take(&words, 0, &next), None);
        tell(&words, 0, slots[0], Verdict::Acknowledged);
        assert!(next.has_come(&words, 0));
        assert_eq!(verdicts.take(&words, 0, &next), Some((awaited(0), Verdict::Acknowledged)));
        assert_eq!(verdicts.take(&words, 0, &next), Some((awaited(1), Verdict::Open)));
        assert_eq!(verdicts.take(&words, 0, &next), None);
        // A slot that was used begins without a verdict.
        let again = verdicts.free_slot().unwrap();
        assert!(slots[..2].contains(&again));
        verdicts.expect(again, awaited(99), &next);
        for slot in &slots[2..] {
            tell(&words, 0, *slot, Verdict::Acknowledged);
            assert!(verdicts.take(&words, 0, &next).is_some());
        }
        assert!(!next.has_come(&words, 0));
        tell(&words, 0, again, Verdict::Acknowledged);
        assert_eq!(verdicts.take(&words, 0, &next), Some((awaited(99), Verdict::Acknowledged)));
        assert!(!next.has_come(&words, 0), "nothing is awaited");
    }

    #[test]
    fn a_record_that_was_not_written_is_not_awaited() {
        let words = ProcessWords::new(DIRECTION_WORDS);
        let (mut verdicts, next) = (Verdicts::default(), Next::default());
        let first = verdicts.free_slot().unwrap();
        verdicts.expect(first, awaited(1), &next);
        let second = verdicts.free_slot().unwrap();
        verdicts.expect(second, awaited(2), &next);
        verdicts.withdraw_last(&next);
        assert_eq!(verdicts.free_slot(), Some(second));
        tell(&words, 0, first, Verdict::Acknowledged);
        assert_eq!(verdicts.take(&words, 0, &next), Some((awaited(1), Verdict::Acknowledged)));
        verdicts.expect(second, awaited(3), &next);
        verdicts.withdraw_last(&next);
        tell(&words, 0, second, Verdict::Open);
        assert!(!next.has_come(&words, 0));
    }

    #[test]
    fn a_queue_pair_that_begins_anew_awaits_nothing_of_before() {
        let words = ProcessWords::new(DIRECTION_WORDS);
        let (mut verdicts, next) = (Verdicts::default(), Next::default());
        let of = |queue_pair| Awaited { queue_pair, psn: 1 };
        for queue_pair in [7, 8] {
            let slot = verdicts.free_slot().unwrap();
            verdicts.expect(slot, of(Some(queue_pair)), &next);
            tell(&words, 0, slot, Verdict::Acknowledged);
        }
        verdicts.forget(7);
        assert_eq!(verdicts.take(&words, 0, &next), Some((of(None), Verdict::Acknowledged)));
        assert_eq!(verdicts.take(&words, 0, &next), Some((of(Some(8)), Verdict::Acknowledged)));
    }

    #[test]
    fn a_word_that_is_no_verdict_acknowledges_nothing() {
        let words = ProcessWords::new(DIRECTION_WORDS);
        let (mut verdicts, next) = (Verdicts::default(), Next::default());
        let slot = verdicts.free_slot().unwrap();
        verdicts.expect(slot, awaited(1), &next);
        words.store(VERDICT, VERDICTS + usize::from(slot), 0xdead);
        assert_eq!(verdicts.take(&words, 0, &next), Some((awaited(1), Verdict::Open)));
    }
}
