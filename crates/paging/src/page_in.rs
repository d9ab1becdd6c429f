//! The strategies by which pages are brought in.

use crate::limits::{BLOCK, PAGE};
/// How much is brought in when a page turns out to be absent (PART-7, JBMT-4).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, strum::Display, strum::EnumString, strum::IntoStaticStr,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = UnknownPageIn, parse_err_fn = unknown)]
pub enum PageIn {
    /// Only what is accessed (PIO).
    #[strum(serialize = "pio")]
    Page,
    /// The blocks of 16 KiB in which that lies (PI4).
    #[strum(serialize = "pi4")]
    Block,
    /// All that follows in the transfer, as far as it is known, by sections of 1 MiB (PIA).
    #[strum(serialize = "pia")]
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
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// No strategy has such a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}': it must be pio, pi4, pia or dynamic")]
pub struct UnknownPageIn(String);

fn unknown(name: &str) -> UnknownPageIn {
    UnknownPageIn(name.to_owned())
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
