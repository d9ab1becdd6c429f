//! Built-in handlers: chains of steps that run on another process's memory, without any code of its own.

use crate::boundary::{Result, array, bytes, bytes_of, call, optional, place};
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{node_of, pw_node};
use crate::raw_memory::{RawMemory, RawWords};
use pagewire::{Node, Rights, Token};
use pagewire_active::built_in::{
    self, ADDRESS_LEN, BuiltIns, Chain, MAX_COMPARED, MAX_MOVED, Outcome, Place, RemoteBuiltIns,
};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory of this process on which others run chains.
pub struct pw_built_ins {
    _opaque: [u8; 0],
}

/// Memory of another process, or of this one, on which chains can be run.
pub struct pw_remote_built_ins {
    _opaque: [u8; 0],
}

/// What runs chains, and the export by which callers of this host run them themselves.
pub struct ServedWords {
    built_ins: BuiltIns,
    words: Arc<RawWords>,
    export: Export,
}

impl Object for ServedWords {
    type Opaque = pw_built_ins;
    const MARK: u64 = u64::from_be_bytes(*b"pw_built");
    const NAME: &str = "owner of built-in handlers";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<ServedWords> = Places::new();
        &PLACES
    }
}

/// An export that ends with this.
struct Export {
    node: Arc<Node>,
    token: Token,
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Err(error) = self.node.unexport_raw(&self.token) {
            log::warn!("the memory of built-in handlers was unexported or freed before their end: {error}");
        }
    }
}

/// Built-in handlers of a peer, and the node that they were opened by, which stays until they are closed.
pub struct OpenBuiltIns {
    remote: RemoteBuiltIns,
    _node: Arc<Node>,
}

impl Object for OpenBuiltIns {
    type Opaque = pw_remote_built_ins;
    const MARK: u64 = u64::from_be_bytes(*b"pw_chain");
    const NAME: &str = "remote of built-in handlers";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<OpenBuiltIns> = Places::new();
        &PLACES
    }
}

/// Adds `add` to a word of 8 bytes. Its word is what that was.
pub const PW_STEP_FETCH_ADD: u32 = 1;
/// Puts `data` in the place of `compare`, if that is there: 1 to 32 bytes. Found: what was there.
pub const PW_STEP_COMPARE_SWAP: u32 = 2;
/// Reads. Found: what is there.
pub const PW_STEP_READ: u32 = 3;
/// Writes `data`.
pub const PW_STEP_WRITE: u32 = 4;
/// Changes bytes to their XOR with `data`. Found: what they were.
pub const PW_STEP_XOR: u32 = 5;
/// Takes space in the area at `at` (pw_built_ins_begin_area), and writes `data` there. Its word is their offset, a multiple of 8.
pub const PW_STEP_APPEND: u32 = 6;

/// The step works at the offset `at`.
pub const PW_PLACE_AT: u32 = 0;
/// It works `by` bytes behind the offset that the word at `at` has: a pointer.
pub const PW_PLACE_BEHIND: u32 = 1;
/// It works `by` bytes behind the offset that the step with the number `at` has found. The first one has the number 0.
pub const PW_PLACE_FOUND: u32 = 2;

/// Bytes that a compare-swap has at most.
pub const PW_MOST_COMPARED: usize = 32;
/// Bytes that all steps of a chain move at most.
pub const PW_MOST_MOVED: usize = 32768;

const _: () = assert!(PW_MOST_COMPARED == MAX_COMPARED && PW_MOST_MOVED == MAX_MOVED);

/// A step of a chain. What it does not need is 0 or NULL, as designated initializers leave it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_step {
    /// PW_STEP_FETCH_ADD and its like.
    pub action: u32,
    /// PW_PLACE_AT, PW_PLACE_BEHIND or PW_PLACE_FOUND.
    pub place: u32,
    /// Where it works, in bytes from the beginning of the memory; else as `place` says.
    pub at: u64,
    /// Bytes to go on from there.
    pub by: u64,
    /// What is added.
    pub add: u64,
    /// What is written, swapped in, XORed or appended: length bytes.
    pub data: *const c_void,
    /// The bits of a compare-swap that are changed. NULL: all.
    pub data_mask: *const c_void,
    /// What a compare-swap compares with: length bytes.
    pub compare: *const c_void,
    /// The bits that it compares. NULL: all.
    pub compare_mask: *const c_void,
    /// Bytes of the step.
    pub length: usize,
    /// Gets the length bytes that were found. NULL: nobody asks.
    pub found: *mut c_void,
    /// It runs only if all compare-swaps before it have swapped.
    pub if_swapped: bool,
}

/// What became of a step.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct pw_outcome {
    /// Of a fetch-add: what the word was. Of an append: the offset of what was appended.
    pub word: u64,
    /// Whether it was run.
    pub was_run: bool,
    /// Of a compare-swap: whether it has swapped.
    pub swapped: bool,
}

/// Bytes of an address of built-in handlers.
pub const PW_CHAIN_ADDRESS_SIZE: usize = 114;

/// By which others run chains: plain bytes, to be sent by any means. Who holds them may run any chain.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_chain_address {
    /// Opaque.
    pub bytes: [u8; PW_CHAIN_ADDRESS_SIZE],
}

const _: () = assert!(PW_CHAIN_ADDRESS_SIZE == ADDRESS_LEN);

/// Has others run chains on length bytes at address, any memory of this process: a thread of the library runs them. A caller of this host that has the memory mapped
/// runs one itself if each of its steps changes one word at most. *built_ins is NULL after an error. The memory and the node stay until pw_built_ins_end().
///
/// address, length: multiples of 8. PW_ARGUMENT; PW_SYSTEM: the memory cannot be accessed; PW_NO_MEMORY, PW_HEAP; as pw_export() and pw_log_make(), as it
/// takes a log.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_serve(
    node: *mut pw_node,
    address: *mut c_void,
    length: usize,
    built_ins: *mut *mut pw_built_ins,
) -> pw_error {
    call(|| {
        let to = place(built_ins, "built_ins")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let words = Arc::new(RawWords::new(RawMemory::new(node, (address, length), None)?)?);
        let start =
            NonNull::new(address.cast::<u8>()).ok_or_else(|| Refusal::argument("'address' is NULL"))?;
        // SAFETY: the caller of C has others change the bytes until pw_built_ins_end() (pagewire.h).
        let token = unsafe { node.export_raw(start, length, Rights::all()) }?;
        let export = Export { node: node.clone(), token };
        let built_ins = BuiltIns::serve_words(node, words.clone(), token)?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(ServedWords { built_ins, words, export })) };
        Ok(())
    })
}

/// Runs no chains any more; the pointer is not valid any more. Callers get PW_KEY or PW_PEER_LOST. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_end(built_ins: *mut pw_built_ins) -> pw_error {
    if built_ins.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        let ServedWords { built_ins, words, export } = unsafe { take_back::<ServedWords>(built_ins) }?;
        // Callers that have the memory mapped run none any more; then the thread here.
        drop(export);
        drop(built_ins);
        drop(words);
        Ok(())
    })
}

/// Gives the address by which others run chains.
///
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_address(
    built_ins: *mut pw_built_ins,
    address: *mut pw_chain_address,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let served = unsafe { object::<ServedWords>(built_ins) }?;
        let to = place(address, "address")?;
        let mut bytes = [0; PW_CHAIN_ADDRESS_SIZE];
        bytes.copy_from_slice(&served.built_ins.address());
        // SAFETY: the caller's place (pagewire.h).
        unsafe { to.write(pw_chain_address { bytes }) };
        Ok(())
    })
}

/// Makes an area for PW_STEP_APPEND: two words at the offset area, the offset of the next byte that is free and that of the end. What is appended goes to the bytes
/// from first to end. Nobody may append to it meanwhile.
///
/// PW_BOUNDS, PW_ALIGNMENT: one of them is not inside the memory, or no multiple of 8; PW_HANDLE; PW_SYSTEM: the memory cannot be accessed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_begin_area(
    built_ins: *mut pw_built_ins,
    area: u64,
    first: u64,
    end: u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let served = unsafe { object::<ServedWords>(built_ins) }?;
        Ok(built_in::begin_area(&*served.words, area, first..end)?)
    })
}

/// Opens the built-in handlers that an address names. *remote is NULL after an error. The node stays until they are closed.
///
/// PW_TOKEN: it is no address; PW_ARGUMENT; PW_NO_MEMORY, PW_HEAP; as pw_open().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_open(
    node: *mut pw_node,
    address: *const pw_chain_address,
    remote: *mut *mut pw_remote_built_ins,
) -> pw_error {
    call(|| {
        let to = place(remote, "remote")?;
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(std::ptr::null_mut()) };
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        let at = place(address.cast_mut(), "address")?;
        // SAFETY: an address (pagewire.h), aligned and not NULL.
        let opened = RemoteBuiltIns::open(node, &unsafe { at.read() }.bytes)?;
        let opened = OpenBuiltIns { remote: opened, _node: node.clone() };
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(opened)) };
        Ok(())
    })
}

/// Closes them; the pointer is not valid any more. NULL: nothing is done.
///
/// PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_close(remote: *mut pw_remote_built_ins) -> pw_error {
    if remote.is_null() {
        return pw_error::PW_OK;
    }
    // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
    call(|| unsafe { take_back::<OpenBuiltIns>(remote) }.map(drop))
}

/// Runs the steps of a chain, one after the other, and waits for what they have found. Each step is an atomic of its own, the chain as a whole is none: a step that
/// changes one word is atomic against everything, a wider one against other wider ones.
///
/// steps: count of them. outcomes: count places; NULL if nobody asks.
///
/// PW_ARGUMENT; PW_LIMIT: its steps move more than PW_MOST_MOVED bytes; PW_BOUNDS, PW_ALIGNMENT: a step leaves the memory, or its word is at no multiple of 8;
/// PW_SYSTEM: an area is full, or a step has found no offset. The steps before that one were run. As pw_put(): the owner is lost, or has ended them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_built_ins_run(
    remote: *mut pw_remote_built_ins,
    steps: *const pw_step,
    count: usize,
    outcomes: *mut pw_outcome,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library, and so many steps (pagewire.h).
        let (opened, steps) = unsafe { (object::<OpenBuiltIns>(remote)?, array(steps, count, "steps")?) };
        let places = optional(outcomes, "outcomes")?;
        // SAFETY: the steps are as pagewire.h says.
        let chain = unsafe { chain_of(steps) }?;
        let found = opened.remote.run(&chain)?;
        for (index, (step, outcome)) in steps.iter().zip(&found).enumerate() {
            let (said, bytes) = outcome_of(outcome);
            // SAFETY: where bytes are found, `found` is NULL, or has `length` places, which nobody else uses now; there are `count` outcomes (pagewire.h).
            unsafe {
                if let Some(to) = NonNull::new(step.found.cast::<u8>()) {
                    to.as_ptr().copy_from(bytes.as_ptr(), bytes.len().min(step.length));
                }
                if let Some(places) = places {
                    places.add(index).write(said);
                }
            }
        }
        Ok(())
    })
}

fn outcome_of(outcome: &Outcome) -> (pw_outcome, &[u8]) {
    let run = pw_outcome { was_run: true, ..pw_outcome::default() };
    match outcome {
        Outcome::Word(word) => (pw_outcome { word: *word, ..run }, &[]),
        Outcome::Bytes(bytes) => (run, bytes),
        Outcome::Swap { found, swapped } => (pw_outcome { swapped: *swapped, ..run }, found),
        Outcome::Done => (run, &[]),
        Outcome::NotRun => (pw_outcome::default(), &[]),
    }
}

/// # Safety
/// The bytes that the steps name are there.
unsafe fn chain_of(steps: &[pw_step]) -> Result<Chain> {
    let moved = steps.iter().map(|step| if step.action == PW_STEP_FETCH_ADD { 8 } else { step.length });
    if moved.fold(0, usize::saturating_add) > PW_MOST_MOVED {
        let sentence =
            format!("the steps of the chain move more than {PW_MOST_MOVED} bytes: make several of it");
        return Err(Refusal::new(pw_error::PW_LIMIT, sentence));
    }
    steps.iter().enumerate().try_fold(Chain::new(), |chain, (number, step)| {
        let chain = if step.if_swapped { chain.if_swapped() } else { chain };
        // SAFETY: each pointer in `step` is valid for the call for the bytes that pagewire.h gives for its action.
        unsafe { with_step(chain, number, step) }
    })
}

/// # Safety
/// The bytes that the step names are there.
unsafe fn with_step(chain: Chain, number: usize, step: &pw_step) -> Result<Chain> {
    let refuse = |why: String| Err(Refusal::argument(format!("step {number} has {why}")));
    let at = place_of(number, step)?;
    // SAFETY: `step.data` has `step.length` bytes that are valid for the call (pagewire.h); `bytes_of` checks NULL and the range.
    let data = || unsafe { bytes_of(step.data, step.length, "data") };
    bytes(step.found.cast(), if step.found.is_null() { 0 } else { step.length }, "found")?;
    Ok(match step.action {
        PW_STEP_FETCH_ADD => chain.fetch_add(at, step.add),
        PW_STEP_READ => chain.read(at, step.length),
        PW_STEP_WRITE => chain.write(at, data()?),
        PW_STEP_XOR => chain.xor(at, data()?),
        PW_STEP_APPEND => match at {
            Place::At(area) => chain.append(area, data()?),
            _ => return refuse("an area that is no PW_PLACE_AT: name its offset".into()),
        },
        PW_STEP_COMPARE_SWAP => {
            if !(1..=PW_MOST_COMPARED).contains(&step.length) {
                return refuse(format!("{} bytes to compare: they are 1 to {PW_MOST_COMPARED}", step.length));
            }
            let ones = [0xFF; PW_MOST_COMPARED];
            let mask = |mask: *const c_void, name| match mask.is_null() {
                true => Ok(&ones[..step.length]),
                // SAFETY: `mask` is not NULL, as checked here, and has `step.length` bytes that are valid for the call (pagewire.h).
                false => unsafe { bytes_of(mask, step.length, name) },
            };
            // SAFETY: `step.compare` has `step.length` bytes that are valid for the call (pagewire.h); `bytes_of` checks NULL.
            let compare = unsafe { bytes_of(step.compare, step.length, "compare") }?;
            let masks = (mask(step.compare_mask, "compare_mask")?, mask(step.data_mask, "data_mask")?);
            chain.masked_compare_swap(at, (compare, masks.0), (data()?, masks.1))
        }
        action => return refuse(format!("the action {action}: it must be PW_STEP_FETCH_ADD or its like")),
    })
}

fn place_of(number: usize, step: &pw_step) -> Result<Place> {
    let pw_step { place, at, by, .. } = *step;
    match place {
        PW_PLACE_AT => {
            let sentence = format!("step {number}: {at} and {by} bytes behind it are no offset");
            at.checked_add(by).map(Place::At).ok_or(Refusal::new(pw_error::PW_BOUNDS, sentence))
        }
        PW_PLACE_BEHIND => Ok(Place::Behind { pointer: at, by }),
        PW_PLACE_FOUND => Ok(Place::Found { step: usize::try_from(at).unwrap_or(usize::MAX), by }),
        _ => Err(Refusal::argument(format!(
            "step {number} has the place {place}: it must be PW_PLACE_AT, PW_PLACE_BEHIND or PW_PLACE_FOUND"
        ))),
    }
}
