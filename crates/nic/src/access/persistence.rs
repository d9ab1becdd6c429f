//! Making memory outlive a loss of power, as FLUSHes ask for it: a thread syncs it, and the access waits for that as for a page.

use crate::access::fault_state::FaultState;
use crate::access::{Accesses, Claimant};
use crate::types::outcome::{AccessError, AccessResult, Cause};
use pagewire_fabric::{Fabric, PageInThreads, SyncOutcome, SyncRequest};
use pagewire_iommu::RegionLife;
use pagewire_memory::{Segment, SyncError};
use pagewire_transport::Reason;
use std::sync::Arc;

/// Memory of a region that a thread syncs for an access that waits.
pub struct PendingSync {
    region: RegionLife,
    request: Arc<SyncRequest>,
}

impl<F: Fabric> Accesses<'_, F> {
    /// Syncs memory of a region, which a thread is asked for once: also if the request that needs it is dropped meanwhile, and comes again.
    /// Whoever gets `Ok` finds persistent what was placed before the first call.
    pub fn sync(
        self,
        by: &Claimant,
        (segment, region): (Segment, RegionLife),
        kept: &mut Option<Box<PendingSync>>,
        waits: &mut FaultState,
    ) -> AccessResult<()> {
        let now = self.0.fabric.now();
        let is_meant = |pending: &PendingSync| pending.region == region && pending.request.segment == segment;
        let pending = kept.take().filter(|pending| is_meant(pending));
        let outcome = pending.as_ref().and_then(|pending| pending.request.outcome());
        if let Some(SyncOutcome::Ended(ended)) = outcome {
            // It was no fault, so that its time is not counted among those.
            let _ = waits.end_own_wait(now);
            return ended.map_err(|error| match error {
                SyncError::NotMapped => AccessError::Refused(Cause::NotMapped),
                SyncError::Volatile | SyncError::Failed(_) => AccessError::Refused(Cause::NotSynced),
            });
        }
        waits.begin_wait(now);
        *kept = match (pending, outcome) {
            (Some(pending), None) => Some(pending),
            _ => {
                let request = SyncRequest::new(segment);
                // Where too many wait it is asked for again at the next look.
                let is_taken = self.0.fabric.page_in().sync(waits.tenant(), &request, waits.token(by.number));
                is_taken.then(|| Box::new(PendingSync { region, request }))
            }
        };
        Err(AccessError::Wait(Reason::Page))
    }
}
