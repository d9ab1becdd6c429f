//! What the processes of a global address space say to each other.

/// A process, by its rank.
pub type Rank = u32;

/// A page of the global address space.
pub type Page = u32;

/// A message; `D` is the content of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<D> {
    /// To the home: a thread waits for the page.
    Want { page: Page, for_stores: bool },
    /// From the home: here it is. `None`: the content that the process has is the one of today.
    Grant { page: Page, for_stores: bool, content: Option<D> },
    /// From the home: give it back. `keep`: it may still be loaded.
    Recall { page: Page, keep: bool },
    /// To the home, which has recalled it. `None`: nothing was stored.
    Returned { page: Page, content: Option<D> },
}

impl<D> Message<D> {
    pub fn page(&self) -> Page {
        match self {
            Message::Want { page, .. }
            | Message::Grant { page, .. }
            | Message::Recall { page, .. }
            | Message::Returned { page, .. } => *page,
        }
    }
}
