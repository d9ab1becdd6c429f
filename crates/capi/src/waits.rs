//! Waits for any or all of several operations.

use crate::boundary::{Result, array, call, place};
use crate::error::pw_error;
use crate::handle::object;
use crate::operation::{Started, State, pw_operation, unfinished};
use pagewire::Waitable;
use std::time::{Duration, Instant};

/// Time between two looks at an operation that another thread waits for.
const LOOK: Duration = Duration::from_millis(1);

/// The operations of a list. `None`: the place has NULL.
///
/// # Safety
/// `count` pointers, each NULL or one of this library.
unsafe fn list<'a>(operations: *const *mut pw_operation, count: usize) -> Result<Vec<Option<&'a Started>>> {
    // SAFETY: `operations` has `count` pointers that are valid for the call (pagewire.h); `array` checks NULL and alignment.
    let pointers = unsafe { array(operations, count, "operations") }?;
    let started = |operation: &*mut pw_operation| {
        if operation.is_null() {
            return Ok(None);
        }
        // SAFETY: the pointer is not NULL, as checked here; it came from this library, and nobody ends its operation meanwhile (pagewire.h).
        unsafe { object::<Started>(*operation) }.map(Some)
    };
    pointers.iter().map(started).collect()
}

/// The places of those that have ended, in order, once there is one. Empty: there was none in time.
fn ended(list: &[Option<&Started>], patience: Duration) -> Vec<usize> {
    let start = Instant::now();
    loop {
        let held =
            list.iter().enumerate().filter_map(|(place, one)| Some((place, one.as_ref()?.state.try_lock())));
        let held: Vec<_> = held.collect();
        let (mut ended, mut places, mut running) = (Vec::new(), Vec::new(), Vec::<&dyn Waitable>::new());
        for (place, state) in &held {
            match state.as_deref() {
                Some(State::Ended(_)) => ended.push(*place),
                Some(State::Running(one)) => {
                    places.push(*place);
                    running.push(one.waitable());
                }
                // Another thread waits for it, or it stands in the list twice.
                None => {}
            }
        }
        let left = patience.saturating_sub(start.elapsed());
        let is_shared = ended.len() + running.len() < held.len();
        let time = match (ended.is_empty(), is_shared) {
            (false, _) => Duration::ZERO,
            (true, true) => left.min(LOOK),
            (true, false) => left,
        };
        ended.extend(pagewire::wait_some(&running, time).into_iter().map(|index| places[index]));
        if !ended.is_empty() || left.is_zero() {
            ended.sort_unstable();
            return ended;
        }
        if running.is_empty() {
            drop(held);
            std::thread::sleep(time);
        }
    }
}

/// Waits until one of several operations has ended, done or not: pw_wait() of it then gives its result at once. They may be of several nodes, and
/// conditional writes and releases among them.
///
/// operations: count of them; NULL in a place is passed over, so that a program puts it where an operation was that it has freed. nanoseconds: for how
/// long at most, or PW_FOREVER; 0 looks once. index: gets the first place of one that has ended; count if no place has an operation.
///
/// PW_UNFINISHED: none has ended in time. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_wait_any(
    operations: *const *mut pw_operation,
    count: usize,
    nanoseconds: u64,
    index: *mut usize,
) -> pw_error {
    call(|| {
        let to = place(index, "index")?;
        // SAFETY: so many pointers of this library (pagewire.h).
        let list = unsafe { list(operations, count) }?;
        let first = match list.iter().any(Option::is_some) {
            true => *ended(&list, Duration::from_nanos(nanoseconds)).first().ok_or_else(unfinished)?,
            false => count,
        };
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(first) };
        Ok(())
    })
}

/// Waits until at least one of several operations has ended, and names all that have. As pw_wait_any().
///
/// indices: gets the places, in order: space for count. found: gets how many these are; 0 if no place has an operation, and after PW_UNFINISHED.
///
/// PW_UNFINISHED: none has ended in time. PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_wait_some(
    operations: *const *mut pw_operation,
    count: usize,
    nanoseconds: u64,
    indices: *mut usize,
    found: *mut usize,
) -> pw_error {
    call(|| {
        let (first, to) = (place(indices, "indices")?, place(found, "found")?);
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(0) };
        // SAFETY: so many pointers of this library (pagewire.h).
        let list = unsafe { list(operations, count) }?;
        if list.iter().all(Option::is_none) {
            return Ok(());
        }
        let ended = ended(&list, Duration::from_nanos(nanoseconds));
        for (number, index) in ended.iter().enumerate() {
            // SAFETY: the caller's space for `count` of them (pagewire.h), and each place is named once.
            unsafe { first.add(number).write(*index) };
        }
        // SAFETY: the caller's place for it (pagewire.h).
        unsafe { to.write(ended.len()) };
        if ended.is_empty() { Err(unfinished()) } else { Ok(()) }
    })
}

/// Waits until all of several operations have ended. NULL in a place is passed over.
///
/// nanoseconds: for how long at most, or PW_FOREVER; 0 looks once.
///
/// PW_UNFINISHED: one has not ended in time. The failure of the first one in the list that has failed, once all have ended; pw_wait() gives that of each.
/// PW_ARGUMENT, PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_wait_all(
    operations: *const *mut pw_operation,
    count: usize,
    nanoseconds: u64,
) -> pw_error {
    call(|| {
        // SAFETY: so many pointers of this library (pagewire.h).
        let list = unsafe { list(operations, count) }?;
        let (patience, start) = (Duration::from_nanos(nanoseconds), Instant::now());
        let mut failure = None;
        for started in list.into_iter().flatten() {
            let left = patience.saturating_sub(start.elapsed());
            if let Err(refusal) = started.wait_within(left).ok_or_else(unfinished)? {
                failure.get_or_insert(refusal);
            }
        }
        failure.map_or(Ok(()), Err)
    })
}
