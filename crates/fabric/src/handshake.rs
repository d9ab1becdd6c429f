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
//! one machine, so that the version is in its byte order; the crate postcard writes what follows it. Whatever comes from a peer
//! is checked here.

use crate::limits::REASON_BYTES;
use serde::{Deserialize, Serialize};

/// First bytes of every message.
const MAGIC: &[u8] = b"pagewire";
/// Version of these messages and of what is shared after them.
const VERSION: u32 = 5;

/// Files that go with Ready: tables, mailbox, channel.
pub const READY_FILES: usize = 3;
/// Files that go with Accept: tables, mailbox.
pub const ACCEPT_FILES: usize = 2;

/// What a process says of itself to any process of its user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Unique number of the engine instance.
    pub instance: u64,
    /// Where in the process's memory the 8 bytes of this handshake's nonce stand.
    pub nonce_address: u64,
    /// It lives at a limit of memory where there is swap: [`Channel::bounce_only`](crate::Channel::bounce_only).
    pub swaps_at_a_limit: bool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum HandshakeMessage {
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

impl HandshakeMessage {
    /// The message as it is sent: magic number, version, and what serde makes of the rest. Reasons that are too long are cut.
    pub fn encode(&self) -> Vec<u8> {
        let cut = match self {
            HandshakeMessage::Refuse { reason } if reason.len() > REASON_BYTES => {
                let end = (0..=REASON_BYTES).rev().find(|at| reason.is_char_boundary(*at)).unwrap_or(0);
                Some(HandshakeMessage::Refuse { reason: reason[..end].to_owned() })
            }
            _ => None,
        };
        let head = [MAGIC, &VERSION.to_ne_bytes()].concat();
        postcard::to_extend(cut.as_ref().unwrap_or(self), head)
            .expect("a Vec takes as many bytes as there are")
    }

    /// Reads what a peer sent.
    ///
    /// # Errors
    /// What is wrong with it, for the user.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let broken = || "the process there broke the rules of the handshake".to_owned();
        let rest = bytes.strip_prefix(MAGIC).ok_or("the process there is no Pagewire")?;
        let (version, body) = rest.split_first_chunk().ok_or_else(broken)?;
        let version = u32::from_ne_bytes(*version);
        if version != VERSION {
            return Err(format!(
                "the process there speaks version {version} of the handshake, this one {VERSION}: \
                 both must run the same release of Pagewire"
            ));
        }
        match postcard::take_from_bytes(body) {
            Ok((HandshakeMessage::Refuse { reason }, [])) if reason.len() <= REASON_BYTES => {
                let printable = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
                Ok(HandshakeMessage::Refuse { reason: printable.collect() })
            }
            Ok((HandshakeMessage::Refuse { .. }, _)) => Err(broken()),
            Ok((message, [])) => Ok(message),
            Ok(_) | Err(_) => Err(broken()),
        }
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

    fn messages() -> impl Strategy<Value = HandshakeMessage> {
        prop_oneof![
            identities().prop_map(|identity| HandshakeMessage::Hello { identity }),
            (identities(), any::<u64>())
                .prop_map(|(identity, proof)| HandshakeMessage::Welcome { identity, proof }),
            any::<u64>().prop_map(|proof| HandshakeMessage::Ready { proof }),
            Just(HandshakeMessage::Accept),
            Just(HandshakeMessage::Confirm),
            "[ -~äß]{0,200}".prop_map(|reason| HandshakeMessage::Refuse { reason }),
        ]
    }

    proptest! {
        #[test]
        fn round_trip(message in messages()) {
            let bytes = message.encode();
            prop_assert!(bytes.len() <= crate::limits::MESSAGE_BYTES);
            prop_assert_eq!(HandshakeMessage::decode(&bytes), Ok(message));
        }

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..700)) {
            let _ = HandshakeMessage::decode(&bytes);
        }

        #[test]
        fn any_change(message in messages(), at in 0usize..64, value in any::<u8>()) {
            let mut bytes = message.encode();
            let at = at % bytes.len();
            bytes[at] = value;
            let _ = HandshakeMessage::decode(&bytes);
        }
    }

    #[test]
    fn wrong_version_is_reported() {
        let mut bytes = HandshakeMessage::Accept.encode();
        bytes[8..12].copy_from_slice(&(VERSION - 1).to_ne_bytes());
        let reason = HandshakeMessage::decode(&bytes).unwrap_err();
        assert!(
            reason.contains(&format!("version {} of the handshake, this one {VERSION}", VERSION - 1)),
            "{reason}"
        );
    }

    #[test]
    fn long_reasons_are_cut() {
        let message = HandshakeMessage::Refuse { reason: "ä".repeat(1000) };
        let Ok(HandshakeMessage::Refuse { reason }) = HandshakeMessage::decode(&message.encode()) else {
            panic!()
        };
        assert_eq!(reason, "ä".repeat(REASON_BYTES / 2));
    }
}
