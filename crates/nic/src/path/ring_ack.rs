//! What the reader of a ring tells its writer of records, in place of acknowledgements that would be records themselves.
//!
//! The writer of a record whose request wants an acknowledgement says so in it. The reader gives its ring acknowledgement
//! once what the record brings is placed, or it has done with it: executed and thereby acknowledged, or that whatever there is to
//! say follows as a record. Ring acknowledgements come in the order of the records, and acknowledge no more than an acknowledgement with the record's PSN
//! would. One word has how many there were, another one the last 32 of them: no more are awaited at a time. A reader
//! that lies harms those whose peer it is.

use super::ring::{RING_ACK, RING_ACKS};
use pagewire_iommu::words::SharedWords;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records that wait for their ring acknowledgements at a time.
pub const MAX_AWAITED: usize = 32;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RingAck {
    /// The request was executed: as an acknowledgement of it.
    Acknowledged,
    /// Nothing yet. What there is to say comes as a record, if anything.
    Open,
}

const COUNT_WORD: usize = RING_ACKS;
const ACKNOWLEDGED_WORD: usize = RING_ACKS + 1;

/// The place of what is awaited with a number.
fn place_of(number: u64) -> usize {
    (number % MAX_AWAITED as u64) as usize
}

/// The bit of a ring acknowledgement among the last ones.
fn bit(number: u64) -> u32 {
    1 << place_of(number)
}

/// The reader's side: the ring acknowledgements that it has given.
#[derive(Debug, Default)]
pub struct PendingRingAcks {
    count: u64,
    /// The last of them: acknowledged?
    acknowledged: u32,
    /// How many the writer was told of.
    published: u64,
}

impl PendingRingAcks {
    /// The next ring acknowledgement; [`publish`](Self::publish) it.
    pub fn add(&mut self, ring_ack: RingAck) {
        match ring_ack {
            RingAck::Acknowledged => self.acknowledged |= bit(self.count),
            RingAck::Open => self.acknowledged &= !bit(self.count),
        }
        self.count += 1;
    }

    /// Tells the writer of the direction that begins at `base`. False: it knows.
    pub fn publish<W: SharedWords>(&mut self, words: &W, base: usize) -> bool {
        if self.published == self.count {
            return false;
        }
        words.store(RING_ACK, base + ACKNOWLEDGED_WORD, u64::from(self.acknowledged));
        words.store(RING_ACK, base + COUNT_WORD, self.count);
        self.published = self.count;
        true
    }
}

/// A request whose ring acknowledgement is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Awaited {
    /// The queue pair that sent it, if it is still for it.
    pub queue_pair: Option<u32>,
    /// Its PSN.
    pub psn: u32,
}

/// How many ring acknowledgements were taken, for whoever does not hold the ring; [`NONE`] if none is awaited.
#[derive(Debug)]
pub struct TakenAcks(AtomicU64);

const NONE: u64 = u64::MAX;

impl Default for TakenAcks {
    fn default() -> Self {
        TakenAcks(AtomicU64::new(NONE))
    }
}

impl TakenAcks {
    /// How many ring acknowledgements were taken; the same number as long as none is awaited.
    pub fn taken(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Whether a ring acknowledgement has come in the direction that begins at `base`.
    pub fn has_come<W: SharedWords>(&self, words: &W, base: usize) -> bool {
        let taken = self.0.load(Ordering::Acquire);
        taken != NONE && words.load(base + COUNT_WORD) > taken
    }
}

/// The writer's side: what it waits for, in the order of the records.
#[derive(Debug, Default)]
pub struct AwaitedRingAcks {
    /// By number, each at its place in rounds.
    awaited: [Awaited; MAX_AWAITED],
    /// Numbers of the next that is awaited, and of the oldest.
    next: u64,
    taken: u64,
}

impl AwaitedRingAcks {
    /// Whether one more may be awaited; else the record does without.
    pub fn has_room(&self) -> bool {
        self.next - self.taken < MAX_AWAITED as u64
    }

    /// The record is about to be written.
    pub fn expect(&mut self, awaited: Awaited, next: &TakenAcks) {
        debug_assert!(self.has_room());
        self.awaited[place_of(self.next)] = awaited;
        self.next += 1;
        self.publish_next(next);
    }

    /// What a queue pair has sent is not its own any more: it begins anew.
    pub fn forget(&mut self, queue_pair: u32) {
        for awaited in &mut self.awaited {
            awaited.queue_pair = awaited.queue_pair.filter(|&sender| sender != queue_pair);
        }
    }

    /// It was not written.
    pub fn withdraw_last(&mut self, next: &TakenAcks) {
        self.next -= 1;
        self.publish_next(next);
    }

    fn publish_next(&self, next: &TakenAcks) {
        let value = if self.next == self.taken { NONE } else { self.taken };
        next.0.store(value, Ordering::Release);
    }

    /// Takes the oldest ring acknowledgement, if it has come.
    pub fn take<W: SharedWords>(
        &mut self,
        words: &W,
        base: usize,
        next: &TakenAcks,
    ) -> Option<(Awaited, RingAck)> {
        if self.next == self.taken || words.load(base + COUNT_WORD) <= self.taken {
            return None;
        }
        let acknowledged = words.load(base + ACKNOWLEDGED_WORD) as u32 & bit(self.taken) != 0;
        let ring_ack = if acknowledged { RingAck::Acknowledged } else { RingAck::Open };
        let awaited = self.awaited[place_of(self.taken)];
        self.taken += 1;
        self.publish_next(next);
        Some((awaited, ring_ack))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ring::DIRECTION_WORDS;
    use super::*;
    use pagewire_iommu::ProcessWords;

    struct RingEnds {
        words: ProcessWords,
        pending_acks: PendingRingAcks,
        ring_acks: AwaitedRingAcks,
        next: TakenAcks,
    }

    impl RingEnds {
        fn new() -> Self {
            let words = ProcessWords::new(DIRECTION_WORDS);
            RingEnds {
                words,
                pending_acks: PendingRingAcks::default(),
                ring_acks: AwaitedRingAcks::default(),
                next: TakenAcks::default(),
            }
        }

        fn expect(&mut self, psn: u32) {
            self.ring_acks.expect(awaited(psn), &self.next);
        }

        fn publish(&mut self) -> bool {
            self.pending_acks.publish(&self.words, 0)
        }

        fn has_come(&self) -> bool {
            self.next.has_come(&self.words, 0)
        }

        fn take(&mut self) -> Option<(Awaited, RingAck)> {
            self.ring_acks.take(&self.words, 0, &self.next)
        }
    }

    fn awaited(psn: u32) -> Awaited {
        Awaited { queue_pair: Some(7), psn }
    }

    #[test]
    fn ring_acks_keep_record_order() {
        let mut ends = RingEnds::new();
        // So that no round begins where one of the words and of what is awaited does.
        for psn in 0..5 {
            ends.expect(psn);
            ends.pending_acks.add(RingAck::Acknowledged);
            assert!(ends.publish());
            assert_eq!(ends.take(), Some((awaited(psn), RingAck::Acknowledged)));
        }
        for round in 0..1000 {
            let psns = round * 100..round * 100 + MAX_AWAITED as u32;
            psns.clone().for_each(|psn| ends.expect(psn));
            assert!(!ends.ring_acks.has_room() && !ends.has_come());
            assert_eq!(ends.take(), None);
            let given = |psn| if psn % 3 == round % 3 { RingAck::Open } else { RingAck::Acknowledged };
            psns.clone().for_each(|psn| ends.pending_acks.add(given(psn)));
            assert_eq!(ends.take(), None);
            assert!(ends.publish());
            assert!(!ends.publish(), "it is known");
            for psn in psns {
                assert!(ends.has_come());
                assert_eq!(ends.take(), Some((awaited(psn), given(psn))));
            }
            assert!(!ends.has_come() && ends.ring_acks.has_room());
            assert_eq!(ends.take(), None);
        }
    }

    #[test]
    fn a_record_that_was_not_written_is_not_awaited() {
        let mut ends = RingEnds::new();
        ends.expect(1);
        ends.expect(2);
        ends.ring_acks.withdraw_last(&ends.next);
        ends.pending_acks.add(RingAck::Acknowledged);
        assert!(ends.publish());
        assert_eq!(ends.take(), Some((awaited(1), RingAck::Acknowledged)));
        ends.expect(3);
        ends.ring_acks.withdraw_last(&ends.next);
        ends.pending_acks.add(RingAck::Open);
        assert!(ends.publish());
        assert!(!ends.has_come());
    }

    #[test]
    fn a_queue_pair_that_begins_anew_awaits_nothing_of_before() {
        let mut ends = RingEnds::new();
        let of = |queue_pair| Awaited { queue_pair, psn: 1 };
        for queue_pair in [7, 8] {
            ends.ring_acks.expect(of(Some(queue_pair)), &ends.next);
            ends.pending_acks.add(RingAck::Acknowledged);
        }
        assert!(ends.publish());
        ends.ring_acks.forget(7);
        assert_eq!(ends.take(), Some((of(None), RingAck::Acknowledged)));
        assert_eq!(ends.take(), Some((of(Some(8)), RingAck::Acknowledged)));
    }

    /// A peer that tells more than was asked is not asked again and again.
    #[test]
    fn surplus_ring_acks_are_ignored() {
        let mut ends = RingEnds::new();
        ends.words.store(RING_ACK, COUNT_WORD, u64::MAX);
        assert!(!ends.has_come());
        assert_eq!(ends.take(), None);
        ends.expect(1);
        while ends.has_come() {
            assert!(ends.take().is_some());
        }
        assert!(ends.ring_acks.has_room());
    }
}
