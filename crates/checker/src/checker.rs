//! The state of a process, as its calls change it, and where a rule is broken.

mod left;
mod queues;

pub use queues::PolledCompletion;

use crate::finding::{Finding, Findings, Related};
use crate::limits::{MAX_ENDED, MAX_PLACED_OBJECTS, MAX_PLACES};
use crate::object::{Details, EndedObject, NewObject, ObjectKind, QueuePairDetails, RegionDetails};
use crate::recent::Recent;
use crate::requests::RequestQueue;
use crate::rule::Rule;
use rustc_hash::FxHashMap;

/// The objects, keys and requests of a process, and what was found; `S` is a place in the program.
///
/// Addresses name objects. They are never followed, and an unknown one is no finding: its object was made before the checker.
#[derive(Debug)]
pub struct Checker<S> {
    objects: FxHashMap<usize, Live<S>>,
    ended: Recent<usize, EndedObject<S>>,
    /// Registered regions by local key.
    regions: FxHashMap<u32, RegionUse>,
    ended_lkeys: Recent<u32, EndedObject<S>>,
    ended_rkeys: Recent<u32, EndedObject<S>>,
    /// Addresses of queue pairs by number.
    queue_pairs: FxHashMap<u32, usize>,
    findings: Findings<S>,
    /// Of a rule and an object: how many findings there are, and the last of them.
    places: Recent<(Rule, usize), (u32, Option<usize>)>,
    /// Events of ports and devices, which have no object.
    events: EventsTaken<S>,
    has_seen_calls: bool,
}

/// A registered region.
#[derive(Debug)]
struct RegionUse {
    details: RegionDetails,
    /// Outstanding requests that name it.
    outstanding: u32,
}

/// An object that has not ended.
#[derive(Debug)]
struct Live<S> {
    kind: ObjectKind,
    verb: &'static str,
    context: usize,
    place: S,
    /// A thread is in the call that ends it.
    is_ending: bool,
    /// A library keeps it as long as the process lives.
    is_kept: bool,
    events: EventsTaken<S>,
    state: ObjectState<S>,
}

/// Events of an object that the program took.
#[derive(Debug)]
struct EventsTaken<S> {
    unacknowledged: u64,
    /// Where it took the last one.
    last: Option<(&'static str, S)>,
}

impl<S> EventsTaken<S> {
    fn new() -> Self {
        EventsTaken { unacknowledged: 0, last: None }
    }
}

/// What changes of an object.
#[derive(Debug)]
enum ObjectState<S> {
    None,
    Region(RegionDetails),
    CompletionQueue(CompletionQueueState),
    QueuePair(Box<QueuePairState<S>>),
    SharedReceiveQueue(RequestQueue<S>),
}

#[derive(Debug)]
struct CompletionQueueState {
    entries: u32,
    ignores_overrun: bool,
    /// Signaled send requests whose completion was not polled.
    signaled: u64,
}

#[derive(Debug)]
struct QueuePairState<S> {
    details: QueuePairDetails,
    sends: RequestQueue<S>,
    receives: RequestQueue<S>,
}

/// A call on an object.
#[derive(Debug, Clone, Copy)]
pub struct Use {
    pub verb: &'static str,
    pub address: usize,
}

impl<S: Clone + Eq> Default for Checker<S> {
    fn default() -> Self {
        Checker {
            objects: FxHashMap::default(),
            ended: Recent::new(MAX_ENDED),
            regions: FxHashMap::default(),
            ended_lkeys: Recent::new(MAX_ENDED),
            ended_rkeys: Recent::new(MAX_ENDED),
            queue_pairs: FxHashMap::default(),
            findings: Findings::new(),
            places: Recent::new(MAX_PLACED_OBJECTS),
            events: EventsTaken::new(),
            has_seen_calls: false,
        }
    }
}

impl<S: Clone + Eq> Checker<S> {
    /// What was found so far.
    pub fn findings(&self) -> &[Finding<S>] {
        self.findings.all()
    }

    /// Findings beyond the bound.
    pub fn left_out(&self) -> u64 {
        self.findings.left_out()
    }

    /// Whether the process has made an object.
    pub fn has_seen_calls(&self) -> bool {
        self.has_seen_calls
    }

    /// Notes an object that a call made.
    pub fn made(&mut self, address: usize, made: NewObject<S>) {
        let NewObject { kind, verb, context, place, details } = made;
        self.has_seen_calls = true;
        self.ended.remove(address);
        let state = match details {
            Details::Region(region) => {
                self.register(region);
                ObjectState::Region(region)
            }
            Details::CompletionQueue { entries, ignores_overrun } => {
                ObjectState::CompletionQueue(CompletionQueueState { entries, ignores_overrun, signaled: 0 })
            }
            Details::QueuePair(details) => {
                self.queue_pairs.insert(details.number, address);
                ObjectState::QueuePair(Box::new(QueuePairState {
                    details,
                    sends: RequestQueue::new(),
                    receives: RequestQueue::new(),
                }))
            }
            Details::None if kind == ObjectKind::SharedReceiveQueue => {
                ObjectState::SharedReceiveQueue(RequestQueue::new())
            }
            Details::None => ObjectState::None,
        };
        let events = EventsTaken::new();
        let live = Live { kind, verb, context, place, is_ending: false, is_kept: false, events, state };
        self.objects.insert(address, live);
    }

    fn register(&mut self, region: RegionDetails) {
        self.ended_lkeys.remove(region.lkey);
        self.ended_rkeys.remove(region.rkey);
        self.regions.insert(region.lkey, RegionUse { details: region, outstanding: 0 });
    }

    /// Looks whether the object of a call has ended. False: the call must not run, as it would use freed memory.
    pub fn check_use(&mut self, call: Use, place: &dyn Fn() -> S) -> bool {
        if let Some(live) = self.objects.get(&call.address) {
            if live.context == call.address || self.objects.contains_key(&live.context) {
                return true;
            }
            // A device that is closed before the objects made from it: known only where the context was.
            let Some(closed) = self.ended.get(live.context) else { return true };
            let related = vec![related("closed", closed)];
            let detail = format!("a {} of a device that was closed", live.kind.name());
            self.find(Rule::EndedObject, call, detail, related, place);
            return true;
        }
        let Some(ended) = self.ended.get(call.address) else { return true };
        let related = vec![related("ended", ended)];
        let detail = format!("a {} that has ended", ended.kind.name());
        self.find(Rule::EndedObject, call, detail, related, place);
        false
    }

    /// Whether an object is known that no call has begun to end.
    pub fn is_live(&self, address: usize) -> bool {
        self.objects.get(&address).is_some_and(|live| !live.is_ending)
    }

    /// An object is kept as long as the process lives, by a library: it is no finding at the exit.
    pub fn expect_left(&mut self, address: usize) {
        if let Some(live) = self.objects.get_mut(&address) {
            live.is_kept = true;
        }
    }

    /// Queue pairs that no call has begun to end, and where they were made.
    pub fn queue_pairs(&self) -> Vec<(usize, S)> {
        let is_live = |live: &Live<S>| live.kind == ObjectKind::QueuePair && !live.is_ending;
        let live = self.objects.iter().filter(|(_, live)| is_live(live));
        live.map(|(address, live)| (*address, live.place.clone())).collect()
    }

    /// A call begins that ends an object.
    pub fn ending(&mut self, address: usize) {
        if let Some(live) = self.objects.get_mut(&address) {
            live.is_ending = true;
        }
    }

    /// The call that was to end an object has not.
    pub fn not_ended(&mut self, address: usize) {
        if let Some(live) = self.objects.get_mut(&address) {
            live.is_ending = false;
        }
    }

    /// An object has ended.
    pub fn ended(&mut self, call: Use, place: S) {
        let Some(live) = self.objects.remove(&call.address) else { return };
        let ended = EndedObject { kind: live.kind, verb: call.verb, place };
        match live.state {
            ObjectState::Region(region) => self.deregistered(region, &ended),
            ObjectState::QueuePair(mut queue_pair) => {
                self.queue_pairs.remove(&queue_pair.details.number);
                self.forget_requests(&mut queue_pair);
            }
            ObjectState::SharedReceiveQueue(mut queue) => {
                for request in queue.clear() {
                    self.release(&request);
                }
            }
            ObjectState::None | ObjectState::CompletionQueue(_) => {}
        }
        self.ended.insert(call.address, ended);
    }

    fn deregistered(&mut self, region: RegionDetails, ended: &EndedObject<S>) {
        self.regions.remove(&region.lkey);
        self.ended_lkeys.insert(region.lkey, ended.clone());
        self.ended_rkeys.insert(region.rkey, ended.clone());
    }

    /// A reregistration has ended; the region now is this.
    pub fn reregistered(&mut self, call: Use, now: RegionDetails, place: S) {
        let Some(live) = self.objects.get_mut(&call.address) else { return };
        let ObjectState::Region(before) = std::mem::replace(&mut live.state, ObjectState::Region(now)) else {
            return;
        };
        if before != now {
            let ended = EndedObject { kind: ObjectKind::MemoryRegion, verb: call.verb, place };
            self.deregistered(before, &ended);
            self.register(now);
        }
    }

    /// Where the bytes lie that a request names by a local key. `None`: the region is not known, or does not have them all.
    pub fn memory_of(&self, lkey: u32, address: u64, length: u32) -> Option<u64> {
        let region = &self.regions.get(&lkey)?.details;
        let offset = address.checked_sub(region.iova)?;
        let has_all = offset.checked_add(u64::from(length))? <= region.length;
        has_all.then(|| region.address.wrapping_add(offset))
    }

    /// A completion queue has another size.
    pub fn resized(&mut self, address: usize, entries: u32) {
        if let Some(Live { state: ObjectState::CompletionQueue(queue), .. }) = self.objects.get_mut(&address)
        {
            queue.entries = entries;
        }
    }

    fn events(&mut self, address: usize) -> Option<&mut EventsTaken<S>> {
        match address {
            0 => Some(&mut self.events),
            _ => self.objects.get_mut(&address).map(|live| &mut live.events),
        }
    }

    /// The program took an event of an object; of address 0: of a port or a device.
    pub fn event_taken(&mut self, call: Use, place: &dyn Fn() -> S) {
        let Some(events) = self.events(call.address) else { return };
        events.unacknowledged += 1;
        // Programs take many events at one place, and a place costs as much as an event.
        if events.last.is_none() || events.unacknowledged > 1 {
            events.last = Some((call.verb, place()));
        }
    }

    /// The program acknowledged events of an object; of address 0: of a port or a device.
    pub fn acknowledged(&mut self, address: usize, events: u64) {
        if let Some(taken) = self.events(address) {
            taken.unacknowledged = taken.unacknowledged.saturating_sub(events);
        }
    }

    /// Adds a finding at the place of a call; where one object has many of a rule, without a look at the place.
    fn find(
        &mut self,
        rule: Rule,
        call: Use,
        detail: String,
        related: Vec<Related<S>>,
        place: &dyn Fn() -> S,
    ) {
        let (times, last) = self.places.get_or_default((rule, call.address));
        *times = times.saturating_add(1);
        if *times > MAX_PLACES {
            return self.findings.count(*last);
        }
        let finding = Finding { rule, verb: call.verb, detail, place: place(), related, count: 1 };
        *last = self.findings.add(finding);
    }
}

/// An ended object, as another call of a finding.
fn related<S: Clone>(what: &'static str, ended: &EndedObject<S>) -> Related<S> {
    Related { what, verb: ended.verb, place: ended.place.clone() }
}

#[cfg(test)]
mod tests;
