//! The list of targets.

use crate::{datagrams, neighbour, sequences, transport_receive, wire_parse, wire_roundtrip};
use clap::ValueEnum;

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Target {
    /// Any bytes as datagrams, to a whole host: its queue pairs are of every type and in every state.
    Datagrams,
    /// Sequences of packets that are nearly right, to the same host, from its peers and from strangers.
    Sequences,
    /// The memory that a process shares with a neighbour that is hostile, or dies.
    Neighbour,
    /// Packets, requests and times into single connections of the protocol.
    TransportReceive,
    /// Any bytes into the parsers.
    WireParse,
    /// Any packet, emitted and read back.
    WireRoundtrip,
}

impl Target {
    /// All of them.
    pub const ALL: &[Target] = &[
        Target::Datagrams,
        Target::Sequences,
        Target::Neighbour,
        Target::TransportReceive,
        Target::WireParse,
        Target::WireRoundtrip,
    ];

    /// Its name: that of its folder in `fuzz/corpus`, and of its libFuzzer target.
    pub fn name(self) -> &'static str {
        match self {
            Target::Datagrams => "datagrams",
            Target::Sequences => "sequences",
            Target::Neighbour => "neighbour",
            Target::TransportReceive => "transport_receive",
            Target::WireParse => "wire_parse",
            Target::WireRoundtrip => "wire_roundtrip",
        }
    }

    /// Bytes of an input, at most, where the input is drawn: worlds are worth a long one.
    pub fn length(self) -> usize {
        match self {
            Target::Datagrams | Target::Sequences => 64 << 10,
            Target::Neighbour => 8192,
            Target::TransportReceive => 4096,
            Target::WireParse | Target::WireRoundtrip => 1024,
        }
    }

    /// Runs one input; gives how many packets it handed to a NIC or to a connection.
    ///
    /// # Panics
    /// Where a promise is broken.
    pub fn run(self, input: &[u8]) -> u64 {
        match self {
            Target::Datagrams => datagrams::run(input),
            Target::Sequences => sequences::run(input),
            Target::Neighbour => neighbour::run(input),
            Target::TransportReceive => transport_receive::run(input),
            Target::WireParse => {
                wire_parse::run(input);
                0
            }
            Target::WireRoundtrip => {
                wire_roundtrip::run(input);
                0
            }
        }
    }
}
