//! Put, get, and put with signal.

use super::logged::{LoggedRegion, REFUSING};
use crate::workload::driver::Workload;
use crate::workload::native::{
    CALLER, DATA, NativeConnection, NativeTransfer, OWNER, Of, SLOT, TransferKind, WORD,
};
use crate::workload::{Violation, WorkloadStage, pattern};
use pagewire_fabric::Fabric;
use pagewire_nic::{Data, ScatterGather, SendOperation, Status};

fn word_of(slot: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&slot[WORD as usize..WORD as usize + 8]);
    u64::from_ne_bytes(word)
}

impl<F: Fabric, S: WorkloadStage<F>> Workload<F, S> {
    /// Starts a transfer, if there is memory. True: it did.
    pub(super) fn start_transfer(&mut self, native: &mut NativeConnection<F>) -> Result<bool, Violation> {
        let random = &mut self.native_random;
        let Some(own) = native.slots[CALLER].take(random) else { return Ok(false) };
        let Some(there) = native.slots[OWNER].take(random) else {
            native.slots[CALLER].give_back(own);
            return Ok(false);
        };
        let length = if random.u32(0..4) == 0 { DATA } else { random.u64(1..=DATA) };
        let offset = random.u64(0..=DATA - length);
        let before = word_of(&native.shadow[there]);
        let kind = match random.u32(0..4) {
            0 => TransferKind::Put,
            1 => TransferKind::Get,
            2 => TransferKind::Set(before.wrapping_add(random.u64(1..))),
            _ => TransferKind::Add,
        };
        let is_refused = random.u32(0..4) == 0;
        let is_logged = native.logged.is_some() && random.bool();
        let after = match kind {
            _ if is_refused => before,
            TransferKind::Put | TransferKind::Get => before,
            TransferKind::Set(value) => value,
            TransferKind::Add => before.wrapping_add(1),
        };
        let id = native.number();
        let part = offset as usize..(offset + length) as usize;
        let bytes = match kind {
            TransferKind::Get => native.shadow[there][part].to_vec(),
            _ => pattern::of(id, length as usize),
        };
        // A get comes to memory that holds something else.
        let first = if kind == TransferKind::Get { pattern::of(!id, length as usize) } else { bytes.clone() };
        self.fill_slot(native, CALLER, (own, 0), &first);
        let (slots, word) = ([own, there], [before, after]);
        let transfer = NativeTransfer {
            kind,
            slots,
            offset,
            bytes,
            word,
            is_seen: false,
            is_logged,
            is_refused,
            failed: false,
        };
        self.post_transfer(native, id, &transfer)?;
        native.transfers.insert(id, transfer);
        Ok(true)
    }

    fn post_transfer(
        &mut self,
        native: &mut NativeConnection<F>,
        id: u64,
        transfer: &NativeTransfer,
    ) -> Result<(), Violation> {
        let NativeTransfer { kind, slots: [own, there], offset, ref bytes, .. } = *transfer;
        let ((here, local), (target, key)) =
            (self.place_of(native, CALLER, own), self.place_of(native, OWNER, there));
        let address = target + offset;
        let good_key = native.logged.as_ref().filter(|_| transfer.is_logged).map_or(key, LoggedRegion::key);
        let (address, key) = match (transfer.is_refused, transfer.is_logged) {
            (false, _) => (address, good_key),
            // The page refuses.
            (true, true) => (self.place_of(native, OWNER, 0).0 + REFUSING + offset, good_key),
            // No region has this key: it was revoked, or made up.
            (true, false) => (address, !key),
        };
        let operation = match kind {
            TransferKind::Get => SendOperation::Read { address, key },
            _ => SendOperation::Write { address, key },
        };
        let whole = [ScatterGather { address: here, length: bytes.len() as u32, key: local }];
        let is_last = matches!(kind, TransferKind::Put | TransferKind::Get);
        self.post_native(native, CALLER, (operation, Data::Segments(&whole)), Of::Transfer { id, is_last })?;
        let key = good_key;
        let (address, last) = (target + WORD, Of::Transfer { id, is_last: true });
        let word = [ScatterGather { address: here + WORD, length: 8, key: local }];
        match kind {
            TransferKind::Put | TransferKind::Get => Ok(()),
            TransferKind::Set(value) => {
                let value = value.to_ne_bytes();
                let set = SendOperation::Write { address, key };
                self.post_native_as(native, CALLER, (set, Data::Inline(&[&value])), (last, true))
            }
            TransferKind::Add => {
                let add = SendOperation::FetchAdd { address, key, add: 1 };
                self.post_native_as(native, CALLER, (add, Data::Segments(&word)), (last, true))
            }
        }
    }

    /// Whoever sees a signal changed sees the bytes before it.
    pub(super) fn look_at_signals(&mut self, native: &mut NativeConnection<F>) -> Result<(), Violation> {
        let waiting = |transfer: &&NativeTransfer| transfer.word[0] != transfer.word[1] && !transfer.is_seen;
        let slots: Vec<usize> =
            native.transfers.values().filter(waiting).map(|transfer| transfer.slots[OWNER]).collect();
        for slot in slots {
            let memory = self.slot(native, OWNER, slot);
            let Some(transfer) = native.transfers.values_mut().find(|transfer| transfer.slots[OWNER] == slot)
            else {
                continue;
            };
            let word = word_of(&memory);
            if word == transfer.word[0] {
                continue;
            }
            transfer.is_seen = true;
            let wanted = transfer.result(&native.shadow[slot]);
            self.same(native, &memory, &wanted, "what stands before a signal that is seen")?;
        }
        Ok(())
    }

    /// A request of a transfer has ended with an error: the key is wrong, or the request is linked to one whose key is. True: this may be.
    pub(super) fn transfer_failed(
        &mut self,
        native: &mut NativeConnection<F>,
        id: u64,
        status: Status,
    ) -> Result<bool, Violation> {
        let Some(transfer) = native.transfers.get_mut(&id).filter(|transfer| transfer.is_refused) else {
            return Ok(false);
        };
        let is_first = !std::mem::replace(&mut transfer.failed, true);
        Ok(status == if is_first { Status::RemoteAccess } else { Status::Flushed })
    }

    /// A transfer that was refused has ended: it has changed nothing, and its signal never shows.
    pub(super) fn refused_ended(
        &mut self,
        native: &mut NativeConnection<F>,
        id: u64,
    ) -> Result<(), Violation> {
        let Some(transfer) = native.transfers.remove(&id) else {
            return Err(self.native_violation(native, format!("transfer {id} has ended twice")));
        };
        let [own, there] = transfer.slots;
        let memory = self.slot(native, OWNER, there);
        self.same(native, &memory, &native.shadow[there], "what a refused transfer was to change")?;
        native.slots[CALLER].give_back(own);
        native.slots[OWNER].give_back(there);
        self.report.natives += 1;
        Ok(())
    }

    /// The last request of a transfer is complete: its bytes are visible.
    pub(super) fn transfer_ended(
        &mut self,
        native: &mut NativeConnection<F>,
        id: u64,
    ) -> Result<(), Violation> {
        let Some(transfer) = native.transfers.remove(&id) else {
            return Err(self.native_violation(native, format!("transfer {id} has ended twice")));
        };
        if transfer.is_refused {
            return Err(self.native_violation(native, format!("transfer {id} was done by a wrong key")));
        }
        let [own, there] = transfer.slots;
        let memory = self.slot(native, OWNER, there);
        let wanted = transfer.result(&native.shadow[there]);
        self.same(native, &memory, &wanted, &format!("what {:?} has left", transfer.kind))?;
        let here = self.slot(native, CALLER, own);
        match transfer.kind {
            TransferKind::Get => {
                self.same(native, &here[..transfer.bytes.len()], &transfer.bytes, "what was got")?
            }
            TransferKind::Add if word_of(&here) != transfer.word[0] => {
                let what = format!("a fetch-add gave {:#x}, not {:#x}", word_of(&here), transfer.word[0]);
                return Err(self.native_violation(native, what));
            }
            _ => {}
        }
        native.shadow[there] = wanted;
        native.slots[CALLER].give_back(own);
        native.slots[OWNER].give_back(there);
        self.report.natives += 1;
        self.report.bytes_checked += SLOT;
        Ok(())
    }
}
