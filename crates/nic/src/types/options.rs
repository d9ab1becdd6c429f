//! How an engine is set up.

use crate::types::page_fault_choice::PageFaultChoice;
use crate::types::path_choice::PathChoice;
use pagewire_paging::PageIn;

/// How an engine is set up.
#[derive(Debug, Clone)]
pub struct Options {
    pub path: PathChoice,
    /// Whether what goes to other hosts is encrypted, so that only streams may carry it.
    pub is_encrypted: bool,
    /// What becomes of packets that find a page absent.
    pub page_faults: PageFaultChoice,
    /// How much is brought in where pages are absent.
    pub page_in: PageIn,
    /// Whether pages that are cheap come in at once. Else threads bring in all.
    pub faults_at_once: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            path: PathChoice::Auto,
            is_encrypted: false,
            page_faults: PageFaultChoice::default(),
            page_in: PageIn::default(),
            faults_at_once: true,
        }
    }
}
