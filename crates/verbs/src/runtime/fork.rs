//! Fork: nothing is pinned, so that copy-on-write cannot separate a program from what its peers see, and no page needs a mark.

use crate::abi::{IBV_FORK_UNNEEDED, ibv_fork_status};
use libc::{c_int, c_void};

/// `ibv_fork_init(3)`: there is nothing to prepare.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized(3)`.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    IBV_FORK_UNNEEDED
}

/// Keeps a range out of forked children: not needed, the application's mappings are left as they are.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

/// Undoes [`ibv_dontfork_range`].
#[unsafe(no_mangle)]
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
