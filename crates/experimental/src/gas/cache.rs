//! The copies of pages that a process has: a state machine without memory, network and clock.

use super::words::{Message, Page};
use std::collections::BTreeMap;
use std::time::Duration;

/// So long a process keeps a page before it gives it back, so that the thread that waited for it can use it (the window of Mirage, Fleisch and
/// Popek 1989). Without it two processes could take a page from each other for ever.
pub const WINDOW: Duration = Duration::from_micros(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Copy {
    #[default]
    Absent,
    /// It may be loaded.
    Shared,
    /// It may be stored to, and nobody else has a copy.
    Exclusive,
}

/// What is to be done with the memory of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEffect<D> {
    /// Send to the home of the page. A `Returned` without content whose page was `Exclusive` gets the content first.
    Want {
        page: Page,
        for_stores: bool,
    },
    /// Make it appear, and wake who waits.
    Give {
        page: Page,
        for_stores: bool,
        content: D,
    },
    AllowStores {
        page: Page,
    },
    /// Threads wait for something that is there.
    Wake {
        page: Page,
    },
    /// Forbid stores, take the content if there were any, make it disappear unless it is kept, and send `Returned`, in this order.
    Return {
        page: Page,
        with_content: bool,
        keep: bool,
    },
    /// Its home is gone.
    Poison {
        page: Page,
    },
}

#[derive(Debug, Default, Clone)]
struct CachedPage {
    copy: Copy,
    /// What was asked for: whether for stores.
    wanted: Option<bool>,
    /// Until when it is kept.
    until: Duration,
    is_poisoned: bool,
}

/// The copies of a process, of all pages.
#[derive(Debug)]
pub struct Cache<D> {
    pages: Page,
    /// Of pages that were used.
    entries: BTreeMap<Page, CachedPage>,
    /// Pages that are to be given back when their window ends, and whether they are kept for loads.
    recalled: BTreeMap<Page, bool>,
    /// Pages whose home is gone.
    lost: Vec<(Page, Page)>,
    effects: Vec<CacheEffect<D>>,
}

impl<D> Cache<D> {
    pub fn new(pages: usize) -> Self {
        let pages = pages as Page;
        Cache {
            pages,
            entries: BTreeMap::new(),
            recalled: BTreeMap::new(),
            lost: Vec::new(),
            effects: Vec::new(),
        }
    }

    pub fn take_effects(&mut self) -> Vec<CacheEffect<D>> {
        std::mem::take(&mut self.effects)
    }

    /// What the process has of a page.
    #[cfg(test)]
    pub fn copy(&self, page: Page) -> Copy {
        self.entries.get(&page).map_or(Copy::default(), |entry| entry.copy)
    }

    /// A thread waits for a page.
    pub fn on_fault(&mut self, page: Page, for_stores: bool) {
        if page >= self.pages {
            return;
        }
        let entry = self.entries.entry(page).or_default();
        let is_there = match entry.copy {
            Copy::Absent => false,
            Copy::Shared => !for_stores,
            Copy::Exclusive => true,
        };
        if is_there {
            self.effects.push(CacheEffect::Wake { page });
        } else if self.lost.iter().any(|(first, end)| (*first..*end).contains(&page)) {
            self.poison(page);
        } else if entry.wanted.is_none() {
            entry.wanted = Some(for_stores);
            self.effects.push(CacheEffect::Want { page, for_stores });
        }
        // Else the grant wakes it, and it asks again if that is not enough.
    }

    fn poison(&mut self, page: Page) {
        let entry = self.entries.entry(page).or_default();
        if !std::mem::replace(&mut entry.is_poisoned, true) {
            (entry.copy, entry.wanted) = (Copy::Absent, None);
            self.effects.push(CacheEffect::Poison { page });
        }
    }

    /// Takes a message of the home of its page.
    pub fn on_message(&mut self, message: Message<D>, now: Duration) {
        match message {
            Message::Grant { page, for_stores, content } => {
                let Some(entry) = self.entries.get_mut(&page) else { return };
                let had = entry.copy;
                // Nobody asked, or the content that it should have it has not.
                if entry.wanted.take().is_none() || (had == Copy::Absent) != content.is_some() {
                    return;
                }
                entry.copy = if for_stores { Copy::Exclusive } else { Copy::Shared };
                entry.until = now + WINDOW;
                self.effects.push(match content {
                    Some(content) => CacheEffect::Give { page, for_stores, content },
                    None if for_stores => CacheEffect::AllowStores { page },
                    None => CacheEffect::Wake { page },
                });
            }
            Message::Recall { page, keep } => {
                if page >= self.pages {
                    return;
                }
                let entry = self.entries.entry(page).or_default();
                if entry.copy != Copy::Absent && now < entry.until {
                    self.recalled.insert(page, keep);
                } else {
                    self.give_back(page, keep);
                }
            }
            Message::Want { .. } | Message::Returned { .. } => {}
        }
    }

    fn give_back(&mut self, page: Page, keep: bool) {
        let entry = self.entries.entry(page).or_default();
        let (with_content, has_copy) = (entry.copy == Copy::Exclusive, entry.copy != Copy::Absent);
        entry.copy = if keep && has_copy { Copy::Shared } else { Copy::Absent };
        self.effects.push(CacheEffect::Return { page, with_content, keep: keep || !has_copy });
    }

    /// Gives back pages whose window has ended.
    pub fn on_time(&mut self, now: Duration) {
        let due: Vec<(Page, bool)> = self
            .recalled
            .iter()
            .filter(|(page, _)| self.entries[*page].until <= now)
            .map(|(page, keep)| (*page, *keep))
            .collect();
        for (page, keep) in due {
            self.recalled.remove(&page);
            self.give_back(page, keep);
        }
    }

    /// When [`on_time`](Self::on_time) has something to do.
    pub fn next_time(&self) -> Option<Duration> {
        self.recalled.keys().map(|page| self.entries[page].until).min()
    }

    /// The home of pages is gone. Copies that are here stay; who waits for others gets a signal.
    pub fn on_lost(&mut self, first: Page, end: Page) {
        self.lost.push((first, end));
        self.recalled.retain(|page, _| !(first..end).contains(page));
        let wanted = self.entries.range(first..end).filter(|(_, entry)| entry.wanted.is_some());
        for page in wanted.map(|(page, _)| *page).collect::<Vec<_>>() {
            self.poison(page);
        }
    }
}
