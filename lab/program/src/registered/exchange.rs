//! A transfer of memory that neither side has registered: in the traditional order, and by a conditional write (FRRWP-1, FRRWP-2). With WRITE the
//! first process has the data, with READ the second one.
//!
//! Both processes count the steps of all trials in the same order. A step is told by a signal: word 0 of the second process, word 0 of the first.

use super::{PEER_PATIENCE, allocated, lock, microseconds, print};
use anyhow::{Context, Result};
use pagewire::{Atomic, Node, Peer, Region, RemoteRegion, Rights, Token};
use pagewire_cli::median;
use std::time::Instant;

/// Trials of each order and size.
const TRIALS: usize = 15;
/// Round trips that are measured.
const ROUND_TRIPS: usize = 200;

/// What both processes have.
pub(super) struct Sides<'a> {
    pub(super) node: &'a Node,
    words: Region<u64, Atomic>,
    there: RemoteRegion,
    pub(super) peer: Peer,
    _inbox: Region<u8>,
    /// Of the first and of the second process's inbox.
    pub(super) inboxes: [Token; 2],
    /// The last step that was told.
    pub(super) step: u64,
}

/// Microseconds of the trials of one size and order.
#[derive(Default)]
struct Times {
    /// The first process's: the whole.
    transfers: Vec<f64>,
    registrations: Vec<f64>,
    /// This side may not lock the memory.
    is_refused: bool,
}

/// Those of both orders.
#[derive(Default)]
struct Orders {
    traditional: Times,
    conditional: Times,
    /// Of data of the second process.
    read_traditional: Times,
    read_conditional: Times,
    /// Puts alone.
    puts: Vec<f64>,
}

impl<'a> Sides<'a> {
    /// With an inbox of `most` bytes on either side.
    pub(super) fn connect(node: &'a Node, most: usize) -> Result<Self> {
        let words = node.words(1)?;
        let inbox = node.zeroed::<u8>(most)?;
        let signals = node.all_gather(&words.export(Rights::all())?)?;
        let inboxes = node.all_gather(&inbox.export(Rights::WRITE)?)?;
        let other = 1 - node.rank();
        let there = node.open(signals.get(other).context("no second process")?)?;
        let inboxes =
            [*inboxes.first().context("no first process")?, *inboxes.get(1).context("no second process")?];
        Ok(Sides { node, words, there, peer: node.peer(other)?, _inbox: inbox, inboxes, step: 0 })
    }

    pub(super) fn tell(&self) {
        // Its end is the other side's answer; a failure shows as the lack of one. Within the host it ends with this look, so no thread is woken for it.
        let signal = self.there.signal_only(self.there.signal(0).set(self.step));
        signal.is_done();
    }

    pub(super) fn wait(&self) -> Result<()> {
        let step = self.step;
        self.words.signal(0)?.wait_until_within(PEER_PATIENCE, |value| value >= step)?;
        Ok(())
    }

    /// Both sides have prepared their memory, and poll: neither sleeps when the trial begins.
    pub(super) fn synchronise_first(&mut self) -> Result<()> {
        self.step += 1;
        self.tell();
        self.wait()
    }

    pub(super) fn synchronise_second(&mut self) -> Result<()> {
        self.step += 1;
        self.wait()?;
        self.tell();
        Ok(())
    }
}

/// All sizes: `traditional` and `conditional`; `client` and `server`, the registrations one after the other, and `client_beside` and `server_beside`,
/// those beside each other; `put` alone, `round_trip`; `saved`, and what of it the rule says: min(client, server + round trip). With READ:
/// `read_traditional`, `read_conditional` and `read_saved`.
pub(super) fn measure(node: &Node, sizes: &[usize]) -> Result<()> {
    let most = sizes.iter().copied().max().unwrap_or(1);
    let mut sides = Sides::connect(node, most)?;
    let round_trip = round_trip(&mut sides)?;
    for &size in sizes {
        let mut orders = if node.rank() == 0 { client(&mut sides, size)? } else { server(&mut sides, size)? };
        report(&sides, size, round_trip, &mut orders)?;
    }
    Ok(())
}

fn round_trip(sides: &mut Sides) -> Result<Option<f64>> {
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        if sides.node.rank() == 0 {
            sides.synchronise_first()?;
            times.push(microseconds(start));
        } else {
            sides.synchronise_second()?;
        }
    }
    Ok(median(&mut times))
}

fn client(sides: &mut Sides, size: usize) -> Result<Orders> {
    let inbox = sides.node.open(&sides.inboxes[1])?;
    let mut orders = Orders::default();
    for _ in 0..TRIALS {
        let times = &mut orders.traditional;
        let buffer = filled(size);
        sides.synchronise_first()?;
        let start = Instant::now();
        let guard = register(&buffer, times);
        sides.step += 1;
        sides.tell();
        sides.wait()?;
        let buffer = inbox.put(0, buffer).wait()?;
        times.transfers.push(microseconds(start));
        drop(guard);
        drop(buffer);

        let times = &mut orders.conditional;
        let buffer = filled(size);
        sides.synchronise_first()?;
        let start = Instant::now();
        sides.step += 1;
        sides.tell();
        let guard = register(&buffer, times);
        let held = sides.node.conditional_write(sides.peer, sides.step, buffer)?;
        let buffer = held.within(PEER_PATIENCE).wait().into_result()?;
        times.transfers.push(microseconds(start));
        drop(guard);

        let start = Instant::now();
        drop(inbox.put(0, buffer).wait()?);
        orders.puts.push(microseconds(start));
        read_as_client(sides, size, &mut orders)?;
    }
    Ok(orders)
}

/// Memory of the second process, when the first one has asked.
pub(super) fn buffer_after_request(sides: &mut Sides, size: usize) -> Result<Vec<u8>> {
    let buffer = filled(size);
    sides.synchronise_second()?;
    sides.step += 1;
    sides.wait()?;
    Ok(buffer)
}

fn server(sides: &mut Sides, size: usize) -> Result<Orders> {
    let mut orders = Orders::default();
    for _ in 0..TRIALS {
        // Stands for the memory behind the inbox.
        let buffer = buffer_after_request(sides, size)?;
        let guard = register(&buffer, &mut orders.traditional);
        sides.tell();
        drop(guard);

        let buffer = buffer_after_request(sides, size)?;
        let guard = register(&buffer, &mut orders.conditional);
        let released = sides.node.accept_conditional_write(sides.peer, sides.step, &sides.inboxes[1])?;
        released.wait()?;
        drop(guard);
        write_as_server(sides, size, &mut orders)?;
    }
    Ok(orders)
}

/// Gets data of the second process into memory of its own: until they are there.
fn read_as_client(sides: &mut Sides, size: usize, orders: &mut Orders) -> Result<()> {
    // Stands for the memory behind the inbox.
    let buffer = filled(size);
    sides.synchronise_first()?;
    let start = Instant::now();
    let guard = register(&buffer, &mut orders.read_traditional);
    sides.step += 1;
    sides.tell();
    // The answer stands behind the data.
    sides.wait()?;
    orders.read_traditional.transfers.push(microseconds(start));
    drop(guard);

    let buffer = filled(size);
    sides.synchronise_first()?;
    let start = Instant::now();
    sides.step += 1;
    sides.tell();
    let guard = register(&buffer, &mut orders.read_conditional);
    sides.node.conditional_read_into(sides.peer, sides.step, &sides.inboxes[0])?.wait()?;
    orders.read_conditional.transfers.push(microseconds(start));
    drop(guard);
    Ok(())
}

/// The other side of that.
fn write_as_server(sides: &mut Sides, size: usize, orders: &mut Orders) -> Result<()> {
    let inbox = sides.node.open(&sides.inboxes[0])?;
    let buffer = buffer_after_request(sides, size)?;
    let guard = register(&buffer, &mut orders.read_traditional);
    drop(inbox.put(0, buffer).wait()?);
    sides.tell();
    drop(guard);

    let buffer = buffer_after_request(sides, size)?;
    let guard = register(&buffer, &mut orders.read_conditional);
    let opened = sides.node.next_conditional_request(PEER_PATIENCE)?;
    drop(opened.supply(buffer)?.within(PEER_PATIENCE).wait().into_result()?);
    drop(guard);
    Ok(())
}

/// Memory with data that nobody has registered.
pub(super) fn filled(size: usize) -> Vec<u8> {
    let mut buffer = allocated(size);
    buffer.resize(size, 1);
    buffer
}

fn register(buffer: &[u8], times: &mut Times) -> Option<region::LockGuard> {
    let start = Instant::now();
    let guard = lock(buffer, buffer.len());
    times.registrations.push(microseconds(start));
    times.is_refused |= guard.is_none();
    guard
}

/// Gathers the other side's registrations, and prints.
fn report(sides: &Sides, size: usize, round_trip: Option<f64>, orders: &mut Orders) -> Result<()> {
    let mut own = Vec::new();
    for times in [&mut orders.traditional, &mut orders.conditional] {
        let median = median(&mut times.registrations).filter(|_| !times.is_refused);
        own.extend(median.unwrap_or(f64::NAN).to_le_bytes());
    }
    let both = sides.node.all_gather_bytes(&own)?;
    if sides.node.rank() != 0 {
        return Ok(());
    }
    let of = |rank: usize, order: usize| -> Option<f64> {
        let bytes = both.get(rank)?.get(order * 8..order * 8 + 8)?;
        let value = f64::from_le_bytes(bytes.try_into().ok()?);
        value.is_finite().then_some(value)
    };
    let (client, server) = (of(0, 0), of(1, 0));
    // Without both registrations these are other transfers.
    let permitted = |value: Option<f64>| client.and(server).and(value);
    let traditional = permitted(median(&mut orders.traditional.transfers));
    let conditional = permitted(median(&mut orders.conditional.transfers));
    let read_traditional = permitted(median(&mut orders.read_traditional.transfers));
    let read_conditional = permitted(median(&mut orders.read_conditional.transfers));
    let difference = |one: Option<f64>, other: Option<f64>| Some(one? - other?);
    let rule = || Some(client?.min(server? + round_trip?));
    print(
        size,
        [
            ("traditional", traditional),
            ("conditional", conditional),
            ("saved", difference(traditional, conditional)),
            ("rule", rule()),
            ("read_traditional", read_traditional),
            ("read_conditional", read_conditional),
            ("read_saved", difference(read_traditional, read_conditional)),
            ("client", client),
            ("server", server),
            ("client_beside", of(0, 1)),
            ("server_beside", of(1, 1)),
            ("put", median(&mut orders.puts)),
            ("round_trip", round_trip),
        ],
    )
}
