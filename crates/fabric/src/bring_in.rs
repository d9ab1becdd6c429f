//! Threads that wait for absent pages, so that nobody else has to.
//!
//! They are started when they are needed and end when they are not. Any of them may wait for ever; the others go
//! on. Where all do, requests queue up to a bound.

use crate::counters::Counters;
use crate::limits::{BRING_IN_IDLE, BRING_IN_QUEUE, BRING_IN_THREADS};
use pagewire_memory::{HostMemory, Segment};
use parking_lot::{Condvar, Mutex};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What is to be brought in, and the word for it.
#[derive(PartialEq, Eq, Hash)]
struct Request {
    token: u64,
    write: bool,
    segments: Vec<Segment>,
}

/// The threads and their queue.
pub struct Pool {
    queue: Mutex<Queue>,
    more: Condvar,
    memory: HostMemory,
    done: Box<dyn Fn(u64) + Send + Sync>,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Arc<Request>>,
    /// These, and those that threads wait for now.
    unanswered: HashSet<Arc<Request>>,
    threads: usize,
    idle: usize,
    stopped: bool,
}

impl Pool {
    /// No thread yet. `done` is called with a request's token when its pages are there, or turned out not to be mapped.
    pub fn new(done: Box<dyn Fn(u64) + Send + Sync>) -> Arc<Self> {
        let queue = Mutex::new(Queue::default());
        Arc::new(Pool { queue, more: Condvar::new(), memory: HostMemory::new(), done })
    }

    /// Queues a request. One that is asked for again before there was an answer has one answer.
    pub fn request(self: &Arc<Self>, segments: &[Segment], write: bool, token: u64, counters: &Counters) {
        counters.brought_in.add(1);
        let request = Arc::new(Request { token, write, segments: segments.to_vec() });
        let mut queue = self.queue.lock();
        if queue.unanswered.contains(&request) {
            return;
        }
        if queue.requests.len() >= BRING_IN_QUEUE {
            drop(queue);
            counters.bring_in_overflow.add(1);
            // The access will be tried, and will wait itself in the end.
            (self.done)(token);
            return;
        }
        queue.unanswered.insert(request.clone());
        queue.requests.push_back(request);
        if queue.idle >= queue.requests.len() {
            self.more.notify_one();
            return;
        }
        if queue.threads < BRING_IN_THREADS {
            queue.threads += 1;
            drop(queue);
            self.start(counters);
        }
    }

    fn start(self: &Arc<Self>, counters: &Counters) {
        let pool = self.clone();
        let started = crate::threads::spawn("pagewire-pages", move || pool.work());
        if let Err(error) = started {
            log::debug!("no thread to wait for pages: {error}");
            let mut queue = self.queue.lock();
            queue.threads -= 1;
            if queue.threads > 0 {
                return;
            }
            // Nobody is there to serve the queue: let each access wait for itself.
            let left: Vec<Arc<Request>> = queue.requests.drain(..).collect();
            queue.unanswered.clear();
            drop(queue);
            counters.bring_in_overflow.add(left.len() as u64);
            for request in left {
                (self.done)(request.token);
            }
        }
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                break;
            }
            if let Some(request) = queue.requests.pop_front() {
                drop(queue);
                for segment in &request.segments {
                    if self.memory.bring_in(segment, request.write).is_err() {
                        // The access itself will find that out, and say so.
                        break;
                    }
                }
                // Who asks again after this has an answer of its own.
                self.queue.lock().unanswered.remove(&request);
                (self.done)(request.token);
                queue = self.queue.lock();
                continue;
            }
            queue.idle += 1;
            let idle = Duration::from_millis(BRING_IN_IDLE);
            let timed_out = self.more.wait_for(&mut queue, idle).timed_out();
            queue.idle -= 1;
            if timed_out && queue.requests.is_empty() {
                break;
            }
        }
        queue.threads -= 1;
    }

    /// Has idle threads end; those that wait for a page end when it comes.
    pub fn stop(&self) {
        self.queue.lock().stopped = true;
        self.more.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const PAGES: Segment = Segment { address: 4096, length: 5 };
    const OTHERS: Segment = Segment { address: 8192, length: 5 };

    /// A pool, and how many answers it has given.
    fn counting() -> (Arc<Pool>, Arc<AtomicUsize>) {
        let answers = Arc::new(AtomicUsize::new(0));
        let told = answers.clone();
        let done = move |_| {
            told.fetch_add(1, Ordering::SeqCst);
        };
        (Pool::new(Box::new(done)), answers)
    }

    #[test]
    fn what_is_asked_for_again_is_one_request_until_it_has_an_answer() {
        let (pool, answers) = counting();
        let counters = Counters::default();
        // Every thread waits for a page of somebody else's.
        pool.queue.lock().threads = BRING_IN_THREADS;
        let waiting = || pool.queue.lock().requests.len();
        for _ in 0..3 {
            pool.request(&[PAGES], true, 1, &counters);
            assert_eq!(waiting(), 1);
        }
        for (pages, write, token) in [(OTHERS, true, 1), (PAGES, false, 1), (PAGES, true, 2)] {
            pool.request(&[pages], write, token, &counters);
        }
        assert_eq!(waiting(), 4);
        // A thread has begun with one of them.
        let begun = pool.queue.lock().requests.pop_front().unwrap();
        pool.request(&[PAGES], true, 1, &counters);
        assert_eq!((waiting(), answers.load(Ordering::SeqCst)), (3, 0));
        // It ends, and the threads work again.
        let mut queue = pool.queue.lock();
        assert!(queue.unanswered.remove(&begun));
        queue.threads = 0;
        drop(queue);
        pool.request(&[PAGES], true, 1, &counters);
        for _ in 0..1000 {
            if answers.load(Ordering::SeqCst) == 4 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(answers.load(Ordering::SeqCst), 4);
        assert!(pool.queue.lock().unanswered.is_empty());
        pool.stop();
    }

    #[test]
    fn what_is_asked_for_again_needs_no_room() {
        let (pool, answers) = counting();
        let counters = Counters::default();
        pool.queue.lock().threads = BRING_IN_THREADS;
        (0..BRING_IN_QUEUE as u64).for_each(|token| pool.request(&[PAGES], true, token, &counters));
        assert_eq!(pool.queue.lock().requests.len(), BRING_IN_QUEUE);
        pool.request(&[PAGES], true, 0, &counters);
        assert_eq!(answers.load(Ordering::SeqCst), 0, "it waits");
        // One more than there is room for has its answer at once, each time.
        for count in 1..4 {
            pool.request(&[OTHERS], true, 0, &counters);
            assert_eq!(answers.load(Ordering::SeqCst), count);
        }
    }
}
