//! What `c/signals.c` says of the program's signal handlers and masks, passed on to those who depend on them.
//!
//! All of it may be called at any time, in signal handlers too, and only stores to atomics and to a cell of the thread.

use pagewire_memory::guard;

/// A handler is about to be replaced.
#[unsafe(no_mangle)]
extern "C" fn pagewire_handlers_begin_to_change() {
    guard::handlers_begin_to_change();
}

/// It has been.
#[unsafe(no_mangle)]
extern "C" fn pagewire_handlers_have_changed() {
    guard::handlers_have_changed();
}

/// The calling thread blocks other signals than before.
#[unsafe(no_mangle)]
extern "C" fn pagewire_mask_has_changed() {
    guard::mask_has_changed();
}

/// The functions above are called whenever the program changes anything by way of the C library.
#[unsafe(no_mangle)]
extern "C" fn pagewire_changes_are_seen() {
    guard::changes_are_seen();
}
