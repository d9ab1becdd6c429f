//! A transfer of memory that neither side has registered: in the traditional order, and by a conditional write (FRRWP-1, FRRWP-2).
//!
//! Both processes count the steps of all trials in the same order. A step is told by a signal: word 0 of the second process, word 0 of the first.

use super::{PEER_PATIENCE, allocated, lock, microseconds, print};
use anyhow::{Context, Result};
use pagewire::{Atomic, Node, Peer, Region, RemoteRegion, Rights, Token};
use std::time::Instant;

/// Trials of each order and size.
const TRIALS: usize = 15;
/// Round trips that are measured.
const ROUND_TRIPS: usize = 200;

/// What both processes have.
struct Sides<'a> {
    node: &'a Node,
    words: Region<u64, Atomic>,
    there: RemoteRegion,
    peer: Peer,
    /// Of the second process's inbox.
    inbox: Token,
    /// The last step that was told.
    step: u64,
}

/// Microseconds of the trials of one size; `None`: a side may not lock the memory.
#[derive(Default)]
struct Times {
    traditional: Vec<f64>,
    conditional: Vec<f64>,
    puts: Vec<f64>,
    registrations: Vec<f64>,
    is_refused: bool,
}

impl Sides<'_> {
    fn tell(&self) {
        // Its end is the other side's answer; a failure shows as the lack of one.
        drop(self.there.signal_only(self.there.signal(0).set(self.step)));
    }

    fn wait(&self) -> Result<()> {
        let step = self.step;
        self.words.signal(0)?.wait_until_within(PEER_PATIENCE, |value| value >= step)?;
        Ok(())
    }
}

/// All sizes: `traditional` and `conditional`; `client` and `server`, the registrations in them; `put` alone, `round_trip`; `saved`, and what of it
/// the rule says: min(client, server + round trip).
pub(super) fn measure(node: &Node, sizes: &[usize]) -> Result<()> {
    let most = sizes.iter().copied().max().unwrap_or(1);
    let words = node.words(1)?;
    let inbox = node.zeroed::<u8>(most)?;
    let signals = node.all_gather(&words.export(Rights::all())?)?;
    let inboxes = node.all_gather(&inbox.export(Rights::WRITE)?)?;
    let other = 1 - node.rank();
    let there = node.open(signals.get(other).context("no second process")?)?;
    let inbox_token = *inboxes.get(1).context("no second process")?;
    let mut sides = Sides { node, words, there, peer: node.peer(other)?, inbox: inbox_token, step: 0 };
    let round_trip = round_trip(&mut sides)?;
    for &size in sizes {
        let mut times = if node.rank() == 0 { client(&mut sides, size)? } else { server(&mut sides, size)? };
        report(&sides, size, round_trip, &mut times)?;
    }
    Ok(())
}

fn round_trip(sides: &mut Sides) -> Result<Option<f64>> {
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        sides.step += 1;
        let start = Instant::now();
        if sides.node.rank() == 0 {
            sides.tell();
            sides.wait()?;
            times.push(microseconds(start));
        } else {
            sides.wait()?;
            sides.tell();
        }
    }
    Ok(crate::figures::median(&mut times))
}

fn client(sides: &mut Sides, size: usize) -> Result<Times> {
    let inbox = sides.node.open(&sides.inbox)?;
    let mut times = Times::default();
    for _ in 0..TRIALS {
        let buffer = filled(size);
        let start = Instant::now();
        let guard = register(&buffer, &mut times);
        sides.step += 1;
        sides.tell();
        sides.wait()?;
        let buffer = inbox.put(0, buffer).wait()?;
        times.traditional.push(microseconds(start));
        drop(guard);
        drop(buffer);

        let buffer = filled(size);
        let start = Instant::now();
        sides.step += 1;
        sides.tell();
        let guard = register(&buffer, &mut times);
        let held = sides.node.open_write(sides.peer, sides.step, buffer)?;
        let buffer = held.within(PEER_PATIENCE).wait().into_result()?;
        times.conditional.push(microseconds(start));
        drop(guard);

        let start = Instant::now();
        drop(inbox.put(0, buffer).wait()?);
        times.puts.push(microseconds(start));
    }
    Ok(times)
}

fn server(sides: &mut Sides, size: usize) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..TRIALS {
        // Stands for the memory behind the inbox.
        let buffer = filled(size);
        sides.step += 1;
        sides.wait()?;
        let guard = register(&buffer, &mut times);
        sides.tell();
        drop(guard);

        let buffer = filled(size);
        sides.step += 1;
        sides.wait()?;
        let guard = register(&buffer, &mut times);
        let released = sides.node.release(sides.peer, sides.step, &sides.inbox)?;
        released.wait()?;
        drop(guard);
    }
    Ok(times)
}

/// Memory with data that nobody has registered.
fn filled(size: usize) -> Vec<u8> {
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
fn report(sides: &Sides, size: usize, round_trip: Option<f64>, times: &mut Times) -> Result<()> {
    let median = |values: &mut Vec<f64>| crate::figures::median(values);
    let own = if times.is_refused { f64::NAN } else { median(&mut times.registrations).unwrap_or(f64::NAN) };
    let both = sides.node.all_gather_bytes(&own.to_le_bytes())?;
    if sides.node.rank() != 0 {
        return Ok(());
    }
    let of = |rank: usize| -> Option<f64> {
        let value = f64::from_le_bytes(both.get(rank)?.as_slice().try_into().ok()?);
        value.is_finite().then_some(value)
    };
    let (client, server) = (of(0), of(1));
    // Without both registrations these are other transfers.
    let permitted = |value: Option<f64>| client.and(server).and(value);
    let traditional = permitted(median(&mut times.traditional));
    let conditional = permitted(median(&mut times.conditional));
    let difference = |one: Option<f64>, other: Option<f64>| Some(one? - other?);
    let rule = || Some(client?.min(server? + round_trip?));
    print(
        size,
        [
            ("traditional", traditional),
            ("conditional", conditional),
            ("saved", difference(traditional, conditional)),
            ("rule", rule()),
            ("client", client),
            ("server", server),
            ("put", median(&mut times.puts)),
            ("round_trip", round_trip),
        ],
    )
}
