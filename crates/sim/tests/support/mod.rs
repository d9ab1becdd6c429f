//! Connecting two simulated processes by an RC queue pair each.

use pagewire_nic::attributes::{AddressVector, QueuePairChange, State};
use pagewire_nic::{QueuePair, Rights};
use pagewire_sim::{ProcessId, SimFabric, World};
use std::sync::Arc;

/// One end: its process and queue pair.
pub type End<'a> = (ProcessId, &'a Arc<QueuePair<SimFabric>>);

/// RESET to RTS, each towards the other; peers may use `access`.
pub fn connect(world: &World, one: End<'_>, two: End<'_>, access: Rights) {
    for (own, peer) in [(one, two), (two, one)] {
        let address = AddressVector {
            destination_gid: world.device(peer.0).gids[0].raw(),
            is_global: true,
            hop_limit: 64,
            port: 1,
            ..AddressVector::default()
        };
        let init = QueuePairChange {
            state: Some(State::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(access),
            ..QueuePairChange::default()
        };
        let receive = QueuePairChange {
            state: Some(State::ReadyToReceive),
            address: Some(address),
            path_mtu: Some(world.device(own.0).mtu),
            destination: Some(peer.1.number()),
            receive_psn: Some(100),
            max_dest_read_atomic: Some(4),
            min_rnr_timer: Some(8),
            ..QueuePairChange::default()
        };
        let send = QueuePairChange {
            state: Some(State::ReadyToSend),
            send_psn: Some(100),
            timeout: Some(12),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_read_atomic: Some(4),
            ..QueuePairChange::default()
        };
        for change in [init, receive, send] {
            own.1.modify(&change).unwrap();
        }
    }
}
