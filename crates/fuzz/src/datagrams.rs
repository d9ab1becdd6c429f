//! Any bytes as datagrams to a whole host. Only what the real fabric looks at before the NIC is right: the length, and the
//! queue pair number's block, without which no process would be handed the datagram.

use crate::host::{AttackedHost, ProgramWish};
use arbitrary::{Result, Unstructured};
use std::net::IpAddr;

/// Bytes of the shortest datagram that the fabric hands on, its ICRC cut off: a base transport header.
const SHORTEST: usize = 12;

/// One input; gives how many packets it held.
pub fn run(bytes: &[u8]) -> u64 {
    let mut host = AttackedHost::new();
    // The input is over: a run like any other.
    let _ = interpret(&mut Unstructured::new(bytes), &mut host);
    let packets = host.packets;
    host.end();
    packets
}

fn interpret(input: &mut Unstructured<'_>, host: &mut AttackedHost) -> Result<()> {
    let ends = host.program.ends.len();
    let mut buffer = Vec::new();
    while !input.is_empty() {
        for _ in 0..input.int_in_range(1..=16)? {
            let source = match input.int_in_range(0..=7u8)? {
                0 => IpAddr::from(input.arbitrary::<[u8; 4]>()?),
                1 => host.own_address,
                _ => host.peer_address,
            };
            let length = input.int_in_range(SHORTEST..=96)?.min(input.len());
            buffer.clear();
            buffer.extend_from_slice(input.bytes(length)?);
            buffer.resize(length.max(SHORTEST), 0);
            let number = host.program.ends[input.choose_index(ends)?].queue_pair.number();
            let low = input.int_in_range(0..=7u8)?;
            buffer[5..8].copy_from_slice(&number.to_be_bytes()[1..]);
            if low == 0 {
                // Of the block, but hardly one that exists.
                buffer[7] ^= 0x5A;
            }
            // Most would be thrown away for their version, pad count or partition.
            if low > 1 {
                (buffer[1], buffer[2], buffer[3]) = (buffer[1] & 0xC0, 0xFF, 0xFF);
            }
            host.send(source, &buffer);
        }
        host.run_for(0);
        let end = input.choose_index(ends)?;
        match input.int_in_range(0..=15u8)? {
            0 => host.run_for(u64::from(input.arbitrary::<u32>()?)),
            1 => host.program.post_receive(end, input.int_in_range(0..=1024)?, &mut host.memory),
            2 => {
                let target = &host.memory.targets[0];
                let (address, key) = (target.iova, target.key);
                host.post_send(&ProgramWish {
                    end,
                    operation: input.arbitrary()?,
                    length: 600,
                    address,
                    key,
                });
            }
            3..=10 => host.revive_fallen(input.arbitrary()?),
            _ => {}
        }
    }
    Ok(())
}
