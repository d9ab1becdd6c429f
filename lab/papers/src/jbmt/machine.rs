//! Gets between two nodes as discrete events.

use super::helper::Helper;
use crate::event_queue::EventQueue;
use crate::unit_costs::{JbmtCosts, JbmtLimits, PAGE};
use std::collections::VecDeque;

/// One get: its length, and what of the two buffers that its command names is absent (PAPERS JBMT-2). Token and rights are checked
/// within the processing, whose cost is given.
#[derive(Clone, Debug)]
pub struct Get {
    /// Its length, more than 0.
    pub bytes: u64,
    /// Pages of the initiator's buffer that are absent.
    pub local_absent: Vec<bool>,
    /// Pages of the source that are absent.
    pub remote_absent: Vec<bool>,
}

impl Get {
    /// With all pages in memory.
    pub fn resident(bytes: u64) -> Self {
        let pages = vec![false; bytes.div_ceil(PAGE) as usize];
        Get { bytes, local_absent: pages.clone(), remote_absent: pages }
    }
}

/// What the gets did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// When each get was posted and when it ended, in nanoseconds.
    pub gets: Vec<(u64, u64)>,
    /// Section requests that were sent, and remote sections that answered them.
    pub sections: (u64, u64),
    /// Section requests refused for want of a remote credit.
    pub refused: u64,
    /// Sections that were tried again because their head was absent, or nothing could be pinned.
    pub retries: u64,
    /// Pages brought in, of both sides.
    pub page_ins: u64,
    /// The most control credits that were reserved at once.
    pub controls_most: u64,
    /// The most pages that the initiator and the other side had pinned at once.
    pub pinned_most: (u64, u64),
}

/// A local section.
#[derive(Clone, Copy, Debug)]
struct Section {
    get: usize,
    /// Where it begins in the get.
    start: u64,
    bytes: u64,
    pages: u64,
}

#[derive(Clone, Copy, Debug)]
enum RegistrationEvent {
    /// The helper turns to a get's next local section.
    Request(usize),
    /// The section request is at the other side.
    Asked(Section),
    /// The other side turns to what is left of the section, from this byte of it on.
    Remote(Section, u64),
    /// So many pages of a remote section have left.
    Unpin(Section, u64, u64),
    /// So many pages of the section are there, and the control message of their remote section has been taken.
    Control(u64),
    /// The last byte of the section is there; so many pages were in the last remote section.
    Arrived(Section, u64),
    /// A section was refused.
    Refused(Section),
    /// The local section is over.
    Complete(Section),
}

struct Machine<'a> {
    costs: &'a JbmtCosts,
    limits: &'a JbmtLimits,
    gets: &'a [Get],
    events: EventQueue<RegistrationEvent>,
    local: Helper,
    remote: Helper,
    /// How far each get is.
    done: Vec<u64>,
    posted: usize,
    /// Gets that want a local and a control credit.
    line: VecDeque<usize>,
    sections: usize,
    controls: u64,
    serving: usize,
    wire_free: u64,
    finished: Finished,
}

/// Runs all gets, posted in their order as the window permits.
///
/// # Panics
/// If a limit or a length is 0, or a buffer has not as many pages as its get touches.
pub fn run(costs: &JbmtCosts, limits: &JbmtLimits, gets: &[Get]) -> Finished {
    let (window, fault_threads, pinnable) = (limits.window(), limits.fault_threads(), limits.pinnable());
    assert!([window, fault_threads, limits.local_credits(), limits.remote_credits()].iter().all(|&n| n > 0));
    assert!(
        [pinnable, limits.control_credits(), limits.fault_portion(), limits.retry()].iter().all(|&n| n > 0)
    );
    for get in gets {
        let pages = get.bytes.div_ceil(PAGE) as usize;
        assert!(pages > 0 && get.local_absent.len() == pages && get.remote_absent.len() == pages);
    }
    let absent = |side: fn(&Get) -> &Vec<bool>| gets.iter().map(|get| side(get).clone()).collect();
    let mut machine = Machine {
        costs,
        limits,
        gets,
        events: EventQueue::new(),
        local: Helper::new(fault_threads, pinnable, absent(|get| &get.local_absent)),
        remote: Helper::new(fault_threads, pinnable, absent(|get| &get.remote_absent)),
        done: vec![0; gets.len()],
        posted: 0,
        line: VecDeque::new(),
        sections: 0,
        controls: 0,
        serving: 0,
        wire_free: 0,
        finished: Finished { gets: vec![(0, 0); gets.len()], ..Finished::default() },
    };
    (0..window).for_each(|_| machine.post());
    while let Some(event) = machine.events.next() {
        machine.happens(event);
    }
    assert!(machine.done.iter().zip(gets).all(|(&done, get)| done == get.bytes), "a get stands still");
    machine.finished.page_ins = machine.local.page_ins + machine.remote.page_ins;
    machine.finished.pinned_most = (machine.local.pinned_most, machine.remote.pinned_most);
    machine.finished
}

impl Machine<'_> {
    fn happens(&mut self, event: RegistrationEvent) {
        match event {
            RegistrationEvent::Request(get) => {
                self.line.push_back(get);
                self.request();
            }
            RegistrationEvent::Asked(section) => self.asked(section),
            RegistrationEvent::Remote(section, from) => self.serve(section, from),
            RegistrationEvent::Unpin(section, pages, next) => self.sent(section, pages, next),
            RegistrationEvent::Control(pages) => {
                self.controls -= pages;
                self.request();
            }
            RegistrationEvent::Arrived(section, pages) => {
                self.controls -= pages;
                self.request();
                let now = self.events.now();
                let ended = self.local.work(now, self.costs.processing() / 4);
                self.events.after(ended - now, RegistrationEvent::Complete(section));
            }
            RegistrationEvent::Refused(section) => {
                self.controls -= section.pages;
                self.give_back(section);
                self.events.after(self.limits.retry(), RegistrationEvent::Request(section.get));
                self.request();
            }
            RegistrationEvent::Complete(section) => self.complete(section),
        }
    }

    fn post(&mut self) {
        if self.posted < self.gets.len() {
            self.finished.gets[self.posted].0 = self.events.now();
            self.events.after(0, RegistrationEvent::Request(self.posted));
            self.posted += 1;
        }
    }

    /// The initiator's helper: pins the next local sections of those in the line and asks the other side for them.
    fn request(&mut self) {
        let (local_credits, control_credits) = (self.limits.local_credits(), self.limits.control_credits());
        while self.sections < local_credits {
            let Some(&get) = self.line.front() else { return };
            let (now, start) = (self.events.now(), self.done[get]);
            let left = self.gets[get].bytes - start;
            let wanted = left.min(self.costs.section()).div_ceil(PAGE).min(control_credits);
            if wanted > control_credits - self.controls {
                return;
            }
            self.line.pop_front();
            let pages = self.local.pin(now, get, start / PAGE, wanted, self.limits);
            if pages == 0 {
                self.finished.retries += 1;
                self.events.after(self.limits.retry(), RegistrationEvent::Request(get));
                continue;
            }
            let section = Section { get, start, bytes: left.min(pages * PAGE), pages };
            self.sections += 1;
            self.controls += pages;
            self.finished.controls_most = self.finished.controls_most.max(self.controls);
            self.finished.sections.0 += 1;
            let work = self.costs.processing() / 4 + (pages - 1) * self.costs.pin_page();
            let ended = self.local.work(now, work);
            self.events.after(ended - now + self.costs.message(), RegistrationEvent::Asked(section));
        }
    }

    fn asked(&mut self, section: Section) {
        if self.serving == self.limits.remote_credits() {
            self.finished.refused += 1;
            self.events.after(self.costs.message(), RegistrationEvent::Refused(section));
        } else {
            self.serving += 1;
            self.serve(section, 0);
        }
    }

    /// The other side's helper: pins a remote section and hands it to the link.
    fn serve(&mut self, section: Section, from: u64) {
        let now = self.events.now();
        let first = (section.start + from) / PAGE;
        let wanted = (section.bytes - from).div_ceil(PAGE);
        let pages = self.remote.pin(now, section.get, first, wanted, self.limits);
        if pages == 0 {
            self.finished.retries += 1;
            self.events.after(self.limits.retry(), RegistrationEvent::Remote(section, from));
            return;
        }
        self.finished.sections.1 += 1;
        let bytes = (section.bytes - from).min(pages * PAGE);
        let work = self.costs.processing() / 2 + (pages - 1) * self.costs.pin_page();
        let ready = self.remote.work(now, work);
        self.wire_free = self.wire_free.max(ready) + self.costs.wire(bytes);
        self.events.after(self.wire_free - now, RegistrationEvent::Unpin(section, pages, from + bytes));
    }

    fn sent(&mut self, section: Section, pages: u64, next: u64) {
        self.remote.pinnable += pages;
        // A message's own time holds that of a shortest frame.
        let arrival = self.costs.message() - self.costs.wire(1);
        if next < section.bytes {
            self.events.after(arrival, RegistrationEvent::Control(pages));
            self.serve(section, next);
        } else {
            self.serving -= 1;
            self.events.after(arrival, RegistrationEvent::Arrived(section, pages));
        }
    }

    fn give_back(&mut self, section: Section) {
        self.local.pinnable += section.pages;
        self.sections -= 1;
    }

    fn complete(&mut self, section: Section) {
        self.give_back(section);
        let done = &mut self.done[section.get];
        *done += section.bytes;
        if *done < self.gets[section.get].bytes {
            self.events.after(0, RegistrationEvent::Request(section.get));
        } else {
            self.finished.gets[section.get].1 = self.events.now();
            self.post();
        }
        self.request();
    }
}
