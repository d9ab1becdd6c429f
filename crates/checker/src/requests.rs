//! Work requests that were posted, and whose completion was not polled.

use std::collections::VecDeque;

/// A work request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<S> {
    pub wr_id: u64,
    /// It has a completion of its own, whatever its end.
    pub is_signaled: bool,
    /// The local keys of its scatter-gather elements with bytes; none, if it is inline.
    pub lkeys: Keys,
    /// The remote key that it names.
    pub rkey: Option<u32>,
    /// Where its bytes lie and what they sum up to, where buffers are checked.
    pub content: Option<Box<Content<S>>>,
}

/// The local keys of a request: few have more than two.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keys {
    first: [u32; 2],
    count: u8,
    others: Vec<u32>,
}

impl Keys {
    pub fn push(&mut self, key: u32) {
        match self.first.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = key;
                self.count += 1;
            }
            None => self.others.push(key),
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.first[..usize::from(self.count)].iter().chain(&self.others).copied()
    }
}

impl FromIterator<u32> for Keys {
    fn from_iter<I: IntoIterator<Item = u32>>(keys: I) -> Self {
        let mut all = Keys::default();
        keys.into_iter().for_each(|key| all.push(key));
        all
    }
}

/// The source bytes of a request, as they were when it was posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content<S> {
    /// Address and length of each part.
    pub parts: Vec<(u64, u32)>,
    pub sum: u32,
    pub place: S,
}

/// The requests of a queue, the oldest first.
#[derive(Debug)]
pub struct RequestQueue<S> {
    requests: VecDeque<Request<S>>,
    signaled: usize,
}

impl<S> RequestQueue<S> {
    pub fn new() -> Self {
        RequestQueue { requests: VecDeque::new(), signaled: 0 }
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    pub fn signaled(&self) -> usize {
        self.signaled
    }

    pub fn iter(&self) -> impl Iterator<Item = &Request<S>> {
        self.requests.iter()
    }

    pub fn push(&mut self, request: Request<S>) {
        self.signaled += usize::from(request.is_signaled);
        self.requests.push_back(request);
    }

    /// Takes the oldest request out.
    pub fn pop(&mut self) -> Option<Request<S>> {
        self.remove(0)
    }

    fn remove(&mut self, index: usize) -> Option<Request<S>> {
        let request = self.requests.remove(index)?;
        self.signaled -= usize::from(request.is_signaled);
        Some(request)
    }

    /// Takes out the newest request with this number: it was refused.
    pub fn withdraw(&mut self, wr_id: u64) -> Option<Request<S>> {
        let index = self.requests.iter().rposition(|request| request.wr_id == wr_id)?;
        self.remove(index)
    }

    /// Takes out the oldest request with this number, which has a completion, and the unsignaled ones before it, which have ended, too
    /// (InfiniBand specification: requests of a send queue complete in order). The last of them is the one that completed.
    ///
    /// Threads that post to one queue at a time may be noted here in another order than the queue has them: what is signaled waits for its own completion.
    pub fn complete(&mut self, wr_id: u64) -> Vec<Request<S>> {
        // An unsignaled request has a completion only where it failed.
        let signaled = |request: &Request<S>| request.wr_id == wr_id && request.is_signaled;
        let index = match self.requests.iter().position(signaled) {
            Some(index) => index,
            None => match self.requests.iter().position(|request| request.wr_id == wr_id) {
                Some(index) => index,
                None => return Vec::new(),
            },
        };
        if index == 0 {
            return self.pop().into_iter().collect();
        }
        let mut ended = Vec::new();
        let mut kept = VecDeque::new();
        for place in 0..=index {
            let Some(request) = self.requests.pop_front() else { break };
            if place < index && request.is_signaled {
                kept.push_back(request);
            } else {
                self.signaled -= usize::from(request.is_signaled);
                ended.push(request);
            }
        }
        while let Some(request) = kept.pop_back() {
            self.requests.push_front(request);
        }
        ended
    }

    /// Takes out the oldest request with this number and no other: those of a receive queue complete one by one.
    pub fn complete_one(&mut self, wr_id: u64) -> Option<Request<S>> {
        let index = self.requests.iter().position(|request| request.wr_id == wr_id)?;
        self.remove(index)
    }

    /// Takes all out.
    pub fn clear(&mut self) -> Vec<Request<S>> {
        self.signaled = 0;
        self.requests.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(wr_id: u64, is_signaled: bool) -> Request<()> {
        Request { wr_id, is_signaled, lkeys: Keys::default(), rkey: None, content: None }
    }

    fn numbers(requests: &[Request<()>]) -> Vec<u64> {
        requests.iter().map(|request| request.wr_id).collect()
    }

    #[test]
    fn signaled_completion_ends_unsignaled_before_it() {
        let mut queue = RequestQueue::new();
        for (wr_id, is_signaled) in [(1, false), (2, false), (3, true), (4, false)] {
            queue.push(request(wr_id, is_signaled));
        }
        assert_eq!(numbers(&queue.complete(3)), [1, 2, 3]);
        assert_eq!((queue.len(), queue.signaled()), (1, 0));
        assert!(queue.complete(9).is_empty());
    }

    #[test]
    fn equal_numbers_complete_in_order() {
        let mut queue = RequestQueue::new();
        for is_signaled in [false, true, false, true] {
            queue.push(request(0, is_signaled));
        }
        assert_eq!(queue.complete(0).len(), 2);
        assert_eq!(queue.complete(0).len(), 2);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn signaled_requests_wait_for_their_own_completion() {
        let mut queue = RequestQueue::new();
        for (wr_id, is_signaled) in [(1, true), (2, false), (3, true)] {
            queue.push(request(wr_id, is_signaled));
        }
        assert_eq!(numbers(&queue.complete(3)), [2, 3]);
        assert_eq!((queue.len(), queue.signaled()), (1, 1));
        assert_eq!(numbers(&queue.complete(1)), [1]);
    }

    #[test]
    fn failed_unsignaled_request_completes() {
        let mut queue = RequestQueue::new();
        queue.push(request(1, false));
        queue.push(request(2, false));
        assert_eq!(numbers(&queue.complete(1)), [1]);
        assert_eq!(queue.len(), 1);
    }

    #[test]
    fn refused_request_is_withdrawn() {
        let mut queue = RequestQueue::new();
        queue.push(request(7, true));
        queue.push(request(7, false));
        assert_eq!(queue.withdraw(7).map(|request| request.is_signaled), Some(false));
        assert_eq!((queue.len(), queue.signaled()), (1, 1));
    }

    #[test]
    fn keys_are_kept() {
        let keys: Keys = (1..=5).collect();
        assert_eq!(keys.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    }
}
