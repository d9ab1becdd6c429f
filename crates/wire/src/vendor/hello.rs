//! HELLO: how two Pagewires recognise each other.
//!
//! Sent when a connection comes up and answered once, with the reply bit set. A standard peer drops
//! the unknown opcode, so that silence means "standard InfiniBand rules".

use crate::Error;
use crate::view::{get_u16, get_u32, get_u64, put, view};

/// Bytes of the body.
pub(super) const LEN: usize = 20;

mod field {
    pub const VERSION: usize = 0;
    /// Bit 0: reply. The others are reserved.
    pub const FLAGS: usize = 1;
    pub const DIRECT_PORT: usize = 2;
    pub const CAPABILITIES: usize = 4;
    pub const INSTANCE: usize = 8;
    pub const CONNECTION: usize = 16;
}

bitflags::bitflags! {
    /// What a Pagewire can do. Unknown bits are kept: a newer peer may set them.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Capabilities: u32 {
        /// Understands SELECTIVE_ACK and sends again what is missing alone.
        const SELECTIVE_ACK = 1 << 0;
        /// Understands HOLD.
        const HOLD = 1 << 1;
        // Bit 2 is reserved: older versions set it.
        /// Understands RESUME, and the flags of HOLD.
        const RESUME = 1 << 3;
        /// Takes the length in the RETH of a WRITE ONLY for that of all that is left of the WRITE, this packet included: the
        /// first packet then has the whole range checked before anything is written.
        const REMAINING_LENGTH = 1 << 4;
        /// Understands [`PARTIAL_READ`](crate::Opcode::PARTIAL_READ).
        const PARTIAL_READ = 1 << 5;
        /// Sends this connection's packets by a stream, and would have them as long as [`STREAM_MTU`](crate::limits::STREAM_MTU).
        const STREAM_UNITS = 1 << 6;
        const _ = !0;
    }
}

/// Who the sender is and what it can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Version of the body, [`Hello::VERSION`].
    pub version: u8,
    /// This answers a HELLO; it is not answered itself.
    pub reply: bool,
    /// What the sender can do.
    pub capabilities: Capabilities,
    /// UDP port on which the sender takes packets besides 4791; 0 if none.
    pub direct_port: u16,
    /// A number that the sending process drew at its start: a peer that comes back with another one
    /// is another process.
    pub instance: u64,
    /// Counts the connections on which the sending process has begun to send, this one among them; 0: it does not send on this one.
    pub connection: u32,
}

view! {
    /// A view over the body of a HELLO.
    Packet, LEN
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Version of the body.
    pub fn version(&self) -> u8 {
        self.bytes()[field::VERSION]
    }

    /// This answers a HELLO.
    pub fn reply(&self) -> bool {
        self.bytes()[field::FLAGS] & 1 != 0
    }

    /// UDP port on which the sender takes packets besides 4791; 0 if none.
    pub fn direct_port(&self) -> u16 {
        get_u16(self.bytes(), field::DIRECT_PORT)
    }

    /// What the sender can do.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_retain(get_u32(self.bytes(), field::CAPABILITIES))
    }

    /// The number of the sending process.
    pub fn instance(&self) -> u64 {
        get_u64(self.bytes(), field::INSTANCE)
    }

    /// The number of the sender's connection in its process.
    pub fn connection(&self) -> u32 {
        get_u32(self.bytes(), field::CONNECTION)
    }
}

impl Hello {
    /// The version of the body that is written and read here.
    pub const VERSION: u8 = 2;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Error::Truncated`] and [`Error::Length`] where it is not 20 bytes long, [`Error::Version`].
    pub fn parse(body: &[u8]) -> Result<Hello, Error> {
        let packet = Packet::new(body)?;
        if packet.version() != Self::VERSION {
            return Err(Error::Version(packet.version()));
        }
        if body.len() != LEN {
            return Err(Error::Length);
        }
        Ok(Hello {
            version: packet.version(),
            reply: packet.reply(),
            capabilities: packet.capabilities(),
            direct_port: packet.direct_port(),
            instance: packet.instance(),
            connection: packet.connection(),
        })
    }

    /// Writes the body and gives its length, 20 bytes.
    ///
    /// # Panics
    /// Where `buffer` is shorter.
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut packet = Packet::new(buffer).expect("the buffer holds a HELLO");
        let bytes = packet.bytes_mut();
        bytes[field::VERSION] = self.version;
        bytes[field::FLAGS] = u8::from(self.reply);
        put(bytes, field::DIRECT_PORT, self.direct_port.to_be_bytes());
        put(bytes, field::CAPABILITIES, self.capabilities.bits().to_be_bytes());
        put(bytes, field::INSTANCE, self.instance.to_be_bytes());
        put(bytes, field::CONNECTION, self.connection.to_be_bytes());
        LEN
    }
}
