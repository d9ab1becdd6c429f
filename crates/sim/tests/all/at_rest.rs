//! A NIC that has nothing to do does nothing.

use pagewire_iommu::Rights;
use pagewire_nic::attributes::{AddressVector, QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{Nic, Options, QueuePairInit, Unwatched};
use pagewire_sim::{LinkFaults, World};
use std::sync::Arc;

/// JBMT-3: the thread that does an adapter's work. A responder need not go on to RTS (InfiniBand specification, volume 1,
/// section 10.3.1: RTR receives).
#[test]
fn queue_pairs_that_only_receive_leave_the_nic_at_rest() {
    for kind in [QueuePairType::Rc, QueuePairType::Uc] {
        let world = World::new(1, LinkFaults::NONE);
        let (host, other) = (world.host(), world.host());
        let (process, fabric) = world.process(host);
        let (peer, _peer_fabric) = world.process(other);
        let nic = Nic::new(fabric, Options::default());
        let context = pagewire_nic::Context::open(&nic, world.device(process), Arc::new(Unwatched));
        let domain = context.alloc_pd().unwrap();
        let cq = context.create_cq(16, None).unwrap();
        let queue_pair = pagewire_nic::QueuePair::create(
            &domain,
            QueuePairInit {
                kind,
                send_cq: cq.clone(),
                recv_cq: cq,
                srq: None,
                capabilities: QpCapabilities { max_send_wr: 1, max_recv_wr: 1, ..Default::default() },
                signal_all: true,
                xrc: None,
            },
        )
        .unwrap();
        let rc = kind == QueuePairType::Rc;
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(Rights::empty()),
            ..Default::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(AddressVector {
                destination_gid: world.device(peer).gids[0].raw(),
                is_global: true,
                hop_limit: 64,
                port: 1,
                ..Default::default()
            }),
            path_mtu: Some(world.device(process).mtu),
            destination: Some(0x100),
            receive_psn: Some(7),
            max_dest_read_atomic: rc.then_some(1),
            min_rnr_timer: rc.then_some(1),
            ..Default::default()
        };
        queue_pair.modify(&init).unwrap();
        queue_pair.modify(&receive).unwrap();
        for _ in 0..100 {
            nic.progress();
            world.advance(Some(world.now() + 10_000_000));
        }
        assert_eq!(nic.progress(), None, "{kind:?}: nothing is to be done before something happens");
    }
}
