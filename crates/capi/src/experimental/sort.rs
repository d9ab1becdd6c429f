//! A sort that survives the death of its processes.

use crate::boundary::{Result, array, call, path_of, place};
use crate::error::{Refusal, pw_error};
use crate::heap::{ALIGNMENT, heap};
use crate::node::{node_of, pw_node};
use crate::signal::PW_FOREVER;
use pagewire_experimental::sort::{MAX_PROCESSES, SortError, SortOptions, sort};
use std::ffi::c_char;
use std::time::Duration;

/// Processes of a sort, at most.
pub const PW_MOST_SORT_PROCESSES: usize = 256;

const _: () = assert!(PW_MOST_SORT_PROCESSES == MAX_PROCESSES);

/// Who sorts, and where its files lie.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_sort_options {
    /// A folder that all processes of the sort share, empty at first.
    pub folder: *const c_char,
    /// The number of this process, from 0 on.
    pub rank: usize,
    /// How many processes sort, PW_MOST_SORT_PROCESSES at most.
    pub size: usize,
    /// For how many nanoseconds others are waited for: until they begin, end, or are started again. 0: five minutes. PW_FOREVER: without a bound.
    pub patience: u64,
}

/// A part of the sorted keys of all processes, and what it took.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct pw_sorted {
    /// In the registered heap: pw_free() frees them. NULL after an error.
    pub keys: *mut u64,
    /// How many they are.
    pub count: usize,
    /// How many keys of all processes come before.
    pub position: u64,
    /// Gets of 8 bytes.
    pub gets: u64,
    /// Keys that the predecessor of this process had got, from the logs of others.
    pub from_logs: u64,
    /// Times that another process was lost.
    pub peers_lost: u64,
    /// The sorted run of this process came from its file.
    pub run_was_saved: bool,
}

const NOTHING: pw_sorted = pw_sorted {
    keys: std::ptr::null_mut(),
    count: 0,
    position: 0,
    gets: 0,
    from_logs: 0,
    peers_lost: 0,
    run_was_saved: false,
};

/// Why a sort is refused.
fn refusal(error: SortError) -> Refusal {
    let code = match error {
        SortError::Memory(why) => return why.into(),
        SortError::Processes { .. } => pw_error::PW_ARGUMENT,
        SortError::File { .. } => pw_error::PW_SYSTEM,
        SortError::NotThere { .. } => pw_error::PW_TIMEOUT,
    };
    Refusal::new(code, error.to_string())
}

/// Sorts the keys of all processes of a sort, each of which calls this, and gives this process its part of the result. Any of them may die at any instant: it is
/// started again with the same folder, rank and keys, and the others wait for it. It returns when all have their results.
///
/// keys: those of this process; they stay as they are. sorted: gets the result. PW_TIMEOUT: a process is not there, and nobody has taken its place within the
/// patience; PW_SYSTEM: a file of the folder cannot be read or written; PW_ARGUMENT, PW_HANDLE; as pw_malloc() and pw_log_make().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_sort(
    node: *mut pw_node,
    options: *const pw_sort_options,
    keys: *const u64,
    count: usize,
    sorted: *mut pw_sorted,
) -> pw_error {
    call(|| {
        let to = place(sorted, "sorted")?;
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(NOTHING) };
        // SAFETY: a pointer of this library (pagewire_experimental.h).
        let node = unsafe { node_of(node) }?;
        let given = place(options.cast_mut(), "options")?;
        // SAFETY: the caller's options (pagewire_experimental.h), aligned and not NULL.
        let given = unsafe { given.as_ref() };
        // SAFETY: so many keys, and NULL or a string with a NUL at its end (pagewire_experimental.h).
        let (keys, folder) = unsafe { (array(keys, count, "keys")?, path_of(given.folder, "folder")?) };
        let mut options = SortOptions::new(&folder, given.rank, given.size);
        match given.patience {
            0 => {}
            PW_FOREVER => options.patience = Duration::MAX,
            nanoseconds => options.patience = Duration::from_nanos(nanoseconds),
        }
        let done = sort(node, &options, || keys.to_vec()).map_err(refusal)?;
        let statistics = done.statistics;
        let result = pw_sorted {
            keys: in_heap(&done.keys)?,
            count: done.keys.len(),
            position: done.position,
            gets: statistics.gets,
            from_logs: statistics.from_logs,
            peers_lost: statistics.peers_lost,
            run_was_saved: statistics.run_was_saved,
        };
        // SAFETY: the caller's place for the result (pagewire_experimental.h), aligned and not NULL.
        unsafe { to.write(result) };
        Ok(())
    })
}

/// A copy of the keys in the registered heap; of none, too, so that NULL means an error alone.
fn in_heap(keys: &[u64]) -> Result<*mut u64> {
    let bytes = size_of_val(keys);
    let object = heap()?.allocate_unsized(bytes, ALIGNMENT, false)?.cast::<u64>();
    // SAFETY: an object of so many bytes, aligned to 16, which was allocated just now: nobody else uses it.
    unsafe { std::ptr::copy_nonoverlapping(keys.as_ptr(), object.as_ptr(), keys.len()) };
    Ok(object.as_ptr())
}
