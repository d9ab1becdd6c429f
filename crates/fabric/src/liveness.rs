//! The word in the published tables by which peers see at once that this process has ended.
//!
//! A thread holds a robust mutex there as long as it lives. When it ends, by whatever signal, the kernel marks the mutex's word
//! (get_robust_list(2)) before anybody can see that the thread has ended. Whoever stores into this process's mapped memory reads the
//! word first, so no store needs a system call. The main thread holds it if it has started the engine: it is what others see of a
//! process. Else the NIC thread does.
//!
//! The main thread may end before its process (pthread_exit(3)). So a peer that sees the mark asks the kernel, once.

use crate::words::MappedWords;
use pagewire_iommu::layout::{LIVENESS, LIVENESS_WORDS};
use parking_lot::Mutex;
use rustix::process::getpid;
use rustix::thread::{Pid, gettid};
use std::mem::MaybeUninit;

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LIVENESS_WORDS * 8);

/// Who holds the mutex.
#[derive(Debug, Default)]
pub struct LivenessMutex(Mutex<Option<HeldMutex>>);

#[derive(Debug)]
struct HeldMutex {
    by: Pid,
    tables: MappedWords,
}

impl LivenessMutex {
    /// The main thread holds the mutex from now on, if it is the caller.
    pub fn hold_by_main_thread(&self, tables: &MappedWords) {
        if gettid() == getpid() {
            self.hold(tables);
        }
    }

    /// The calling thread holds the mutex from now on, unless another one does.
    pub fn hold(&self, tables: &MappedWords) {
        let mut held = self.0.lock();
        if held.is_none() {
            *held = lock(tables).map(|()| HeldMutex { by: gettid(), tables: tables.clone() });
        }
    }

    /// The calling thread is about to end, and its process is not.
    pub fn release(&self) {
        drop(self.0.lock().take_if(|held| held.by == gettid()));
    }
}

impl Drop for HeldMutex {
    fn drop(&mut self) {
        if self.by == gettid() {
            // SAFETY: this thread has locked the mutex in `lock`, and its mapping is there still.
            unsafe { libc::pthread_mutex_unlock(mutex_of(&self.tables)) };
        } else {
            // The mutex stands in the list of a thread that lives, which goes on using its memory.
            std::mem::forget(self.tables.clone());
        }
    }
}

fn mutex_of(tables: &MappedWords) -> *mut libc::pthread_mutex_t {
    tables.address(LIVENESS).cast_mut().cast()
}

/// Locks a robust mutex in the tables. `None`: the kernel or the C library has none, and peers learn of the end of this process by
/// its sockets.
fn lock(tables: &MappedWords) -> Option<()> {
    let mutex = mutex_of(tables);
    let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
    let attributes = attributes.as_mut_ptr();
    let succeeded = |code: libc::c_int| (code == 0).then_some(());
    // SAFETY: each call gets what the ones before it have initialised; the mutex has its own words in the tables, which this process
    // may write to and nobody else looks at but by atomics.
    unsafe {
        succeeded(libc::pthread_mutexattr_init(attributes))?;
        succeeded(libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED))?;
        succeeded(libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST))?;
        succeeded(libc::pthread_mutex_init(mutex, attributes))?;
        libc::pthread_mutexattr_destroy(attributes);
        succeeded(libc::pthread_mutex_lock(mutex))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::FileAccess;
    use pagewire_iommu::words::SharedWords;
    use pagewire_memory::OWNER_DIED;

    fn is_marked(tables: &MappedWords) -> bool {
        tables.load(LIVENESS) & u64::from(OWNER_DIED) != 0
    }

    #[test]
    fn the_end_of_the_thread_is_marked() {
        let (tables, _file) = MappedWords::create("test", 64, FileAccess::Read).unwrap();
        let liveness = LivenessMutex::default();
        std::thread::scope(|scope| {
            let held = scope.spawn(|| {
                liveness.hold_by_main_thread(&tables);
                assert_eq!(tables.load(LIVENESS), 0, "this is not the main thread");
                liveness.hold(&tables);
                assert_ne!(tables.load(LIVENESS), 0);
                is_marked(&tables)
            });
            assert!(!held.join().unwrap());
        });
        // The kernel marks before the thread can be joined.
        assert!(is_marked(&tables));
    }

    #[test]
    fn a_thread_that_releases_leaves_no_mark() {
        let (tables, _file) = MappedWords::create("test", 64, FileAccess::Read).unwrap();
        let liveness = LivenessMutex::default();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                liveness.hold(&tables);
                liveness.release();
            });
        });
        assert!(!is_marked(&tables));
    }
}
