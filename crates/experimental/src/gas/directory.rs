//! The home of pages: who has copies of each, and who may store to it. A state machine without memory, network and clock.
//!
//! At any time a page has one process that may store to it and no other copy, or any number that may load it. Before a process may store, all
//! others have given the page back, and said so.

use super::words::{Message, Page, Rank};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What the transport is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HomeEffect {
    Recall {
        to: Rank,
        page: Page,
        keep: bool,
    },
    /// Grant it; with the content, unless the process has that.
    Grant {
        to: Rank,
        page: Page,
        for_stores: bool,
        with_content: bool,
    },
    /// What a process that is gone had stored is lost: the page is as it was returned last.
    LostStores {
        page: Page,
    },
}

#[derive(Debug)]
struct Pending {
    by: Rank,
    for_stores: bool,
    /// Who has yet to give the page back.
    awaited: BTreeSet<Rank>,
}

#[derive(Debug)]
struct DirectoryEntry<D> {
    /// As it was returned last.
    content: D,
    /// Who may store to it.
    writer: Option<Rank>,
    readers: BTreeSet<Rank>,
    pending: Option<Pending>,
    queue: VecDeque<(Rank, bool)>,
    is_dirty: bool,
    /// When it was granted last, a process had a copy.
    had_copies: bool,
}

/// The pages whose home a process is.
#[derive(Debug)]
pub struct Directory<D> {
    first: Page,
    pages: Page,
    /// What a page has at first.
    initial: D,
    /// Of pages that were used: a page that nobody has touched costs nothing.
    entries: BTreeMap<Page, DirectoryEntry<D>>,
    lost: BTreeSet<Rank>,
    effects: Vec<HomeEffect>,
    /// A mistake that the tests must find: stores are granted before the others have given the page back.
    #[cfg(test)]
    pub grants_early: bool,
}

impl<D: Clone> Directory<D> {
    /// The home of so many pages from `first` on.
    pub fn new(first: Page, pages: usize, content: &D) -> Self {
        Directory {
            first,
            pages: pages as Page,
            initial: content.clone(),
            entries: BTreeMap::new(),
            lost: BTreeSet::new(),
            effects: Vec::new(),
            #[cfg(test)]
            grants_early: false,
        }
    }

    pub fn take_effects(&mut self) -> Vec<HomeEffect> {
        std::mem::take(&mut self.effects)
    }

    fn entry(&mut self, page: Page) -> Option<&mut DirectoryEntry<D>> {
        let is_own = page.checked_sub(self.first)? < self.pages;
        let unused = || DirectoryEntry {
            content: self.initial.clone(),
            writer: None,
            readers: BTreeSet::new(),
            pending: None,
            queue: VecDeque::new(),
            is_dirty: false,
            had_copies: false,
        };
        is_own.then(|| self.entries.entry(page).or_insert_with(unused))
    }

    /// The content of a page, to be changed where nobody else has a copy. Valid while a grant is carried out.
    pub fn content(&mut self, page: Page) -> Option<&mut D> {
        self.entry(page).map(|entry| &mut entry.content)
    }

    /// Whether a process had a copy before the page was granted last.
    pub fn has_copies_before(&mut self, page: Page) -> bool {
        self.entry(page).is_some_and(|entry| entry.had_copies)
    }

    /// The pages that were granted for stores since they were asked for last. One that a process still may store to stays dirty.
    pub fn take_dirty(&mut self) -> Vec<Page> {
        let mut dirty = Vec::new();
        for (page, entry) in &mut self.entries {
            if entry.is_dirty {
                dirty.push(*page);
                entry.is_dirty = entry.writer.is_some();
            }
        }
        dirty
    }

    /// Takes a message of a process. What does not fit is ignored.
    pub fn on_message(&mut self, from: Rank, message: Message<D>) {
        if self.lost.contains(&from) {
            return;
        }
        let page = message.page();
        match message {
            Message::Want { for_stores, .. } => {
                let Some(entry) = self.entry(page) else { return };
                entry.queue.push_back((from, for_stores));
            }
            Message::Returned { content, .. } => {
                let Some(entry) = self.entry(page) else { return };
                let Some(pending) = &mut entry.pending else { return };
                if !pending.awaited.remove(&from) {
                    return;
                }
                let keeps = !pending.for_stores;
                if entry.writer == Some(from) {
                    entry.writer = None;
                    entry.content = content.unwrap_or_else(|| entry.content.clone());
                    if keeps {
                        entry.readers.insert(from);
                    }
                } else {
                    entry.readers.remove(&from);
                }
            }
            Message::Grant { .. } | Message::Recall { .. } => return,
        }
        self.go_on(page);
    }

    /// Grants what nobody holds up any more, and begins with the next wish.
    fn go_on(&mut self, page: Page) {
        #[cfg(test)]
        let grants_early = self.grants_early;
        let lost = self.lost.clone();
        loop {
            let Some(entry) = self.entry(page) else { return };
            if let Some(pending) = &entry.pending {
                #[cfg(test)]
                let is_awaited = !pending.awaited.is_empty() && !grants_early;
                #[cfg(not(test))]
                let is_awaited = !pending.awaited.is_empty();
                if is_awaited {
                    return;
                }
                let (to, for_stores) = (pending.by, pending.for_stores);
                entry.pending = None;
                if lost.contains(&to) {
                    continue;
                }
                let has_copy = entry.readers.contains(&to) || entry.writer == Some(to);
                entry.had_copies = !entry.readers.is_empty() || entry.writer.is_some();
                if for_stores {
                    entry.readers.clear();
                    entry.writer = Some(to);
                    entry.is_dirty = true;
                } else if entry.writer != Some(to) {
                    entry.readers.insert(to);
                }
                let for_stores = entry.writer == Some(to);
                self.effects.push(HomeEffect::Grant { to, page, for_stores, with_content: !has_copy });
                continue;
            }
            let Some((by, for_stores)) = entry.queue.pop_front() else { return };
            let others = entry.readers.iter().filter(|_| for_stores).chain(&entry.writer);
            let awaited: BTreeSet<Rank> = others.filter(|rank| **rank != by).copied().collect();
            let recalls: Vec<HomeEffect> =
                awaited.iter().map(|to| HomeEffect::Recall { to: *to, page, keep: !for_stores }).collect();
            entry.pending = Some(Pending { by, for_stores, awaited });
            self.effects.extend(recalls);
        }
    }

    /// A process is gone, with the copies that it had.
    pub fn on_lost(&mut self, rank: Rank) {
        self.lost.insert(rank);
        for page in self.entries.keys().copied().collect::<Vec<_>>() {
            let Some(entry) = self.entries.get_mut(&page) else { continue };
            entry.readers.remove(&rank);
            entry.queue.retain(|(by, _)| *by != rank);
            if entry.writer == Some(rank) {
                entry.writer = None;
                self.effects.push(HomeEffect::LostStores { page });
            }
            if let Some(pending) = &mut entry.pending {
                pending.awaited.remove(&rank);
            }
            self.go_on(page);
        }
    }
}
