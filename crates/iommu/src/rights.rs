//! Access rights.

use bitflags::bitflags;

bitflags! {
    /// What a region or queue pair permits (values of `enum ibv_access_flags`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u32 {
        const LOCAL_WRITE = 1;
        const REMOTE_WRITE = 1 << 1;
        const REMOTE_READ = 1 << 2;
        const REMOTE_ATOMIC = 1 << 3;
        const MEMORY_WINDOW_BIND = 1 << 4;
        const ZERO_BASED = 1 << 5;
        const ON_DEMAND = 1 << 6;
        const HUGE_TLB = 1 << 7;
        /// FLUSHes may make placements visible.
        const FLUSH_GLOBAL = 1 << 8;
        /// FLUSHes may make placements persistent.
        const FLUSH_PERSISTENT = 1 << 9;
        const RELAXED_ORDERING = 1 << 20;
        /// In the place of [`REMOTE_WRITE`](Self::REMOTE_WRITE) where pages have attributes. No program asks for it, and a plain access finds
        /// no right.
        const INTERCEPTED_WRITE = 1 << 27;
        /// In the place of [`REMOTE_READ`](Self::REMOTE_READ) where pages have attributes.
        const INTERCEPTED_READ = 1 << 28;
        /// In the place of [`REMOTE_ATOMIC`](Self::REMOTE_ATOMIC) where pages have attributes.
        const INTERCEPTED_ATOMIC = 1 << 29;
    }
}

impl Rights {
    /// What peers may have.
    pub const REMOTE: Rights = Rights::REMOTE_WRITE.union(Rights::REMOTE_READ).union(Rights::REMOTE_ATOMIC);

    /// What FLUSHes of peers may do.
    pub const FLUSH: Rights = Rights::FLUSH_GLOBAL.union(Rights::FLUSH_PERSISTENT);

    /// The remote rights, and those in their place where pages have attributes.
    const INTERCEPTED: [(Rights, Rights); 3] = [
        (Rights::REMOTE_WRITE, Rights::INTERCEPTED_WRITE),
        (Rights::REMOTE_READ, Rights::INTERCEPTED_READ),
        (Rights::REMOTE_ATOMIC, Rights::INTERCEPTED_ATOMIC),
    ];

    /// These rights where pages have attributes, or no more have them.
    #[must_use]
    pub fn intercepted(self, is_intercepted: bool) -> Rights {
        Rights::INTERCEPTED.into_iter().fold(self, |mut rights, (plain, intercepted)| {
            let has = rights.intersects(plain | intercepted);
            rights.set(plain, has && !is_intercepted);
            rights.set(intercepted, has && is_intercepted);
            rights
        })
    }

    /// Whether the rights agree with each other: remote writing and atomics need local writing
    /// (InfiniBand specification, volume 1, section 10.6.3.1; `ibv_reg_mr(3)`).
    pub fn consistent(self) -> bool {
        !self.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC) || self.contains(Rights::LOCAL_WRITE)
    }
}
