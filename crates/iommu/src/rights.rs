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
        const RELAXED_ORDERING = 1 << 20;
    }
}

impl Rights {
    /// Whether the rights agree with each other: remote writing and atomics need local writing
    /// (InfiniBand specification, volume 1, section 10.6.3.1; `ibv_reg_mr(3)`).
    pub fn consistent(self) -> bool {
        !self.intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC) || self.contains(Rights::LOCAL_WRITE)
    }
}
