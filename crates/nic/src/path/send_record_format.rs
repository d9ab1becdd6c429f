//! Records of SENDs of one packet: what their headers tell, in one word or two.

use pagewire_transport::SendOnlyRequest;

/// Bytes of the longest.
pub const LONGEST: usize = 16;

// First word: destination, PSN, partition. The second is only there where it is not zero: immediate and flags.
const PSN: u32 = 24;
const PARTITION: u32 = 48;
const SOLICITED: u64 = 1 << 32;
const IMMEDIATE: u64 = 1 << 33;
const NUMBER: u64 = (1 << 24) - 1;

/// Writes it, and gives how many bytes these are.
#[inline]
pub fn emit(send: &SendOnlyRequest, into: &mut [u8; LONGEST]) -> usize {
    let first = u64::from(send.destination) & NUMBER
        | (u64::from(send.psn) & NUMBER) << PSN
        | u64::from(send.partition) << PARTITION;
    let immediate = send.immediate.map_or(0, |immediate| IMMEDIATE | u64::from(immediate));
    let second = immediate | if send.solicited { SOLICITED } else { 0 };
    into[..8].copy_from_slice(&first.to_ne_bytes());
    into[8..].copy_from_slice(&second.to_ne_bytes());
    if second == 0 { 8 } else { LONGEST }
}

/// What [`emit`] wrote. `None`: it writes nothing of that length.
#[inline(always)] // Part of each short SEND.
pub fn parse(bytes: &[u8]) -> Option<SendOnlyRequest> {
    let (first, rest) = bytes.split_first_chunk()?;
    let first = u64::from_ne_bytes(*first);
    let second = match rest {
        [] => 0,
        _ => u64::from_ne_bytes(rest.try_into().ok()?),
    };
    Some(SendOnlyRequest {
        destination: (first & NUMBER) as u32,
        psn: (first >> PSN & NUMBER) as u32,
        partition: (first >> PARTITION) as u16,
        solicited: second & SOLICITED != 0,
        immediate: (second & IMMEDIATE != 0).then_some(second as u32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewire_wire::PacketHeader;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            destination in 0u32..1 << 24, psn in 0u32..1 << 24, partition: u16, solicited: bool, immediate: Option<u32>
        ) {
            let send = SendOnlyRequest { destination, psn, partition, solicited, immediate };
            let mut bytes = [0; LONGEST];
            let length = emit(&send, &mut bytes);
            prop_assert_eq!(parse(&bytes[..length]), Some(send));
            // It is the same as a packet, too.
            let mut packet = [0; 16];
            let length = send.header().emit(&mut packet);
            let (header, read) = PacketHeader::parse(&packet[..length]).unwrap();
            prop_assert_eq!(read, length);
            prop_assert_eq!(SendOnlyRequest::of(&header), Some(send));
        }

        #[test]
        fn whatever_is_there_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..25)) {
            prop_assert_eq!(parse(&bytes).is_some(), matches!(bytes.len(), 8 | 16));
        }
    }
}
