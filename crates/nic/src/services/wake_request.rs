//! How a process that is about to sleep in the kernel has its peers wake it.
//!
//! The sleeper asks, then looks at its rings once more; a sender makes its record visible, then looks whether it is asked. With
//! a full fence between the two steps on each side, one of them sees the other (Dekker's pattern).

use pagewire_iommu::words::{SharedWords, Site};

/// Asking to be woken, or no longer.
pub const ATTENTION: Site = Site("mailbox.wake_request");
/// Mailbox word: 1 while the owner sleeps and wants to be woken.
const ATTENTION_WORD: usize = 0;

/// Asks all peers to wake the mailbox's owner. Whoever has asked looks at its rings before it sleeps.
pub fn request<W: SharedWords>(mailbox: &W) {
    mailbox.store(ATTENTION, ATTENTION_WORD, 1);
    mailbox.fence();
}

/// The owner is awake.
pub fn withdraw<W: SharedWords>(mailbox: &W) {
    mailbox.store(ATTENTION, ATTENTION_WORD, 0);
}

/// Whether the mailbox's owner wants to be woken now.
pub fn is_requested<W: SharedWords>(mailbox: &W) -> bool {
    mailbox.load(ATTENTION_WORD) == 1
}

/// Whether the owner of a mailbox is to be woken for what the caller has just made visible; true for one of all who ask.
pub fn take<W: SharedWords>(mailbox: &W) -> bool {
    mailbox.fence();
    is_requested(mailbox) && mailbox.compare_exchange(ATTENTION, ATTENTION_WORD, 1, 0).is_ok()
}
