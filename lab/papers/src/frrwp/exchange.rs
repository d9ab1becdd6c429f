//! One transfer between a client and a server as discrete events (FRRWP-1, FRRWP-2).
//!
//! The client begins. Which messages the traditional order has (figure 3 is a picture) is our reading: as few as possible. So with READ the
//! client's rkey travels with its request, and nobody waits for a second message.

use crate::event_queue::EventQueue;
use crate::unit_costs::FrrwpCosts;

/// Whose data move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client's, to the server.
    Write,
    /// The server's, to the client, as an RDMA write of the server.
    Read,
}

/// In which order they register and tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other; the writer's application takes the rkey and posts the write.
    Traditional,
    /// The opening message goes first; both register at once, and the write is held until the rkey is there (CRW).
    Frrwp,
}

/// A transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Whose data move.
    pub direction: Direction,
    /// In which order.
    pub order: Order,
    /// Nanoseconds of the client's registration; 0: it is registered.
    pub client: u64,
    /// Of the server's.
    pub server: u64,
    /// Its length.
    pub bytes: u64,
}

/// A part of a transfer: who does what, from when to when.
pub type PartSpan = (&'static str, u64, u64);

/// What a transfer took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Nanoseconds until the last byte is there.
    pub end: u64,
    /// Its parts, in the order in which they begin.
    pub parts: Vec<PartSpan>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client's application begins to register.
    Register,
    /// The server's application has the first message.
    Opened,
    Registered(Side),
    /// The writer's driver has the other side's rkey.
    Key,
    /// The writer has posted the write.
    Posted,
    Written,
}

struct Machine<'a> {
    costs: &'a FrrwpCosts,
    exchange: &'a Exchange,
    queue: EventQueue<Event>,
    has_key: bool,
    is_posted: bool,
    timeline: Timeline,
}

/// Runs one transfer.
pub fn run(costs: &FrrwpCosts, exchange: &Exchange) -> Timeline {
    let mut machine = Machine {
        costs,
        exchange,
        queue: EventQueue::new(),
        has_key: false,
        is_posted: false,
        timeline: Timeline::default(),
    };
    match exchange.order {
        Order::Traditional => machine.register(Side::Client),
        Order::Frrwp => {
            machine.send_to_server("opening message");
            machine.queue.after(costs.crossing(), Event::Register);
        }
    }
    while let Some(event) = machine.queue.next() {
        machine.step(event);
    }
    machine.timeline
}

/// What FRRWP saves by the rule (FRRWP-3, corrected): the shorter of the client's registration and of what goes on beside it, and, where the
/// client writes, T_c. Where the server writes, its T1 to T3 lie in the overlap.
pub fn overlap(costs: &FrrwpCosts, direction: Direction, client: u64, server: u64) -> u64 {
    match direction {
        Direction::Write => client.min(server + costs.round_trip()) + costs.conditional(),
        Direction::Read => client.min(server + costs.completion() + costs.crossing()),
    }
}

impl Machine<'_> {
    fn step(&mut self, event: Event) {
        match event {
            Event::Register => self.register(Side::Client),
            Event::Opened => self.register(Side::Server),
            Event::Registered(side) => self.registered(side),
            Event::Key => self.key(),
            Event::Posted => {
                self.is_posted = true;
                self.write_if_ready();
            }
            Event::Written => self.timeline.end = self.queue.now(),
        }
    }

    /// Lets `event` end a part that begins now.
    fn part(&mut self, name: &'static str, length: u64, event: Event) {
        let now = self.queue.now();
        if length > 0 {
            self.timeline.parts.push((name, now, now + length));
        }
        self.queue.after(length, event);
    }

    fn register(&mut self, side: Side) {
        let (name, length) = match side {
            Side::Client => ("client registers", self.exchange.client),
            Side::Server => ("server registers", self.exchange.server),
        };
        self.part(name, length, Event::Registered(side));
    }

    /// The server's application polls for the message.
    fn send_to_server(&mut self, name: &'static str) {
        let length = 2 * self.costs.crossing() + self.costs.latency() + self.costs.completion();
        self.part(name, length, Event::Opened);
    }

    fn registered(&mut self, side: Side) {
        let writer = match self.exchange.direction {
            Direction::Write => Side::Client,
            Direction::Read => Side::Server,
        };
        match (self.exchange.order, side) {
            (Order::Traditional, Side::Client) => {
                self.has_key = self.exchange.direction == Direction::Read;
                self.send_to_server("request");
            }
            _ if side == writer => self.part("write is posted", self.costs.crossing(), Event::Posted),
            _ => self.part("rkey", self.costs.crossing() + self.costs.latency(), Event::Key),
        }
    }

    fn key(&mut self) {
        self.has_key = true;
        match self.exchange.order {
            // The application polls, then posts.
            Order::Traditional => {
                self.part("completion, poll, write is posted", self.costs.conditional(), Event::Posted);
            }
            Order::Frrwp => self.write_if_ready(),
        }
    }

    fn write_if_ready(&mut self) {
        if self.has_key && self.is_posted {
            self.part("RDMA write", self.costs.write(self.exchange.bytes), Event::Written);
        }
    }
}
