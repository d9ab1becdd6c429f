//! Which queue pairs of peers belong together: a flush of handlers by one of them covers what was logged of all, also of those that have ended.

use std::collections::HashMap;

/// Callers without a queue pair that are kept before those of which nothing is logged any more are looked for.
const MOST_FORMER: usize = 64;

/// The queue pairs of callers.
#[derive(Debug, Default)]
pub struct Callers {
    /// The caller of each queue pair that exists.
    live: HashMap<u32, u64>,
    /// The queue pairs of each caller: those that exist, and those that have ended and of which something may be logged.
    members: HashMap<u64, Vec<u32>>,
}

impl Callers {
    /// A queue pair belongs to a caller. `is_logged`: whether something of a queue pair may be in a log.
    pub fn enter(&mut self, number: u32, caller: u64, is_logged: impl Fn(u32) -> bool) {
        if let Some(before) = self.live.insert(number, caller) {
            self.leave_group(number, before);
        }
        self.members.entry(caller).or_default().push(number);
        self.forget_handled(caller, &is_logged);
        if self.members.len() > 2 * self.live.len() + MOST_FORMER {
            let callers: Vec<u64> = self.members.keys().copied().collect();
            callers.into_iter().for_each(|caller| self.forget_handled(caller, &is_logged));
        }
    }

    /// A queue pair has ended.
    pub fn end(&mut self, number: u32, is_logged: impl Fn(u32) -> bool) {
        if let Some(caller) = self.live.remove(&number) {
            self.forget_handled(caller, &is_logged);
        }
    }

    /// Whether a queue pair belongs to a caller.
    pub fn has(&self, number: u32) -> bool {
        self.live.contains_key(&number)
    }

    /// All queue pairs of the caller that has this one.
    pub fn siblings(&self, number: u32) -> Vec<u32> {
        let of_caller = self.live.get(&number).and_then(|caller| self.members.get(caller));
        of_caller.cloned().unwrap_or_else(|| vec![number])
    }

    fn leave_group(&mut self, number: u32, caller: u64) {
        if let Some(members) = self.members.get_mut(&caller) {
            members.retain(|member| *member != number);
        }
    }

    /// Drops queue pairs of a caller that have ended, and of which nothing is logged.
    fn forget_handled(&mut self, caller: u64, is_logged: &impl Fn(u32) -> bool) {
        let Callers { live, members } = self;
        let Some(numbers) = members.get_mut(&caller) else { return };
        numbers.retain(|number| live.get(number) == Some(&caller) || is_logged(*number));
        // A number may have been given again.
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            members.remove(&caller);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_keeps_what_is_logged_and_nothing_else() {
        let mut callers = Callers::default();
        let is_logged = |number| number < 10;
        callers.enter(1, 77, is_logged);
        callers.end(1, is_logged);
        callers.enter(20, 77, is_logged);
        callers.end(20, is_logged);
        callers.enter(21, 77, is_logged);
        assert_eq!(callers.siblings(21), [1, 21]);
        assert!(callers.has(21) && !callers.has(1) && !callers.has(5));
        assert_eq!(callers.siblings(5), [5], "one without a caller is alone");
        // The number is given again, to another caller: both may have left something by it.
        callers.enter(1, 78, is_logged);
        assert_eq!((callers.siblings(21), callers.siblings(1)), (vec![1, 21], vec![1]));
        callers.enter(22, 77, |_| false);
        assert_eq!(callers.siblings(22), [21, 22]);
    }

    #[test]
    fn callers_that_left_nothing_are_forgotten() {
        let mut callers = Callers::default();
        for caller in 0..1000 {
            callers.enter(caller, caller.into(), |_| true);
            callers.end(caller, |_| true);
        }
        callers.enter(5000, 5000, |number| number == 3);
        assert_eq!(callers.members.len(), 2);
    }
}
