//! Accesses that the owner's memory reacts to, and other schemes for the same purpose (PAPERS AA-10, AA-12): counted puts,
//! logged gets, puts of two sources to one log, and puts beside a region with attributes.

use super::Pair;
use anyhow::{Result, ensure};
use pagewire::{Node, Operation, Region};
use pagewire_active::{Access, AccessLog, AttributesOf, Events, LogOptions, Logs, Serving};
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Bytes of the log for each source.
const LOG_BYTES: usize = 1 << 20;

/// Nobody waits for the handler of a count or of a logged get: it reads many records at once, and its processor is free in between.
const SELDOM: Events = Events { threshold: 100, interval: Duration::from_millis(10) };

/// What the owner does.
pub(super) struct Owner {
    _log: AccessLog,
    serving: Serving,
    seen: Arc<Seen>,
    /// Accesses, and bytes of their data, that must be there at the end.
    expected: (u64, u64),
    /// A region that nobody accesses.
    _beside: Option<Region<u64>>,
}

/// What the handler has seen.
#[derive(Default)]
struct Seen {
    /// Those that the network repeated count once.
    accesses: AtomicU64,
    bytes: AtomicU64,
    /// Records that are not the next ones of their source.
    disordered: AtomicU64,
}

/// Puts of two sources for each access of other benchmarks: one takes a fraction of a microsecond.
const PUTS: u64 = 10;

/// Pages with attributes in a region that nobody accesses.
const BESIDE: usize = 16 * 512;

/// The owner's side of a benchmark by its name. `None`: it does nothing.
pub(super) fn start(pair: &Pair<'_>, name: &str, times: u64) -> Result<Option<Owner>> {
    let names = ["counter", "get_logged", "put_bw_beside", "log_order", "log_order_none"];
    if pair.is_caller || !names.contains(&name) {
        return Ok(None);
    }
    let log = pair.node.access_log_with(&LogOptions {
        is_ordered: name != "log_order_none",
        ..LogOptions::new(LOG_BYTES)
    })?;
    let seen = Arc::new(Seen::default());
    let (sum, base, has_sources) = (seen.clone(), pair.table.address(), name.starts_with("log_order"));
    let mut last = [0; 2];
    let count = move |access: Access<'_>| {
        // What was not redirected in time is made again.
        if access.was_repeated() || access.was_redirected() && access.may_have_written() {
            return;
        }
        sum.accesses.fetch_add(u64::from(access.is_last()), Ordering::Relaxed);
        sum.bytes.fetch_add(access.bytes().len() as u64, Ordering::Relaxed);
        if has_sources && !is_next(&mut last, &access, base) {
            sum.disordered.fetch_add(1, Ordering::Relaxed);
        }
    };
    let serving = if has_sources { log.serve_polling(count)? } else { log.serve_events(&SELDOM, count)? };
    let (attributes, mut beside) = (pair.table.attributes(..), None);
    let accesses = times + times / 10;
    let expected = match name {
        "counter" => {
            attributes.log_puts().to(&log)?;
            (accesses, 0)
        }
        "get_logged" => {
            attributes.log_get_data().to(&log)?;
            (accesses, accesses * pair.size)
        }
        "put_bw_beside" => {
            let region = pair.node.zeroed(BESIDE)?;
            region.attributes(..).redirect_puts().to(&log)?;
            beside = Some(region);
            (0, 0)
        }
        _ => {
            ensure!(pair.size == 8, "a source puts words of 8 bytes");
            attributes.redirect_puts().to(&log)?;
            (PUTS * accesses, PUTS * accesses * pair.size)
        }
    };
    Ok(Some(Owner { _log: log, serving, seen, expected, _beside: beside }))
}

/// Whether a source, which has a word of its own, has put its next number.
fn is_next(last: &mut [u64; 2], access: &Access<'_>, base: u64) -> bool {
    let word = access.offset_from(base).map(|offset| offset as usize / 8);
    match (word.and_then(|word| last.get_mut(word)), access.value::<u64>()) {
        (Some(last), Some(value)) => {
            let is_next = value == *last + 1;
            *last = value;
            is_next
        }
        _ => false,
    }
}

impl Owner {
    /// Each access must have its record, and nothing else. Of a get that the network repeated, what was sent again does not count.
    pub(super) fn end(self) -> Result<()> {
        self.serving.end();
        let seen = [&self.seen.accesses, &self.seen.bytes].map(|count| count.load(Ordering::Relaxed));
        let expected = <[u64; 2]>::from(self.expected);
        ensure!(seen == expected, "accesses and bytes: {seen:?} were logged, and {expected:?} were made");
        let disordered = self.seen.disordered.load(Ordering::Relaxed);
        ensure!(disordered == 0, "{disordered} records were not the next ones of their source");
        Ok(())
    }
}

/// Microseconds of a put to a log that two sources put to in turn, with several of each under way, until all are handled. Both are in this thread, so
/// that the owner's thread has a processor of its own.
fn put_of_two_sources(pair: &Pair<'_>, times: u64) -> Result<f64> {
    let other = Node::alone()?;
    let sources = [pair.node.open(&pair.token)?, other.open(&pair.token)?];
    let mut in_flight: [VecDeque<Operation<Vec<u64>>>; 2] = Default::default();
    let mut begun = Instant::now();
    let (warm_up, times) = (PUTS * (times / 10), PUTS * times);
    for number in 0..warm_up + times {
        if number == warm_up {
            begun = Instant::now();
        }
        let source = (number % 2) as usize;
        let is_full = in_flight[source].len() >= super::WINDOW as usize;
        let oldest = if is_full { in_flight[source].pop_front() } else { None };
        let mut buffer = oldest.map_or_else(|| Ok(vec![0]), Operation::wait)?;
        buffer[0] = number / 2 + 1;
        in_flight[source].push_back(sources[source].put(8 * source as u64, buffer));
    }
    for (source, puts) in sources.iter().zip(in_flight) {
        puts.into_iter().try_for_each(|put| put.wait().map(drop))?;
        source.flush_handled(None).wait()?;
    }
    Ok(begun.elapsed().as_secs_f64() * 1e6 / times as f64)
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
        "log_order" | "log_order_none" => put_of_two_sources(pair, times),
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
