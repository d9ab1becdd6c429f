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
    /// The queue pair is about to be driven; `received`: the program gets a message now. True: its acknowledgement may wait.
    pub(super) fn look(&mut self, occasion: Occasion, received: bool) -> bool {
        if std::mem::take(&mut self.expected) {
            self.seen = if occasion == Occasion::Doorbell { self.seen.saturating_add(1) } else { 0 };
        }
        self.expected = occasion == Occasion::Polled && received;
        self.expected && self.seen >= ANSWERS_THAT_COUNT
    }
}
