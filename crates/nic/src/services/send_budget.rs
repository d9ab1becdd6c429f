//! What all RC queue pairs of a process have under way on the network, together.
//!
//! Each connection bounds what it sends by a window of its own; but the requests of all of them go to sockets that hold
//! hardly more than one such window, and the responses to all their READs come to the socket of this process. So they
//! share one window's worth. While it is not used up everybody takes what there is, and a single queue pair notices
//! nothing. Once it is, whoever wants more waits in a line, and what becomes free goes to the first in it.
//!
//! What is under way to a peer that does not answer would block the others: it counts for two leases at most.

use crate::types::limits::{SEND_BUDGET, SEND_BUDGET_LEASE, SEND_BUDGET_LEAST};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What one queue pair has under way, as it was last told.
#[derive(Debug, Clone, Copy, Default)]
struct Charge {
    lease: u64,
    bytes: u64,
}

/// A queue pair's part.
#[derive(Debug, Default)]
pub struct BudgetUse {
    charge: Charge,
    /// It stands in the line.
    waits: bool,
}

/// A share that is being used: how many packets may be sent, until [`SendBudget::end`].
#[must_use]
pub struct BudgetGrant {
    /// Packets that may be put under way.
    pub packets: u32,
    reserved: Charge,
}

#[derive(Debug, Default)]
struct BudgetState {
    /// The current lease: nanoseconds by [`SEND_BUDGET_LEASE`].
    lease: u64,
    /// Bytes told in the current lease and in the one before, by the last bit of its number.
    sums: [u64; 2],
    line: VecDeque<u32>,
}

impl BudgetState {
    fn roll(&mut self, now: u64) {
        let lease = now / SEND_BUDGET_LEASE;
        if lease <= self.lease {
            return;
        }
        if lease > self.lease + 1 {
            self.sums = [0; 2];
        }
        self.sums[(lease & 1) as usize] = 0;
        self.lease = lease;
    }

    fn free(&self) -> u64 {
        SEND_BUDGET.saturating_sub(self.sums[0] + self.sums[1])
    }

    fn charge(&mut self, bytes: u64) -> Charge {
        self.sums[(self.lease & 1) as usize] += bytes;
        Charge { lease: self.lease, bytes }
    }

    fn discharge(&mut self, charge: Charge) {
        if charge.lease + 1 >= self.lease {
            let sum = &mut self.sums[(charge.lease & 1) as usize];
            *sum = sum.saturating_sub(charge.bytes);
        }
    }

    /// Notes what a queue pair has under way now. What has not changed grows old.
    fn update(&mut self, charge: &mut Charge, bytes: u64) {
        if charge.bytes != bytes {
            self.discharge(*charge);
            *charge = self.charge(bytes);
        }
    }

    /// Whether the first in the line may have its turn.
    fn can_serve_first(&self) -> bool {
        !self.line.is_empty() && self.free() >= SEND_BUDGET_LEAST
    }
}

/// The shares of a process.
#[derive(Debug, Default)]
pub struct SendBudget {
    state: Mutex<BudgetState>,
    /// Length of the line, for a look without the lock.
    waiting: AtomicUsize,
}

impl SendBudget {
    /// A queue pair with so many bytes under way, in packets of `packet` bytes, is about to send. `is_first`: it was
    /// [`next`](Self::next).
    pub fn begin(
        &self,
        budget_use: &mut BudgetUse,
        bytes: u64,
        packet: u32,
        is_first: bool,
        now: u64,
    ) -> BudgetGrant {
        let mut state = self.state.lock();
        state.roll(now);
        state.update(&mut budget_use.charge, bytes);
        budget_use.waits &= !is_first;
        let packet = u64::from(packet.max(1));
        let granted = if is_first {
            let fair = SEND_BUDGET / (state.line.len() as u64 + 1);
            state.free().min(fair.max(SEND_BUDGET_LEAST)).max(packet)
        } else if state.line.is_empty() {
            state.free()
        } else {
            0
        };
        let packets = granted.div_ceil(packet);
        BudgetGrant { packets: packets as u32, reserved: state.charge(packets * packet) }
    }

    /// A queue pair has sent and now has so many bytes under way; `held`: its number, if it would have sent more. True: somebody
    /// should call [`next`](Self::next), now or when [`due`](Self::due) says.
    pub fn end(
        &self,
        budget_use: &mut BudgetUse,
        grant: BudgetGrant,
        bytes: u64,
        held: Option<u32>,
        now: u64,
    ) -> bool {
        let mut state = self.state.lock();
        state.roll(now);
        state.discharge(grant.reserved);
        state.update(&mut budget_use.charge, bytes);
        let mut first = false;
        if let Some(number) = held.filter(|_| !budget_use.waits) {
            budget_use.waits = true;
            first = state.line.is_empty();
            state.line.push_back(number);
            self.waiting.store(state.line.len(), Ordering::SeqCst);
        }
        first || state.can_serve_first()
    }

    /// A queue pair has nothing under way any more. True: as for [`end`](Self::end).
    pub fn leave(&self, budget_use: &mut BudgetUse) -> bool {
        let left = std::mem::take(budget_use);
        if left.charge.bytes == 0 {
            return false;
        }
        let mut state = self.state.lock();
        state.discharge(left.charge);
        state.can_serve_first()
    }

    /// Whether somebody waits for a turn.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// The queue pair whose turn it is; it leaves the line.
    pub fn next(&self, now: u64) -> Option<u32> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut state = self.state.lock();
        state.roll(now);
        if !state.can_serve_first() {
            return None;
        }
        let number = state.line.pop_front();
        self.waiting.store(state.line.len(), Ordering::SeqCst);
        number
    }

    /// When [`next`](Self::next) has somebody at the latest, `u64::MAX` if nobody waits.
    pub fn due(&self, now: u64) -> u64 {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return u64::MAX;
        }
        let mut state = self.state.lock();
        state.roll(now);
        if state.can_serve_first() { now } else { (state.lease + 1) * SEND_BUDGET_LEASE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 4096;
    const WHOLE: u32 = (SEND_BUDGET / PACKET as u64) as u32;

    /// Sends as much as is granted; gives how many packets that were.
    fn send(
        send_budget: &SendBudget,
        budget_use: &mut BudgetUse,
        number: u32,
        is_first: bool,
        now: u64,
    ) -> u32 {
        let grant = send_budget.begin(budget_use, 0, PACKET, is_first, now);
        let packets = grant.packets;
        send_budget.end(budget_use, grant, u64::from(packets) * u64::from(PACKET), Some(number), now);
        packets
    }

    #[test]
    fn the_line_gets_what_becomes_free() {
        let send_budget = SendBudget::default();
        let mut uses: Vec<BudgetUse> = (0..100).map(|_| BudgetUse::default()).collect();
        assert_eq!(send(&send_budget, &mut uses[0], 0, false, 0), WHOLE, "a single one gets all there is");
        for number in 1..100 {
            assert_eq!(send(&send_budget, &mut uses[number as usize], number, false, 0), 0);
        }
        assert_eq!(send_budget.next(0), None);
        // Everything of the first has arrived; it wants more, but others were there before.
        let grant = send_budget.begin(&mut uses[0], 0, PACKET, false, 1);
        assert_eq!(grant.packets, 0);
        assert!(send_budget.end(&mut uses[0], grant, 0, Some(0), 1));
        let mut in_flight = 0;
        let mut served = Vec::new();
        while let Some(number) = send_budget.next(1) {
            in_flight += send(&send_budget, &mut uses[number as usize], number, true, 1);
            served.push(number);
        }
        // It had asked for more before and kept its place.
        assert_eq!(served[0], 0);
        assert!(served[1..].iter().zip(1..).all(|(number, expected)| *number == expected), "{served:?}");
        assert!(served.len() > 4 && in_flight <= WHOLE, "{} {in_flight}", served.len());
    }

    #[test]
    fn silent_peer_returns_send_budget() {
        let send_budget = SendBudget::default();
        let (mut silent, mut other) = (BudgetUse::default(), BudgetUse::default());
        send(&send_budget, &mut silent, 1, false, 0);
        // It is driven now and then, and nothing changes.
        let grant = send_budget.begin(&mut silent, SEND_BUDGET, PACKET, false, SEND_BUDGET_LEASE);
        send_budget.end(&mut silent, grant, SEND_BUDGET, None, SEND_BUDGET_LEASE);
        assert_eq!(send(&send_budget, &mut other, 2, false, SEND_BUDGET_LEASE), 0);
        assert_eq!(send_budget.due(SEND_BUDGET_LEASE), 2 * SEND_BUDGET_LEASE);
        while let Some(number) = send_budget.next(2 * SEND_BUDGET_LEASE) {
            assert!(number == 1 || number == 2);
        }
        assert!(send(&send_budget, &mut other, 2, true, 2 * SEND_BUDGET_LEASE) > 0);
        assert!(!send_budget.leave(&mut silent), "what has grown old is not given back twice");
    }

    #[test]
    fn who_leaves_makes_room() {
        let send_budget = SendBudget::default();
        let (mut one, mut two) = (BudgetUse::default(), BudgetUse::default());
        send(&send_budget, &mut one, 1, false, 0);
        assert_eq!(send(&send_budget, &mut two, 2, false, 0), 0);
        assert!(send_budget.leave(&mut one));
        assert!(!send_budget.leave(&mut one));
        assert_eq!(
            send_budget.next(0),
            Some(1),
            "its place in the line is passed over by whoever asks for the queue pair"
        );
        assert_eq!(send_budget.next(0), Some(2));
        assert!(send(&send_budget, &mut two, 2, true, 0) > 0);
    }
}
