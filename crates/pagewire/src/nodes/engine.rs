//! The engine of this process: all its nodes share it.

use crate::error::{Error, Result, system};
use pagewire_fabric::{
    ConnectTo, FabricOptions, FaultPlan, HostFabric, StreamOptions, Tls, TlsChoice, TlsError,
};
use pagewire_heap::limits::{CHUNK, MOST_RANGE};
use pagewire_heap::{HeapError, HeapOptions, HeapRef};
use pagewire_memory::fork::{OncePerProcess, PerProcess};
use pagewire_memory::guard;
use pagewire_nic::{DELAY_VARIABLE, Nic, Options, PathChoice, delay};
use std::ffi::OsString;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

/// The world around the engine.
pub(crate) type Host = HostFabric;

/// A forked child starts one of its own.
static ENGINE: PerProcess<Option<Arc<Nic<Host>>>> = PerProcess::new();

/// Gives the engine that the process has for other interfaces, and starts it if need be.
pub type EngineSource = fn() -> io::Result<Arc<Nic<HostFabric>>>;

static SOURCE: OnceLock<EngineSource> = OnceLock::new();

/// Nodes use the engine of this source: a process has one. To be called before the first node; a later source changes nothing.
pub fn set_engine_source(source: EngineSource) {
    SOURCE.get_or_init(|| source);
}

/// The engine of this process. The first call starts it, with the path that `PAGEWIRE_PATH` asks for and the delay of `PAGEWIRE_DELAY`.
pub(crate) fn engine() -> Result<Arc<Nic<Host>>> {
    let mut engine = ENGINE.lock();
    if let Some(running) = &*engine {
        return Ok(running.clone());
    }
    if let Some(source) = SOURCE.get() {
        let shared = source().map_err(system("the engine cannot start"))?;
        return Ok(engine.insert(shared).clone());
    }
    let tls = tls()?;
    let path = path()?;
    let faults = read_delay(path)?;
    let options = Options { path, is_encrypted: tls.is_some(), ..Options::default() };
    // What the engine touches for nodes is theirs: buffers of operations and memory of regions, which no program takes away. So it need not
    // be asked each time whether faults are mended.
    guard::changes_are_seen();
    let streams = StreamOptions { connect_to: connect_to()?, tls };
    let fabric = HostFabric::with_options(FabricOptions { faults, streams, ..FabricOptions::default() });
    let nic = Nic::new(fabric.map_err(system("the engine cannot start"))?, options);
    let driven = nic.clone();
    pagewire_fabric::spawn("pagewire-nic", move || driven.run(&AtomicBool::new(false)))
        .map_err(system("the engine's thread cannot start"))?;
    Ok(engine.insert(nic).clone())
}

/// Held while the heap is made.
static MAKING: PerProcess<()> = PerProcess::new();

static HEAP: OncePerProcess<&'static HeapRef> = OncePerProcess::new();

/// The registered heap of this process, if it was made. That of a forked child may be a copy of its parent's.
pub(crate) fn made_heap() -> Option<&'static HeapRef> {
    HEAP.get().copied().or_else(copied_heap)
}

/// The copy of the parent's heap, in a forked child that has one. It has no memory file that peers could map: what is exported of it is
/// accessed as other memory is.
fn copied_heap() -> Option<&'static HeapRef> {
    HEAP.of_parents().copied().find(|heap| is_copy(heap))
}

/// Whether a heap is a copy of the parent's.
pub(crate) fn is_copy(heap: &HeapRef) -> bool {
    matches!(heap.file(), Err(HeapError::Private))
}

/// Bytes of addresses that the heap reserves.
const RANGE: &str = "PAGEWIRE_HEAP_RANGE";
/// Bytes of the smallest range that a program may ask for: a small hash table fits, whose owner takes messages of up to 128 MiB.
const LEAST_RANGE: usize = 256 << 20;

/// The registered heap of this process: the first call makes it, and has peers of this host map it. It lives as long as the process.
///
/// # Errors
/// `Heap`; `Environment`: what `PAGEWIRE_HEAP_RANGE` says.
pub(crate) fn heap(nic: &Nic<Host>) -> Result<&'static HeapRef> {
    if let Some(heap) = HEAP.get() {
        return Ok(heap);
    }
    let _making = MAKING.lock();
    let made = match made_heap() {
        Some(made) => made,
        None => {
            let made = make_heap(false)?;
            publish(made, nic)?;
            made
        }
    };
    Ok(HEAP.get_or_set(made))
}

/// The registered heap without an engine, which learns of it by [`publish_heap`]. `fork_copies`: a forked child gets a copy of it.
///
/// # Errors
/// As those of [`heap`].
pub(crate) fn heap_before_engine(fork_copies: bool) -> Result<&'static HeapRef> {
    let _making = MAKING.lock();
    match made_heap() {
        Some(heap) => Ok(heap),
        None => Ok(HEAP.get_or_set(make_heap(fork_copies)?)),
    }
}

/// Has peers of this host map the heap, if there is one with a memory file: the copy of a forked child has none.
///
/// # Errors
/// `Heap`.
pub(crate) fn publish_heap(nic: &Nic<Host>) -> Result<()> {
    made_heap().filter(|heap| !is_copy(heap)).map_or(Ok(()), |heap| publish(heap, nic))
}

fn publish(heap: &'static HeapRef, nic: &Nic<Host>) -> Result<()> {
    let addresses = heap.range();
    nic.publish_shared_memory(addresses.start as u64..addresses.end as u64, heap.file()?);
    Ok(())
}

fn make_heap(fork_copies: bool) -> Result<&'static HeapRef> {
    let options = HeapOptions { range: range()?, fork_copies, ..HeapOptions::default() };
    let made = HeapRef::new(options).map_err(|error| match error {
        HeapError::AddressSpace { range, limit } => {
            too_large(range, &format!("RLIMIT_AS (ulimit -v) is {limit} bytes"))
        }
        HeapError::FileSize { range, limit } => {
            too_large(range, &format!("RLIMIT_FSIZE (ulimit -f) is {limit} bytes"))
        }
        HeapError::Range { range } => wrong_range(&range.to_string()),
        error => error.into(),
    })?;
    Ok(Box::leak(Box::new(made)))
}

/// What the variable says; an empty one is none.
fn range_variable() -> Option<OsString> {
    std::env::var_os(RANGE).filter(|value| !value.is_empty())
}

/// Bytes of addresses of the heap.
fn range() -> Result<usize> {
    let Some(value) = range_variable() else { return Ok(HeapOptions::default().range) };
    match value.to_string_lossy().parse::<usize>() {
        Ok(range) if range >= LEAST_RANGE => Ok(range),
        Ok(range) => Err(wrong_range(&range.to_string())),
        Err(why) => Err(Error::Environment {
            variable: RANGE,
            why: format!("{value:?}, which is no number of bytes: {why}"),
        }),
    }
}

/// A limit of the process is in the way of the range.
fn too_large(range: usize, limit: &str) -> Error {
    let value = if range_variable().is_some() { "too large" } else { "not set, so too large" };
    let smaller = if range > LEAST_RANGE {
        format!(", or set {RANGE} to fewer bytes, a multiple of {CHUNK} and {LEAST_RANGE} at least")
    } else {
        String::new()
    };
    let why = format!(
        "{value} for this process: {limit}, and the heap takes {range} bytes: raise the limit{smaller}"
    );
    Error::Environment { variable: RANGE, why }
}

fn wrong_range(value: &str) -> Error {
    let why = format!(
        "{value}: it must be a multiple of 32 MiB ({CHUNK} bytes), {LEAST_RANGE} at least and {MOST_RANGE} at most"
    );
    Error::Environment { variable: RANGE, why }
}

/// The keys that `PAGEWIRE_TLS` names. Nodes greet each other in the clear, so that those of other hosts are not reached all the same
/// (`NodeServices::is_cut_off`); but nobody else reaches this process in the clear.
fn tls() -> Result<Option<Tls>> {
    let Some(keys) = tls_variable() else { return Ok(None) };
    let wrong =
        |why: TlsError| Error::Environment { variable: TLS_VARIABLE, why: format!("of no use: {why}") };
    let choice: TlsChoice = keys.to_string_lossy().parse().map_err(wrong)?;
    Tls::load(&choice).map(Some).map_err(wrong)
}

const TLS_VARIABLE: &str = "PAGEWIRE_TLS";

/// What the variable says that asks for encryption. An empty one names no keys, and is wrong.
pub(crate) fn tls_variable() -> Option<OsString> {
    std::env::var_os(TLS_VARIABLE)
}

fn connect_to() -> Result<ConnectTo> {
    const VARIABLE: &str = "PAGEWIRE_CONNECT_TO";
    match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        None => Ok(ConnectTo::default()),
        Some(value) => (value.to_string_lossy().parse())
            .map_err(|why| Error::Environment { variable: VARIABLE, why: format!("wrong: {why}") }),
    }
}

fn path() -> Result<PathChoice> {
    const VARIABLE: &str = "PAGEWIRE_PATH";
    match std::env::var_os(VARIABLE) {
        None => Ok(PathChoice::default()),
        Some(value) => (value.to_string_lossy().parse())
            .map_err(|why| Error::Environment { variable: VARIABLE, why: format!("{why}") }),
    }
}

fn read_delay(path: PathChoice) -> Result<FaultPlan> {
    let text = std::env::var_os(DELAY_VARIABLE).filter(|value| !value.is_empty());
    delay(text.as_ref().map(|text| text.to_string_lossy()).as_deref(), path)
        .map_err(|why| Error::Environment { variable: DELAY_VARIABLE, why })
}
