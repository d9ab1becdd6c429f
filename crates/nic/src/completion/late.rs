//! Completions that come later than they could, as failures on demand want it. What comes behind a late one waits for it.

use crate::completion::Completion;
use std::collections::VecDeque;
use std::sync::Arc;

/// Who says how late a completion comes.
pub trait CompletionDelays: Send + Sync {
    /// By how many nanoseconds. Called under the lock of the completion queue, for each of its completions once.
    fn delay(&self, completion: &Completion) -> Option<u64>;
}

/// The late completions of a queue, each with the time at which it is due.
#[derive(Default)]
pub struct LateCompletions {
    delays: Option<Arc<dyn CompletionDelays>>,
    waiting: VecDeque<(u64, Completion)>,
}

impl LateCompletions {
    /// Whether completions may come late.
    pub fn is_possible(&self) -> bool {
        self.delays.is_some()
    }

    /// Asks about each completion from now on.
    pub fn ask(&mut self, delays: Arc<dyn CompletionDelays>) {
        self.delays = Some(delays);
    }

    /// Holds a completion back, and gives when it is due; `None`: it comes now.
    pub fn hold(&mut self, completion: &Completion, now: impl FnOnce() -> u64) -> Option<u64> {
        let own = self.delays.as_ref()?.delay(completion);
        let before = self.waiting.back().map(|(due, _)| *due);
        if own.is_none() && before.is_none() {
            return None;
        }
        let due = own.map_or(0, |delay| now().saturating_add(delay)).max(before.unwrap_or(0));
        self.waiting.push_back((due, *completion));
        Some(due)
    }

    /// How many are held back.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes the oldest if it is due.
    pub fn take_due(&mut self, now: u64) -> Option<Completion> {
        self.waiting.front().filter(|(due, _)| *due <= now)?;
        self.waiting.pop_front().map(|(_, completion)| completion)
    }

    /// Forgets those of a queue pair.
    pub fn forget(&mut self, queue_pair: u32) {
        self.waiting.retain(|(_, completion)| completion.queue_pair != queue_pair);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion::{CompletionOpcode, Status};

    /// The request with ID 2 comes 100 ns late.
    struct SecondIsLate;

    impl CompletionDelays for SecondIsLate {
        fn delay(&self, completion: &Completion) -> Option<u64> {
            (completion.wr_id == 2).then_some(100)
        }
    }

    #[test]
    fn order_is_kept() {
        let mut late = LateCompletions::default();
        late.ask(Arc::new(SecondIsLate));
        let completion = |id| Completion::new(7, id, CompletionOpcode::Send, Status::Success);
        assert_eq!(late.hold(&completion(1), || 10), None);
        assert_eq!(late.hold(&completion(2), || 20), Some(120));
        assert_eq!(late.hold(&completion(3), || 30), Some(120));
        assert!(late.take_due(119).is_none());
        assert_eq!(
            [120, 120, 120].map(|now| late.take_due(now).map(|taken| taken.wr_id)),
            [Some(2), Some(3), None]
        );
        assert_eq!(late.hold(&completion(4), || 130), None);
    }
}
