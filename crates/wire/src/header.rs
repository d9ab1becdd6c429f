//! The headers in front of a RoCEv2 payload as one plain value.
//!
//! [`PacketHeader`] is what transport reasons about: the base transport header and whichever extended
//! headers the opcode calls for. It owns no bytes. Which extended headers an opcode has is fixed by
//! the InfiniBand specification, volume 1, table 38; [`Opcode::extensions`](crate::Opcode::extensions)
//! is the only place that knows it. How long they are is known here.

use crate::{
    Aeth, AtomicEth, Bth, Deth, Error, Extensions, Feth, Opcode, Reth, Transport, aeth, atomic_ack_eth,
    atomic_eth, bth, deth, feth, ieth, imm_dt, reth, xrceth,
};

/// Bytes of BTH and extended headers for every opcode, 0 where there is none.
const HEADER_LEN: [u8; 256] = {
    let mut table = [0; 256];
    let mut code = 0;
    while code < 256 {
        if let Some(extensions) = Opcode(code as u8).extensions() {
            table[code] = (bth::LEN + extensions.header_len()) as u8;
        }
        code += 1;
    }
    table
};

impl Opcode {
    /// Bytes of BTH and extended headers together; `None` where [`extensions`](Self::extensions) is.
    #[inline]
    pub const fn header_len(self) -> Option<usize> {
        match HEADER_LEN[self.0 as usize] {
            0 => None,
            len => Some(len as usize),
        }
    }
}

impl Extensions {
    /// Bytes of these headers together.
    pub const fn header_len(self) -> usize {
        const LENGTHS: [(Extensions, usize); 9] = [
            (Extensions::XRCETH, xrceth::LEN),
            (Extensions::FETH, feth::LEN),
            (Extensions::DETH, deth::LEN),
            (Extensions::RETH, reth::LEN),
            (Extensions::ATOMIC_ETH, atomic_eth::LEN),
            (Extensions::AETH, aeth::LEN),
            (Extensions::ATOMIC_ACK_ETH, atomic_ack_eth::LEN),
            (Extensions::IMM_DT, imm_dt::LEN),
            (Extensions::IETH, ieth::LEN),
        ];
        let mut sum = 0;
        let mut i = 0;
        while i < LENGTHS.len() {
            if self.contains(LENGTHS[i].0) {
                sum += LENGTHS[i].1;
            }
            i += 1;
        }
        sum
    }
}

/// Everything between the UDP header and the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// Base transport header.
    pub bth: Bth,
    /// Datagram extended transport header.
    pub deth: Option<Deth>,
    /// RDMA extended transport header.
    pub reth: Option<Reth>,
    /// Atomic extended transport header.
    pub atomic: Option<AtomicEth>,
    /// Acknowledge extended transport header.
    pub aeth: Option<Aeth>,
    /// Original value in an atomic acknowledgement (AtomicAckETH, section 9.3.5.3).
    pub atomic_ack: Option<u64>,
    /// Immediate data as it stands on the wire, read big-endian.
    pub immediate: Option<u32>,
    /// IETH: the key that the peer is asked to invalidate.
    pub invalidate: Option<u32>,
    /// XRCETH: the shared receive queue that the packet is for, 24 bits.
    pub xrc: Option<u32>,
    /// FLUSH extended transport header.
    pub flush: Option<Feth>,
}

impl PacketHeader {
    /// A header of a BTH alone.
    pub const fn new(bth: Bth) -> PacketHeader {
        PacketHeader {
            bth,
            deth: None,
            reth: None,
            atomic: None,
            aeth: None,
            atomic_ack: None,
            immediate: None,
            invalidate: None,
            xrc: None,
            flush: None,
        }
    }

    /// Reads the headers at the beginning of a UDP payload; gives them and their length in bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::Version`] where the BTH's version is not 0, and
    /// [`Error::Opcode`] where [`Opcode::extensions`](crate::Opcode::extensions) is `None`, but for the reserved opcodes of RC: a
    /// responder answers these by the BTH's PSN (section 9.7.4.1), and nobody knows what stands behind it.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<(PacketHeader, usize), Error> {
        let bth = Bth::parse(&bth::Packet::new(bytes)?);
        if bth.version != 0 {
            return Err(Error::Version(bth.version));
        }
        let extensions = match bth.opcode.extensions() {
            Some(extensions) => extensions,
            None if bth.opcode.transport() == Transport::Rc => Extensions::empty(),
            None => return Err(Error::Opcode(bth.opcode)),
        };
        let mut header = PacketHeader::new(bth);
        let mut at = bth::LEN;
        if extensions.is_empty() {
            return Ok((header, at));
        }
        // One question for what few packets have.
        if extensions.intersects(Extensions::XRCETH.union(Extensions::FETH)) {
            if extensions.contains(Extensions::XRCETH) {
                header.xrc = Some(xrceth::Packet::new(&bytes[at..])?.shared_receive_queue());
                at += xrceth::LEN;
            }
            if extensions.contains(Extensions::FETH) {
                header.flush = Some(Feth::parse(&feth::Packet::new(&bytes[at..])?));
                at += feth::LEN;
            }
        }
        if extensions.contains(Extensions::DETH) {
            header.deth = Some(Deth::parse(&deth::Packet::new(&bytes[at..])?));
            at += deth::LEN;
        }
        if extensions.contains(Extensions::RETH) {
            header.reth = Some(Reth::parse(&reth::Packet::new(&bytes[at..])?));
            at += reth::LEN;
        }
        if extensions.contains(Extensions::ATOMIC_ETH) {
            header.atomic = Some(AtomicEth::parse(&atomic_eth::Packet::new(&bytes[at..])?));
            at += atomic_eth::LEN;
        }
        if extensions.contains(Extensions::AETH) {
            header.aeth = Some(Aeth::parse(&aeth::Packet::new(&bytes[at..])?));
            at += aeth::LEN;
        }
        if extensions.contains(Extensions::ATOMIC_ACK_ETH) {
            header.atomic_ack = Some(atomic_ack_eth::Packet::new(&bytes[at..])?.original());
            at += atomic_ack_eth::LEN;
        }
        if extensions.contains(Extensions::IMM_DT) {
            header.immediate = Some(imm_dt::Packet::new(&bytes[at..])?.immediate());
            at += imm_dt::LEN;
        }
        if extensions.contains(Extensions::IETH) {
            header.invalidate = Some(ieth::Packet::new(&bytes[at..])?.key());
            at += ieth::LEN;
        }
        Ok((header, at))
    }

    /// The extended headers that are present.
    pub fn extensions(&self) -> Extensions {
        let mut extensions = Extensions::empty();
        extensions.set(Extensions::XRCETH, self.xrc.is_some());
        extensions.set(Extensions::FETH, self.flush.is_some());
        extensions.set(Extensions::DETH, self.deth.is_some());
        extensions.set(Extensions::RETH, self.reth.is_some());
        extensions.set(Extensions::ATOMIC_ETH, self.atomic.is_some());
        extensions.set(Extensions::AETH, self.aeth.is_some());
        extensions.set(Extensions::ATOMIC_ACK_ETH, self.atomic_ack.is_some());
        extensions.set(Extensions::IMM_DT, self.immediate.is_some());
        extensions.set(Extensions::IETH, self.invalidate.is_some());
        extensions
    }

    /// Bytes that [`emit`](Self::emit) writes: a multiple of four, at most
    /// [`MAX_HEADER_LEN`](crate::limits::MAX_HEADER_LEN) for what the specification allows.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // There is always a BTH.
    pub fn len(&self) -> usize {
        // The headers that are present are those that the opcode calls for.
        self.bth.opcode.header_len().unwrap_or(bth::LEN)
    }

    /// Writes the headers at the beginning of `buffer` and gives their length in bytes. The extended
    /// headers present must be those that the opcode calls for (checked in debug builds).
    ///
    /// # Panics
    /// Where `buffer` is shorter than [`len`](Self::len).
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        debug_assert_eq!(Some(self.extensions()), self.bth.opcode.extensions(), "{self:?}");
        const FITS: &str = "the buffer is as long as Header::len says";
        let mut at = bth::LEN;
        self.bth.emit(&mut bth::Packet::new(&mut *buffer).expect(FITS));
        if let Some(xrc) = self.xrc {
            xrceth::Packet::new(&mut buffer[at..]).expect(FITS).set_shared_receive_queue(xrc);
            at += xrceth::LEN;
        }
        if let Some(flush) = &self.flush {
            flush.emit(&mut feth::Packet::new(&mut buffer[at..]).expect(FITS));
            at += feth::LEN;
        }
        if let Some(deth) = &self.deth {
            deth.emit(&mut deth::Packet::new(&mut buffer[at..]).expect(FITS));
            at += deth::LEN;
        }
        if let Some(reth) = &self.reth {
            reth.emit(&mut reth::Packet::new(&mut buffer[at..]).expect(FITS));
            at += reth::LEN;
        }
        if let Some(atomic) = &self.atomic {
            atomic.emit(&mut atomic_eth::Packet::new(&mut buffer[at..]).expect(FITS));
            at += atomic_eth::LEN;
        }
        if let Some(aeth) = &self.aeth {
            aeth.emit(&mut aeth::Packet::new(&mut buffer[at..]).expect(FITS));
            at += aeth::LEN;
        }
        if let Some(original) = self.atomic_ack {
            atomic_ack_eth::Packet::new(&mut buffer[at..]).expect(FITS).set_original(original);
            at += atomic_ack_eth::LEN;
        }
        if let Some(immediate) = self.immediate {
            imm_dt::Packet::new(&mut buffer[at..]).expect(FITS).set_immediate(immediate);
            at += imm_dt::LEN;
        }
        if let Some(key) = self.invalidate {
            ieth::Packet::new(&mut buffer[at..]).expect(FITS).set_key(key);
            at += ieth::LEN;
        }
        at
    }
}
