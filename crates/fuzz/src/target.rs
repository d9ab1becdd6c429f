//! The list of targets.

use crate::{connections, datagrams, neighbour, sequences, transport_receive, wire_parse, wire_roundtrip};
use clap::ValueEnum;

/// What is fuzzed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum FuzzTarget {
    /// Any bytes as datagrams, to a whole host: its queue pairs are of every type and in every state.
    Datagrams,
    /// Sequences of packets that are nearly right, to the same host, from its peers and from strangers.
    Sequences,
    /// The memory that a process shares with a neighbour that is hostile, or dies.
    Neighbour,
    /// Packets, requests and times into single connections of the protocol.
    TransportReceive,
    /// Messages of communication management, calls and times into a connection manager.
    Connections,
    /// Any bytes into the parsers.
    WireParse,
    /// Any packet, emitted and read back.
    WireRoundtrip,
}

impl FuzzTarget {
    /// All of them.
    pub const ALL: &[FuzzTarget] = &[
        FuzzTarget::Datagrams,
        FuzzTarget::Sequences,
        FuzzTarget::Neighbour,
        FuzzTarget::TransportReceive,
        FuzzTarget::Connections,
        FuzzTarget::WireParse,
        FuzzTarget::WireRoundtrip,
    ];

    /// Its name: that of its folder in `fuzz/corpus`, and of its libFuzzer target.
    pub fn name(self) -> &'static str {
        match self {
            FuzzTarget::Datagrams => "datagrams",
            FuzzTarget::Sequences => "sequences",
            FuzzTarget::Neighbour => "neighbour",
            FuzzTarget::TransportReceive => "transport_receive",
            FuzzTarget::Connections => "connections",
            FuzzTarget::WireParse => "wire_parse",
            FuzzTarget::WireRoundtrip => "wire_roundtrip",
        }
    }

    /// Bytes of an input, at most, where the input is drawn: worlds are worth a long one.
    pub fn length(self) -> usize {
        match self {
            FuzzTarget::Datagrams | FuzzTarget::Sequences => 64 << 10,
            FuzzTarget::Neighbour => 8192,
            FuzzTarget::TransportReceive | FuzzTarget::Connections => 4096,
            FuzzTarget::WireParse | FuzzTarget::WireRoundtrip => 1024,
        }
    }

    /// Runs one input; gives how many packets it handed to a NIC, a connection or a connection manager.
    ///
    /// # Panics
    /// Where a promise is broken.
    pub fn run(self, input: &[u8]) -> u64 {
        match self {
            FuzzTarget::Datagrams => datagrams::run(input),
            FuzzTarget::Sequences => sequences::run(input),
            FuzzTarget::Neighbour => neighbour::run(input),
            FuzzTarget::TransportReceive => transport_receive::run(input),
            FuzzTarget::Connections => connections::run(input),
            FuzzTarget::WireParse => {
                wire_parse::run(input);
                0
            }
            FuzzTarget::WireRoundtrip => {
                wire_roundtrip::run(input);
                0
            }
        }
    }
}
