//! Two connections, their model memory, and the network between them, in virtual time.
#![allow(dead_code)] // Each test file uses its own part.

pub mod host;
pub mod network;
pub mod rules;
pub mod workload;

use pagewire_transport::*;

pub const KEY: u32 = 0x1234_5678;
pub const BASE: u64 = 0x7000_0000;

pub fn lossy(mtu: u32) -> Link {
    Link { request_mtu: mtu, response_mtu: mtu, lossless: false, initiator_copy: false, is_stream: false }
}

pub fn local(initiator_copy: bool) -> Link {
    Link { request_mtu: 1 << 31, response_mtu: 1 << 31, lossless: true, initiator_copy, is_stream: false }
}

pub fn all_rights() -> RemoteRights {
    RemoteRights { read: true, write: true, atomic: true, flush_global: true, flush_persistent: true }
}

pub fn settings(link: Link, destination: u32, receive_psn: u32) -> RcSettings {
    RcSettings {
        link,
        destination,
        partition: 0xffff,
        receive_psn,
        max_dest_rd_atomic: 4,
        min_rnr_timer: 12,
        remote_rights: all_rights(),
        fault_handling: FaultHandling::Stash,
        refusal: RefusalScope::Connection,
        is_xrc: false,
    }
}

pub fn requester(send_psn: u32) -> RequesterSettings {
    RequesterSettings { send_psn, timeout: 14, retry_count: 7, rnr_retry: 7, max_rd_atomic: 4 }
}

/// What [`settings`] and [`requester`] give, with other rights of the peer.
pub fn update(remote_rights: RemoteRights) -> RcUpdate {
    let RcSettings { min_rnr_timer, max_dest_rd_atomic, .. } = settings(lossy(1024), 0, 0);
    RcUpdate { min_rnr_timer, remote_rights, max_dest_rd_atomic, requester: requester(0) }
}

pub fn send(length: u32) -> WorkRequest {
    work(WorkOperation::Send { immediate: None, invalidate: None }, length)
}

pub fn write(offset: u64, length: u32) -> WorkRequest {
    work(WorkOperation::Write { remote: remote(offset), immediate: None }, length)
}

pub fn write_immediate(offset: u64, length: u32, immediate: u32) -> WorkRequest {
    work(WorkOperation::Write { remote: remote(offset), immediate: Some(immediate) }, length)
}

pub fn read(offset: u64, length: u32) -> WorkRequest {
    work(WorkOperation::Read { remote: remote(offset) }, length)
}

pub fn fetch_add(offset: u64, add: u64) -> WorkRequest {
    work(WorkOperation::Atomic { remote: remote(offset), atomic: AtomicRequest::FetchAdd { add } }, 8)
}

pub fn compare_swap(offset: u64, compare: u64, swap: u64) -> WorkRequest {
    work(
        WorkOperation::Atomic {
            remote: remote(offset),
            atomic: AtomicRequest::CompareSwap { compare, swap },
        },
        8,
    )
}

pub fn work(operation: WorkOperation, length: u32) -> WorkRequest {
    // The pair numbers it when it is posted.
    WorkRequest { id: WorkId(0), operation, length, ..WorkRequest::default() }
}

pub fn remote(offset: u64) -> RemoteAddress {
    RemoteAddress { address: BASE + offset, key: KEY }
}
