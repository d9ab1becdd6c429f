//! How much may be in flight on a link that may lose packets: additive increase, multiplicative
//! decrease (the idea of TCP's, RFC 5681), with the floor and ceiling of `limits`.

use crate::limits;

/// A bound on the PSNs in flight.
#[derive(Debug, Default)]
pub(super) struct Window {
    packets: u32,
    ceiling: u32,
    /// Below it the window grows by what was acknowledged, above it by one packet a window.
    threshold: u32,
    /// PSNs acknowledged towards the next increase.
    credit: u32,
    /// It was reduced and has not grown back.
    reduced: bool,
}

impl Window {
    /// For packets that carry `mtu` bytes, of which `most` may be in flight.
    pub(super) fn new(mtu: u32, most: u32) -> Window {
        let packets = |bytes: u32| (bytes / mtu.max(1)).clamp(limits::MIN_WINDOW, limits::LOSSY_SPAN);
        let ceiling = packets(most);
        let packets = packets(limits::INITIAL_IN_FLIGHT);
        Window { packets, ceiling, threshold: ceiling, credit: 0, reduced: false }
    }

    /// PSNs that may be in flight.
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Whether the network has shown that it is narrower than the ceiling.
    pub(super) fn is_reduced(&self) -> bool {
        self.reduced
    }

    /// `count` PSNs were acknowledged for the first time.
    pub(super) fn acknowledged(&mut self, count: u32) {
        if self.packets >= self.ceiling {
            return;
        }
        self.credit = self.credit.saturating_add(count);
        if self.packets < self.threshold {
            self.packets = (self.packets + self.credit).min(self.threshold);
            self.credit = 0;
        } else if self.credit >= self.packets {
            self.credit -= self.packets;
            self.packets += 1;
        }
        self.reduced &= self.packets < self.ceiling;
    }

    /// Something was lost, or the network asked for less.
    pub(super) fn lost(&mut self) {
        self.threshold = (self.packets / 2).max(limits::MIN_WINDOW);
        self.packets = self.threshold;
        self.credit = 0;
        self.reduced = true;
    }

    /// Nothing came back at all.
    pub(super) fn silent(&mut self) {
        self.lost();
        self.packets = limits::MIN_WINDOW;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stays_between_floor_and_ceiling(mtu in 1u32..=4096, steps in prop::collection::vec((0u8..3, 0u32..300), 0..200)) {
            let mut window = Window::new(mtu, limits::MAX_IN_FLIGHT);
            for (kind, count) in steps {
                match kind {
                    0 => window.acknowledged(count),
                    1 => window.lost(),
                    _ => window.silent(),
                }
                prop_assert!(window.packets() >= limits::MIN_WINDOW);
                prop_assert!(window.packets() <= window.ceiling);
                prop_assert!(u64::from(window.packets()) * u64::from(mtu) <= u64::from(limits::MAX_IN_FLIGHT).max(2 * u64::from(mtu)));
            }
        }
    }

    #[test]
    fn grows_back_after_loss() {
        let mut window = Window::new(4096, limits::MAX_IN_FLIGHT);
        assert!(!window.is_reduced());
        window.lost();
        let halved = window.packets();
        for _ in 0..halved {
            window.acknowledged(1);
        }
        assert_eq!(window.packets(), halved + 1);
        assert!(window.is_reduced());
        for _ in 0..10_000 {
            window.acknowledged(1);
        }
        assert_eq!(window.packets(), 48);
        assert!(!window.is_reduced());
    }
}
