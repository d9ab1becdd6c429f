//! UD: datagrams that came in.

use crate::access::fault_state::Purpose;
use crate::completion::{Completion, CompletionOpcode, RoutingHeader, Status};
use crate::progress::arriving_burst::ArrivingBurst;
use crate::progress::datagram_tx::{GLOBAL_ROUTE, settings};

use crate::progress::transport_ops::QpTransportOps;
use crate::queue_pair::inbox::Incoming;
use crate::services::event::AsyncEventKind;
use pagewire_fabric::Fabric;
use pagewire_transport::{Denial, Disposition, DropCause, Outcome, Payload, Reason, WorkQueues, ud};

impl<F: Fabric> ArrivingBurst<'_, '_, F> {
    /// Takes a datagram that came in.
    pub(super) fn take_datagram(&mut self, packet: &Incoming<'_, F>) -> Disposition {
        let Incoming { header, payload, global_route, origin, .. } = packet;
        let accepted =
            match ud::accept(&settings(self.queue_pair, &self.qpc.attributes), header, payload.len()) {
                Ok(accepted) => accepted,
                Err(cause) => return self.queue_pair.counters.drop_packet(cause),
            };
        let (Some(global_route), Payload::Bytes(_)) = (global_route, payload) else {
            return self.queue_pair.counters.drop_packet(DropCause::Malformed);
        };
        if self.waits_for_receive(header) {
            return Disposition::Held { reason: Reason::Receive, again: false };
        }
        let mut ops = QpTransportOps::new(self.queue_pair, self.qpc, None, self.session);
        if !ops.begin_receive() {
            ops.finish();
            return self.queue_pair.counters.drop_packet(DropCause::NoReceive);
        }
        let outcome = match ops.place_receive(0, Payload::Bytes(&[global_route]), payload.is_empty()) {
            Outcome::Done(_) => ops.place_receive(GLOBAL_ROUTE as u64, *payload, true),
            other => other,
        };
        ops.finish();
        if let Outcome::Wait(reason) = outcome {
            if reason == Reason::Page && self.drops_faulting(origin) {
                self.qpc.forget_access(Purpose::Execute);
                return self.queue_pair.counters.drop_packet(DropCause::AbsentPage { resumes: false });
            }
            return Disposition::Held { reason, again: false };
        }
        if outcome == Outcome::Denied(Denial::LocalLength) {
            return self.drop_long_datagram();
        }
        let Some(receive) = self.qpc.receive.take() else {
            return self.queue_pair.counters.drop_packet(DropCause::NoReceive);
        };
        let byte_length = GLOBAL_ROUTE as u32 + accepted.length;
        if let Outcome::Denied(_) = outcome {
            let status = Status::LocalProtection;
            self.queue_pair.complete_receive(Completion::new(
                self.queue_pair.properties.number,
                receive.wr_id,
                CompletionOpcode::Receive,
                status,
            ));
            self.session.release();
            self.queue_pair.enter_error(self.qpc);
            self.queue_pair.raise(AsyncEventKind::QueuePairFatal);
            return Disposition::Dropped(DropCause::NoAccess);
        }
        self.queue_pair.complete_receive(Completion {
            byte_length,
            immediate: accepted.immediate,
            source_queue_pair: accepted.source,
            routing_header: RoutingHeader::of(global_route),
            solicited: accepted.solicited,
            ..Completion::new(
                self.queue_pair.properties.number,
                receive.wr_id,
                CompletionOpcode::Receive,
                Status::Success,
            )
        });
        Disposition::Executed(1)
    }

    /// A datagram is longer than its receive. It is dropped, and the receive stays for the next one (error class D of the InfiniBand
    /// specification, volume 1, section 9.9.3). One of a shared receive queue ends with an error (class E). Other peers are not concerned.
    #[cold]
    fn drop_long_datagram(&mut self) -> Disposition {
        if self.queue_pair.receives.srq.is_some() {
            if let Some(receive) = self.qpc.receive.take() {
                let status = Status::LocalLength;
                self.queue_pair.complete_receive(Completion::new(
                    self.queue_pair.properties.number,
                    receive.wr_id,
                    CompletionOpcode::Receive,
                    status,
                ));
            }
        }
        self.queue_pair.counters.drop_packet(DropCause::NoAccess)
    }
}
