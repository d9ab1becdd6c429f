//! The engine, and the world around it.

use crate::runtime::settings::Settings;
use pagewire_fabric::HostFabric;
use pagewire_nic::Nic;
use std::sync::Arc;

/// The world around the engine: the real one, with the faults that the environment asks for.
pub type Host = HostFabric;

/// A running engine.
pub struct Engine {
    nic: Arc<Nic<Host>>,
    settings: Settings,
}

impl Engine {
    /// An engine that nobody runs yet.
    pub fn new(host: Host, settings: Settings) -> Self {
        Engine { nic: Nic::new(host, settings.options()), settings }
    }

    /// The software NIC.
    pub fn nic(&self) -> &Arc<Nic<Host>> {
        &self.nic
    }

    /// Serves what has come in, before this process may end: datagrams that the kernel gave to its socket but that are for
    /// other processes (the port is shared) would be lost with the socket, last acknowledgements among them.
    pub fn last_round(&self) {
        self.nic.last_round();
    }

    /// What the environment asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}
