//! Waits for any or all of several signals, by threads and by tasks.
//!
//! Each signal may be wished something else: the function gets its place in the list, and its value. A time of zero looks once.

use crate::error::Result;
use crate::regions::signal::Signal;
use std::time::Duration;

/// Waits until one of the signals is as wished, for `patience` at most, and gives its place and value. `None`: none was in time, or there are no
/// signals.
///
/// ```
/// # fn main() -> pagewire::Result<()> {
/// # use pagewire::{FOREVER, Node, Rights};
/// # let node = Node::alone()?;
/// # let table = node.zeroed::<u64>(16)?;
/// # let remote = node.open(&table.export(Rights::all())?)?;
/// let signals = [table.signal(8)?, table.signal(16)?];
/// let put = remote.put_signal(0, vec![5u64], remote.signal(16).set(7));
/// assert_eq!(pagewire::signal_wait_any(&signals, FOREVER, |_, value| value != 0)?, Some((1, 7)));
/// put.wait()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Forked`.
pub fn signal_wait_any(
    signals: &[Signal<'_>],
    patience: Duration,
    wished: impl Fn(usize, u64) -> bool,
) -> Result<Option<(usize, u64)>> {
    let mut found = None;
    if let Some(one) = signals.first() {
        one.completions.wait_for(patience, || {
            found = first(signals, &wished);
            found.is_some()
        })?;
    }
    Ok(found)
}

/// Waits until each of the signals is as wished at once, for `patience` at most. False: they were not in time.
///
/// # Errors
/// `Forked`.
pub fn signal_wait_all(
    signals: &[Signal<'_>],
    patience: Duration,
    wished: impl Fn(usize, u64) -> bool,
) -> Result<bool> {
    let Some(first) = signals.first() else { return Ok(true) };
    first.completions.wait_for(patience, || all(signals, &wished))
}

/// Waits until at least one of the signals is as wished, for `patience` at most, and gives the places and values of all that are. Empty: none was in
/// time.
///
/// # Errors
/// `Forked`.
pub fn signal_wait_some(
    signals: &[Signal<'_>],
    patience: Duration,
    wished: impl Fn(usize, u64) -> bool,
) -> Result<Vec<(usize, u64)>> {
    let mut found = Vec::new();
    if let Some(first) = signals.first() {
        first.completions.wait_for(patience, || {
            found = values(signals).filter(|(place, value)| wished(*place, *value)).collect();
            !found.is_empty()
        })?;
    }
    Ok(found)
}

/// [`signal_wait_any`] for tasks of any executor, without a bound: see [`Signal::reaches`].
///
/// # Errors
/// `Forked`.
pub async fn signal_reaches_any(
    signals: &[Signal<'_>],
    wished: impl Fn(usize, u64) -> bool,
) -> Result<Option<(usize, u64)>> {
    let mut found = None;
    let holds = || {
        found = first(signals, &wished);
        found.is_some()
    };
    if let Some(one) = signals.first() {
        one.completions.reach(Duration::MAX, holds).await?;
    }
    Ok(found)
}

/// [`signal_wait_all`] for tasks of any executor, without a bound: see [`Signal::reaches`].
///
/// # Errors
/// `Forked`.
pub async fn signal_reaches_all(signals: &[Signal<'_>], wished: impl Fn(usize, u64) -> bool) -> Result<()> {
    if let Some(first) = signals.first() {
        first.completions.reach(Duration::MAX, || all(signals, &wished)).await?;
    }
    Ok(())
}

fn values<'s>(signals: &'s [Signal<'_>]) -> impl Iterator<Item = (usize, u64)> + 's {
    signals.iter().map(Signal::value).enumerate()
}

fn first(signals: &[Signal<'_>], wished: impl Fn(usize, u64) -> bool) -> Option<(usize, u64)> {
    values(signals).find(|(place, value)| wished(*place, *value))
}

fn all(signals: &[Signal<'_>], wished: impl Fn(usize, u64) -> bool) -> bool {
    values(signals).all(|(place, value)| wished(place, value))
}
