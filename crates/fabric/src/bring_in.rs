//! Threads that wait for absent pages, so that nobody else has to.
//!
//! They are started when they are needed and end when they are not. Any of them may wait for ever; the others go
//! on. Where all do, requests queue up to a bound.

use crate::counters::Counters;
use crate::limits::{BRING_IN_IDLE, BRING_IN_QUEUE, BRING_IN_THREADS};
use pagewire_memory::{HostMemory, Segment};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What is to be brought in, and the word for it.
struct Request {
    segments: Vec<Segment>,
    write: bool,
    token: u64,
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
    requests: VecDeque<Request>,
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

    /// Queues a request.
    pub fn request(self: &Arc<Self>, segments: &[Segment], write: bool, token: u64, counters: &Counters) {
        counters.brought_in.add(1);
        let mut queue = self.queue.lock();
        if queue.requests.len() >= BRING_IN_QUEUE {
            drop(queue);
            counters.bring_in_overflow.add(1);
            // The access will be tried, and will wait itself in the end.
            (self.done)(token);
            return;
        }
        queue.requests.push_back(Request { segments: segments.to_vec(), write, token });
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
            let left: Vec<Request> = queue.requests.drain(..).collect();
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
