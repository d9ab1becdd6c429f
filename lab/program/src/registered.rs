//! What registered memory costs here: `pagewire reproduce frrwp|reuse --live`.
//!
//! Two processes of a job measure it with the native interface; this program starts itself twice, as `pagewire-lab probe registered`. Pagewire registers
//! nothing page by page, so mlock(2) stands for the registration of a network card: of memory that malloc gave, in all that is "by hand".
//!
//! Each measurement is bounded in time, in trials and in locked memory.

mod allocation;
mod exchange;
mod saving;
mod transfer;
mod views;

use crate::helper::{Failure, Point, points};
use crate::limits::BENCH_RUN;
use crate::probe::{self, Kind};
use allocator_api2::alloc::Allocator;
use allocator_api2::vec::Vec as VecIn;
use anyhow::{Context, Result, bail};
use pagewire_cli::pair::Running;
use pagewire_heap::HeapRef;
use pagewire_nic::{DELAY_VARIABLE, PathChoice};
use serde_json::{Map, Value, json};
use std::mem::MaybeUninit;
use std::process::Command;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

pub(crate) use self::views::{NAME as VIEWS, run as run_views};

/// The name by which a run asks for this in place of a helper program.
pub(crate) const NAME: &str = "registered";

/// Trials of one size, at most and at least; the time that they may take decides between both.
const TRIALS: std::ops::RangeInclusive<usize> = 5..=300;
/// What the trials of one size may take.
const PATIENCE: Duration = Duration::from_millis(40);
/// What one process waits for the other.
const PEER_PATIENCE: Duration = Duration::from_secs(10);
/// Bytes that are held or locked at once, at most.
const HELD: usize = 64 << 20;
const PAGE: usize = 4_096;

/// A vector in the registered heap.
type HeapVec = VecIn<u8, HeapRef>;

/// Runs both processes over a path; the inner error says what went wrong.
///
/// # Errors
/// If they cannot be started.
pub(crate) fn run(path: PathChoice, words: &[String]) -> Result<Result<Vec<Point>, Failure>> {
    Ok(run_job(Kind::Registered, words, ProbeJob::new(path, 2))?.and_then(|output| points(&output)))
}

/// How the processes of a job are started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbeJob {
    pub(crate) path: PathChoice,
    processes: usize,
    /// Microseconds by which each packet is delayed on purpose; `None`: what the environment says.
    delay: Option<u64>,
}

impl ProbeJob {
    /// So many processes on this host, over a path.
    pub(crate) fn new(path: PathChoice, processes: usize) -> ProbeJob {
        ProbeJob { path, processes, delay: None }
    }

    /// Over a network that is longer by so many microseconds; the path is udp or tcp, or the engine refuses to start.
    pub(crate) fn delayed(self, delay: u64) -> ProbeJob {
        ProbeJob { delay: Some(delay), ..self }
    }
}

/// Runs the processes of a job on this host, and gives what that one of them prints that has figures; the inner error
/// says what went wrong.
///
/// # Errors
/// If they cannot be started.
pub(crate) fn run_job(kind: Kind, words: &[String], job: ProbeJob) -> Result<Result<String, Failure>> {
    run_processes(|| probe::command(kind, words), job)
}

/// Runs the processes of a job, each by a command of its own. See [`run_job`].
fn run_processes(
    command: impl Fn() -> Result<Command>,
    ProbeJob { path, processes, delay }: ProbeJob,
) -> Result<Result<String, Failure>> {
    let directory = tempfile::Builder::new().prefix("pagewire-job-").tempdir()?;
    let start = |rank: usize| {
        let mut command = command()?;
        command
            .env("PAGEWIRE_JOB_FILE", directory.path())
            .env("PAGEWIRE_SIZE", processes.to_string())
            .env("PAGEWIRE_RANK", rank.to_string());
        command
            .env("PAGEWIRE_PATH", path.name())
            .env("PAGEWIRE_JOB_TIMEOUT", BENCH_RUN.as_secs().to_string());
        if let Some(delay) = delay {
            command.env(DELAY_VARIABLE, format!("{delay}us"));
        }
        for other in ["PMIX_NAMESPACE", "PMIX_RANK", "PAGEWIRE_RENDEZVOUS"] {
            command.env_remove(other);
        }
        Running::start(command)
    };
    let deadline = Instant::now() + BENCH_RUN;
    let running = (0..processes).map(start).collect::<Result<Vec<_>>>()?;
    let finished: Vec<_> = running.into_iter().map(|one| one.wait_until(deadline)).collect();
    // One that fails makes the others fail: the cause stands in either output.
    let failed = finished.iter().filter(|finished| !finished.success());
    let texts: Vec<String> = failed.map(|f| format!("{}\n{}", f.verdict(), f.output.trim())).collect();
    if !texts.is_empty() {
        return Ok(Err(Failure { text: texts.join("\n"), not_here: false }));
    }
    let printed = finished.into_iter().map(|finished| finished.output);
    Ok(Ok(printed.into_iter().find(|output| !output.trim().is_empty()).unwrap_or_default()))
}

/// One of the processes. The first prints an object a line for each size.
///
/// # Errors
/// What the engine or the other process answered.
pub(crate) fn serve(what: &str, sizes: &str) -> Result<()> {
    let sizes: Vec<usize> = sizes.split(',').map(str::parse).collect::<Result<_, _>>().context("SIZES")?;
    if sizes.is_empty() || sizes.iter().any(|size| !(1..=HELD).contains(size)) {
        bail!("SIZES: 1 to {HELD} bytes each");
    }
    let node = pagewire::Node::from_env()?;
    if node.size() != 2 {
        bail!("these are two processes");
    }
    match what {
        "allocation" if node.rank() == 0 => {
            sizes.iter().try_for_each(|&size| allocation::measure(&node, size))?
        }
        "allocation" => {}
        "transfer" => transfer::measure(&node, &sizes)?,
        "exchange" => exchange::measure(&node, &sizes)?,
        "saving" => saving::measure(&node, &sizes)?,
        other => bail!("{other}: no such measurement"),
    }
    Ok(node.barrier()?)
}

/// Prints medians of a size, in microseconds; null where the user may not lock the memory.
fn print(size: usize, values: impl IntoIterator<Item = (&'static str, Option<f64>)>) -> Result<()> {
    let mut line = Map::new();
    line.insert("size".to_owned(), json!(size));
    line.extend(values.into_iter().map(|(name, value)| (name.to_owned(), json!(value))));
    use std::io::Write;
    writeln!(std::io::stdout(), "{}", Value::Object(line))?;
    Ok(())
}

/// The median of a trial's microseconds, of as many trials as there is time for, `most` at most; `None`: a trial was not permitted.
fn median_of(most: usize, mut trial: impl FnMut() -> Result<Option<f64>>) -> Result<Option<f64>> {
    let (start, mut values) = (Instant::now(), Vec::new());
    let least = (*TRIALS.start()).min(most);
    while values.len() < least || values.len() < most.min(*TRIALS.end()) && start.elapsed() < PATIENCE {
        match trial()? {
            Some(value) => values.push(value),
            None => return Ok(None),
        }
    }
    Ok(pagewire_cli::median(&mut values))
}

/// What a trial took, without the look at the clock: that takes longer than to acquire a small buffer.
fn microseconds(start: Instant) -> f64 {
    (elapsed(start) - *CLOCK).max(0.0)
}

/// Microseconds between two looks at the clock with nothing between them.
static CLOCK: LazyLock<f64> = LazyLock::new(|| {
    let mut looks: Vec<f64> = (0..1001).map(|_| elapsed(Instant::now())).collect();
    pagewire_cli::median(&mut looks).unwrap_or_default()
});

fn elapsed(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// Writes to each page, so that it is in memory.
fn touch(memory: &mut [MaybeUninit<u8>]) {
    for byte in memory.iter_mut().step_by(PAGE) {
        byte.write(1);
    }
}

/// mlock(2), which stands for registration; `None`: the user may not.
fn lock(memory: &[u8], size: usize) -> Option<region::LockGuard> {
    region::lock(memory.as_ptr(), size).ok()
}

/// Memory that malloc gives, touched.
fn allocated(size: usize) -> Vec<u8> {
    let mut memory = Vec::with_capacity(size);
    touch(&mut memory.spare_capacity_mut()[..size]);
    memory
}

/// Registered memory, touched.
fn registered<A: Allocator>(heap: A, size: usize) -> VecIn<u8, A> {
    let mut memory = VecIn::with_capacity_in(size, heap);
    touch(&mut memory.spare_capacity_mut()[..size]);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_end_by_their_number_by_time_or_by_a_refusal() {
        let mut count = 0.0;
        let counted = median_of(3, || {
            count += 1.0;
            Ok(Some(count))
        });
        assert_eq!(counted.expect("no error"), Some(2.0));
        let slow = median_of(300, || {
            std::thread::sleep(PATIENCE / 4);
            count += 1.0;
            Ok(Some(count))
        });
        assert!(slow.expect("no error").is_some() && count < 20.0, "{count}");
        assert_eq!(median_of(3, || Ok(None)).expect("no error"), None);
        assert!(median_of(3, || bail!("an error")).is_err());
    }

    #[test]
    fn sizes_are_checked_before_anything_starts() {
        for sizes in ["", "0", "1,x", "1000000000"] {
            let refused = serve("allocation", sizes).expect_err(sizes);
            assert!(format!("{refused:#}").starts_with("SIZES"), "{refused:#}");
        }
    }
}
