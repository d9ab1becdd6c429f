//! The messages by which two processes of one host make a channel.
//!
//! ```text
//! opener                                    acceptor
//!   Hello, files: tables, mailbox, channel  ->
//!                                           <-  Welcome, files: tables, mailbox; or Refuse
//!   Ready                                   ->
//! ```
//!
//! One message is one packet of a SOCK_SEQPACKET connection; files travel with it (SCM_RIGHTS). Both sides run on
//! one machine, so that integers are in its byte order. Whatever comes from a peer is checked here.

use crate::limits::REASON_BYTES;

/// First bytes of every message.
const MAGIC: u64 = u64::from_ne_bytes(*b"pagewire");
/// Version of these messages and of what is shared after them.
const VERSION: u32 = 3;

/// Files that go with a Hello: tables, mailbox, channel.
pub const HELLO_FILES: usize = 3;
/// Files that go with a Welcome: tables, mailbox.
pub const WELCOME_FILES: usize = 2;

/// Who a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Unique number of the engine instance.
    pub instance: u64,
    /// Where in the process a word with `nonce` stands: whoever can read it can touch the process's memory.
    pub nonce_address: u64,
    pub nonce: u64,
    /// It lives at a limit of memory where there is swap: [`Channel::through_rings`](crate::Channel::through_rings).
    pub swaps_at_a_limit: bool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    Hello {
        identity: Identity,
    },
    /// `touches`: whether the acceptor can touch the opener's memory, else why not.
    Welcome {
        identity: Identity,
        touches: Result<(), String>,
    },
    /// Whether the opener can touch the acceptor's memory, else why not.
    Ready {
        touches: Result<(), String>,
    },
    Refuse {
        reason: String,
    },
}

impl Message {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let (kind, identity, verdict): (u32, Option<&Identity>, Result<(), &str>) = match self {
            Message::Hello { identity } => (1, Some(identity), Ok(())),
            Message::Welcome { identity, touches } => {
                (2, Some(identity), touches.as_ref().copied().map_err(String::as_str))
            }
            Message::Ready { touches } => (3, None, touches.as_ref().copied().map_err(String::as_str)),
            Message::Refuse { reason } => (4, None, Err(reason.as_str())),
        };
        let mut bytes = Vec::with_capacity(64);
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend(VERSION.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        if let Some(identity) = identity {
            bytes.extend(identity.instance.to_ne_bytes());
            bytes.extend(identity.nonce_address.to_ne_bytes());
            bytes.extend(identity.nonce.to_ne_bytes());
            bytes.extend(u32::from(identity.swaps_at_a_limit).to_ne_bytes());
        }
        match verdict {
            Ok(()) => bytes.extend(0u64.to_ne_bytes()),
            Err(reason) => {
                bytes.extend(1u64.to_ne_bytes());
                bytes.extend(&reason.as_bytes()[..reason.floor_char_boundary_at(REASON_BYTES)]);
            }
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
                "the process there speaks version {version} of the handshake, this one {VERSION}"
            ));
        }
        let kind = reader.u32().ok_or_else(broken)?;
        let identity = match kind {
            1 | 2 => Some(reader.identity().ok_or_else(broken)?),
            _ => None,
        };
        let verdict = reader.verdict().ok_or_else(broken)?;
        match (kind, identity, verdict) {
            (1, Some(identity), Ok(())) => Ok(Message::Hello { identity }),
            (2, Some(identity), touches) => Ok(Message::Welcome { identity, touches }),
            (3, None, touches) => Ok(Message::Ready { touches }),
            (4, None, Err(reason)) => Ok(Message::Refuse { reason }),
            _ => Err(broken()),
        }
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

    fn identity(&mut self) -> Option<Identity> {
        let instance = self.u64()?;
        let nonce_address = self.u64()?;
        let nonce = self.u64()?;
        let swaps_at_a_limit = match self.u32()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        Some(Identity { instance, nonce_address, nonce, swaps_at_a_limit })
    }

    /// The outer `None`: broken.
    fn verdict(&mut self) -> Option<Result<(), String>> {
        match self.u64()? {
            0 if self.0.is_empty() => Some(Ok(())),
            1 if self.0.len() <= REASON_BYTES => {
                // It will be shown to a user: nothing that a terminal would obey.
                let reason = std::str::from_utf8(self.0).ok()?;
                Some(Err(reason.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn identities() -> impl Strategy<Value = Identity> {
        (any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()).prop_map(
            |(instance, nonce_address, nonce, swaps_at_a_limit)| Identity {
                instance,
                nonce_address,
                nonce,
                swaps_at_a_limit,
            },
        )
    }

    fn verdicts() -> impl Strategy<Value = Result<(), String>> {
        prop_oneof![Just(Ok(())), "[a-zäß ]{0,200}".prop_map(Err)]
    }

    fn messages() -> impl Strategy<Value = Message> {
        prop_oneof![
            identities().prop_map(|identity| Message::Hello { identity }),
            (identities(), verdicts()).prop_map(|(identity, touches)| Message::Welcome { identity, touches }),
            verdicts().prop_map(|touches| Message::Ready { touches }),
            "[ -~]{0,300}".prop_map(|reason| Message::Refuse { reason }),
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
    fn long_reasons_are_cut() {
        let message = Message::Refuse { reason: "ä".repeat(1000) };
        let Ok(Message::Refuse { reason }) = Message::decode(&message.encode()) else { panic!() };
        assert_eq!(reason, "ä".repeat(REASON_BYTES / 2));
    }
}
