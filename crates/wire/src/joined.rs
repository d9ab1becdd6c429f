//! Two packets in one datagram: an acknowledgement, and behind it one that leaves together with it.
//!
//! ```text
//! BTH, AETH, ICRC | BTH, extended headers, payload, pad, ICRC
//! ```
//!
//! Sent only to a peer that says that it takes them ([`Capabilities::JOINED`](crate::Capabilities::JOINED)). Each of the two has the ICRC
//! that it would have in a datagram of its own with the same addresses, ports and IPv4 identification. No other packet begins like an
//! acknowledgement and is longer.

use crate::packet::ICRC_LEN;
use crate::{Opcode, Operation, Transport, aeth, bth};

/// Bytes of an acknowledgement with its ICRC.
pub const ACKNOWLEDGEMENT_LEN: usize = bth::LEN + aeth::LEN + ICRC_LEN;

/// Whether a packet, with its ICRC, is one that may be the first in a datagram.
#[inline]
pub fn is_acknowledgement(packet: &[u8]) -> bool {
    packet.len() == ACKNOWLEDGEMENT_LEN && begins_with_acknowledgement(packet)
}

/// Bytes of the first packet in a datagram: all, unless it is an acknowledgement and there is more. What is behind it is one
/// packet, whatever it begins with.
#[inline]
pub fn first_len(datagram: &[u8]) -> usize {
    if begins_with_acknowledgement(datagram) {
        ACKNOWLEDGEMENT_LEN.min(datagram.len())
    } else {
        datagram.len()
    }
}

#[inline]
fn begins_with_acknowledgement(bytes: &[u8]) -> bool {
    const ACKNOWLEDGE: Opcode = Opcode::new(Transport::Rc, Operation::Acknowledge);
    bytes.first() == Some(&ACKNOWLEDGE.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_acknowledgement_alone_stands_before_others() {
        let acknowledgement = [0x11; ACKNOWLEDGEMENT_LEN];
        assert!(is_acknowledgement(&acknowledgement));
        assert_eq!(first_len(&acknowledgement), 20);
        assert_eq!(first_len(&[0x11; 21]), 20);
        assert_eq!(first_len(&[0x11; 4000]), 20);
        // One that is cut off stays one packet, which is too short.
        assert_eq!(first_len(&[0x11; 19]), 19);
        for others in [&[0x11; 19][..], &[0x11; 21], &[0x12; 20], &[0x10; 20], &[0x31; 20], &[]] {
            assert!(!is_acknowledgement(others), "{others:?}");
        }
        for others in [&[0x12; 44][..], &[0x04; 44], &[0x31; 44], &[0xC1; 44], &[]] {
            assert_eq!(first_len(others), others.len());
        }
    }
}
