//! What `c/signals.c` says of the program's signal handlers and masks, passed on to those who depend on them.
//!
//! All of it may be called at any time, in signal handlers too.

use libc::c_int;
use pagewire_memory::guard;

/// `sigaction(2)` of the program for SIGSEGV or SIGBUS.
#[unsafe(no_mangle)]
unsafe extern "C" fn pagewire_change_action(
    number: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: the program's call, passed on.
    unsafe { guard::change_action(number, new, old) }
}

/// The C library's own `sigaction(2)`.
#[unsafe(no_mangle)]
extern "C" fn pagewire_actions_are_set_by(function: guard::SetAction) {
    guard::set_by(function);
}

/// The calling thread blocks other signals than before.
#[unsafe(no_mangle)]
extern "C" fn pagewire_mask_has_changed() {
    guard::mask_has_changed();
}

/// From now on the functions above are called whenever the program changes anything by way of the C library.
#[unsafe(no_mangle)]
extern "C" fn pagewire_changes_are_seen() {
    guard::changes_are_seen();
}
