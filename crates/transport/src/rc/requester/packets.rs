//! The packets of a work request.

use pagewire_wire::{AtomicEth, Opcode, PacketHeader, PacketOperation as Code, Reth};

use super::RequestEntry;
use crate::message::{MessagePosition, piece, send_code, write_code};
use crate::rc::RcShared;
use crate::{AtomicRequest, PayloadSource, Psn, RemoteAddress, WorkOperation};

/// The packet at PSN `offset` of a work request; a READ request asks for `count` responses.
pub(super) fn request(
    entry: &RequestEntry,
    offset: u32,
    count: u32,
    shared: &RcShared,
) -> (PacketHeader, PayloadSource) {
    let (mut header, source) = plain_request(entry, offset, count, shared);
    if shared.is_xrc {
        header.xrc = Some(entry.work.shared_queue);
    }
    (header, source)
}

/// As [`request`], but for what only XRC has.
fn plain_request(
    entry: &RequestEntry,
    offset: u32,
    count: u32,
    shared: &RcShared,
) -> (PacketHeader, PayloadSource) {
    let work = &entry.work;
    let copied = entry.bounced;
    let psn = entry.first.plus(offset);
    match work.operation {
        WorkOperation::Read { remote } => {
            let mtu = shared.link.response_mtu;
            let skipped = offset * mtu;
            let length = (u64::from(count) * u64::from(mtu)).min(u64::from(work.length - skipped)) as u32;
            let mut header = shared.header(Code::ReadRequest, psn);
            let after = work.length - skipped - length;
            if after > 0 && shared.fills_gaps() {
                // The READ is one for whoever counts at the peer.
                header.bth.opcode = Opcode::PARTIAL_READ;
                header.immediate = Some(after);
            }
            let address = remote.address.wrapping_add(u64::from(skipped));
            header.reth = Some(Reth { address, key: remote.key, length });
            (header, PayloadSource::None)
        }
        WorkOperation::Atomic { remote, atomic } => {
            (atomic_request(remote, atomic, psn, shared), PayloadSource::None)
        }
        WorkOperation::Flush { remote, length, flush } => {
            let header = remote_request(Code::Flush, (remote, length), psn, shared);
            (PacketHeader { flush: Some(flush.header()), ..header }, PayloadSource::None)
        }
        WorkOperation::AtomicWrite { remote } => {
            let header = remote_request(Code::AtomicWrite, (remote, work.length), psn, shared);
            // They travel themselves: the peer writes them at once.
            (header, piece(work, offset, shared.link.request_mtu, true))
        }
        WorkOperation::Send { immediate, invalidate } => {
            let place = MessagePosition::of(offset, entry.packets);
            let code = send_code(place, immediate.is_some(), invalidate.is_some());
            let mut header = shared.header(code, psn);
            if place.is_end() {
                header.bth.solicited = work.solicited;
                header.immediate = immediate;
                // A SEND has either; the immediate goes before.
                header.invalidate = if immediate.is_none() { invalidate } else { None };
            }
            (header, piece(work, offset, entry.request_mtu(&shared.link), copied))
        }
        WorkOperation::Write { remote, .. } if entry.write_only => {
            let mtu = shared.link.request_mtu;
            let skipped = offset * mtu;
            let mut header = shared.header(Code::WriteOnly, psn);
            header.reth = Some(Reth {
                address: remote.address.wrapping_add(u64::from(skipped)),
                key: remote.key,
                // Of all that is left (Capabilities::REMAINING_LENGTH).
                length: work.length - skipped,
            });
            (header, piece(work, offset, mtu, copied))
        }
        WorkOperation::Write { remote, immediate } => {
            let place = MessagePosition::of(offset, entry.packets);
            let mut header = shared.header(write_code(place, immediate.is_some()), psn);
            if place.is_start() {
                header.reth = Some(Reth { address: remote.address, key: remote.key, length: work.length });
            }
            if place.is_end() {
                header.bth.solicited = work.solicited && immediate.is_some();
                header.immediate = immediate;
            }
            (header, piece(work, offset, entry.request_mtu(&shared.link), copied))
        }
        // Never started; see `begin`.
        WorkOperation::Local(_) | WorkOperation::Failing { .. } => {
            (shared.header(Code::SendOnly, psn), PayloadSource::None)
        }
    }
}

/// A request of one packet that names memory by a RETH.
fn remote_request(
    code: Code,
    (remote, length): (RemoteAddress, u32),
    psn: Psn,
    shared: &RcShared,
) -> PacketHeader {
    let reth = Some(Reth { address: remote.address, key: remote.key, length });
    PacketHeader { reth, ..shared.header(code, psn) }
}

fn atomic_request(remote: RemoteAddress, atomic: AtomicRequest, psn: Psn, shared: &RcShared) -> PacketHeader {
    let (code, swap_or_add, compare) = match atomic {
        AtomicRequest::CompareSwap { compare, swap } => (Code::CompareSwap, swap, compare),
        AtomicRequest::FetchAdd { add } => (Code::FetchAdd, add, 0),
    };
    let mut header = shared.header(code, psn);
    header.atomic = Some(AtomicEth { address: remote.address, key: remote.key, swap_or_add, compare });
    header
}
