//! Parts of a job, by colour.

use crate::boundary::{Result, bytes, call, give, place};
use crate::error::{Refusal, pw_error};
use crate::handle::{Object, Places, hand_out, object, take_back};
use crate::node::{all_gather, node_of, other_length, pw_node};
use pagewire::{Node, Part};
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

/// Some processes of a job, as one of them sees it.
pub struct pw_part {
    _opaque: [u8; 0],
}

/// A part, and the node that must be there as long.
pub struct PartOfNode {
    part: Part,
    node: Arc<Node>,
}

impl Object for PartOfNode {
    type Opaque = pw_part;
    const MARK: u64 = u64::from_be_bytes(*b"pw_part!");
    const NAME: &str = "part";

    fn places() -> &'static Places<Self> {
        static PLACES: Places<PartOfNode> = Places::new();
        &PLACES
    }
}

/// The colour of a process that is in no part.
pub const PW_NO_PART: u64 = u64::MAX;

/// Splits, and gives C the part.
fn split(
    node: &Arc<Node>,
    colour: u64,
    part: *mut *mut pw_part,
    split: impl FnOnce(Option<u64>) -> pagewire::Result<Option<Part>>,
) -> Result<()> {
    let to = place(part, "part")?;
    // SAFETY: the caller's place for the result (pagewire.h).
    unsafe { to.write(std::ptr::null_mut()) };
    let colour = Some(colour).filter(|colour| *colour != PW_NO_PART);
    if let Some(part) = split(colour)? {
        // SAFETY: the caller's place for the result (pagewire.h), aligned and not NULL.
        unsafe { to.write(hand_out(PartOfNode { part, node: node.clone() })) };
    }
    Ok(())
}

/// Splits the job: processes that give one colour are a part, in which they are ranked by key, and by rank where that is equal. All processes of the job
/// call it. pw_part_free() frees the part; pw_node_leave() is PW_IN_USE before that.
///
/// colour: any number, or PW_NO_PART for a process that is in no part. part: gets the part; NULL with PW_NO_PART, and after an error.
///
/// PW_JOB: a process does not come, or is lost. PW_NO_MEMORY, PW_HEAP, PW_UNFINISHED (pw_barrier_for()).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_split(
    node: *mut pw_node,
    colour: u64,
    key: i64,
    part: *mut *mut pw_part,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let node = unsafe { node_of(node) }?;
        split(node, colour, part, |colour| node.split(colour, key))
    })
}

/// Splits a part. All its processes call it. As pw_split().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_split(
    whole: *mut pw_part,
    colour: u64,
    key: i64,
    part: *mut *mut pw_part,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let whole = unsafe { object::<PartOfNode>(whole) }?;
        split(&whole.node, colour, part, |colour| whole.part.split(colour, key))
    })
}

/// Frees a part; the pointer is not valid any more. Calls of its other processes that count on this one fail with PW_JOB. NULL: nothing is done.
///
/// PW_HANDLE: it was freed before. That is noticed as long as its place is not used for another part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_free(part: *mut pw_part) -> pw_error {
    if part.is_null() {
        return pw_error::PW_OK;
    }
    call(|| {
        // SAFETY: a pointer of this library that nobody else uses (pagewire.h).
        drop(unsafe { take_back::<PartOfNode>(part) }?);
        Ok(())
    })
}

/// The number of this process in the part, from 0 on. 0 too if the part is none: pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_rank(part: *const pw_part) -> usize {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<PartOfNode>(part) }?.part.rank()), |_| 0)
}

/// Processes of the part, 1 or more. 0: the part is none, and pw_error_message() says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_size(part: *const pw_part) -> usize {
    // SAFETY: a pointer of this library (pagewire.h).
    give(|| Ok(unsafe { object::<PartOfNode>(part) }?.part.size()), |_| 0)
}

/// The rank in the job of a rank of the part.
///
/// job_rank: gets it. PW_JOB: the part has no such rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_job_rank(
    part: *const pw_part,
    rank: usize,
    job_rank: *mut usize,
) -> pw_error {
    call(|| {
        let to = place(job_rank, "job_rank")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let found = unsafe { object::<PartOfNode>(part) }?.part.job_rank(rank)?;
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(found) };
        Ok(())
    })
}

/// Waits until all processes of the part have called it, for PAGEWIRE_JOB_TIMEOUT seconds at most.
///
/// PW_JOB: a process of the part does not come, or is lost. That ends the part: each later call of it gives PW_JOB. The job goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_barrier(part: *mut pw_part) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<PartOfNode>(part) }?.part.barrier()?))
}

/// pw_part_barrier() for so many nanoseconds at most, or PW_FOREVER. A late one stays begun, as pw_barrier_for() says.
///
/// PW_TIMEOUT, PW_UNFINISHED, PW_JOB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_barrier_for(part: *mut pw_part, nanoseconds: u64) -> pw_error {
    // SAFETY: a pointer of this library (pagewire.h).
    call(|| Ok(unsafe { object::<PartOfNode>(part) }?.part.barrier_for(Duration::from_nanos(nanoseconds))?))
}

/// Gives size bytes to all processes of the part, and takes theirs, by rank of the part. As pw_all_gather().
///
/// mine: size bytes. all: size * pw_part_size(part) bytes. PW_JOB: a process is lost, or gave another count of bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_all_gather(
    part: *mut pw_part,
    mine: *const c_void,
    size: usize,
    all: *mut c_void,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let part = &unsafe { object::<PartOfNode>(part) }?.part;
        let gather = |mine: &[u8]| part.all_gather_bytes(mine);
        // SAFETY: `size` bytes at `mine`, and for each process at `all` (pagewire.h).
        unsafe { all_gather("pw_part_all_gather", part.size(), (mine, size, all), gather) }
    })
}

/// pw_part_all_gather() for so many nanoseconds at most, or PW_FOREVER. As pw_all_gather_for().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_all_gather_for(
    part: *mut pw_part,
    mine: *const c_void,
    size: usize,
    all: *mut c_void,
    nanoseconds: u64,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let part = &unsafe { object::<PartOfNode>(part) }?.part;
        let gather = |mine: &[u8]| part.all_gather_bytes_for(mine, Duration::from_nanos(nanoseconds));
        // SAFETY: `size` bytes at `mine`, and for each process at `all` (pagewire.h).
        unsafe { all_gather("pw_part_all_gather_for", part.size(), (mine, size, all), gather) }
    })
}

/// Gives size bytes of the process root of the part to all of it. As pw_broadcast().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_part_broadcast(
    part: *mut pw_part,
    root: usize,
    data: *mut c_void,
    size: usize,
) -> pw_error {
    call(|| {
        // SAFETY: a pointer of this library (pagewire.h).
        let part = &unsafe { object::<PartOfNode>(part) }?.part;
        let place = bytes(data.cast::<u8>(), size, "data")?;
        if root >= part.size() {
            let size = part.size();
            return Err(Refusal::argument(format!("'root' is {root}, and ranks are 0 to {}", size - 1)));
        }
        let own: &[u8] = if root == part.rank() {
            // SAFETY: `data` has so many bytes (pagewire.h).
            unsafe { std::slice::from_raw_parts(place.as_ptr(), size) }
        } else {
            &[]
        };
        let given = part.broadcast(root, own)?;
        if given.len() != size {
            return Err(other_length("pw_part_broadcast", root, given.len(), size));
        }
        // SAFETY: `data` has so many bytes (pagewire.h), and nobody else uses them now.
        unsafe { place.as_ptr().copy_from(given.as_ptr(), size) };
        Ok(())
    })
}
