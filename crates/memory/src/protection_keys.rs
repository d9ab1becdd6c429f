//! Protection keys (pkeys(7)): whatever keys a thread has closed, registered memory is accessed, as an adapter accesses pinned pages.
//!
//! A thread's rights are a register of its own. So they are looked at only after an access has failed, and opened for one more try.
//! Threads that belong to the engine alone open all keys when they begin.

/// As long as it lives this thread may access memory of all keys.
#[derive(Debug)]
pub struct AllKeysOpen {
    #[cfg(target_arch = "x86_64")]
    before: u32,
    /// Not `Send`: the rights are the thread's.
    _thread: std::marker::PhantomData<*const ()>,
}

impl AllKeysOpen {
    /// Opens all keys. `None`: none is closed to this thread, or there are no keys here.
    #[cold]
    pub fn open() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if register::exists() {
            let before = register::read();
            if before != 0 {
                register::write(0);
                return Some(AllKeysOpen { before, _thread: std::marker::PhantomData });
            }
        }
        None
    }
}

impl Drop for AllKeysOpen {
    fn drop(&mut self) {
        #[cfg(target_arch = "x86_64")]
        register::write(self.before);
    }
}

/// Opens all keys for the rest of a thread that runs no code of the program.
pub fn open_all_keys() {
    std::mem::forget(AllKeysOpen::open());
}

#[cfg(target_arch = "x86_64")]
mod register {
    //! PKRU: two bits for each key, of which the first denies all accesses and the second denies writes.

    use std::arch::asm;
    use std::arch::x86_64::__cpuid_count;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// OSPKE in ECX of leaf 7: the kernel uses protection keys.
    const OSPKE: u32 = 1 << 4;

    /// Whether the processor and the kernel have protection keys.
    pub fn exists() -> bool {
        const UNKNOWN: u8 = 0;
        const ABSENT: u8 = 1;
        const PRESENT: u8 = 2;
        static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => {
                let exists = __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).ecx & OSPKE != 0;
                KNOWN.store(if exists { PRESENT } else { ABSENT }, Ordering::Relaxed);
                exists
            }
            known => known == PRESENT,
        }
    }

    /// The thread's rights.
    pub fn read() -> u32 {
        let rights: u32;
        // SAFETY: RDPKRU reads a register of this thread; `exists` was true, so that the instruction is there. It needs ECX = 0.
        unsafe { asm!("rdpkru", in("ecx") 0, out("eax") rights, out("edx") _, options(nomem, nostack)) };
        rights
    }

    /// Sets the thread's rights.
    pub fn write(rights: u32) {
        // SAFETY: WRPKRU sets a register of this thread; `exists` was true. It needs ECX = EDX = 0. Rights that were read before, or more
        // than these, take away no memory that this thread's Rust code uses. Memory accesses do not move across it, as it may access memory.
        unsafe { asm!("wrpkru", in("ecx") 0, in("edx") 0, in("eax") rights, options(nostack)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApplicationMemory, AtomicOperation, HostMemory, Segment};

    const LENGTH: usize = 4096;

    /// A page with a key that is closed to this thread. `None`: no keys here.
    fn closed_page() -> Option<u64> {
        // SAFETY: mmap(2) of new memory, pkey_alloc(2) and pkey_mprotect(2) of it.
        unsafe {
            let key = libc::syscall(libc::SYS_pkey_alloc, 0, 1);
            if key < 0 {
                return None;
            }
            let (rights, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), LENGTH, rights, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert_eq!(libc::syscall(libc::SYS_pkey_mprotect, page, LENGTH, rights, key), 0);
            Some(page as u64)
        }
    }

    #[test]
    fn closed_keys_hide_nothing_from_copies() {
        let Some(address) = closed_page() else {
            println!("not checked: protection keys, which this processor does not have");
            return;
        };
        let memory = HostMemory::new();
        let page = [Segment { address, length: LENGTH as u64 }];
        memory.write(&[7; LENGTH], &page, true).unwrap();
        let mut read = [0; LENGTH];
        memory.read(&page, &mut read).unwrap();
        assert_eq!(read, [7; LENGTH]);
        let found = memory.atomic(address, AtomicOperation::FetchAdd { add: 1 }).unwrap();
        assert_eq!(found, u64::from_ne_bytes([7; 8]));
        let open = AllKeysOpen::open();
        assert!(open.is_some(), "the thread's own rights stay as they are");
        drop(open);
        assert!(AllKeysOpen::open().is_some());
    }

    #[test]
    fn absent_memory_stays_an_error() {
        let memory = HostMemory::new();
        let nowhere = [Segment { address: 4096, length: 8 }];
        assert!(memory.read(&nowhere, &mut [0; 8]).is_err());
    }
}
