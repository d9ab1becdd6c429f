//! The strategies by which pages are brought in.

use crate::limits::{BLOCK, PAGE};
use std::fmt;
use std::str::FromStr;

/// How much is brought in when a page turns out to be absent (PART-7, JBMT-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PageIn {
    /// Only what is accessed (PIO).
    Page,
    /// The blocks of 16 KiB in which that lies (PI4).
    Block,
    /// All that follows in the transfer, as far as it is known, by sections of 1 MiB (PIA).
    Transfer,
    /// Sections that grow from 64 KiB to 1 MiB while accesses follow each other, and shrink where memory is short (JBMT).
    #[default]
    Dynamic,
}

impl PageIn {
    /// All of them.
    pub const ALL: [PageIn; 4] = [PageIn::Page, PageIn::Block, PageIn::Transfer, PageIn::Dynamic];

    /// Bytes that come in at once, if it says so: longer accesses are cut where they can be.
    pub fn brings_in_at_most(self) -> Option<u64> {
        match self {
            PageIn::Page => Some(PAGE),
            PageIn::Block => Some(BLOCK),
            PageIn::Transfer | PageIn::Dynamic => None,
        }
    }

    /// As users write it.
    pub const fn name(self) -> &'static str {
        match self {
            PageIn::Page => "pio",
            PageIn::Block => "pi4",
            PageIn::Transfer => "pia",
            PageIn::Dynamic => "dynamic",
        }
    }
}

impl fmt::Display for PageIn {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// No strategy has such a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': it must be pio, pi4, pia or dynamic")]
pub struct UnknownPageIn(String);

impl FromStr for PageIn {
    type Err = UnknownPageIn;

    fn from_str(text: &str) -> Result<Self, UnknownPageIn> {
        let named = PageIn::ALL.into_iter().find(|strategy| strategy.name() == text);
        named.ok_or_else(|| UnknownPageIn(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for strategy in PageIn::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
        }
        let told = "all".parse::<PageIn>().unwrap_err().to_string();
        assert!(told.contains("'all'") && told.contains("pio, pi4, pia or dynamic"));
    }
}
