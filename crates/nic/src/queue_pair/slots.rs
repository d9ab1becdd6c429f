//! A queue whose elements are written where they stay, and whose places are used again: elements of many words are not moved
//! about, and what they hold on the heap is not given back and asked for with each.

use derive_where::derive_where;

/// Elements in order; the places of those that were taken keep what was in them.
#[derive_where(Default)]
pub struct SlotQueue<T> {
    /// As many as a power of two.
    places: Vec<T>,
    first: usize,
    length: usize,
}

/// Places at first.
const LEAST: usize = 4;

impl<T: Default> SlotQueue<T> {
    /// Elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    #[inline]
    fn place(&self, index: usize) -> usize {
        self.first.wrapping_add(index) & self.places.len().wrapping_sub(1)
    }

    /// The element at `index` from the oldest on.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&T> {
        if index < self.length { self.places.get(self.place(index)) } else { None }
    }

    /// The oldest.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut T> {
        let place = self.place(0);
        if self.length > 0 { self.places.get_mut(place) } else { None }
    }

    /// Adds an element, and gives its place, with whatever an element before had there.
    #[inline]
    pub fn add(&mut self) -> &mut T {
        if self.length == self.places.len() {
            self.grow();
        }
        let place = self.place(self.length);
        self.length += 1;
        &mut self.places[place]
    }

    #[cold]
    fn grow(&mut self) {
        self.places.rotate_left(self.first);
        self.first = 0;
        let places = (self.places.len() * 2).max(LEAST);
        self.places.resize_with(places, T::default);
    }

    /// Takes the oldest away. Its place keeps it until another one has its turn there.
    #[inline]
    pub fn drop_front(&mut self) {
        if self.length > 0 {
            self.first = self.place(1);
            self.length -= 1;
        }
    }

    /// Takes all away, with what they hold.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        #[test]
        fn elements_come_in_the_order_in_which_they_were_added(
            steps in proptest::collection::vec(0u8..10, 0..400)
        ) {
            let (mut slots, mut expected) = (SlotQueue::default(), VecDeque::new());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    0..5 => {
                        *slots.add() = number;
                        expected.push_back(number);
                    }
                    5..9 => {
                        prop_assert_eq!(slots.front_mut().copied(), expected.pop_front());
                        slots.drop_front();
                    }
                    _ => {
                        slots.clear();
                        expected.clear();
                    }
                }
                prop_assert_eq!((slots.len(), slots.is_empty()), (expected.len(), expected.is_empty()));
                let found: Vec<usize> = (0..).map_while(|index| slots.get(index).copied()).collect();
                prop_assert!(found.iter().eq(&expected));
            }
        }
    }

    #[test]
    fn a_place_keeps_what_it_has_on_the_heap() {
        let mut slots: SlotQueue<Vec<u8>> = SlotQueue::default();
        for _ in 0..LEAST {
            slots.add().reserve(100);
            slots.drop_front();
        }
        assert!(slots.add().capacity() >= 100);
        slots.clear();
        assert_eq!(slots.add().capacity(), 0);
    }
}
