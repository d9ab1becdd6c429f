//! What the engine can say about its connections.

use crate::api::queue_pair::QueuePair;
use crate::progress::engine::Nic;
use crate::queue_pair;
use crate::types::attributes::{QpState, QueuePairType};
use crate::types::limits::EXPLAIN_PATIENCE;
use pagewire_fabric::Fabric;
use pagewire_fabric::lock::lock_until;
use pagewire_transport::ProtocolCounters;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// One queue pair as `pagewire explain` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionReport {
    pub number: u32,
    pub kind: QueuePairType,
    /// The name of its device.
    pub device: String,
    pub state: QpState,
    /// Why it is in ERR, where no completion says so.
    pub state_reason: Option<&'static str>,
    /// The peer's queue pair and address; none for UD and before RTR.
    pub peer: Option<(u32, IpAddr)>,
    /// `local`, `udp`, `connecting` (the peer's process is being asked), `dead` (the path asked for cannot be had) or `none`
    /// (no peer yet); for UD that of the last datagram sent.
    pub path: &'static str,
    /// Why the path is not a better one.
    pub reason: String,
    /// Send requests posted and not complete.
    pub send_requests: u64,
    /// Send requests that are complete, with success or an error, since the queue pair exists.
    pub send_requests_completed: u64,
    /// Receive requests posted that no message has taken; none where they are those of a shared receive queue.
    pub receive_requests: Option<u64>,
    pub initiator_copies: u64,
    pub initiator_copy_bytes: u64,
    pub ring_packets_sent: u64,
    pub ring_packets_received: u64,
    pub udp_packets_sent: u64,
    pub udp_packets_received: u64,
    pub dropped: u64,
    pub page_waits: u64,
    /// None if another thread worked on the queue pair all the time that was waited for it.
    pub protocol: Option<ProtocolCounters>,
}

/// Why a queue pair is in ERR of which a completion was lost.
const OVERRUN: &str = "its completion queue was overrun: make that larger, or poll it more often";

impl<F: Fabric> QueuePair<F> {
    /// What there is to say about it.
    pub fn report(&self) -> ConnectionReport {
        ConnectionReport::of(&self.state, Instant::now() + EXPLAIN_PATIENCE)
    }
}

impl ConnectionReport {
    /// Those of the connections that an engine has now.
    pub fn of_all<F: Fabric>(nic: &Nic<F>) -> Vec<ConnectionReport> {
        let deadline = Instant::now() + EXPLAIN_PATIENCE;
        nic.queue_pairs.all().iter().map(|queue_pair| ConnectionReport::of(queue_pair, deadline)).collect()
    }

    /// Of a queue pair, whose QP context is looked into if it can be had before `deadline`.
    fn of<F: Fabric>(queue_pair: &Arc<queue_pair::QueuePair<F>>, deadline: Instant) -> ConnectionReport {
        let attributes = *queue_pair.shown.attributes.lock();
        // The reason may have changed since the path was chosen: the kernel denies access to the peer.
        let (path, reason) = match queue_pair.qpc.try_lock() {
            Some(qpc) => (qpc.path_name(), qpc.path_reason().to_owned()),
            None => queue_pair.shown.path.lock().clone(),
        };
        let connected = queue_pair.properties.kind != QueuePairType::Ud && attributes.destination != 0;
        // Given back before the QP context is waited for: who has that takes these.
        let (send_requests, retired) = {
            let send = queue_pair.send.lock();
            (send.outstanding() as u64, send.oldest().0)
        };
        let receive_requests =
            queue_pair.receives.srq.is_none().then(|| queue_pair.receives.own.lock().waiting() as u64);
        let counters = &queue_pair.counters;
        ConnectionReport {
            number: queue_pair.properties.number,
            kind: queue_pair.properties.kind,
            device: queue_pair.domain.context().device().name.clone(),
            state: attributes.state,
            state_reason: queue_pair.notes.ended_by_overrun.load(Ordering::Acquire).then_some(OVERRUN),
            peer: connected.then(|| {
                (
                    attributes.destination,
                    crate::types::gid::address_of_gid(attributes.address.destination_gid),
                )
            }),
            path,
            reason,
            send_requests,
            send_requests_completed: counters.completed(retired),
            receive_requests,
            initiator_copies: counters.initiator_copies.get(),
            initiator_copy_bytes: counters.initiator_copy_bytes.get(),
            ring_packets_sent: counters.ring_packets_sent.get(),
            ring_packets_received: counters.ring_packets_received.get() + counters.ring_packets_kept.get(),
            udp_packets_sent: counters.udp_packets_sent.get(),
            udp_packets_received: counters.udp_packets_received.get() + counters.udp_packets_kept.get(),
            dropped: counters.dropped.get(),
            page_waits: queue_pair.properties.claimant.page_waits.get(),
            protocol: protocol_counters(queue_pair, deadline),
        }
    }
}

/// Looks into the QP context, if it can be had before `deadline`.
fn protocol_counters<F: Fabric>(
    queue_pair: &Arc<queue_pair::QueuePair<F>>,
    deadline: Instant,
) -> Option<ProtocolCounters> {
    let qpc = lock_until(&queue_pair.qpc, deadline)?;
    let protocol = qpc.protocol_counters();
    drop(qpc);
    queue_pair.pass_on_pending();
    Some(protocol)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::attributes::{AddressVector, QpCapabilities, QueuePairChange};
    use crate::types::gid::Mtu;
    use crate::{Completion, CompletionOpcode, Options, PathChoice, QueuePairInit, Rights, Status, device};
    use pagewire_fabric::HostFabric;

    /// A queue pair in RTR whose path is UDP, and its engine.
    fn connected() -> (Arc<Nic<HostFabric>>, Arc<crate::QueuePair<HostFabric>>) {
        let nic = Nic::new(
            HostFabric::new().expect("a fabric"),
            Options { path: PathChoice::Udp, ..Options::default() },
        );
        let device = device::devices().expect("devices").into_iter().next().expect("a device");
        let gid = device.gids.iter().position(|gid| gid.address.is_ipv4()).unwrap_or(0);
        let destination_gid = device.gids[gid].raw();
        let context = crate::Context::open(&nic, device, Arc::new(crate::Unwatched));
        let domain = context.alloc_pd().expect("room");
        let queue = context.create_cq(16, None).expect("room");
        let capabilities = QpCapabilities {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let queue_pair = crate::QueuePair::create(
            &domain,
            QueuePairInit {
                kind: QueuePairType::Rc,
                send_cq: queue.clone(),
                recv_cq: queue,
                srq: None,
                capabilities,
                signal_all: true,
                xrc: None,
            },
        )
        .expect("room");
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Rights::empty()),
            ..Default::default()
        };
        queue_pair.modify(&init).expect("INIT");
        let ready = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(AddressVector {
                destination_gid,
                source_gid_index: gid as u8,
                is_global: true,
                port: 1,
                hop_limit: 64,
                ..Default::default()
            }),
            path_mtu: Some(Mtu::Mtu1024),
            destination: Some(77),
            receive_psn: Some(0),
            max_dest_read_atomic: Some(1),
            min_rnr_timer: Some(1),
            ..Default::default()
        };
        queue_pair.modify(&ready).expect("RTR");
        (nic, queue_pair)
    }

    #[test]
    fn path_and_reason_are_known_while_another_thread_drives() {
        let (nic, queue_pair) = connected();
        let driven = queue_pair.state.qpc.lock();
        let report = crate::ConnectionReport::of_all(&nic).pop().expect("one queue pair");
        assert_eq!((report.path, report.reason.as_str()), ("udp", "asked for"));
        assert_eq!(report.peer.map(|(number, _)| number), Some(77));
        assert_eq!(report.protocol, None);
        drop(driven);
        assert_eq!(queue_pair.report().protocol, Some(ProtocolCounters::default()));
    }

    #[test]
    fn the_path_ends_with_the_connection() {
        let (_nic, queue_pair) = connected();
        queue_pair
            .modify(&QueuePairChange { state: Some(QpState::Reset), ..Default::default() })
            .expect("RESET");
        assert_eq!(queue_pair.report().path, "none");
    }

    /// No completion tells it: they are what is lost.
    #[test]
    fn reset_clears_cq_overrun_reason() {
        let (_nic, queue_pair) = connected();
        assert_eq!(queue_pair.report().state_reason, None);
        // One more than the queue takes.
        for id in 0..=queue_pair.state.recv_cq.entries().into() {
            queue_pair.state.announce(
                &queue_pair.state.recv_cq,
                Completion::new(
                    queue_pair.state.properties.number,
                    id,
                    CompletionOpcode::Receive,
                    Status::Flushed,
                ),
            );
        }
        queue_pair.state.end_if_overrun(&mut queue_pair.state.qpc.lock());
        let report = queue_pair.report();
        assert_eq!((report.state, report.state_reason), (QpState::Error, Some(OVERRUN)));
        let reset = QueuePairChange { state: Some(QpState::Reset), ..Default::default() };
        queue_pair.modify(&reset).expect("RESET");
        assert_eq!(queue_pair.report().state_reason, None);
        // Who moves it to ERR knows why.
        let error = QueuePairChange { state: Some(QpState::Error), ..Default::default() };
        queue_pair.modify(&error).expect("ERR");
        assert_eq!(queue_pair.report().state_reason, None);
    }

    #[test]
    fn what_others_left_while_the_core_was_looked_at_is_done_in_the_next_round() {
        let (nic, queue_pair) = connected();
        // As left by a thread that rang the doorbell while the QP context was looked at.
        queue_pair.state.notes.pending.store(true, Ordering::SeqCst);
        queue_pair.report();
        nic.progress();
        assert!(!queue_pair.state.notes.pending.load(Ordering::SeqCst));
    }

    /// Whoever drives the queue pair meanwhile is not held up by a report that waits for it.
    #[test]
    fn a_report_holds_no_queue_while_it_waits_for_the_core() {
        let (_nic, queue_pair) = connected();
        let qpc = queue_pair.state.qpc.lock();
        std::thread::scope(|scope| {
            let report = scope.spawn(|| queue_pair.report());
            let begun = Instant::now();
            let is_free = || {
                queue_pair.state.send.try_lock().is_some()
                    && queue_pair.state.receives.own.try_lock().is_some()
            };
            let mut free = 0;
            while begun.elapsed() < EXPLAIN_PATIENCE / 2 {
                free = if is_free() { free + 1 } else { 0 };
                std::thread::sleep(EXPLAIN_PATIENCE / 50);
            }
            assert!(free > 0, "a queue is held");
            drop(qpc);
            report.join().unwrap();
        });
    }
}
