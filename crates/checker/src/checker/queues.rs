//! Work requests and their completions.

use super::{Checker, Live, ObjectState, QueuePairState, Use, related};
use crate::finding::Related;
use crate::limits::MAX_REQUESTS;
use crate::requests::{Content, Request, RequestQueue};
use crate::rule::Rule;

/// A completion that the program polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolledCompletion {
    pub wr_id: u64,
    /// The number of its queue pair.
    pub queue_pair: u32,
    /// It is of a receive request.
    pub is_receive: bool,
    /// It failed as the peer refused the remote key or address.
    pub is_remote_access_error: bool,
    pub is_success: bool,
    /// It was never carried out, as its queue pair was in ERR.
    pub is_flushed: bool,
}

impl<S: Clone + Eq> Checker<S> {
    fn queue_pair(&mut self, address: usize) -> Option<&mut QueuePairState<S>> {
        match self.objects.get_mut(&address) {
            Some(Live { state: ObjectState::QueuePair(queue_pair), .. }) => Some(queue_pair),
            _ => None,
        }
    }

    /// A queue pair is in RESET, which drops all requests.
    pub fn reset(&mut self, address: usize) {
        let Some(queue_pair) = self.queue_pair(address) else { return };
        let details = queue_pair.details;
        let fresh = QueuePairState { details, sends: RequestQueue::new(), receives: RequestQueue::new() };
        let mut before = std::mem::replace(queue_pair, fresh);
        self.forget_requests(&mut before);
    }

    pub(super) fn forget_requests(&mut self, queue_pair: &mut QueuePairState<S>) {
        let signaled = queue_pair.sends.signaled() as u64;
        self.unsignal(queue_pair.details.send_cq, signaled);
        for request in queue_pair.sends.clear().iter().chain(&queue_pair.receives.clear()) {
            self.release(request);
        }
    }

    /// Takes signaled requests from the count of their completion queue.
    fn unsignal(&mut self, cq: usize, requests: u64) {
        if let Some(Live { state: ObjectState::CompletionQueue(queue), .. }) = self.objects.get_mut(&cq) {
            queue.signaled = queue.signaled.saturating_sub(requests);
        }
    }

    /// The regions of a request that ended are named by one request less.
    pub(super) fn release(&mut self, request: &Request<S>) {
        for lkey in request.lkeys.iter() {
            if let Some(region) = self.regions.get_mut(&lkey) {
                region.outstanding = region.outstanding.saturating_sub(1);
            }
        }
    }

    /// Looks at the keys of a request, and counts it at their regions.
    fn claim(&mut self, call: Use, request: &Request<S>, place: &dyn Fn() -> S) {
        for lkey in request.lkeys.iter() {
            if let Some(region) = self.regions.get_mut(&lkey) {
                region.outstanding += 1;
            } else if let Some(ended) = self.ended_lkeys.get(lkey) {
                let related = vec![related("deregistered", ended)];
                let detail = format!("lkey {lkey:#x} is that of no region any more");
                self.find(Rule::DeregisteredKey, call, detail, related, place);
            }
        }
    }

    /// A send request is posted, if it is not refused ([`withdraw_send`](Self::withdraw_send)).
    pub fn post_send(&mut self, call: Use, mut request: Request<S>, place: &dyn Fn() -> S) {
        self.claim(call, &request, place);
        let Some(queue_pair) = self.queue_pair(call.address) else { return };
        request.is_signaled |= queue_pair.details.signals_all;
        let (details, sends) = (queue_pair.details, &mut queue_pair.sends);
        let is_signaled = request.is_signaled;
        // An adapter frees the place of an unsignaled request when a later completion is polled.
        let is_full = details.max_send_wr > 0 && sends.len() >= details.max_send_wr as usize;
        let dropped = if is_full && sends.signaled() == 0 { sends.pop() } else { None };
        sends.push(request);
        let forgotten = if sends.len() > MAX_REQUESTS { sends.pop() } else { None };
        if let Some(forgotten) = forgotten {
            self.unsignal(details.send_cq, u64::from(forgotten.is_signaled));
            self.release(&forgotten);
        }
        if let Some(dropped) = dropped {
            self.release(&dropped);
            let detail = format!(
                "queue pair {:#x} has {} outstanding send requests, its max_send_wr, and none is signaled",
                details.number, details.max_send_wr
            );
            self.find(Rule::UnsignaledQueue, call, detail, Vec::new(), place);
        }
        if is_signaled {
            self.signal(call, details.send_cq, place);
        }
    }

    /// Counts a signaled request at its completion queue.
    fn signal(&mut self, call: Use, cq: usize, place: &dyn Fn() -> S) {
        let Some(live) = self.objects.get_mut(&cq) else { return };
        let ObjectState::CompletionQueue(queue) = &mut live.state else { return };
        queue.signaled += 1;
        if queue.signaled > u64::from(queue.entries) && !queue.ignores_overrun {
            let detail = format!(
                "{} signaled send requests may complete into a completion queue of {} entries",
                queue.signaled, queue.entries
            );
            let made = Related { what: "created", verb: live.verb, place: live.place.clone() };
            // One finding for each queue, whichever queue pair was posted to.
            self.find(Rule::SmallCompletionQueue, Use { address: cq, ..call }, detail, vec![made], place);
        }
    }

    /// A receive request is posted, to a queue pair or a shared receive queue, if it is not refused.
    pub fn post_receive(&mut self, call: Use, request: Request<S>, place: &dyn Fn() -> S) {
        self.claim(call, &request, place);
        let Some(receives) = self.receives(call.address) else { return };
        receives.push(request);
        let oldest = if receives.len() > MAX_REQUESTS { receives.pop() } else { None };
        if let Some(oldest) = oldest {
            self.release(&oldest);
        }
    }

    fn receives(&mut self, address: usize) -> Option<&mut RequestQueue<S>> {
        match &mut self.objects.get_mut(&address)?.state {
            ObjectState::QueuePair(queue_pair) => Some(&mut queue_pair.receives),
            ObjectState::SharedReceiveQueue(queue) => Some(queue),
            _ => None,
        }
    }

    /// A send request was refused after all.
    pub fn withdraw_send(&mut self, address: usize, wr_id: u64) {
        let Some(queue_pair) = self.queue_pair(address) else { return };
        let cq = queue_pair.details.send_cq;
        let Some(request) = queue_pair.sends.withdraw(wr_id) else { return };
        self.unsignal(cq, u64::from(request.is_signaled));
        self.release(&request);
    }

    /// A receive request was refused after all.
    pub fn withdraw_receive(&mut self, address: usize, wr_id: u64) {
        if let Some(request) = self.receives(address).and_then(|receives| receives.withdraw(wr_id)) {
            self.release(&request);
        }
    }

    /// A queue pair in this state has refused a request.
    pub fn refused_in(&mut self, call: Use, state: &'static str, place: &dyn Fn() -> S) {
        let number = self.queue_pair(call.address).map_or(0, |queue_pair| queue_pair.details.number);
        let detail = format!("queue pair {number:#x} is in {state}");
        self.find(Rule::WrongState, call, detail, Vec::new(), place);
    }

    /// The completion queue of a queue pair was overrun.
    pub fn overrun(&mut self, call: Use, place: &dyn Fn() -> S) {
        let number = self.queue_pair(call.address).map_or(0, |queue_pair| queue_pair.details.number);
        let detail = format!("queue pair {number:#x} went to ERR, as a completion found its queue full");
        self.find(Rule::CompletionQueueOverrun, call, detail, Vec::new(), place);
    }

    /// The program polled a completion. `sum_now` sums up the bytes of a request again; `None`: they cannot be read.
    pub fn completed(
        &mut self,
        call: Use,
        completed: PolledCompletion,
        sum_now: &dyn Fn(&Content<S>) -> Option<u32>,
        place: &dyn Fn() -> S,
    ) {
        let Some(&address) = self.queue_pairs.get(&completed.queue_pair) else { return };
        let Some(queue_pair) = self.queue_pair(address) else { return };
        let details = queue_pair.details;
        if completed.is_receive {
            let from = if details.srq == 0 { address } else { details.srq };
            let ended = self.receives(from).and_then(|receives| receives.complete_one(completed.wr_id));
            if let Some(request) = ended {
                self.release(&request);
                if !completed.is_success && !completed.is_flushed {
                    self.check_received(call, &request, place);
                }
            }
            return;
        }
        let ended = queue_pair.sends.complete(completed.wr_id);
        let signaled = ended.iter().filter(|request| request.is_signaled).count() as u64;
        self.unsignal(details.send_cq, signaled);
        for request in &ended {
            self.release(request);
            self.check_content(request, details.number, completed, sum_now);
        }
        if completed.is_remote_access_error {
            if let Some(rkey) = ended.last().and_then(|request| request.rkey) {
                self.check_remote_key(call, rkey, place);
            }
        }
    }

    fn check_content(
        &mut self,
        request: &Request<S>,
        queue_pair: u32,
        completed: PolledCompletion,
        sum_now: &dyn Fn(&Content<S>) -> Option<u32>,
    ) {
        let Some(content) = &request.content else { return };
        // What failed was perhaps never sent.
        if !completed.is_success || sum_now(content).is_none_or(|now| now == content.sum) {
            return;
        }
        let bytes: u64 = content.parts.iter().map(|(_, length)| u64::from(*length)).sum();
        let detail = format!(
            "{bytes} bytes at {:#x} of request {:#x} on queue pair {queue_pair:#x} changed before its completion was polled",
            content.parts.first().map_or(0, |(address, _)| *address),
            request.wr_id
        );
        let call = Use { verb: "ibv_post_send", address: queue_pair as usize };
        let posted = content.place.clone();
        self.find(Rule::ChangedBuffer, call, detail, Vec::new(), &|| posted.clone());
    }

    fn check_remote_key(&mut self, call: Use, rkey: u32, place: &dyn Fn() -> S) {
        let Some(ended) = self.ended_rkeys.get(rkey) else { return };
        let related = vec![related("deregistered", ended)];
        let detail = format!("a request was refused, as rkey {rkey:#x} is that of no region any more");
        self.find(Rule::DeregisteredRemoteKey, call, detail, related, place);
    }

    /// A region is about to be deregistered: send requests that name it and are outstanding are found. `uses_buffers` says whether the queue pair at an
    /// address, which no call has begun to end, is in a state in which requests are carried out; elsewhere they are flushed.
    ///
    /// Receive requests may wait for a message that never comes, and programs end in any order: [`completed`](Self::completed) finds those that got one.
    pub fn deregistering(&mut self, call: Use, uses_buffers: &dyn Fn(usize) -> bool, place: &dyn Fn() -> S) {
        let Some(Live { state: ObjectState::Region(region), .. }) = self.objects.get(&call.address) else {
            return;
        };
        let lkey = region.lkey;
        if self.regions.get(&lkey).is_none_or(|region| region.outstanding == 0) {
            return;
        }
        let names = |request: &&Request<S>| request.lkeys.iter().any(|key| key == lkey);
        let outstanding: Vec<String> = self
            .objects
            .iter()
            .filter_map(|(address, live)| match &live.state {
                ObjectState::QueuePair(queue_pair) if !live.is_ending => {
                    let sends = queue_pair.sends.iter().filter(names).count();
                    let number = queue_pair.details.number;
                    (sends > 0 && uses_buffers(*address))
                        .then(|| format!("{sends} send requests of queue pair {number:#x}"))
                }
                _ => None,
            })
            .collect();
        if !outstanding.is_empty() {
            let detail = format!("lkey {lkey:#x} is named by {}", outstanding.join(" and "));
            self.find(Rule::BusyRegion, call, detail, Vec::new(), place);
        }
    }

    /// A receive request failed: perhaps as its region was deregistered after the post, and a message came.
    fn check_received(&mut self, call: Use, request: &Request<S>, place: &dyn Fn() -> S) {
        for lkey in request.lkeys.iter().filter(|lkey| !self.regions.contains_key(lkey)).collect::<Vec<_>>() {
            let Some(ended) = self.ended_lkeys.get(lkey) else { continue };
            let (verb, at) = (ended.verb, ended.place.clone());
            let polled = Related { what: "completed with an error, polled", verb: call.verb, place: place() };
            let detail = format!("lkey {lkey:#x} is named by a receive request that got a message");
            self.find(Rule::BusyRegion, Use { verb, ..call }, detail, vec![polled], &|| at.clone());
        }
    }
}
