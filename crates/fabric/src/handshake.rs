//! The messages by which two processes of one host make a channel.
//!
//! ```text
//! opener                                       acceptor
//!   Hello                                   ->
//!                                           <-  Welcome, proof of the opener's nonce
//!   Ready, proof of the acceptor's nonce,   ->
//!   files: tables, mailbox, channel
//!                                           <-  Accept, files: tables, mailbox
//!   Confirm                                 ->
//! ```
//!
//! The acceptor notes the channel before it sends Accept, the opener before it sends Confirm, and neither uses it before the
//! other has noted it. So a process that revokes a region knows every channel through which a peer may be at it.
//!
//! Hello and Welcome carry the address of a [nonce](crate::nonce), never its value. Files go only to a peer that has
//! proved, by the value, that it may trace this process. Either side sends Refuse in place of its next message.
//!
//! One message is one packet of a SOCK_SEQPACKET connection; files travel with it (SCM_RIGHTS). Both sides run on
//! one machine, so that integers are in its byte order. Whatever comes from a peer is checked here.

use crate::limits::REASON_BYTES;

/// First bytes of every message.
const MAGIC: u64 = u64::from_ne_bytes(*b"pagewire");
/// Version of these messages and of what is shared after them.
const VERSION: u32 = 4;

/// Files that go with Ready: tables, mailbox, channel.
pub const READY_FILES: usize = 3;
/// Files that go with Accept: tables, mailbox.
pub const ACCEPT_FILES: usize = 2;

/// What a process says of itself to any process of its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Unique number of the engine instance.
    pub instance: u64,
    /// Where in the process's memory the 8 bytes of this handshake's nonce stand.
    pub nonce_address: u64,
    /// It lives at a limit of memory where there is swap: [`Channel::bounce_only`](crate::Channel::bounce_only).
    pub swaps_at_a_limit: bool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// The opener asks for a channel.
    Hello { identity: Identity },
    /// The acceptor has read the opener's nonce.
    Welcome { identity: Identity, proof: u64 },
    /// The opener has read the acceptor's nonce.
    Ready { proof: u64 },
    /// The acceptor knows the channel: the opener may use it.
    Accept,
    /// The opener knows the channel: the acceptor may use it.
    Confirm,
    /// There will be no channel; the reason is one sentence for the user.
    Refuse { reason: String },
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let kind: u32 = match self {
            Message::Hello { .. } => 1,
            Message::Welcome { .. } => 2,
            Message::Ready { .. } => 3,
            Message::Refuse { .. } => 4,
            Message::Accept => 5,
            Message::Confirm => 6,
        };
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend(VERSION.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        if let Message::Hello { identity } | Message::Welcome { identity, .. } = self {
            bytes.extend(identity.instance.to_ne_bytes());
            bytes.extend(identity.nonce_address.to_ne_bytes());
            bytes.extend(u64::from(identity.swaps_at_a_limit).to_ne_bytes());
        }
        match self {
            Message::Welcome { proof, .. } | Message::Ready { proof } => bytes.extend(proof.to_ne_bytes()),
            Message::Refuse { reason } => {
                bytes.extend(&reason.as_bytes()[..reason.floor_char_boundary_at(REASON_BYTES)]);
            }
            Message::Hello { .. } | Message::Accept | Message::Confirm => {}
        }
        bytes
    }

    /// Reads a message.
    ///
    /// # Errors
    /// One sentence for the user.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let mut reader = Reader(bytes);
        let broken = || "the process there broke the rules of the handshake".to_owned();
        if reader.u64() != Some(MAGIC) {
            return Err("the process there is no Pagewire".into());
        }
        let version = reader.u32().ok_or_else(broken)?;
        if version != VERSION {
            return Err(format!(
                "the process there speaks version {version} of the handshake, this one {VERSION}: \
                 both must run the same release of Pagewire"
            ));
        }
        reader.body().ok_or_else(broken)
    }
}

trait FloorCharBoundary {
    fn floor_char_boundary_at(&self, limit: usize) -> usize;
}

impl FloorCharBoundary for str {
    fn floor_char_boundary_at(&self, limit: usize) -> usize {
        (0..=limit.min(self.len())).rev().find(|at| self.is_char_boundary(*at)).unwrap_or(0)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_ne_bytes(*first))
    }

    fn u32(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_ne_bytes(*first))
    }

    /// What follows the version. `None`: broken.
    fn body(&mut self) -> Option<Message> {
        let message = match self.u32()? {
            1 => Message::Hello { identity: self.identity()? },
            2 => Message::Welcome { identity: self.identity()?, proof: self.u64()? },
            3 => Message::Ready { proof: self.u64()? },
            4 => Message::Refuse { reason: self.reason()? },
            5 => Message::Accept,
            6 => Message::Confirm,
            _ => return None,
        };
        self.0.is_empty().then_some(message)
    }

    fn identity(&mut self) -> Option<Identity> {
        let instance = self.u64()?;
        let nonce_address = self.u64()?;
        let swaps_at_a_limit = match self.u64()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Identity { instance, nonce_address, swaps_at_a_limit })
    }

    /// The rest of the message. A terminal will show it, so control characters become blanks.
    fn reason(&mut self) -> Option<String> {
        let text = std::mem::take(&mut self.0);
        if text.len() > REASON_BYTES {
            return None;
        }
        let reason = std::str::from_utf8(text).ok()?;
        Some(reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identities() -> impl Strategy<Value = Identity> {
        (any::<u64>(), any::<u64>(), any::<bool>()).prop_map(|(instance, nonce_address, swaps_at_a_limit)| {
            Identity { instance, nonce_address, swaps_at_a_limit }
        })
    }

    fn messages() -> impl Strategy<Value = Message> {
        prop_oneof![
            identities().prop_map(|identity| Message::Hello { identity }),
            (identities(), any::<u64>()).prop_map(|(identity, proof)| Message::Welcome { identity, proof }),
            any::<u64>().prop_map(|proof| Message::Ready { proof }),
            Just(Message::Accept),
            Just(Message::Confirm),
            "[ -~äß]{0,200}".prop_map(|reason| Message::Refuse { reason }),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(message in messages()) {
            let bytes = message.encode();
            prop_assert!(bytes.len() <= crate::limits::MESSAGE_BYTES);
            prop_assert_eq!(Message::decode(&bytes), Ok(message));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = Message::decode(&bytes);
        }

        #[test]
        fn any_change(message in messages(), at in 0usize..64, value in any::<u8>()) {
            let mut bytes = message.encode();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = Message::decode(&bytes);
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = Message::Accept.encode();
        bytes[8..12].copy_from_slice(&(VERSION - 1).to_ne_bytes());
        let reason = Message::decode(&bytes).unwrap_err();
        assert!(
            reason.contains(&format!("version {} of the handshake, this one {VERSION}", VERSION - 1)),
            "{reason}"
        );
    }

    #[test]
    fn long_reasons_are_cut() {
        let message = Message::Refuse { reason: "ä".repeat(1000) };
        let Ok(Message::Refuse { reason }) = Message::decode(&message.encode()) else { panic!() };
        assert_eq!(reason, "ä".repeat(REASON_BYTES / 2));
    }
}
