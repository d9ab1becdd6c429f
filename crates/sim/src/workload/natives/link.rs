//! The queue pairs of a native connection, and its memory: slots for operations, and receives for messages.

use crate::workload::driver::Workload;
use crate::workload::lifecycle::{address_of, rights};
use crate::workload::native::{
    CALLER, FIRST, MESSAGE, MESSAGES, NativeConnection, NativeLink, NativeSide, OWNER, Of, RECEIVES, SLOT,
    SLOTS, UsedSlots, WORD,
};
use crate::workload::party::NATIVE;
use crate::workload::post::INLINE;
use crate::workload::{Violation, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::attributes::{QpCapabilities, QpState, QueuePairChange, QueuePairType};
use pagewire_nic::{
    Data, Error, QueuePairInit, ReceiveRequest, RefusalScope, ScatterGather, SendOperation, SendRequest,
};

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Makes the queue pairs of a native connection, and fills its memory. A party that ends meanwhile is no violation.
    pub(super) fn connect(&mut self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        let made = [0, 1].map(|side| self.native_side(native, side));
        let sides = match made {
            [Ok(one), Ok(other)] => [one, other],
            [Err(error), _] | [_, Err(error)] => {
                return Err(self.native_violation(native, format!("it cannot be made: {error}")));
            }
        };
        for side in 0..2 {
            let (own, peer) = (&sides[side], &sides[1 - side]);
            for change in self.native_changes(own, peer) {
                if let Err(error) = own.queue_pair.modify(&change) {
                    return Err(self.native_violation(native, format!("it cannot be connected: {error}")));
                }
            }
        }
        for side in &sides {
            let mut bytes = vec![0; NATIVE as usize];
            pattern::fill(self.native_random.u64(..), &mut bytes);
            for slot in 0..SLOTS as u64 {
                let word = (slot * SLOT + WORD) as usize;
                bytes[word..word + 8].fill(0);
            }
            self.parties[side.party].program_writes(side.address, &bytes);
        }
        native.link = Some(NativeLink { sides });
        self.make_logged(native)?;
        native.slots = [UsedSlots::default(), UsedSlots::default()];
        native.shadow = (0..SLOTS).map(|slot| self.slot(native, OWNER, slot)).collect();
        for side in 0..2 {
            for index in 0..MESSAGES {
                self.post_native_receive(native, side, index)?;
            }
        }
        Ok(())
    }

    fn native_side(&self, native: &NativeConnection<F>, side: usize) -> Result<NativeSide<F>, Error> {
        let party = native.parties[side];
        let owner = &self.parties[party];
        let queue = owner.context.create_cq(512, None)?;
        let (address, key) = owner
            .native_memory(native.places[side])
            .ok_or(Error::InvalidArgument("it has no native memory"))?;
        let queue_pair = pagewire_nic::QueuePair::create(
            &owner.domain,
            QueuePairInit {
                kind: QueuePairType::Rc,
                send_cq: queue.clone(),
                recv_cq: queue.clone(),
                srq: None,
                capabilities: QpCapabilities {
                    max_send_wr: 256,
                    max_recv_wr: MESSAGES as u32,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: INLINE,
                },
                signal_all: false,
                xrc: None,
            },
        )?;
        queue_pair.set_refusal_scope(RefusalScope::Request);
        Ok(NativeSide { party, queue_pair, queue, address, key })
    }

    fn native_changes(&self, own: &NativeSide<F>, peer: &NativeSide<F>) -> [QueuePairChange; 3] {
        let psn = |side: &NativeSide<F>| side.queue_pair.number().wrapping_mul(0x9E37) & 0xFF_FFFF;
        let init = QueuePairChange {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(1),
            access: Some(rights()),
            ..QueuePairChange::default()
        };
        let receive = QueuePairChange {
            state: Some(QpState::ReadyToReceive),
            address: Some(address_of(&self.parties[peer.party])),
            path_mtu: Some(self.parties[own.party].context.device().mtu),
            destination: Some(peer.queue_pair.number()),
            receive_psn: Some(psn(peer)),
            max_dest_read_atomic: Some(8),
            min_rnr_timer: Some(8),
            ..QueuePairChange::default()
        };
        let send = QueuePairChange {
            state: Some(QpState::ReadyToSend),
            send_psn: Some(psn(own)),
            timeout: Some(self.plan.timeout),
            retry_count: Some(self.plan.retry_count),
            rnr_retry: Some(7),
            max_read_atomic: Some(8),
            ..QueuePairChange::default()
        };
        [init, receive, send]
    }

    /// Where a slot of a side lies, and the key of its memory.
    pub(super) fn place_of(&self, native: &NativeConnection<F>, side: usize, slot: usize) -> (u64, u32) {
        native.link.as_ref().map_or((0, 0), |link| {
            let NativeSide { address, key, .. } = link.sides[side];
            (address + slot as u64 * SLOT, key)
        })
    }

    /// What a slot of a side holds.
    pub(super) fn slot(&self, native: &NativeConnection<F>, side: usize, slot: usize) -> Vec<u8> {
        let (address, _) = self.place_of(native, side, slot);
        self.parties[native.parties[side]].memory(address, SLOT)
    }

    /// The program of a side writes into a slot.
    pub(super) fn fill_slot(
        &mut self,
        native: &NativeConnection<F>,
        side: usize,
        (slot, offset): (usize, u64),
        bytes: &[u8],
    ) {
        let (address, _) = self.place_of(native, side, slot);
        self.parties[native.parties[side]].program_writes(address + offset, bytes);
    }

    pub(super) fn post_native_receive(
        &self,
        native: &NativeConnection<F>,
        side: usize,
        index: u64,
    ) -> Result<(), Violation> {
        let Some(link) = &native.link else { return Ok(()) };
        let side = &link.sides[side];
        let address = side.address + FIRST + index * MESSAGE;
        let segment = ScatterGather { address, length: MESSAGE as u32, key: side.key };
        let request = ReceiveRequest { wr_id: RECEIVES + index, segments: &[segment] };
        let posted = side.queue_pair.post_receive(&request);
        match posted {
            Err(error) if self.stage.is_alive(side.party) => {
                Err(self.native_violation(native, format!("a receive was refused: {error}")))
            }
            // What a process that has just ended would have done does not matter.
            _ => Ok(()),
        }
    }

    /// What a receive of a side holds.
    pub(super) fn native_message(
        &self,
        native: &NativeConnection<F>,
        side: usize,
        (index, length): (u64, u32),
    ) -> Vec<u8> {
        let Some(link) = &native.link else { return Vec::new() };
        let address = link.sides[side].address + FIRST + index * MESSAGE;
        self.parties[native.parties[side]].memory(address, u64::from(length).min(MESSAGE))
    }

    /// Posts a request of a side.
    pub(super) fn post_native(
        &mut self,
        native: &mut NativeConnection<F>,
        side: usize,
        posted: (SendOperation, Data<'_>),
        of: Of,
    ) -> Result<(), Violation> {
        self.post_native_as(native, side, posted, (of, false))
    }

    /// Posts a request of a side, which may be linked to the one before it.
    pub(super) fn post_native_as(
        &mut self,
        native: &mut NativeConnection<F>,
        side: usize,
        (operation, data): (SendOperation, Data<'_>),
        (of, is_linked): (Of, bool),
    ) -> Result<(), Violation> {
        let wr_id = native.number();
        let Some(link) = &native.link else { return Ok(()) };
        let request = SendRequest {
            wr_id,
            data,
            operation,
            signaled: true,
            fence: false,
            solicited: false,
            destination: None,
        };
        if let Some(logged) = native.logged.as_mut().filter(|_| side == CALLER) {
            let length = match &data {
                Data::Segments(segments) => segments.iter().map(|segment| u64::from(segment.length)).sum(),
                Data::Inline(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
                Data::Window(_) => 0,
            };
            logged.note(wr_id, &operation, length);
        }
        let queue_pair = &link.sides[side].queue_pair;
        let posted = match is_linked {
            true => queue_pair.post_linked(&request),
            false => queue_pair.post_send(&request),
        };
        link.sides[side].queue_pair.doorbell();
        let party = link.sides[side].party;
        native.requests[side].insert(wr_id, of);
        match posted {
            Err(error) if self.stage.is_alive(party) => {
                let state = link.sides[side].queue_pair.state();
                Err(self.native_violation(native, format!("a request was refused in {state:?}: {error}")))
            }
            _ => Ok(()),
        }
    }
}
