//! Accesses that the owner's memory reacts to, and other schemes for the same purpose (PAPERS AA-10, AA-12): counted puts, and logged gets.

use super::Pair;
use anyhow::{Result, ensure};
use pagewire_active::{Access, AccessLog, AttributesOf, Events, Logs, Serving};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bytes of the log for each source.
const LOG_BYTES: usize = 1 << 20;

/// Nobody waits for the handler of a count or of a logged get: it reads many records at once, and its processor is free in between.
const SELDOM: Events = Events { threshold: 100, interval: Duration::from_millis(10) };

/// What the owner does.
pub(super) struct Owner {
    _log: AccessLog,
    serving: Serving,
    bytes: Arc<AtomicU64>,
    /// Records, and bytes of their data, that must be there at the end.
    expected: (u64, u64),
}

/// The owner's side of a benchmark by its name. `None`: it does nothing.
pub(super) fn start(pair: &Pair<'_>, name: &str, times: u64) -> Result<Option<Owner>> {
    let (is_counter, is_log) = (name == "counter", name == "get_logged");
    if pair.is_caller || !(is_counter || is_log) {
        return Ok(None);
    }
    let log = pair.node.access_log(LOG_BYTES)?;
    let bytes = Arc::new(AtomicU64::new(0));
    let sum = bytes.clone();
    let count = move |access: Access<'_>| {
        sum.fetch_add(access.bytes().len() as u64, Ordering::Relaxed);
    };
    let serving = log.serve_events(&SELDOM, count)?;
    let attributes = pair.table.attributes(..);
    if is_counter { attributes.log_puts() } else { attributes.log_get_data() }.to(&log)?;
    let accesses = times + times / 10;
    let expected = (accesses, if is_log { accesses * pair.size } else { 0 });
    Ok(Some(Owner { _log: log, serving, bytes, expected }))
}

impl Owner {
    /// Each access must have its record. A get that the network lost has one more.
    pub(super) fn end(self) -> Result<()> {
        let (summary, bytes) = (self.serving.end(), self.bytes.load(Ordering::Relaxed));
        let seen = (summary.handled, bytes);
        ensure!(
            seen.0 >= self.expected.0 && seen.1 >= self.expected.1,
            "{seen:?} were logged of {:?}",
            self.expected
        );
        Ok(())
    }
}

/// The caller's side of a benchmark by its name: microseconds of an access. `None`: it is none of these.
pub(super) fn measure(pair: &Pair<'_>, name: &str, times: u64) -> Option<Result<f64>> {
    let counter = pair.size;
    let mut buffer = pair.buffer();
    let mut put = |counts: bool| {
        pair.latency(times, || {
            let put = pair.remote.put(0, std::mem::take(&mut buffer));
            if counts {
                // Both are under way at once.
                black_box(pair.remote.fetch_add(counter, 1).wait()?);
            }
            buffer = put.wait()?;
            Ok(())
        })
    };
    Some(match name {
        "counter" => put(false).and_then(|value| {
            pair.remote.flush_handled(None).wait()?;
            Ok(value)
        }),
        "counter_none" => put(false),
        "counter_rma" => put(true),
        "get_logged" | "get_logged_rma" => {
            let mut buffer = pair.buffer();
            let measured = pair.latency(times, || {
                buffer = pair.remote.get_into(0, std::mem::take(&mut buffer)).wait()?;
                if name == "get_logged_rma" {
                    // The target logs what it is sent back.
                    buffer = pair.remote.put(pair.size, std::mem::take(&mut buffer)).wait()?;
                }
                Ok(())
            });
            measured.and_then(|value| {
                pair.remote.flush_handled(None).wait()?;
                Ok(value)
            })
        }
        _ => return None,
    })
}
