//! Opcodes of the base transport header, and the one table of which extended headers they have.

use core::fmt;

/// The 8-bit opcode of a base transport header (InfiniBand specification, volume 1, table 38; XRC:
/// annex A14; CNP: annex A17; FLUSH and atomic WRITE: annex A19). Holds any value, also reserved ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// The transport service an opcode belongs to: its upper three bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram. Removed from the specification; known by name only.
    Rd,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification (0x80 to 0x9F, of which only 0x81 is defined).
    Cnp,
    /// Extended reliable connection.
    Xrc,
    /// Left to manufacturers (0xC0 to 0xFF). Pagewire keeps to 0xC0 to 0xDF.
    Manufacturer,
}

impl Transport {
    /// Whether requests are acknowledged.
    #[inline]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::Xrc)
    }
}

/// What a packet does: the lower five bits of the opcode of RC, UC, UD and XRC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the specification's.
pub enum PacketOperation {
    SendFirst = 0x00,
    SendMiddle = 0x01,
    SendLast = 0x02,
    SendLastImmediate = 0x03,
    SendOnly = 0x04,
    SendOnlyImmediate = 0x05,
    WriteFirst = 0x06,
    WriteMiddle = 0x07,
    WriteLast = 0x08,
    WriteLastImmediate = 0x09,
    WriteOnly = 0x0a,
    WriteOnlyImmediate = 0x0b,
    ReadRequest = 0x0c,
    ReadResponseFirst = 0x0d,
    ReadResponseMiddle = 0x0e,
    ReadResponseLast = 0x0f,
    ReadResponseOnly = 0x10,
    Acknowledge = 0x11,
    AtomicAcknowledge = 0x12,
    CompareSwap = 0x13,
    FetchAdd = 0x14,
    SendLastInvalidate = 0x16,
    SendOnlyInvalidate = 0x17,
    Flush = 0x1c,
    AtomicWrite = 0x1d,
}

bitflags::bitflags! {
    /// The extended headers behind a BTH. They stand in the order of these flags.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Extensions: u16 {
        /// XRC extended transport header.
        const XRCETH = 1 << 0;
        /// FLUSH extended transport header.
        const FETH = 1 << 1;
        /// Datagram extended transport header.
        const DETH = 1 << 2;
        /// RDMA extended transport header.
        const RETH = 1 << 3;
        /// Atomic extended transport header.
        const ATOMIC_ETH = 1 << 4;
        /// Acknowledge extended transport header.
        const AETH = 1 << 5;
        /// Atomic acknowledge extended transport header.
        const ATOMIC_ACK_ETH = 1 << 6;
        /// Immediate data.
        const IMM_DT = 1 << 7;
        /// Invalidate extended transport header.
        const IETH = 1 << 8;
    }
}

use PacketOperation::*;

/// Which extended headers an operation has on RC; `None` in a gap. Other transports: see `extensions`.
const RC: [Option<Extensions>; 32] = {
    let mut table = [None; 32];
    let none = Extensions::empty();
    let immediate = Extensions::IMM_DT;
    let reth = Extensions::RETH;
    let aeth = Extensions::AETH;
    let rows = [
        (SendFirst, none),
        (SendMiddle, none),
        (SendLast, none),
        (SendLastImmediate, immediate),
        (SendOnly, none),
        (SendOnlyImmediate, immediate),
        (WriteFirst, reth),
        (WriteMiddle, none),
        (WriteLast, none),
        (WriteLastImmediate, immediate),
        (WriteOnly, reth),
        (WriteOnlyImmediate, reth.union(immediate)),
        (ReadRequest, reth),
        (ReadResponseFirst, aeth),
        (ReadResponseMiddle, none),
        (ReadResponseLast, aeth),
        (ReadResponseOnly, aeth),
        (Acknowledge, aeth),
        (AtomicAcknowledge, aeth.union(Extensions::ATOMIC_ACK_ETH)),
        (CompareSwap, Extensions::ATOMIC_ETH),
        (FetchAdd, Extensions::ATOMIC_ETH),
        (SendLastInvalidate, Extensions::IETH),
        (SendOnlyInvalidate, Extensions::IETH),
        (Flush, Extensions::FETH.union(reth)),
        (AtomicWrite, reth),
    ];
    let mut row = 0;
    while row < rows.len() {
        table[rows[row].0 as usize] = Some(rows[row].1);
        row += 1;
    }
    table
};

/// The table for every opcode, worked out from [`RC`].
const EXTENSIONS: [Option<Extensions>; 256] = {
    let mut table = [None; 256];
    let mut code = 0;
    while code < 256 {
        let opcode = Opcode(code as u8);
        let low = code as u8 & 0x1f;
        table[code] = match opcode.transport() {
            Transport::Rc if code == Opcode::PARTIAL_READ.0 as usize => {
                Some(Extensions::RETH.union(Extensions::IMM_DT))
            }
            Transport::Rc => RC[low as usize],
            Transport::Uc if low <= WriteOnlyImmediate as u8 => RC[low as usize],
            Transport::Ud if low == SendOnly as u8 || low == SendOnlyImmediate as u8 => {
                match RC[low as usize] {
                    Some(extensions) => Some(extensions.union(Extensions::DETH)),
                    None => None,
                }
            }
            // Requests name the shared receive queue; responses go back without (annex A14).
            Transport::Xrc => match RC[low as usize] {
                Some(response) if low >= ReadResponseFirst as u8 && low <= AtomicAcknowledge as u8 => {
                    Some(response)
                }
                Some(request) => Some(request.union(Extensions::XRCETH)),
                None => None,
            },
            Transport::Cnp if code == Opcode::CNP.0 as usize => Some(Extensions::empty()),
            // What the body of Pagewire's own opcodes holds is not of this table: see `vendor`.
            Transport::Manufacturer
                if code >= Opcode::HELLO.0 as usize && code <= Opcode::RESUME.0 as usize =>
            {
                Some(Extensions::empty())
            }
            Transport::Manufacturer if code == Opcode::SKIP.0 as usize => Some(Extensions::empty()),
            _ => None,
        };
        code += 1;
    }
    table
};

impl Opcode {
    /// Congestion notification packet.
    pub const CNP: Opcode = Opcode(0x81);
    /// Pagewire: who I am and what I can do; see [`Hello`](crate::Hello). Inside a host, without a body: I have begun.
    pub const HELLO: Opcode = Opcode(0xc0);
    /// Pagewire: which packets have arrived; see [`SelectiveAck`](crate::SelectiveAck).
    pub const SELECTIVE_ACK: Opcode = Opcode(0xc1);
    /// Pagewire: the responder waits for a page; see [`Hold`](crate::Hold).
    pub const HOLD: Opcode = Opcode(0xc2);
    /// Pagewire: the page is there now; see [`Resume`](crate::Resume).
    pub const RESUME: Opcode = Opcode(0xc3);
    /// Pagewire: an RDMA READ Request of RC that the next request goes on with. Behind the RETH stands how many bytes of the READ that and later
    /// ones ask for, where others have immediate data.
    pub const PARTIAL_READ: Opcode = Opcode(0xcc);
    /// Pagewire: whether packets get through; see [`Echo`](crate::Echo). No header for queue pairs: fabrics exchange it.
    pub const ECHO: Opcode = Opcode(0xc4);
    /// Pagewire: a request was refused, and the stream goes on behind it; see [`Skip`](crate::Skip).
    pub const SKIP: Opcode = Opcode(0xc5);

    /// The opcode of an operation on a transport. Not every combination is one that the
    /// specification defines: [`extensions`](Self::extensions) tells.
    #[inline]
    pub const fn new(transport: Transport, operation: PacketOperation) -> Opcode {
        let high = match transport {
            Transport::Rc => 0x00,
            Transport::Uc => 0x20,
            Transport::Rd => 0x40,
            Transport::Ud => 0x60,
            Transport::Cnp => 0x80,
            Transport::Xrc => 0xa0,
            Transport::Manufacturer => 0xc0,
        };
        Opcode(high | operation as u8)
    }

    /// The transport service that the opcode belongs to.
    #[inline]
    pub const fn transport(self) -> Transport {
        match self.0 >> 5 {
            0 => Transport::Rc,
            1 => Transport::Uc,
            2 => Transport::Rd,
            3 => Transport::Ud,
            4 => Transport::Cnp,
            5 => Transport::Xrc,
            _ if self.0 == Opcode::PARTIAL_READ.0 => Transport::Rc,
            _ => Transport::Manufacturer,
        }
    }

    /// What the packet does; `None` for reserved opcodes, RD, CNP and manufacturers' opcodes.
    #[inline]
    pub const fn operation(self) -> Option<PacketOperation> {
        if self.extensions().is_none() || matches!(self.transport(), Transport::Cnp | Transport::Manufacturer)
        {
            return None;
        }
        Some(match self.0 & 0x1f {
            0x00 => SendFirst,
            0x01 => SendMiddle,
            0x02 => SendLast,
            0x03 => SendLastImmediate,
            0x04 => SendOnly,
            0x05 => SendOnlyImmediate,
            0x06 => WriteFirst,
            0x07 => WriteMiddle,
            0x08 => WriteLast,
            0x09 => WriteLastImmediate,
            0x0a => WriteOnly,
            0x0b => WriteOnlyImmediate,
            0x0c => ReadRequest,
            0x0d => ReadResponseFirst,
            0x0e => ReadResponseMiddle,
            0x0f => ReadResponseLast,
            0x10 => ReadResponseOnly,
            0x11 => Acknowledge,
            0x12 => AtomicAcknowledge,
            0x13 => CompareSwap,
            0x14 => FetchAdd,
            0x16 => SendLastInvalidate,
            0x17 => SendOnlyInvalidate,
            0x1c => Flush,
            0x1d => AtomicWrite,
            _ => return None,
        })
    }

    /// The extended headers behind the BTH; `None` if no packet of this opcode is understood here
    /// (reserved, reliable datagram, foreign manufacturers).
    #[inline]
    pub const fn extensions(self) -> Option<Extensions> {
        EXTENSIONS[self.0 as usize]
    }

    /// The first packet of a message of several.
    #[inline]
    pub const fn is_first(self) -> bool {
        matches!(self.operation(), Some(SendFirst | WriteFirst | ReadResponseFirst))
    }

    /// Neither the first nor the last packet of a message.
    #[inline]
    pub const fn is_middle(self) -> bool {
        matches!(self.operation(), Some(SendMiddle | WriteMiddle | ReadResponseMiddle))
    }

    /// The last packet of a message of several.
    #[inline]
    pub const fn is_last(self) -> bool {
        matches!(
            self.operation(),
            Some(
                SendLast
                    | SendLastImmediate
                    | SendLastInvalidate
                    | WriteLast
                    | WriteLastImmediate
                    | ReadResponseLast
            )
        )
    }

    /// A packet of a SEND or WRITE of RC: an acknowledgement of the same sender may overtake it, but no response.
    #[inline]
    pub const fn may_follow_acknowledgement(self) -> bool {
        self.0 <= Opcode::new(Transport::Rc, WriteOnlyImmediate).0
    }

    /// The only packet of its message: "only" by name, and whatever is always one packet (READ
    /// requests, acknowledgements, atomics).
    #[inline]
    pub const fn is_only(self) -> bool {
        self.operation().is_some() && !self.is_first() && !self.is_middle() && !self.is_last()
    }
}

impl PacketOperation {
    /// The specification's name, in the words of its table 38.
    pub const fn name(self) -> &'static str {
        match self {
            SendFirst => "SEND First",
            SendMiddle => "SEND Middle",
            SendLast => "SEND Last",
            SendLastImmediate => "SEND Last with Immediate",
            SendOnly => "SEND Only",
            SendOnlyImmediate => "SEND Only with Immediate",
            WriteFirst => "RDMA WRITE First",
            WriteMiddle => "RDMA WRITE Middle",
            WriteLast => "RDMA WRITE Last",
            WriteLastImmediate => "RDMA WRITE Last with Immediate",
            WriteOnly => "RDMA WRITE Only",
            WriteOnlyImmediate => "RDMA WRITE Only with Immediate",
            ReadRequest => "RDMA READ Request",
            ReadResponseFirst => "RDMA READ Response First",
            ReadResponseMiddle => "RDMA READ Response Middle",
            ReadResponseLast => "RDMA READ Response Last",
            ReadResponseOnly => "RDMA READ Response Only",
            Acknowledge => "Acknowledge",
            AtomicAcknowledge => "ATOMIC Acknowledge",
            CompareSwap => "CmpSwap",
            FetchAdd => "FetchAdd",
            SendLastInvalidate => "SEND Last with Invalidate",
            SendOnlyInvalidate => "SEND Only with Invalidate",
            Flush => "FLUSH",
            AtomicWrite => "ATOMIC WRITE",
        }
    }

    /// Whether it is a request that responses of its own answer, rather than an acknowledgement.
    pub const fn has_responses(self) -> bool {
        matches!(self, ReadRequest | CompareSwap | FetchAdd | Flush | AtomicWrite)
    }
}

impl Transport {
    /// The specification's short name.
    pub const fn name(self) -> &'static str {
        match self {
            Transport::Rc => "RC",
            Transport::Uc => "UC",
            Transport::Rd => "RD",
            Transport::Ud => "UD",
            Transport::Cnp => "CNP",
            Transport::Xrc => "XRC",
            Transport::Manufacturer => "manufacturer",
        }
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Opcode::CNP => f.write_str("CNP"),
            Opcode::HELLO => f.write_str("Pagewire HELLO"),
            Opcode::SELECTIVE_ACK => f.write_str("Pagewire SELECTIVE_ACK"),
            Opcode::HOLD => f.write_str("Pagewire HOLD"),
            Opcode::RESUME => f.write_str("Pagewire RESUME"),
            Opcode::ECHO => f.write_str("Pagewire ECHO"),
            Opcode::SKIP => f.write_str("Pagewire SKIP"),
            Opcode::PARTIAL_READ => f.write_str("Pagewire PARTIAL_READ"),
            opcode => match opcode.operation() {
                Some(operation) => write!(f, "{} {}", opcode.transport().name(), operation.name()),
                None => write!(f, "{} opcode {:#04x}", opcode.transport().name(), opcode.0),
            },
        }
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
