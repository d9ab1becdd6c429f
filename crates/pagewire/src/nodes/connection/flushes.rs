//! Flushes of handlers: each waits at the peer, so it has another connection than the accesses behind it, which do not wait for handlers.

use super::{ConnectionLink, PeerConnection, Queues};
use crate::limits::FLUSH_CONNECTIONS;
use crate::operations::pending::AnyPending;
use crate::operations::waiting;
use std::collections::VecDeque;
use std::sync::Arc;

/// The name of an operation that waits for handlers.
pub(crate) const FLUSH: &str = "flush of handlers";

/// A flush that starts when all accesses that it covers have ended: the peer has logged them then.
struct HeldFlush {
    /// What has not ended, as far as is known.
    before: Vec<Arc<AnyPending>>,
    flush: Arc<AnyPending>,
    connection: Arc<PeerConnection>,
}

/// The flushes that one connection covers.
#[derive(Default)]
pub(super) struct Flushes {
    held: VecDeque<HeldFlush>,
    /// The connections by which flushes go.
    connections: Vec<Arc<PeerConnection>>,
}

impl Flushes {
    /// Takes the flushes that can start, each with its connection.
    pub fn take_ready(&mut self) -> Vec<(Arc<PeerConnection>, Arc<AnyPending>)> {
        let mut ready = Vec::new();
        while let Some(held) = self.held.front_mut() {
            while held.before.pop_if(|pending| pending.is_ended()).is_some() {}
            if !held.before.is_empty() {
                break;
            }
            ready.extend(self.held.pop_front().map(|held| (held.connection, held.flush)));
        }
        ready
    }

    /// Takes all flushes that have not started.
    pub fn take_held(&mut self) -> impl Iterator<Item = Arc<AnyPending>> {
        std::mem::take(&mut self.held).into_iter().map(|held| held.flush)
    }

    /// Takes the connections of flushes.
    pub fn take_connections(&mut self) -> Vec<Arc<PeerConnection>> {
        std::mem::take(&mut self.connections)
    }

    /// The connection for one more flush: one without any, or a new one. With as many as there may be it is in order behind the other flushes of one.
    fn connection(&mut self, of: &PeerConnection) -> Arc<PeerConnection> {
        self.connections.retain(|connection| !connection.is_down());
        let is_free = |connection: &&Arc<PeerConnection>| {
            connection.queues.lock().is_quiet()
                && !self.held.iter().any(|held| Arc::ptr_eq(&held.connection, connection))
        };
        if let Some(free) = self.connections.iter().find(is_free) {
            return free.clone();
        }
        if self.connections.len() == FLUSH_CONNECTIONS {
            // Those that are used come in turn.
            self.connections.rotate_left(1);
            return self.connections[0].clone();
        }
        let new = PeerConnection::new(&of.services, &of.listener, of.peer);
        self.connections.push(new.clone());
        new
    }
}

impl PeerConnection {
    /// Starts a flush of handlers, once everything has ended that was started before. Gives the connection by which it goes. With a lost peer, or a
    /// node that has left, it ends as any operation.
    pub fn start_flush(self: &Arc<Self>, flush: Arc<AnyPending>) -> Arc<PeerConnection> {
        if self.is_forked() {
            return self.clone();
        }
        let mut queues = self.queues.lock();
        if let ConnectionLink::Down { .. } = queues.link {
            drop(queues);
            self.start([flush]);
            return self.clone();
        }
        let before: Vec<_> = queues.unfinished().filter(|pending| !pending.is_ended()).cloned().collect();
        let connection = queues.flushes.connection(self);
        // Flushes of one connection stay in order.
        if before.is_empty() && queues.flushes.held.is_empty() {
            drop(queues);
            connection.start([flush]);
        } else {
            queues.flushes.held.push_back(HeldFlush { before, flush, connection: connection.clone() });
        }
        connection
    }

    /// Everything that was started and has not ended. For a handler: no flush of handlers, which may wait for it.
    pub fn unfinished(&self) -> Vec<Arc<AnyPending>> {
        if self.is_forked() {
            return Vec::new();
        }
        let queues = self.queues.lock();
        let mut all: Vec<_> = queues.unfinished().cloned().collect();
        match waiting::current() {
            Some(_) => all.retain(|pending| pending.name != FLUSH),
            None => all.extend(queues.flushes.held.iter().map(|held| held.flush.clone())),
        }
        all
    }

    /// It, and the connections of its flushes.
    pub fn with_flushes(self: Arc<Self>) -> Vec<Arc<PeerConnection>> {
        if self.is_forked() {
            return vec![self];
        }
        let mut all = self.queues.lock().flushes.connections.clone();
        all.insert(0, self);
        all
    }
}

impl Queues {
    /// Nothing was started that has not ended, flushes of handlers aside.
    pub(super) fn is_quiet(&self) -> bool {
        self.posted.is_empty() && self.waiting.is_empty()
    }

    /// Everything that was started and has not ended, flushes of handlers aside.
    fn unfinished(&self) -> impl Iterator<Item = &Arc<AnyPending>> {
        self.posted.iter().chain(&self.waiting)
    }
}
