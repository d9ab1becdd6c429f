//! The RDMA connection manager (librdmacm), which is not built yet: the functions by which programs begin with it.
//!
//! librdmacm itself would look for a device file of the kernel and say "No such file or directory". These functions stand before
//! its own, because `pagewire run` preloads this library.

use crate::boundary::{Errno, Result, number, pointer};
use crate::objects::object::put;
use crate::runtime::messages::say;
use libc::{EOPNOTSUPP, c_int, c_void};
use std::sync::Once;

/// Refuses, and says why once on standard error where the program itself is linked with librdmacm. Libraries that load it
/// to see what there is (UCX, Open MPI) go on without it, and need no line.
fn refuse<T>(function: &str) -> Result<T> {
    static SAID: Once = Once::new();
    // SAFETY: the name is a C string; what is found is not called.
    let is_linked = !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"rdma_connect".as_ptr()) }.is_null();
    if is_linked {
        SAID.call_once(|| {
            say(format_args!(
                "{function}: the RDMA connection manager (librdmacm) is not built yet: let the program exchange addresses over \
                 TCP, if it can (perftest: without -R; qperf: without -cm 1)"
            ));
        });
    }
    Err(Errno(EOPNOTSUPP))
}

macro_rules! begins {
    (pointer { $($pointer:ident)* } number { $($number:ident)* }) => {
        $(
            /// NULL with `errno` EOPNOTSUPP.
            #[unsafe(no_mangle)]
            pub extern "C" fn $pointer() -> *mut c_void {
                pointer(|| refuse(stringify!($pointer)))
            }
        )*
        $(
            /// -1 with `errno` EOPNOTSUPP.
            #[unsafe(no_mangle)]
            pub extern "C" fn $number() -> c_int {
                number(|| refuse(stringify!($number)))
            }
        )*
    };
}

// Callers of the C calling convention may pass more arguments than a function reads.
begins! {
    pointer { rdma_create_event_channel }
    number { rdma_create_id rdma_create_ep rdma_getaddrinfo rsocket }
}

/// NULL with `errno` EOPNOTSUPP, and a count of 0: libfabric reads the count alone.
///
/// # Safety
/// `count` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut c_void {
    // SAFETY: the caller promises that `count` is NULL or valid for a write.
    unsafe { put(count, 0) };
    pointer(|| refuse("rdma_get_devices"))
}
