//! What the fabric tells: events, as they are noted until the engine's next round handles them.
//!
//! Revocation looks at every claim of a peer. So the claims of a new channel, and the end of a peer, are noted at once.

use crate::types::channel_layout::{CHANNEL_WORDS, DIRECTION_WORDS, HAZARD_SLOTS, HAZARDS};
use derive_where::derive_where;
use pagewire_fabric::{Channel, ChannelEnd, ChannelId, Fabric, FabricEvent};
use pagewire_iommu::Hazards;
use pagewire_iommu::hazards::Revoked;
use pagewire_iommu::words::SharedWords;
use pagewire_memory::ApplicationMemory;
use parking_lot::{Mutex, RwLock};
use std::sync::atomic::{AtomicBool, Ordering};

/// The process type of a fabric's memory.
pub type ProcessOf<F> = <<F as Fabric>::Memory as ApplicationMemory>::RemoteProcess;

/// An event of a fabric.
pub type EventOf<F> = FabricEvent<<F as Fabric>::SharedMemory, ProcessOf<F>>;

/// A peer's accesses to the memory of this process.
struct PeerClaims<W> {
    channel: ChannelId,
    hazards: Hazards<W>,
    /// The peer has ended: it accesses nothing any more.
    ended: AtomicBool,
}

/// Events that the engine has not handled, and the claims of all peers.
#[derive_where(Default)]
pub struct FabricEventQueue<F: Fabric> {
    noted: Mutex<Vec<EventOf<F>>>,
    any_noted: AtomicBool,
    peers: RwLock<Vec<PeerClaims<F::SharedMemory>>>,
}

impl<F: Fabric> FabricEventQueue<F> {
    /// Notes what the fabric has to tell.
    pub fn note(&self, fabric: &F) {
        let mut noted = self.noted.lock();
        let before = noted.len();
        fabric.events(&mut noted);
        for event in &noted[before..] {
            match event {
                FabricEvent::Connected { channel, .. } | FabricEvent::Accepted { channel } => {
                    self.note_channel(channel);
                }
                FabricEvent::Departed { channel } => self.note_departure(*channel),
                FabricEvent::Refused { .. }
                | FabricEvent::BroughtIn { .. }
                | FabricEvent::DevicesChanged
                | FabricEvent::StreamsChanged => {}
            }
        }
        if noted.len() > before {
            self.any_noted.store(true, Ordering::SeqCst);
        }
    }

    fn note_channel(&self, channel: &Channel<F::SharedMemory, ProcessOf<F>>) {
        let mut peers = self.peers.write();
        if channel.words.len() < CHANNEL_WORDS || peers.iter().any(|peer| peer.channel == channel.id) {
            return;
        }
        let theirs = match channel.side {
            ChannelEnd::Opened => DIRECTION_WORDS,
            ChannelEnd::Accepted => 0,
        };
        let hazards = Hazards::new(channel.words.clone(), theirs + HAZARDS, HAZARD_SLOTS);
        peers.push(PeerClaims { channel: channel.id, hazards, ended: AtomicBool::new(false) });
    }

    fn note_departure(&self, channel: ChannelId) {
        if let Some(peer) = self.peers.read().iter().find(|peer| peer.channel == channel) {
            peer.ended.store(true, Ordering::Release);
        }
    }

    /// Whether events wait for the engine's next round.
    pub fn has_noted(&self) -> bool {
        self.any_noted.load(Ordering::SeqCst)
    }

    /// Takes the events that wait, oldest first.
    pub fn take(&self) -> Vec<EventOf<F>> {
        let mut noted = self.noted.lock();
        self.any_noted.store(false, Ordering::SeqCst);
        std::mem::take(&mut *noted)
    }

    /// Whether a peer that lives holds a claim on what was revoked. A peer that broke the rules of its ring still lives.
    pub fn peer_holds(&self, revoked: Revoked) -> bool {
        let holds = |peer: &PeerClaims<F::SharedMemory>| {
            !peer.ended.load(Ordering::Acquire) && peer.hazards.holds(revoked)
        };
        self.peers.read().iter().any(holds)
    }

    /// The channel is closed, and its peer has ended.
    pub fn forget(&self, channel: ChannelId) {
        self.peers.write().retain(|peer| peer.channel != channel);
    }
}
