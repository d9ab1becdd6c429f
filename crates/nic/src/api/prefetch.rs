//! Pages that a program wants present before they are accessed (`ibv_advise_mr(3)`).

use crate::services::protection::ProtectionDomain;
use crate::types::error::{Error, Result, invalid_if};
use crate::types::limits::MAX_ADVISED_SEGMENTS;
use crate::types::sge::ScatterGather;
use pagewire_fabric::{Fabric, PageInThreads, PrefetchError, RegionPart};
use pagewire_iommu::{AccessRefusal, AccessScope, RegionWindow, Rights};
use pagewire_memory::{ApplicationMemory, Segment};
use pagewire_paging::FaultCounts;

/// How pages are prefetched (values of `enum ib_uverbs_advise_mr_advice`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::FromRepr)]
#[repr(u32)]
pub enum Advice {
    /// For reading.
    Prefetch = 0,
    /// For writing, too.
    PrefetchWrite = 1,
    /// Only those that are present already: none is brought in.
    PrefetchNoFault = 2,
}

impl Advice {
    /// Prefetches pieces of regions for on-demand paging, all or, after an error, some or none of them. With `flush` it returns when
    /// they are present; else threads bring them in meanwhile.
    ///
    /// # Errors
    /// - `NotFound`: a key names no region, or one that was registered without `ON_DEMAND`.
    /// - `Permission`: the region is of another protection domain, or `PrefetchWrite` of one without local write access.
    /// - `Fault`: a piece leaves its region; with `flush` also where a page is not mapped.
    /// - `NoMemory`: too much is being brought in already.
    pub fn give<F: Fabric>(
        self,
        domain: &ProtectionDomain<F>,
        flush: bool,
        pieces: &[ScatterGather],
    ) -> Result<()> {
        let is_allowed = (1..=MAX_ADVISED_SEGMENTS).contains(&pieces.len());
        invalid_if(!is_allowed, "number of scatter-gather elements")?;
        let windows = pieces.iter().map(|piece| self.part_of(domain, piece));
        let parts = windows.collect::<Result<Vec<_>>>()?;
        let segments = parts.iter().map(|(_, part)| part.segment);
        if self == Advice::PrefetchNoFault {
            // Those that are present are remembered to be so, for the accesses that follow.
            segments.for_each(|segment| _ = domain.services().fabric.memory().residency(&[segment]));
            return Ok(());
        }
        let device = &domain.context().device().name;
        for (window, part) in &parts {
            let counts = FaultCounts { bytes_ahead: part.segment.length, ..FaultCounts::default() };
            domain.services().page_faults.note(window, device, counts);
        }
        let parts: Vec<RegionPart> =
            parts.iter().map(|(_, part)| *part).filter(|part| part.segment.length > 0).collect();
        let prefetched = match parts.is_empty() {
            true => Ok(()),
            false => {
                domain.services().fabric.page_in().prefetch(&parts, self == Advice::PrefetchWrite, flush)
            }
        };
        prefetched.map_err(|error| match error {
            PrefetchError::NotMapped => Error::Fault("a page is not mapped, or not with that right"),
            PrefetchError::Full => Error::NoMemory("too many pages are being brought in"),
        })
    }

    /// Where a piece lies that may be prefetched so.
    fn part_of<F: Fabric>(
        self,
        domain: &ProtectionDomain<F>,
        piece: &ScatterGather,
    ) -> Result<(RegionWindow, RegionPart)> {
        let regions = domain.services().regions.view();
        let by = AccessScope::of_domain(domain.number());
        let window = regions.window(piece.key, Rights::ON_DEMAND, by).map_err(|refusal| match refusal {
            AccessRefusal::Domain => Error::Permission("the region is of another protection domain"),
            _ => Error::NotFound("the key names no region for on-demand paging"),
        })?;
        if self == Advice::PrefetchWrite {
            let writable = regions.window(piece.key, Rights::LOCAL_WRITE, by);
            writable.map_err(|_| Error::Permission("the region gives no local write access"))?;
        }
        let length = u64::from(piece.length);
        let granted = window.locate(piece.address, length);
        let granted = granted.map_err(|_| Error::Fault("the piece leaves its region"))?;
        let segment = Segment { address: granted.address, length };
        Ok((window, RegionPart { region: window.life(), segment }))
    }
}
