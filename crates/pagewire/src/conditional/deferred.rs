//! Writes that another layer posts once they are released: those of verbs programs, on queue pairs of their own (`raw::Deferred`).
//!
//! The tables are those of all conditional writes. Only the post and the end differ: the completion is the other layer's.

use super::{ConditionalMessage, ConditionalWrites, Ending, HeldOperation, HeldWork, Rule, WRITE};
use crate::conditional::held::not_connected;
use crate::conditional::message::Release;
use crate::conditional::tag::Tag;
use crate::error::{Failure, Side};
use crate::limits::{DEFERRED_LOOK, FULL_QUEUE_LOOK, MAX_LENGTH};
use crate::regions::token::{NodeAddress, Peer};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A write that another layer posts. It ends once: by its post, whose end that layer sees, or by [`end`](Self::end).
pub trait Deferred: Send + Sync {
    /// Its bytes.
    fn length(&self) -> u64;

    /// Whether it cannot be posted any more. The node looks every 50 ms, and then ends it as `PeerLost`.
    fn has_ended(&self) -> bool;

    /// Posts it to released memory.
    fn post(&self, address: u64, key: u32) -> Posted;

    /// Ends it without a post.
    fn end(&self, failure: &Failure);
}

/// What became of a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Posted {
    /// Its layer sees how it ends.
    Done,
    /// There is no space in the queue now: the node posts it again every millisecond.
    Full,
    /// It cannot be posted any more, and is to end.
    Ended,
}

/// A released write that is to be posted, at once or when its queue has space.
pub(super) struct Blocked {
    pub peer: NodeAddress,
    pub serial: u64,
    pub write: Arc<dyn Deferred>,
    pub release: Release,
}

impl ConditionalWrites {
    /// Holds a write of another layer, for `patience` at most.
    ///
    /// # Errors
    /// Why it is not held. It gets no end then.
    pub fn hold_deferred(
        self: &Arc<Self>,
        peer: Peer,
        tag: Tag,
        write: Arc<dyn Deferred>,
        patience: Option<Duration>,
    ) -> Result<(), Failure> {
        let socket = peer.0.socket();
        if write.length() > MAX_LENGTH as u64 {
            let (side, rule) = (Side::Caller, Rule::Length(write.length()));
            return Err(Failure::Refused { operation: WRITE, peer: socket, side, rule, landed: 0 });
        }
        let connected = self.services.inbox().and_then(|_| self.peers.connect(peer.0));
        let connection = connected.map_err(|error| not_connected(&error, socket))?;
        self.has_deferred.store(true, Ordering::Relaxed);
        let held = self.hold(peer, tag, (connection, HeldWork::Deferred(write)), true)?;
        match patience {
            Some(patience) => self.end_after(&held, patience),
            None => self.services.look_at_timers(),
        }
        Ok(())
    }

    /// Posts a write that was released, and sends to the releaser what became of that.
    pub(super) fn post_deferred(&self, blocked: Blocked) {
        let Blocked { peer, serial, write, release } = &blocked;
        let (peer, serial, number) = (*peer, *serial, release.number);
        let message = match release.taken_by(&peer, write.length()) {
            Err(rule) => {
                let (peer, side) = (peer.socket(), Side::Target);
                write.end(&Failure::Refused { operation: WRITE, peer, side, rule, landed: 0 });
                ConditionalMessage::Ended { serial, release: Some(number), ending: Ending::Refused }
            }
            Ok(token) => match write.post(token.base, token.key) {
                Posted::Done => {
                    ConditionalMessage::Posted { serial, release: number, length: write.length() }
                }
                Posted::Full => {
                    self.blocked.lock().push_back(blocked);
                    return self.services.look_at_timers();
                }
                Posted::Ended => {
                    write.end(&queue_ended(&peer));
                    ConditionalMessage::Ended { serial, release: Some(number), ending: Ending::Withdrawn }
                }
            },
        };
        self.send_message(peer, &message);
    }

    /// Posts what had no space, and ends what cannot be posted any more. Gives when to look again.
    pub(super) fn look_at_deferred(&self) -> Option<Duration> {
        if !self.has_deferred.load(Ordering::Relaxed) {
            return None;
        }
        let blocked = std::mem::take(&mut *self.blocked.lock());
        blocked.into_iter().for_each(|blocked| self.post_deferred(blocked));
        let is_over = |write: &HeldOperation| match &write.work {
            HeldWork::Deferred(write) => write.has_ended(),
            HeldWork::Operation { .. } => false,
        };
        let ended = self.writes.lock().take_where(is_over, self.now());
        for ((peer, _), write) in ended {
            self.withdraw(&peer, write, queue_ended(&peer));
        }
        if !self.blocked.lock().is_empty() {
            return Some(FULL_QUEUE_LOOK);
        }
        (!self.writes.lock().is_empty()).then_some(DEFERRED_LOOK)
    }
}

fn queue_ended(peer: &NodeAddress) -> Failure {
    let why = "the queue pair of the write sends no more".to_owned();
    Failure::PeerLost { operation: WRITE, peer: peer.socket(), why }
}
