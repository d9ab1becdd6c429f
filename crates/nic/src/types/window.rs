//! What requests do to memory windows.

/// What a request does to a memory window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowWork {
    Bind(WindowBinding),
    /// Its key.
    Invalidate(u32),
}

/// What a memory window is to give access to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowBinding {
    /// The key that it gets: its own but for the lowest byte.
    pub key: u32,
    /// The key of the region.
    pub region: u32,
    /// `enum ibv_access_flags`.
    pub access: u32,
    /// First byte, as accesses to the region name it.
    pub address: u64,
    /// Bytes; none: the window of type 1 is bound to nothing.
    pub length: u64,
}
