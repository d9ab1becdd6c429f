//! Atomics that RDMA does not have: and, or, xor, min, max, and all of 4 bytes.

use crate::boundary::{Result, ffi_call};
use crate::error::pw_error;
use crate::operation::{Running, WordPlace, hand_over, pw_operation};
use crate::remote::{pw_remote, remote_of};
use pagewire::{Operation, RemoteRegion};

/// An atomic that was started, of which C gets what the word was.
///
/// # Safety
/// A pointer of this library; `before` is NULL, or a place that is valid until the result is taken.
unsafe fn start<W>(
    remote: *mut pw_remote,
    before: *mut W,
    running: fn(Operation<W>, WordPlace<W>) -> Running,
    start: impl FnOnce(&RemoteRegion) -> Operation<W>,
) -> Result<Running> {
    // SAFETY: `remote` is NULL or a live `pw_remote`: pagewire.h lets nobody close it while an atomic is started.
    let remote = unsafe { remote_of(remote) }?;
    let place = WordPlace::new(before)?;
    Ok(running(start(remote), place))
}

/// Keeps the bits of the word of 8 bytes at offset that are in bits. before: gets what it was; NULL if nobody asks. It repeats until nobody came between, as pw_swap().
///
/// As pw_fetch_add().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_and(
    remote: *mut pw_remote,
    offset: u64,
    bits: u64,
    before: *mut u64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Word, |remote| remote.fetch_and(offset, bits)) }?.wait()
    })
}

/// Starts pw_fetch_and(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_and_start(
    remote: *mut pw_remote,
    offset: u64,
    bits: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe { start(remote, before, Running::Word, |remote| remote.fetch_and(offset, bits)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the bits of the word of 8 bytes at offset that are in bits. As pw_fetch_and().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_or(
    remote: *mut pw_remote,
    offset: u64,
    bits: u64,
    before: *mut u64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Word, |remote| remote.fetch_or(offset, bits)) }?.wait()
    })
}

/// Starts pw_fetch_or(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_or_start(
    remote: *mut pw_remote,
    offset: u64,
    bits: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe { start(remote, before, Running::Word, |remote| remote.fetch_or(offset, bits)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Inverts the bits of the word of 8 bytes at offset that are in bits. As pw_fetch_and().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_xor(
    remote: *mut pw_remote,
    offset: u64,
    bits: u64,
    before: *mut u64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Word, |remote| remote.fetch_xor(offset, bits)) }?.wait()
    })
}

/// Starts pw_fetch_xor(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_xor_start(
    remote: *mut pw_remote,
    offset: u64,
    bits: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe { start(remote, before, Running::Word, |remote| remote.fetch_xor(offset, bits)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the word of 8 bytes at offset to value if that is less. As pw_fetch_and().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min(
    remote: *mut pw_remote,
    offset: u64,
    value: u64,
    before: *mut u64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Word, |remote| remote.fetch_min(offset, value)) }?.wait()
    })
}

/// Starts pw_fetch_min(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_start(
    remote: *mut pw_remote,
    offset: u64,
    value: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Word, |remote| remote.fetch_min(offset, value)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the word of 8 bytes at offset to value if that is more. As pw_fetch_and().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max(
    remote: *mut pw_remote,
    offset: u64,
    value: u64,
    before: *mut u64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Word, |remote| remote.fetch_max(offset, value)) }?.wait()
    })
}

/// Starts pw_fetch_max(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_start(
    remote: *mut pw_remote,
    offset: u64,
    value: u64,
    before: *mut u64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Word, |remote| remote.fetch_max(offset, value)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// pw_fetch_min() of numbers with a sign. As pw_fetch_and().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_signed(
    remote: *mut pw_remote,
    offset: u64,
    value: i64,
    before: *mut i64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe {
            start(remote, before, Running::SignedWord, |remote| remote.fetch_min_signed(offset, value))
        }?
        .wait()
    })
}

/// Starts pw_fetch_min_signed(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_signed_start(
    remote: *mut pw_remote,
    offset: u64,
    value: i64,
    before: *mut i64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe {
        start(remote, before, Running::SignedWord, |remote| remote.fetch_min_signed(offset, value))
    };
    ffi_call(|| hand_over(started()?, operation))
}

/// pw_fetch_max() of numbers with a sign. As pw_fetch_and().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_signed(
    remote: *mut pw_remote,
    offset: u64,
    value: i64,
    before: *mut i64,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe {
            start(remote, before, Running::SignedWord, |remote| remote.fetch_max_signed(offset, value))
        }?
        .wait()
    })
}

/// Starts pw_fetch_max_signed(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_signed_start(
    remote: *mut pw_remote,
    offset: u64,
    value: i64,
    before: *mut i64,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe {
        start(remote, before, Running::SignedWord, |remote| remote.fetch_max_signed(offset, value))
    };
    ffi_call(|| hand_over(started()?, operation))
}

/// Adds to the 4 bytes at offset, and wraps around. before: gets what they were; NULL if nobody asks. It repeats until nobody came between, as pw_swap().
///
/// offset: a multiple of 4. The word of 8 bytes that has them, at an address there that is a multiple of 8, must be inside the memory of the token. So it is for
/// all of it if it begins and ends at multiples of 8.
///
/// PW_BOUNDS, also where the word of 8 bytes leaves the memory; PW_RIGHTS, PW_ALIGNMENT, PW_KEY, PW_MEMORY, PW_PEER_LOST.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_add_32(
    remote: *mut pw_remote,
    offset: u64,
    add: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.fetch_add_32(offset, add)) }?.wait()
    })
}

/// Starts pw_fetch_add_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_add_32_start(
    remote: *mut pw_remote,
    offset: u64,
    add: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Half, |remote| remote.fetch_add_32(offset, add)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the 4 bytes at offset to swap if they are compare. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_compare_swap_32(
    remote: *mut pw_remote,
    offset: u64,
    compare: u32,
    swap: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe {
            start(remote, before, Running::Half, |remote| remote.compare_swap_32(offset, compare, swap))
        }?
        .wait()
    })
}

/// Starts pw_compare_swap_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_compare_swap_32_start(
    remote: *mut pw_remote,
    offset: u64,
    compare: u32,
    swap: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe {
        start(remote, before, Running::Half, |remote| remote.compare_swap_32(offset, compare, swap))
    };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the 4 bytes at offset. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_swap_32(
    remote: *mut pw_remote,
    offset: u64,
    swap: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.swap_32(offset, swap)) }?.wait()
    })
}

/// Starts pw_swap_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_swap_32_start(
    remote: *mut pw_remote,
    offset: u64,
    swap: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe { start(remote, before, Running::Half, |remote| remote.swap_32(offset, swap)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Keeps the bits of the 4 bytes at offset that are in bits. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_and_32(
    remote: *mut pw_remote,
    offset: u64,
    bits: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.fetch_and_32(offset, bits)) }?.wait()
    })
}

/// Starts pw_fetch_and_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_and_32_start(
    remote: *mut pw_remote,
    offset: u64,
    bits: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Half, |remote| remote.fetch_and_32(offset, bits)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the bits of the 4 bytes at offset that are in bits. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_or_32(
    remote: *mut pw_remote,
    offset: u64,
    bits: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.fetch_or_32(offset, bits)) }?.wait()
    })
}

/// Starts pw_fetch_or_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_or_32_start(
    remote: *mut pw_remote,
    offset: u64,
    bits: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Half, |remote| remote.fetch_or_32(offset, bits)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Inverts the bits of the 4 bytes at offset that are in bits. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_xor_32(
    remote: *mut pw_remote,
    offset: u64,
    bits: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.fetch_xor_32(offset, bits)) }?.wait()
    })
}

/// Starts pw_fetch_xor_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_xor_32_start(
    remote: *mut pw_remote,
    offset: u64,
    bits: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Half, |remote| remote.fetch_xor_32(offset, bits)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the 4 bytes at offset to value if that is less. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_32(
    remote: *mut pw_remote,
    offset: u64,
    value: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.fetch_min_32(offset, value)) }?.wait()
    })
}

/// Starts pw_fetch_min_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_32_start(
    remote: *mut pw_remote,
    offset: u64,
    value: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Half, |remote| remote.fetch_min_32(offset, value)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// Sets the 4 bytes at offset to value if that is more. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_32(
    remote: *mut pw_remote,
    offset: u64,
    value: u32,
    before: *mut u32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe { start(remote, before, Running::Half, |remote| remote.fetch_max_32(offset, value)) }?.wait()
    })
}

/// Starts pw_fetch_max_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_32_start(
    remote: *mut pw_remote,
    offset: u64,
    value: u32,
    before: *mut u32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started =
        || unsafe { start(remote, before, Running::Half, |remote| remote.fetch_max_32(offset, value)) };
    ffi_call(|| hand_over(started()?, operation))
}

/// pw_fetch_min_32() of numbers with a sign. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_signed_32(
    remote: *mut pw_remote,
    offset: u64,
    value: i32,
    before: *mut i32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe {
            start(remote, before, Running::SignedHalf, |remote| remote.fetch_min_signed_32(offset, value))
        }?
        .wait()
    })
}

/// Starts pw_fetch_min_signed_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_min_signed_32_start(
    remote: *mut pw_remote,
    offset: u64,
    value: i32,
    before: *mut i32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe {
        start(remote, before, Running::SignedHalf, |remote| remote.fetch_min_signed_32(offset, value))
    };
    ffi_call(|| hand_over(started()?, operation))
}

/// pw_fetch_max_32() of numbers with a sign. As pw_fetch_add_32().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_signed_32(
    remote: *mut pw_remote,
    offset: u64,
    value: i32,
    before: *mut i32,
) -> pw_error {
    ffi_call(|| {
        // SAFETY: this function's own promise.
        unsafe {
            start(remote, before, Running::SignedHalf, |remote| remote.fetch_max_signed_32(offset, value))
        }?
        .wait()
    })
}

/// Starts pw_fetch_max_signed_32(). As pw_fetch_add_start().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_fetch_max_signed_32_start(
    remote: *mut pw_remote,
    offset: u64,
    value: i32,
    before: *mut i32,
    operation: *mut *mut pw_operation,
) -> pw_error {
    // SAFETY: this function's own promise.
    let started = || unsafe {
        start(remote, before, Running::SignedHalf, |remote| remote.fetch_max_signed_32(offset, value))
    };
    ffi_call(|| hand_over(started()?, operation))
}
