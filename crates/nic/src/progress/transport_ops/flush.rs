//! FLUSH at the responder (InfiniBand specification, volume 1, annex A19).
//!
//! What was placed lies in coherent memory: every process sees it, and nothing is to be done for that. To be persistent it has to reach the
//! file that is mapped there.

use super::QpTransportOps;
use crate::access::Accesses;
use crate::access::fault_state::Purpose;
use pagewire_fabric::Fabric;
use pagewire_iommu::Rights;
use pagewire_memory::Segment;
use pagewire_transport::{Denial, FlushRequest, Outcome, RemoteAddress};

impl<F: Fabric> QpTransportOps<'_, '_, F> {
    /// Executes a FLUSH, or waits for its end.
    pub(super) fn flush(&mut self, remote: RemoteAddress, length: u32, flush: FlushRequest) -> Outcome<()> {
        let mut need = Rights::empty();
        need.set(Rights::FLUSH_GLOBAL, flush.global);
        need.set(Rights::FLUSH_PERSISTENT, flush.persistent);
        let services = &*self.queue_pair.services;
        let window = services.regions.view().window(remote.key, need, self.remote_scope());
        let Ok(window) = window else { return Outcome::Denied(Denial::RemoteAccess) };
        let segment = if flush.whole_region {
            let memory = window.memory();
            Segment { address: memory.start, length: memory.end - memory.start }
        } else {
            match window.locate(remote.address, u64::from(length)) {
                Ok(granted) => Segment { address: granted.address, length: u64::from(length) },
                Err(_) => return Outcome::Denied(Denial::RemoteAccess),
            }
        };
        if !flush.persistent || segment.length == 0 {
            return Outcome::Done(());
        }
        let mut pending = self.qpc.pending_sync.take();
        let waits = self.qpc.begin_access(Purpose::Execute);
        let by = &self.queue_pair.properties.claimant;
        let synced = Accesses(services).sync(by, (segment, window.life()), &mut pending, waits);
        self.qpc.pending_sync = pending;
        match synced {
            Ok(()) => Outcome::Done(()),
            Err(error) => self.outcome_of(error, Denial::RemoteAccess),
        }
    }
}
