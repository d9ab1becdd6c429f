//! Waits for any or all of several operations.
//!
//! Operations of several nodes may stand in one list, with held writes and releases among them. A time of zero looks once.

use crate::conditional::{Acceptance, HeldWrite};
use crate::limits::{SIGNAL_SLEEP, SPIN, WORK_PAUSE};
use crate::nodes::completions::UnparkWaker;
use crate::operations::operation::Operation;
use crate::operations::operation_end::{OperationEnd, WakerFate};
use crate::operations::waiting;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// What has an end: an [`Operation`], a [`HeldWrite`] or a [`Acceptance`]. Programs have no implementations of their own.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{FOREVER, Node, Rights, Waitable};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let (put, add) = (remote.put(0, vec![5u64]), remote.fetch_add(8, 1));
/// let both: [&dyn Waitable; 2] = [&put, &add]; // of different types
/// assert!(pagewire::wait_all(&both, FOREVER));
/// # Ok(())
/// # }
/// ```
pub trait Waitable: OperationEnd {}

impl<B: Send + 'static> Waitable for Operation<B> {}
impl<B: Send + 'static> Waitable for HeldWrite<B> {}
impl Waitable for Acceptance {}

/// Waits until one of several operations has ended, for `patience` at most, and gives its place. Its result is taken by its own `wait`, which
/// returns at once. `None`: none has ended in time, or the list is empty. Operations that fail end, too.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{FOREVER, Node, Rights, Waitable};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let mut puts: Vec<_> = (0..16).map(|index| remote.put_value(8 * index, index)).collect();
/// while !puts.is_empty() {
///     let list: Vec<&dyn Waitable> = puts.iter().map(|put| put as &dyn Waitable).collect();
///     let first = pagewire::wait_any(&list, FOREVER).expect("there is no bound");
///     puts.swap_remove(first).wait()?;
/// }
/// assert_eq!(table.get(15)?, 15);
/// # Ok(())
/// # }
/// ```
pub fn wait_any(operations: &[&dyn Waitable], patience: Duration) -> Option<usize> {
    let start = Instant::now();
    let work = waiting::current();
    let polled = polled_once(operations);
    loop {
        let ended = || operations.iter().position(|operation| operation.is_ended());
        if let Some(place) = ended() {
            return Some(place);
        }
        for operation in &polled {
            operation.poll_end();
        }
        if let Some(place) = ended() {
            return Some(place);
        }
        let left = patience.checked_sub(start.elapsed()).filter(|left| !left.is_zero())?;
        if operations.is_empty() {
            return None;
        }
        match &work {
            Some(work) => {
                work.make_progress();
                sleep(operations, left.min(WORK_PAUSE));
            }
            None if start.elapsed() < SPIN => {}
            None => sleep(operations, left),
        }
    }
}

/// Waits until each of several operations has ended, for `patience` at most. False: one has not. Results are taken by their own `wait`.
pub fn wait_all(operations: &[&dyn Waitable], patience: Duration) -> bool {
    let start = Instant::now();
    operations
        .iter()
        .all(|operation| wait_any(&[*operation], patience.saturating_sub(start.elapsed())).is_some())
}

/// Waits until at least one of several operations has ended, for `patience` at most, and gives the places of all that have. Empty: none has in
/// time.
pub fn wait_some(operations: &[&dyn Waitable], patience: Duration) -> Vec<usize> {
    if wait_any(operations, patience).is_none() {
        return Vec::new();
    }
    let ended = operations.iter().enumerate().filter(|(_, operation)| operation.is_ended());
    ended.map(|(place, _)| place).collect()
}

/// One of those that are polled together.
fn polled_once<'a>(operations: &[&'a dyn Waitable]) -> Vec<&'a dyn Waitable> {
    let mut chosen: Vec<&dyn Waitable> = Vec::new();
    for operation in operations {
        // Few are different: a program has few nodes.
        if !chosen.iter().any(|known| known.polled() == operation.polled()) {
            chosen.push(*operation);
        }
    }
    chosen
}

/// Sleeps until one ends, or for so long.
fn sleep(operations: &[&dyn Waitable], time: Duration) {
    // One for each thread: whoever waits again and again is woken once.
    thread_local!(static UNPARK: Waker = Waker::from(Arc::new(UnparkWaker(std::thread::current()))));
    let mut most = time;
    for operation in operations {
        match UNPARK.with(|waker| operation.wake_at_end(waker)) {
            WakerFate::Ended => return,
            WakerFate::WokenAtEnd => {}
            WakerFate::NotKept => most = most.min(SIGNAL_SLEEP),
        }
    }
    std::thread::park_timeout(most);
}
