//! When completions came, for queues whose program reads that (`IBV_WC_EX_WITH_COMPLETION_TIMESTAMP`).

use std::collections::VecDeque;

/// When a completion came to its queue, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CompletionStamp {
    /// By the clock that the device's is.
    pub raw: u64,
    /// By the wall clock.
    pub wall: u64,
}

/// The stamps of the completions that wait, in their order.
#[derive(Default)]
pub struct Stamps {
    clock: Option<fn() -> CompletionStamp>,
    waiting: VecDeque<CompletionStamp>,
    taken: CompletionStamp,
}

impl Stamps {
    /// Stamps of a clock; without one there are none.
    pub fn by(clock: Option<fn() -> CompletionStamp>) -> Self {
        Stamps { clock, ..Stamps::default() }
    }

    /// Whether completions get stamps.
    #[inline]
    pub fn are_kept(&self) -> bool {
        self.clock.is_some()
    }

    /// A completion came.
    pub fn add(&mut self) {
        if let Some(clock) = self.clock {
            self.waiting.push_back(clock());
        }
    }

    /// The oldest completion is taken.
    pub fn take(&mut self) {
        if let Some(stamp) = self.waiting.pop_front() {
            self.taken = stamp;
        }
    }

    /// The oldest completion is dropped.
    pub fn drop_oldest(&mut self) {
        self.waiting.pop_front();
    }

    /// That of the completion that was taken last.
    pub fn taken(&self) -> CompletionStamp {
        self.taken
    }

    /// Forgets those of completions that are not kept, of which `kept` tells in their order.
    pub fn retain(&mut self, mut kept: impl Iterator<Item = bool>) {
        self.waiting.retain(|_| kept.next().unwrap_or(true));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn clock() -> CompletionStamp {
        static TIME: AtomicU64 = AtomicU64::new(1);
        let raw = TIME.fetch_add(1, Ordering::Relaxed);
        CompletionStamp { raw, wall: raw + 1000 }
    }

    #[test]
    fn each_completion_keeps_its_stamp() {
        let mut stamps = Stamps::by(Some(clock));
        (0..4).for_each(|_| stamps.add());
        stamps.take();
        assert_eq!(stamps.taken(), CompletionStamp { raw: 1, wall: 1001 });
        stamps.retain([true, false, true].into_iter());
        stamps.take();
        assert_eq!(stamps.taken().raw, 2);
        stamps.take();
        assert_eq!(stamps.taken().raw, 4);
        stamps.add();
        stamps.drop_oldest();
        assert_eq!(stamps.taken().raw, 4, "whoever reads it goes on reading it");
        assert!(!Stamps::by(None).are_kept());
    }
}
