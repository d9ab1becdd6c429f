//! CPU atomics on application memory.

use crate::guard::Guard;
use crate::protection_keys::AllKeysOpen;
use crate::{AtomicOperation, MemoryError, Uncancelled, guard};

/// Runs an atomic on 8 aligned bytes and gives what was there.
///
/// # Errors
/// `NotMapped` where they are not mapped for reading and writing, or not aligned.
pub fn run(address: u64, operation: AtomicOperation) -> Result<u64, MemoryError> {
    if address % 8 != 0 {
        return Err(MemoryError::NotMapped);
    }
    if let Some(guard) = Guard::enter() {
        let outcome = match operation {
            AtomicOperation::FetchAdd { add } => guard.fetch_add(address, add),
            AtomicOperation::CompareSwap { compare, swap } => guard.compare_swap(address, compare, swap),
        };
        return outcome.map_err(|_| MemoryError::NotMapped);
    }
    // The access below must not fault.
    let _open = AllKeysOpen::open();
    make_writable_pages_present(address, 8)?;
    // SAFETY: the page was mapped and writable just now. That it still is cannot be known (the program has taken over
    // SIGSEGV or SIGBUS): see `guard::unguarded` for what happens then.
    Ok(unsafe { guard::unguarded(address, operation) })
}

/// Brings in the pages of a range for writing, or says that they cannot be written. Changes no byte. Waits as long
/// as that takes.
///
/// # Errors
/// `NotMapped`.
pub fn make_writable_pages_present(address: u64, length: u64) -> Result<(), MemoryError> {
    match populate(address, length, libc::MADV_POPULATE_WRITE)? {
        Populated::Yes => Ok(()),
        Populated::NotByAdvice => is_mapped_writable(address, length),
    }
}

/// Has the kernel bring in the pages of a range for reading. False: the kernel knows no such advice, or not for this kind of
/// mapping.
///
/// # Errors
/// `NotMapped`.
pub fn make_pages_present(address: u64, length: u64) -> Result<bool, MemoryError> {
    Ok(populate(address, length, libc::MADV_POPULATE_READ)? == Populated::Yes)
}

#[derive(PartialEq, Eq)]
enum Populated {
    Yes,
    /// The kernel knows no such advice, or not for this kind of mapping.
    NotByAdvice,
}

fn populate(address: u64, length: u64, advice: libc::c_int) -> Result<Populated, MemoryError> {
    let page = rustix::param::page_size() as u64;
    let first = address / page * page;
    let length = (address - first).checked_add(length).ok_or(MemoryError::NotMapped)?;
    loop {
        let start = std::ptr::without_provenance_mut(first as usize);
        // SAFETY: MADV_POPULATE_READ and MADV_POPULATE_WRITE (Linux 5.14) bring pages in as if read or written, change no byte and
        // no attribute of the mapping, and answer ENOMEM, EFAULT or EHWPOISON instead of raising a signal (madvise(2)).
        if unsafe { libc::madvise(start, length as usize, advice) } == 0 {
            return Ok(Populated::Yes);
        }
        match std::io::Error::last_os_error().raw_os_error() {
            Some(libc::EINTR | libc::EAGAIN) => {}
            Some(libc::EINVAL) => return Ok(Populated::NotByAdvice),
            _ => return Err(MemoryError::NotMapped),
        }
    }
}

/// Looks a range up in the list of this process's mappings.
fn is_mapped_writable(address: u64, length: u64) -> Result<(), MemoryError> {
    let _uncancelled = Uncancelled::begin();
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| MemoryError::NotMapped)?;
    let mut at = address;
    for line in maps.lines() {
        let Some((range, rest)) = line.split_once(' ') else { continue };
        let Some((start, end)) = range.split_once('-') else { continue };
        let (Ok(start), Ok(end)) = (u64::from_str_radix(start, 16), u64::from_str_radix(end, 16)) else {
            continue;
        };
        if start <= at && at < end && rest.starts_with("rw") {
            at = end;
            if at >= address + length {
                return Ok(());
            }
        }
    }
    Err(MemoryError::NotMapped)
}
