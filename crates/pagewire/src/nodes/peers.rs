//! The peers of a node: its connections, by address.

use crate::error::{Error, Result};
use crate::limits::MAX_PEERS;
use crate::nodes::connection::PeerConnection;
use crate::nodes::listener::ListenerHandle;
use crate::nodes::services::NodeServices;
use crate::regions::token::NodeAddress;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// The connections of a node.
pub(crate) struct PeerTable {
    services: Arc<NodeServices>,
    listener: Arc<ListenerHandle>,
    connections: Mutex<HashMap<NodeAddress, Arc<PeerConnection>>>,
}

impl PeerTable {
    pub fn new(services: Arc<NodeServices>, listener: Arc<ListenerHandle>) -> Arc<Self> {
        Arc::new(PeerTable { services, listener, connections: Mutex::default() })
    }

    /// The connection to a peer, which may have to be made yet: the first operation has that done. One that is down is made anew.
    ///
    /// # Errors
    /// `Limit`: there are too many; `Forked`.
    pub fn connection(&self, peer: NodeAddress) -> Result<Arc<PeerConnection>> {
        self.services.check_owner()?;
        let mut connections = self.connections.lock();
        if let Some(known) = connections.get(&peer).filter(|known| !known.is_down()) {
            return Ok(known.clone());
        }
        if connections.len() >= MAX_PEERS {
            connections.retain(|_, connection| !connection.is_down());
            if connections.len() >= MAX_PEERS {
                return Err(Error::Limit { what: "peers of a node", most: MAX_PEERS });
            }
        }
        let connection = PeerConnection::new(&self.services, &self.listener, peer);
        connections.insert(peer, connection.clone());
        Ok(connection)
    }

    /// The connection to a peer, once it is up.
    ///
    /// # Errors
    /// `Limit`, and `Connect`: it cannot be made.
    pub fn connect(&self, peer: NodeAddress) -> Result<Arc<PeerConnection>> {
        let connection = self.connection(peer)?;
        connection.ensure_up()?;
        Ok(connection)
    }

    /// All connections.
    pub fn all(&self) -> Vec<Arc<PeerConnection>> {
        self.connections.lock().values().cloned().collect()
    }

    /// Ends all connections.
    pub fn close(&self) {
        let all = std::mem::take(&mut *self.connections.lock());
        for connection in all.into_values() {
            connection.close();
        }
    }
}
