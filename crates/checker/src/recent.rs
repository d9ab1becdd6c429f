//! The last things that ended, up to a bound.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::hash::Hash;

/// A map that forgets its oldest entries beyond a bound.
#[derive(Debug)]
pub struct Recent<K, V> {
    entries: FxHashMap<K, (u64, V)>,
    order: VecDeque<(u64, K)>,
    next: u64,
    bound: usize,
}

impl<K: Hash + Eq + Copy, V> Recent<K, V> {
    pub fn new(bound: usize) -> Self {
        Recent { entries: FxHashMap::default(), order: VecDeque::new(), next: 0, bound }
    }

    pub fn insert(&mut self, key: K, value: V) {
        self.next += 1;
        self.entries.insert(key, (self.next, value));
        self.order.push_back((self.next, key));
        while self.order.len() > self.bound {
            let Some((number, oldest)) = self.order.pop_front() else { break };
            // It may have been replaced or taken out since.
            if self.entries.get(&oldest).is_some_and(|(current, _)| *current == number) {
                self.entries.remove(&oldest);
            }
        }
    }

    /// The value of a key, which is added if it is not there.
    pub fn get_or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        if !self.entries.contains_key(&key) {
            self.insert(key, V::default());
        }
        &mut self.entries.entry(key).or_default().1
    }

    pub fn get(&self, key: K) -> Option<&V> {
        self.entries.get(&key).map(|(_, value)| value)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn remove(&mut self, key: K) {
        self.entries.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_entries_go() {
        let mut recent = Recent::new(2);
        recent.insert(1, 'a');
        recent.insert(2, 'b');
        recent.insert(1, 'c');
        assert_eq!(recent.get(1), Some(&'c'));
        recent.insert(3, 'd');
        assert_eq!((recent.get(1), recent.get(2), recent.get(3)), (Some(&'c'), None, Some(&'d')));
        recent.remove(3);
        assert_eq!(recent.get(3), None);
        *recent.get_or_default(4) = 'f';
        assert_eq!(*recent.get_or_default(4), 'f');
    }
}
