//! Acknowledgements that wait for the program's answer.

use super::Occasion;

/// Answers in a row that would have taken an acknowledgement along before acknowledgements wait for them.
const ANSWERS_THAT_COUNT: u32 = 8;
/// Nanoseconds in which a program answers that looks at its memory all the time.
const ANSWER_TIME: u64 = 50_000;

/// What has come for the program since its queue pair was last driven.
#[derive(Debug, Clone, Copy, Default)]
pub struct News {
    /// A message, which it gets by a poll.
    pub received: bool,
    /// It was written to its memory.
    pub written: bool,
}

/// What the program is to answer before an acknowledgement leaves by itself.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// A poll hands it over: before it polls again.
    Now,
    /// It is in its memory since then (fabric time): before [`ANSWER_TIME`] is over.
    Since(u64),
}

/// Whether the program answers what comes for it: then acknowledgements leave together with the answers.
#[derive(Default)]
pub(super) struct Answers {
    /// What has come, and the program has not answered.
    expected: Option<Expected>,
    /// Times in a row that it has answered first.
    seen: u32,
}

impl Answers {
    /// The acknowledgement of what the program gets now by a poll may wait.
    pub(super) fn are_usual(&self) -> bool {
        self.expected.is_none() && self.is_usual()
    }

    fn is_usual(&self) -> bool {
        self.seen >= ANSWERS_THAT_COUNT
    }

    /// The queue pair is about to be driven at a time, and there is `news` for the program. True: an acknowledgement may wait, or
    /// has waited, and leaves with the answer.
    pub(super) fn look(&mut self, occasion: Occasion, news: News, now: u64) -> bool {
        let expected = match (occasion, news) {
            (Occasion::Polled, News { received, written }) if received || written => Some(Expected::Now),
            // A message that no poll has taken waits for a program that does something else.
            (Occasion::Round, News { received: false, written: true }) => Some(Expected::Since(now)),
            _ => None,
        };
        let in_time = |at: u64| now.saturating_sub(at) <= ANSWER_TIME;
        let mut waited = false;
        match (self.expected.take(), occasion) {
            (None, _) => {}
            (Some(Expected::Since(at)), Occasion::Doorbell) if !in_time(at) => self.seen = 0,
            (Some(_), Occasion::Doorbell) => {
                waited = self.is_usual();
                self.seen = self.seen.saturating_add(1);
            }
            (Some(Expected::Since(at)), _) if expected.is_none() && in_time(at) => {
                self.expected = Some(Expected::Since(at));
                return self.is_usual();
            }
            (Some(_), _) => self.seen = 0,
        }
        self.expected = expected;
        waited || expected.is_some() && self.is_usual()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: News = News { received: true, written: false };
    const WRITE: News = News { received: false, written: true };
    const NOTHING: News = News { received: false, written: false };

    /// The program gets a message, and answers it or polls again. Whether the acknowledgement was to wait.
    fn message(answers: &mut Answers, answered: bool) -> bool {
        let waits = answers.look(Occasion::Polled, MESSAGE, 0);
        let next = if answered { Occasion::Doorbell } else { Occasion::Round };
        assert_eq!(
            answers.look(next, NOTHING, 1_000_000),
            waits && answered,
            "what has waited leaves with the answer alone"
        );
        waits
    }

    #[test]
    fn acknowledgements_wait_for_programs_that_answer_each_message() {
        let mut answers = Answers::default();
        for _ in 0..ANSWERS_THAT_COUNT {
            assert!(!answers.are_usual());
            assert!(!message(&mut answers, true), "it might have been by chance");
        }
        assert!(answers.are_usual());
        assert!(message(&mut answers, true));
        // What came in otherwise than by a poll is not answered soon, and says nothing.
        assert!(!answers.look(Occasion::Round, MESSAGE, 0));
        assert!(!answers.look(Occasion::Doorbell, NOTHING, 0));
        assert!(message(&mut answers, false));
        assert!(!message(&mut answers, true), "the last one was not answered");
    }

    /// It is written to the program's memory while nobody polls, and the program posts so much later. Whether the acknowledgement waited
    /// until then.
    fn write(answers: &mut Answers, later: u64) -> bool {
        let at = 1_000_000;
        let waits = answers.look(Occasion::Round, WRITE, at);
        // The NIC thread goes on.
        let still = answers.look(Occasion::Round, NOTHING, at + later);
        assert_eq!(still, waits && later <= ANSWER_TIME, "it waits for so long, and no longer");
        let left = answers.look(Occasion::Doorbell, NOTHING, at + later);
        assert_eq!(left, still, "what has waited leaves with the answer alone");
        left
    }

    #[test]
    fn they_wait_for_a_short_time_for_programs_that_answer_what_is_written_to_their_memory() {
        let mut answers = Answers::default();
        (0..ANSWERS_THAT_COUNT).for_each(|_| assert!(!write(&mut answers, ANSWER_TIME)));
        assert!(write(&mut answers, 2_000) && answers.are_usual());
        assert!(!write(&mut answers, ANSWER_TIME + 1));
        assert!(!write(&mut answers, 2_000), "the last one was not answered in time");
        // One WRITE behind the other: they are not answered one by one.
        (0..ANSWERS_THAT_COUNT).for_each(|_| _ = write(&mut answers, 2_000));
        assert!(answers.look(Occasion::Round, WRITE, 0));
        assert!(!answers.look(Occasion::Round, WRITE, 1_000));
        // By polls and otherwise.
        (0..=ANSWERS_THAT_COUNT).for_each(|_| _ = write(&mut answers, 2_000));
        assert!(answers.look(Occasion::Polled, WRITE, 0));
        assert!(answers.look(Occasion::Doorbell, NOTHING, 1_000_000));
        assert!(write(&mut answers, 2_000));
    }
}
