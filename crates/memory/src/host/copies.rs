//! Copies between the program, the engine's buffers and peers.
//!
//! Between the program and the engine: directly, where faults are known to be mended ([`guard`](crate::guard)). Else `preadv` and
//! `pwritev` on the arena's file where the buffer is part of one; small copies by way of scratch memory that is; else
//! `process_vm_readv` and `process_vm_writev` on ourselves. Between processes: directly, where the peer's memory is mapped here; else
//! the latter two. Where the kernel cannot reach a page (a
//! userfaultfd that handles faults of user mode only), the page is touched in user mode under the guard, and the copy goes on.

use crate::guard::{FaultGuard, Guard};
use crate::limits::{PIECE, SCRATCH_BYTES, SCRATCH_COPY, TAIL, TOUCHES};
use crate::process::HostProcess;
use crate::segments::{address_at, part_of};
use crate::shared_mapping::SharedMapping;
use crate::transfer::{FileTransfer, ProcessTransfer, Stop, common_length, through_file, through_process};
use crate::{MemoryError, Segment, arena, scratch};

/// Fills `into`, which is no longer than the segments of the process `own`, this one, together, without the guard.
pub(super) fn read_by_kernel(own: i32, from: &[Segment], into: &mut [u8]) -> Result<(), MemoryError> {
    let whole = BufferCopy {
        own,
        file: FileTransfer::FromApplication,
        process: ProcessTransfer::Read,
        tail_last: false,
    };
    let mut at = whole.copy(into, from)?;
    for part in into[at..].chunks_mut(SCRATCH_BYTES) {
        let position = at as u64;
        at += part.len();
        scratch::with(|page| {
            let page = &mut page[..part.len()];
            let file = arena::file_of(page).ok_or(MemoryError::NotMapped)?;
            with_file(FileTransfer::FromApplication, file, from, position, part.len() as u64, false)?;
            part.copy_from_slice(page);
            Ok(())
        })
        .unwrap_or_else(|| through_own_process(ProcessTransfer::Read, own, part, from, position, false))?;
    }
    Ok(())
}

/// Writes all of `from`, which is no longer than the segments of the process `own`, this one, together, without the guard.
pub(super) fn write_by_kernel(
    own: i32,
    from: &[u8],
    to: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    let whole =
        BufferCopy { own, file: FileTransfer::ToApplication, process: ProcessTransfer::Write, tail_last };
    let (mut at, length) = (whole.copy(from, to)?, from.len());
    // Parts are cut at the tail at the latest, so that it is never split.
    let tail_at = if tail_last { length.saturating_sub(TAIL as usize).max(at) } else { length };
    while at < length {
        let end = (at + SCRATCH_BYTES).min(length);
        let end = if at < tail_at && end > tail_at && end - at == SCRATCH_BYTES { tail_at } else { end };
        let part = &from[at..end];
        let position = at as u64;
        let last = tail_last && end == length;
        at = end;
        scratch::with(|page| {
            let page = &mut page[..part.len()];
            page.copy_from_slice(part);
            let file = arena::file_of(page).ok_or(MemoryError::NotMapped)?;
            with_file(FileTransfer::ToApplication, file, to, position, part.len() as u64, last)
        })
        .unwrap_or_else(|| through_own_process(ProcessTransfer::Write, own, part, to, position, last))?;
    }
    Ok(())
}

/// How an engine's buffer is copied as a whole, by the kernel.
struct BufferCopy {
    /// This process.
    own: i32,
    file: FileTransfer,
    process: ProcessTransfer,
    tail_last: bool,
}

impl BufferCopy {
    /// Copies the buffer, through the arena's file if it lies there, else if it is long; gives how much of it was copied.
    fn copy(self, buffer: &[u8], segments: &[Segment]) -> Result<usize, MemoryError> {
        let length = buffer.len();
        if let Some(file) = arena::file_of(buffer) {
            return with_file(self.file, file, segments, 0, length as u64, self.tail_last).map(|()| length);
        }
        if length <= SCRATCH_COPY {
            return Ok(0);
        }
        let ours = [segment_of(buffer)];
        match through_process(self.process, self.own, &ours, segments, length as u64, self.tail_last) {
            Ok(()) => Ok(length),
            Err(Stop::Gone | Stop::Denied) => Err(MemoryError::NotMapped),
            Err(Stop::Fault(position)) => Ok(position as usize),
        }
    }
}

/// Copies a part of an engine's buffer that belongs to a position of the segments, where there is no scratch memory.
fn through_own_process(
    transfer: ProcessTransfer,
    own: i32,
    part: &[u8],
    segments: &[Segment],
    position: u64,
    tail_last: bool,
) -> Result<(), MemoryError> {
    let (ours, rest) = ([segment_of(part)], rest_of(segments, position));
    through_process(transfer, own, &ours, &rest, part.len() as u64, tail_last)
        .map_err(|_| MemoryError::NotMapped)
}

/// Copies from segments that together hold as much as `into` at least.
pub(super) fn read_directly(
    guard: &FaultGuard,
    from: &[Segment],
    into: &mut [u8],
) -> Result<(), MemoryError> {
    let mut rest = into;
    for segment in from {
        let (part, after) = rest.split_at_mut(rest.len().min(segment.length as usize));
        guard.read(segment.address, part).map_err(|_| MemoryError::NotMapped)?;
        rest = after;
    }
    Ok(())
}

/// Copies to segments that together hold as much as `from` at least.
#[inline]
pub(super) fn write_directly(
    guard: &FaultGuard,
    from: &[u8],
    to: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    let body = if tail_last { from.len().saturating_sub(TAIL as usize) } else { from.len() };
    let mut at = 0;
    for segment in to {
        let mut address = segment.address;
        let end = from.len().min(at + segment.length as usize);
        // What the tail has of this segment is copied by itself.
        for edge in [body.clamp(at, end), end] {
            if edge == at {
                continue;
            }
            guard.write(&from[at..edge], address).map_err(|_| MemoryError::NotMapped)?;
            address += (edge - at) as u64;
            at = edge;
        }
    }
    Ok(())
}

#[inline(always)] // Part of each transfer that the requester executes itself.
pub(super) fn between(
    transfer: ProcessTransfer,
    process: &HostProcess,
    ours: &[Segment],
    theirs: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    let length = common_length(ours, theirs)?;
    if let Some(shared) = process.shared() {
        if through_mapping(transfer, shared, (ours, theirs), length, tail_last) {
            return Ok(());
        }
    }
    match through_process(transfer, process.pid(), ours, theirs, length, tail_last) {
        Ok(()) => Ok(()),
        Err(stop) => go_on_between(stop, transfer, process, ours, theirs, tail_last),
    }
}

/// Copies between memory of this process and memory of another one that is mapped here. False: some of it is not, a page of this process
/// cannot be accessed, or faults are not mended now; a part may be copied.
fn through_mapping(
    transfer: ProcessTransfer,
    shared: &SharedMapping,
    (ours, theirs): (&[Segment], &[Segment]),
    length: u64,
    tail_last: bool,
) -> bool {
    let Some(guard) = Guard::enter() else { return false };
    let copy = |here: u64, there: Segment| {
        let Some(there_here) = shared.place(there) else { return false };
        let (to, from) = match transfer {
            ProcessTransfer::Read => (here, there_here),
            ProcessTransfer::Write => (there_here, here),
        };
        guard.copy(to, from, there.length as usize).is_ok()
    };
    let body = if tail_last { length.saturating_sub(TAIL) } else { length };
    if let ([here], [there]) = (ours, theirs) {
        let part = |from: u64, to: u64| Segment { address: there.address + from, length: to - from };
        return (body == 0 || copy(here.address, part(0, body)))
            && (body == length || copy(here.address + body, part(body, length)));
    }
    [(0, body), (body, length)].into_iter().all(|(start, end)| {
        let mut at = start;
        while at < end {
            let (Some(here), Some(there)) = (part_at(ours, at), part_at(theirs, at)) else { return false };
            let count = here.length.min(there.length).min(end - at);
            if !copy(here.address, Segment { length: count, ..there }) {
                return false;
            }
            at += count;
        }
        true
    })
}

/// The rest, from a position of these segments on, of the one that it is in.
fn part_at(segments: &[Segment], position: u64) -> Option<Segment> {
    let mut skip = position;
    for segment in segments {
        if skip < segment.length {
            return Some(Segment { address: segment.address + skip, length: segment.length - skip });
        }
        skip -= segment.length;
    }
    None
}

/// What [`between`] does where a copy stopped.
#[cold]
fn go_on_between(
    mut stop: Stop,
    transfer: ProcessTransfer,
    process: &HostProcess,
    ours: &[Segment],
    theirs: &[Segment],
    tail_last: bool,
) -> Result<(), MemoryError> {
    let length = common_length(ours, theirs)?;
    let mut done = 0;
    let mut touches = Touches::none();
    loop {
        match stop {
            Stop::Gone => return Err(MemoryError::PeerGone),
            Stop::Denied => {
                process.set_denied();
                return Err(MemoryError::PeerDenied);
            }
            // The kernel answers EFAULT also while the process is taken down.
            Stop::Fault(_) if !process.is_alive() => return Err(MemoryError::PeerGone),
            Stop::Fault(at) => done += at,
        }
        let write = matches!(transfer, ProcessTransfer::Read);
        if write && !is_readable(process, theirs, done) {
            return Err(MemoryError::PeerNotMapped);
        }
        touches.at(ours, done, write)?;
        let (here, there) = (rest_of(ours, done), rest_of(theirs, done));
        match through_process(transfer, process.pid(), &here, &there, length - done, tail_last) {
            Ok(()) => return Ok(()),
            Err(again) => stop = again,
        }
    }
}

/// Whether every page of another process can be read that a failed copy from `at` on may have stopped at.
fn is_readable(process: &HostProcess, theirs: &[Segment], at: u64) -> bool {
    let page = rustix::param::page_size() as u64;
    let mut position = at;
    while position < at + PIECE as u64 {
        let Some(address) = address_at(theirs, position) else { break };
        let (mut byte, there) = ([0u8], [Segment { address, length: 1 }]);
        let here = [Segment { address: byte.as_mut_ptr() as u64, length: 1 }];
        if through_process(ProcessTransfer::Read, process.pid(), &here, &there, 1, false).is_err() {
            return false;
        }
        let segment_end = theirs
            .iter()
            .scan(0, |end, segment| {
                *end += segment.length;
                Some(*end)
            })
            .find(|end| *end > position);
        let to_page_end = page - address % page;
        position = (position + to_page_end).min(segment_end.unwrap_or(u64::MAX));
    }
    true
}

/// [`through_file`]; a page that the kernel cannot reach is touched in user mode.
fn with_file(
    transfer: FileTransfer,
    (file, offset): (i32, i64),
    segments: &[Segment],
    position: u64,
    length: u64,
    tail_last: bool,
) -> Result<(), MemoryError> {
    let mut done = 0;
    let mut touches = Touches::none();
    loop {
        let rest = (file, offset + done as i64);
        match through_file(transfer, rest, segments, position + done, length - done, tail_last) {
            Ok(()) => return Ok(()),
            Err(Stop::Gone | Stop::Denied) => return Err(MemoryError::NotMapped),
            Err(Stop::Fault(at)) => {
                touches.at(segments, at, matches!(transfer, FileTransfer::ToApplication))?;
                done = at - position;
            }
        }
    }
}

/// Pages that the kernel could not reach and that were touched in user mode instead.
struct Touches {
    last: Option<u64>,
    times: u32,
}

impl Touches {
    const fn none() -> Self {
        Touches { last: None, times: 0 }
    }

    /// Touches what lies at a position of the application's segments. A page may have left again before the kernel came to it;
    /// one that it never reaches is an error in the end.
    fn at(&mut self, segments: &[Segment], position: u64, write: bool) -> Result<(), MemoryError> {
        self.times = if self.last == Some(position) { self.times + 1 } else { 1 };
        self.last = Some(position);
        if self.times > TOUCHES {
            return Err(MemoryError::NotMapped);
        }
        let address = address_at(segments, position).ok_or(MemoryError::NotMapped)?;
        let guard = Guard::enter().ok_or(MemoryError::NotMapped)?;
        guard.touch(address, write).map_err(|_| MemoryError::NotMapped)
    }
}

pub(super) fn segment_of(bytes: &[u8]) -> Segment {
    Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 }
}

/// The segments from a position on.
fn rest_of(segments: &[Segment], position: u64) -> Vec<Segment> {
    part_of(segments, position, u64::MAX)
}
