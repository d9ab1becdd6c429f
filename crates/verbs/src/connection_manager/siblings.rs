//! Siblings: other processes of this user, each of which tells the peers of the others when those are killed (`fabric/src/last_words.rs`).

use super::outbox::Outgoing;
use super::service::{CmService, EventSource, ROUND, watch};
use pagewire_cm::LastWords;
use pagewire_fabric::{Fabric, LastMessage, ManagementDatagram, ManagementSocket, ManagementTarget, Sibling};
use pagewire_nic::ManagementRoute;
use pagewire_wire::cm::{CmDatagram, CmMessage};
use rustix::event::{PollFd, PollFlags, epoll, poll};
use rustix::time::Timespec;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// Siblings that a process knows. Each takes two descriptors.
const MAX_SIBLINGS: usize = 32;
/// For so long a process that starts waits for the answers of its siblings.
const GREETING: Duration = Duration::from_millis(50);

impl CmService {
    pub fn note_last_words(&mut self, changed: LastWords) {
        let Some(file) = &mut self.last_words else { return };
        let message = changed.datagram.map(|outgoing| LastMessage {
            udp_port: outgoing.udp_port,
            traffic_class: outgoing.traffic_class,
            hop_limit: outgoing.hop_limit,
            datagram: ManagementDatagram {
                source: outgoing.source,
                destination: outgoing.destination,
                payload: outgoing.datagram.emit(),
            },
        });
        file.set(changed.comm_id, message.as_ref());
    }

    /// Siblings have made themselves known.
    pub fn add_siblings(&mut self) {
        for _ in 0..ROUND {
            // An error is that of the next look, too.
            let found = self.last_words.as_ref().and_then(|file| file.next_sibling().ok().flatten());
            let Some(sibling) = found else { return };
            self.make_room_for_sibling();
            let token = self.watched.insert(EventSource::Sibling(sibling));
            let Some(EventSource::Sibling(sibling)) = self.watched.get(token) else { return };
            if watch(&self.ready, sibling, token, epoll::EventFlags::empty()).is_err() {
                // Another one has to be its heir.
                self.watched.remove(token);
            }
        }
    }

    /// Waits a moment for the answers of siblings: they know this process then, before it has a connection.
    pub fn await_siblings(&mut self, greeted: usize) {
        let end = Instant::now() + GREETING;
        while self.watched.siblings().len() < greeted.min(MAX_SIBLINGS) {
            let left = end.saturating_duration_since(Instant::now());
            let (Some(file), Ok(left)) = (&self.last_words, Timespec::try_from(left)) else { return };
            // One that is stopped, or is another user's, does not answer.
            if !matches!(poll(&mut [PollFd::new(file, PollFlags::IN)], Some(&left)), Ok(1..)) {
                return;
            }
            self.add_siblings();
        }
    }

    /// Forgets one at random where there are as many as there can be: so each process is known to some, however many there are.
    fn make_room_for_sibling(&mut self) {
        let known = self.watched.siblings();
        if known.len() >= MAX_SIBLINGS {
            let token = known[(self.nic.fabric().random() % known.len() as u64) as usize];
            if let Some(EventSource::Sibling(sibling)) = self.watched.remove(token) {
                self.forget(&sibling);
            }
        }
    }

    /// A sibling has ended: its peers hear of it, from one of those who know it.
    pub fn send_last_words(&mut self, sibling: Sibling) {
        if !self.say_last_words_of(&sibling) {
            let now = self.now();
            self.deaths.leave_to_heir(sibling, now);
        }
    }

    /// Does what is due about deaths.
    pub fn expire_deaths(&mut self) {
        let now = self.now();
        while let Some(sibling) = self.deaths.next_left(now) {
            // Where this process is not the heir now either there is a living one.
            self.say_last_words_of(&sibling);
        }
        self.deaths.end_marks(now);
        if self.deaths.begin_look_at_peers(now) {
            self.look_at_local_peers(now);
        }
    }

    fn look_at_local_peers(&mut self, now: Duration) {
        let peers = self.manager.silent_local_peers();
        if !peers.is_empty() {
            self.deaths.watch_local_peers(now);
        }
        for block in peers {
            // Where the kernel does not tell the next look may.
            if matches!(ManagementSocket::has_owner(ManagementTarget::CommIds(block)), Ok(false)) {
                self.manager.end_local_peer(now, block);
            }
        }
    }

    /// False: another sibling is the heir, or was, or the kernel refuses.
    fn say_last_words_of(&mut self, sibling: &Sibling) -> bool {
        let heir = match sibling.inherit() {
            Ok(Some(heir)) => heir,
            Ok(None) => return false,
            // A file that is none says nothing; without descriptors it is tried once more.
            Err(error) => return error.kind() == ErrorKind::InvalidData,
        };
        for message in heir.messages() {
            let route = ManagementRoute {
                source: message.datagram.source,
                destination: message.datagram.destination,
                udp_port: message.udp_port,
                traffic_class: message.traffic_class,
                hop_limit: message.hop_limit,
            };
            let datagram = CmDatagram::parse(&message.datagram.payload);
            let is_farewell = |datagram: &CmDatagram| ends_connection_of(datagram, sibling.block);
            if let Some(datagram) =
                datagram.filter(is_farewell).filter(|_| self.is_of_this_host(route.source))
            {
                self.outbox.push(Outgoing { route, datagram });
            }
        }
        let now = self.now();
        self.deaths.keep_mark(heir.into_mark(), now);
        true
    }
}

/// Whether a message ends a connection, or a request, of the process whose communication IDs begin with `block`.
fn ends_connection_of(datagram: &CmDatagram, block: u16) -> bool {
    let is_own = |comm_id: u32| comm_id >> 16 == u32::from(block);
    match &datagram.message {
        CmMessage::Rej(rej) => is_own(rej.local_comm_id),
        CmMessage::Dreq(dreq) => is_own(dreq.local_comm_id),
        CmMessage::Drep(drep) => is_own(drep.local_comm_id),
        // It names the peer's alone.
        CmMessage::SidrRep(_) => true,
        _ => false,
    }
}
