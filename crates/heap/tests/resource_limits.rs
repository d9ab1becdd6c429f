//! Limits of the process that are too small are errors that say which limit, and what to do. Each case runs in a process of its own.

use pagewire_heap::{Heap, HeapError, HeapOptions};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs one test of this file in a process with a limit. There it finds `PAGEWIRE_HEAP_LIMITED` set.
fn with_limit(test: &str, resource: libc::__rlimit_resource_t, bytes: u64) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env("PAGEWIRE_HEAP_LIMITED", "1");
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the closure calls setrlimit(2) only, which is async-signal-safe.
    unsafe {
        command.pre_exec(move || match libc::setrlimit(resource, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        })
    };
    let output = command.output().unwrap();
    assert!(output.status.success(), "{test}: {}", String::from_utf8_lossy(&output.stdout));
}

fn is_limited() -> bool {
    std::env::var_os("PAGEWIRE_HEAP_LIMITED").is_some()
}

#[test]
fn a_small_address_space_names_the_limit_and_the_option() {
    if !is_limited() {
        return with_limit("a_small_address_space_names_the_limit_and_the_option", libc::RLIMIT_AS, 4 << 30);
    }
    let error = Heap::new(HeapOptions::default()).unwrap_err();
    assert!(
        matches!(error, HeapError::AddressSpace { range: 0x100_0000_0000, limit: 0x1_0000_0000 }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("ulimit -v") && text.contains("HeapOptions::range"), "{text}");
    // A smaller range serves.
    for _ in 0..100 {
        assert!(Heap::new(HeapOptions::default()).is_err());
    }
    let heap = Heap::new(HeapOptions { range: 512 << 20, ..HeapOptions::default() }).unwrap();
    let layout = std::alloc::Layout::new::<[u64; 1000]>();
    let object = heap.allocate(layout).unwrap();
    // SAFETY: the object has this layout and is used no more.
    unsafe { heap.deallocate(object, layout) };
}

#[test]
fn a_small_file_size_names_the_limit_and_the_option() {
    if !is_limited() {
        return with_limit("a_small_file_size_names_the_limit_and_the_option", libc::RLIMIT_FSIZE, 1 << 30);
    }
    let error = Heap::new(HeapOptions::default()).unwrap_err();
    assert!(matches!(error, HeapError::FileSize { limit: 0x4000_0000, .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("ulimit -f") && text.contains("HeapOptions::range"), "{text}");
}
