//! What a conditional write saves beside the traditional order, by size, for each cost of a registration (FRRWP-3). The first process has the data.
//!
//! Either order ends when the data are there and the first process has deregistered its buffer. Without registration the opening of the conditional
//! write is its first message. Else a signal goes before it, so that both processes register at once.

use super::exchange::{Sides, buffer_after_request, filled};
use super::{PAGE, PEER_PATIENCE, lock, microseconds, print};
use crate::native::compute;
use anyhow::{Result, ensure};
use pagewire::Node;
use pagewire_cli::median;
use pagewire_papers::unit_costs::FrrwpCosts;
use std::time::{Duration, Instant};

/// Trials of each order, cost and size.
const TRIALS: usize = 21;

/// What each process does to register its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registration {
    /// Nothing, as with Pagewire.
    None,
    /// mlock(2), and munlock(2) behind the transfer.
    Lock,
    /// Work for as long as the paper's T = a p + b, which has the deregistration in it.
    Work,
}

impl Registration {
    const ALL: [Registration; 3] = [Registration::None, Registration::Lock, Registration::Work];

    /// The names of what is printed: the whole in the traditional order and by a conditional write, in microseconds, and what the latter is less, in
    /// percent of the longer one.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Registration::None => ["none_traditional", "none_conditional", "none_saved"],
            Registration::Lock => ["lock_traditional", "lock_conditional", "lock_saved"],
            Registration::Work => ["work_traditional", "work_conditional", "work_saved"],
        }
    }

    fn register(self, buffer: &[u8]) -> Registered {
        let mut registered = Registered::default();
        match self {
            Registration::None => {}
            Registration::Lock => {
                registered.guard = lock(buffer, buffer.len());
                registered.is_refused = registered.guard.is_none();
            }
            Registration::Work => {
                let pages = buffer.len().div_ceil(PAGE) as u64;
                compute(Duration::from_nanos(FrrwpCosts::PAPER.fast(pages)));
            }
        }
        registered
    }
}

/// Memory that is registered until this is dropped.
#[derive(Default)]
struct Registered {
    guard: Option<region::LockGuard>,
    /// The user may not lock it.
    is_refused: bool,
}

/// Microseconds of the trials of one size and cost.
#[derive(Default)]
struct Times {
    traditional: Vec<f64>,
    conditional: Vec<f64>,
    is_refused: bool,
}

/// All sizes: for each cost what [`Registration::names`] says; null where the user may not lock the memory.
pub(super) fn measure(node: &Node, sizes: &[usize]) -> Result<()> {
    let most = sizes.iter().copied().max().unwrap_or(1);
    let mut sides = Sides::connect(node, most)?;
    for &size in sizes {
        let mut all: [Times; Registration::ALL.len()] = Default::default();
        for _ in 0..TRIALS {
            for (registration, times) in Registration::ALL.into_iter().zip(&mut all) {
                if node.rank() == 0 {
                    write_traditionally(&mut sides, size, registration, times)?;
                    write_conditionally(&mut sides, size, registration, times)?;
                } else {
                    receive_traditionally(&mut sides, size, registration, times)?;
                    receive_conditionally(&mut sides, size, registration, times)?;
                }
            }
        }
        report(node, size, &mut all)?;
    }
    Ok(())
}

fn write_traditionally(sides: &mut Sides, size: usize, cost: Registration, times: &mut Times) -> Result<()> {
    let inbox = sides.node.open(&sides.inboxes[1])?;
    let buffer = filled(size);
    sides.synchronise_first()?;
    let start = Instant::now();
    let registered = cost.register(&buffer);
    times.is_refused |= registered.is_refused;
    sides.step += 1;
    sides.tell();
    sides.wait()?;
    let buffer = inbox.put(0, buffer).wait()?;
    drop(registered);
    times.traditional.push(microseconds(start));
    drop(buffer);
    Ok(())
}

fn receive_traditionally(
    sides: &mut Sides,
    size: usize,
    cost: Registration,
    times: &mut Times,
) -> Result<()> {
    // Stands for the memory behind the inbox.
    let buffer = buffer_after_request(sides, size)?;
    let registered = cost.register(&buffer);
    times.is_refused |= registered.is_refused;
    sides.tell();
    Ok(())
}

fn write_conditionally(sides: &mut Sides, size: usize, cost: Registration, times: &mut Times) -> Result<()> {
    let buffer = filled(size);
    sides.synchronise_first()?;
    let start = Instant::now();
    sides.step += 1;
    if cost != Registration::None {
        sides.tell();
    }
    let registered = cost.register(&buffer);
    let held = sides.node.conditional_write(sides.peer, sides.step, buffer)?;
    let buffer = held.within(PEER_PATIENCE).wait().into_result()?;
    drop(registered);
    times.conditional.push(microseconds(start));
    drop(buffer);
    Ok(())
}

fn receive_conditionally(
    sides: &mut Sides,
    size: usize,
    cost: Registration,
    times: &mut Times,
) -> Result<()> {
    if cost == Registration::None {
        sides.synchronise_second()?;
        sides.step += 1;
        let opened = sides.node.next_conditional_request(PEER_PATIENCE)?;
        ensure!(opened.tag() == sides.step, "tag {} came in place of {}", opened.tag(), sides.step);
        opened.accept(&sides.inboxes[1])?.wait()?;
        return Ok(());
    }
    let buffer = buffer_after_request(sides, size)?;
    let registered = cost.register(&buffer);
    times.is_refused |= registered.is_refused;
    sides.node.accept_conditional_write(sides.peer, sides.step, &sides.inboxes[1])?.wait()?;
    Ok(())
}

/// Gathers whether the other side may lock its memory, and prints.
fn report(node: &Node, size: usize, all: &mut [Times]) -> Result<()> {
    let refused: Vec<u8> = all.iter().map(|times| u8::from(times.is_refused)).collect();
    let both = node.all_gather_bytes(&refused)?;
    if node.rank() != 0 {
        return Ok(());
    }
    let mut values = Vec::new();
    for (index, (registration, times)) in Registration::ALL.into_iter().zip(all).enumerate() {
        let is_permitted = both.iter().all(|one| one.get(index) == Some(&0));
        let [traditional, conditional] = [&mut times.traditional, &mut times.conditional]
            .map(|times| median(times).filter(|_| is_permitted));
        let saved = traditional.zip(conditional).map(|(one, other)| (one - other) / one.max(other) * 100.0);
        values.extend(registration.names().into_iter().zip([traditional, conditional, saved]));
    }
    print(size, values)
}
