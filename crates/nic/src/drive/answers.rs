//! Acknowledgements that wait for the program's answer.

use super::Occasion;

/// Answers in a row that would have taken an acknowledgement along before acknowledgements wait for them.
const ANSWERS_THAT_COUNT: u32 = 8;

/// Whether the program answers what it receives: then acknowledgements leave together with the answers.
#[derive(Default)]
pub(super) struct Answers {
    /// The program is handed a message whose acknowledgement is due, and has neither answered nor polled again since.
    expected: bool,
    /// Times in a row that it has answered first.
    seen: u32,
}

impl Answers {
    /// The acknowledgement of a message that the program gets now by a poll may wait.
    pub(super) fn are_usual(&self) -> bool {
        !self.expected && self.seen >= ANSWERS_THAT_COUNT
    }

    /// The queue pair is about to be driven; `received`: the program gets a message now. True: its acknowledgement may wait, or
    /// has waited, and leaves with the answer.
    pub(super) fn look(&mut self, occasion: Occasion, received: bool) -> bool {
        let answers = std::mem::take(&mut self.expected);
        let waited = answers && self.seen >= ANSWERS_THAT_COUNT && occasion == Occasion::Doorbell;
        if answers {
            self.seen = if occasion == Occasion::Doorbell { self.seen.saturating_add(1) } else { 0 };
        }
        self.expected = occasion == Occasion::Polled && received;
        waited || self.expected && self.seen >= ANSWERS_THAT_COUNT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The program gets a message, and answers it or polls again. Whether the acknowledgement was to wait.
    fn message(answers: &mut Answers, answered: bool) -> bool {
        let waits = answers.look(Occasion::Polled, true);
        let next = if answered { Occasion::Doorbell } else { Occasion::Round };
        assert_eq!(
            answers.look(next, false),
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
        assert!(!answers.look(Occasion::Round, true));
        assert!(!answers.look(Occasion::Doorbell, false));
        assert!(message(&mut answers, false));
        assert!(!message(&mut answers, true), "the last one was not answered");
    }
}
