//! How a run of the protocol ended, and what follows for its queue pair.

use crate::access::AccessSession;
use crate::progress::transport_ops::QpTransportOps;
use crate::queue_pair::QueuePair;
use crate::queue_pair::qp_context::{QpConnection, QpContext};
use crate::services::event::AsyncEventKind;
use pagewire_fabric::Fabric;
use pagewire_transport::{PacketSink, PayloadSource, RcConnection, Time};
use std::sync::atomic::Ordering;

/// Why a queue pair's protocol ended.
pub struct ProtocolFailure {
    /// The asynchronous event that tells the program.
    pub event: Option<AsyncEventKind>,
    /// A send request failed, the receiving side is in order.
    pub send_only: bool,
}

/// What happened while the protocol ran.
#[derive(Default)]
pub struct ProtocolReport {
    pub failure: Option<ProtocolFailure>,
    /// Something waits for what nobody announces.
    pub requeue: bool,
}

impl ProtocolReport {
    /// What follows from how the protocol ended.
    pub(crate) fn apply<F: Fabric>(self, queue_pair: &QueuePair<F>, qpc: &mut QpContext<F>) {
        let Some(failure) = self.failure else { return };
        acknowledge_last(queue_pair, qpc);
        if failure.send_only && !queue_pair.properties.kind.is_reliable() {
            // What comes in is not concerned, and what is sent goes on with the next PSN when the program says so.
            queue_pair.enter_send_queue_error(qpc);
            return;
        }
        let mut refused = match &mut qpc.connection {
            QpConnection::Rc(rc) if rc.repeats_refusal() => std::mem::take(&mut qpc.connection),
            _ => QpConnection::None,
        };
        if let QpConnection::Rc(refused) = &mut refused {
            end_own_request(queue_pair, qpc, refused);
        }
        queue_pair.enter_error(qpc);
        if let QpConnection::Rc(refused) = refused {
            qpc.refused = Some(refused);
            queue_pair.notes.repeats_refusal.store(true, Ordering::Release);
        }
        if let Some(event) = failure.event {
            queue_pair.raise(event);
        }
    }
}

/// A queue pair that is connected to itself has refused a request of its own: that ends with its cause, before all others are flushed.
#[cold]
fn end_own_request<F: Fabric>(queue_pair: &QueuePair<F>, qpc: &mut QpContext<F>, refused: &mut RcConnection) {
    let route = queue_pair.domain.context().port().route_to(&qpc.attributes.address);
    let is_own = qpc.attributes.destination == queue_pair.properties.number
        && route.is_ok_and(|route| route.source == route.destination);
    if !is_own {
        return;
    }
    let now = Time(queue_pair.services.fabric.now());
    let mut session = AccessSession::new(&queue_pair.services);
    let mut ops = QpTransportOps::new(queue_pair, qpc, None, &mut session);
    refused.end_own_request(now, &mut ops);
    ops.finish();
}

/// The connection has ended at this side: what the peer had sent before still counts for it.
fn acknowledge_last<F: Fabric>(queue_pair: &QueuePair<F>, qpc: &mut QpContext<F>) {
    let QpConnection::Rc(rc) = &mut qpc.connection else { return };
    let Some(header) = rc.last_acknowledgement() else { return };
    let mut session = AccessSession::new(&queue_pair.services);
    let mut ops = QpTransportOps::new(queue_pair, qpc, None, &mut session);
    // For want of room it is lost, as it may be on the way.
    let _ = ops.transmit(&header, PayloadSource::None, 1);
    ops.finish();
}
