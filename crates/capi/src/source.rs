//! Who accesses: the peers behind the sources of access logs and of statistics.

use crate::boundary::{call, place};
use crate::conditional::{PW_PEER_SIZE, pw_peer};
use crate::error::{Refusal, pw_error};
use crate::node::{node_of, pw_node};
use pagewire::access_log::Source;

/// The source is a node: peer names it.
pub const PW_SOURCE_NODE: u32 = 1;
/// The source is a queue pair of the verbs: gid and queue_pair name it.
pub const PW_SOURCE_QUEUE_PAIR: u32 = 2;
/// The source belongs to no job, or to another one.
pub const PW_NO_RANK: u64 = u64::MAX;

/// Who made an access.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct pw_source {
    /// The node. Zeros if the source is none.
    pub peer: pw_peer,
    /// The GID of the port of a queue pair. Zeros if the source is none.
    pub gid: [u8; 16],
    /// The rank in the job of this node, or PW_NO_RANK.
    pub rank: u64,
    /// The number of the queue pair at its port. 0 if the source is none.
    pub queue_pair: u32,
    /// PW_SOURCE_NODE or PW_SOURCE_QUEUE_PAIR.
    pub kind: u32,
}

fn of(source: Source) -> pw_source {
    let nothing = pw_source {
        peer: pw_peer { bytes: [0; PW_PEER_SIZE] },
        gid: [0; 16],
        rank: PW_NO_RANK,
        queue_pair: 0,
        kind: PW_SOURCE_QUEUE_PAIR,
    };
    match source {
        Source::Node { peer, rank } => pw_source {
            peer: pw_peer { bytes: peer.to_bytes() },
            rank: rank.map_or(PW_NO_RANK, |rank| rank as u64),
            kind: PW_SOURCE_NODE,
            ..nothing
        },
        Source::QueuePair { gid, number } => pw_source { gid, queue_pair: number, ..nothing },
    }
}

/// Says who a source is, by the number that a pw_access or pw_access_statistics_sources() gives. The last 65,536 connections that have ended are known, too.
/// A handler may call it.
///
/// PW_ARGUMENT: nobody is known by this number, or no more; found is NULL. PW_HANDLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pw_source_find(node: *mut pw_node, source: u64, found: *mut pw_source) -> pw_error {
    call(|| {
        let to = place(found, "found")?;
        // SAFETY: a pointer of this library (pagewire.h).
        let known = unsafe { node_of(node)? }.sources().find(source);
        let known = known
            .ok_or_else(|| Refusal::argument(format!("source {source}: nobody is known by this number")))?;
        // SAFETY: the caller's place (pagewire.h).
        unsafe { to.write(of(known)) };
        Ok(())
    })
}
