//! Which sockets are channels, for write(2): a look takes no lock, because a signal handler may write while its thread looks, and a child is
//! forked while another thread does.

use pagewire_memory::fork::PerProcess;
use std::sync::atomic::{AtomicU64, Ordering};

/// Channels of a process, at most.
const PLACES: usize = 1 << 16;
/// No channel was ever here, and none is further on.
const EMPTY: u64 = 0;
/// A channel was here; look further on.
const GONE: u64 = u64::MAX;

/// The inodes of channels, each at the first free place from its own on. Untouched places cost no memory.
static INODES: [AtomicU64; PLACES] = [const { AtomicU64::new(EMPTY) }; PLACES];
/// Held by who changes them.
static CHANGES: PerProcess<()> = PerProcess::new();

/// The places of an inode, in their order.
fn places(inode: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = inode.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 48;
    (0..PLACES).map(move |step| &INODES[(first as usize + step) % PLACES])
}

/// Adds a channel. False: there are too many.
pub fn add(inode: u64) -> bool {
    let _changes = CHANGES.lock();
    let free = places(inode).find(|place| matches!(place.load(Ordering::Relaxed), EMPTY | GONE));
    free.inspect(|place| place.store(inode, Ordering::Release)).is_some()
}

/// The last descriptor of a channel is closed.
pub fn remove(inode: u64) {
    let _changes = CHANGES.lock();
    if let Some(place) = places(inode).find(|place| place.load(Ordering::Relaxed) == inode) {
        place.store(GONE, Ordering::Release);
    }
}

/// Whether a socket with this inode is a channel.
pub fn has(inode: u64) -> bool {
    places(inode)
        .map(|place| place.load(Ordering::Acquire))
        .take_while(|found| *found != EMPTY)
        .any(|found| found == inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_found_until_they_are_removed() {
        // Numbers that no socket has; some share their first place.
        let inodes: Vec<u64> = (1..2_000).map(|number| 1 << 60 | number).collect();
        assert!(inodes.iter().all(|inode| !has(*inode) && add(*inode) && has(*inode)));
        for pair in inodes.chunks(2) {
            remove(pair[0]);
            assert!(!has(pair[0]) && pair.get(1).is_none_or(|kept| has(*kept)));
        }
        inodes.iter().for_each(|inode| remove(*inode));
        assert!(inodes.iter().all(|inode| !has(*inode)));
    }
}
