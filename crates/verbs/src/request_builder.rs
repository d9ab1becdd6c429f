//! Send requests that a program builds by the extended interface for posting (ibv_wr_post(3)), one after the other.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid};
use libc::c_int;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use std::ops::Range;
use std::ptr::null_mut;

/// A request that is being built.
pub struct BuiltRequest {
    pub wr: ibv_send_wr,
    pub pieces: SmallVec<[ibv_sge; 2]>,
    /// Where its inline data lies among those of the session.
    pub inline: Option<Range<usize>>,
}

/// What is built between a start and its end.
#[derive(Default)]
pub struct BuildSession {
    pub is_open: bool,
    pub requests: Vec<BuiltRequest>,
    /// Inline data of all requests: a program may use its buffer again at once.
    pub bytes: Vec<u8>,
    /// The first thing that went wrong.
    pub error: Option<Errno>,
}

impl BuildSession {
    /// Forgets all requests.
    pub fn clear(&mut self) {
        self.requests.clear();
        self.bytes.clear();
        self.error = None;
    }

    /// The request that setters are for.
    pub fn last(&mut self) -> Result<&mut BuiltRequest> {
        match self.requests.last_mut() {
            Some(request) => Ok(request),
            None => invalid("data or an address without a request"),
        }
    }

    /// Links the requests to a list; gives its first.
    pub fn link(&mut self) -> *mut ibv_send_wr {
        let BuildSession { requests, bytes, .. } = self;
        let mut next = null_mut();
        for request in requests.iter_mut().rev() {
            if let Some(inline) = &request.inline {
                let address = bytes[inline.clone()].as_ptr() as u64;
                request.pieces.clear();
                request.pieces.push(ibv_sge { addr: address, length: inline.len() as u32, lkey: 0 });
                request.wr.send_flags |= IBV_SEND_INLINE;
            }
            request.wr.sg_list = request.pieces.as_mut_ptr();
            request.wr.num_sge = request.pieces.len() as c_int;
            request.wr.next = next;
            next = &raw mut request.wr;
        }
        next
    }
}

/// What a queue pair has that was created with operations of the extended interface.
#[derive(Default)]
pub struct RequestBuilder {
    pub session: Mutex<BuildSession>,
    /// A session has ended.
    pub ended: Condvar,
}
