//! Times and sizes of the connection manager. Those of a kernel are Linux's (`drivers/infiniband/core/cma.c`), whose peers expect them.

use std::time::Duration;

/// Time that a peer may take to answer, as the messages say it: 4.096 us times two to this power, 4.3 s.
pub const RESPONSE_TIMEOUT: u8 = 20;

/// Times that a message is repeated.
pub const MAX_RETRIES: u8 = 15;

/// Packet lifetime of a path, in the form of [`RESPONSE_TIMEOUT`].
pub const PACKET_LIFETIME: u8 = 18;

/// Time after which a message is sent again first. The time doubles with each repetition, up to [`longest_interval`]. Chosen: longer than
/// any round trip and than a busy thread takes, shorter than a user notices.
pub const FIRST_INTERVAL: Duration = Duration::from_millis(100);

/// The longest time between two repetitions to a peer of this host: its process may have been killed before it took the message, and the
/// next one is refused then.
pub const LONGEST_HERE: Duration = Duration::from_millis(500);

/// Times that a REQ is sent again to a peer where nobody listens. Chosen with [`REFUSAL_PAUSE`]: a server that closes its listener and opens
/// the next one, as perftest does, takes some milliseconds for that. Its client connects as soon.
pub const REFUSALS: u8 = 5;

/// The pause before each of these.
pub const REFUSAL_PAUSE: Duration = Duration::from_millis(20);

/// Queries for the port at which a peer takes messages, before its silence says that it is no Pagewire. Six tolerate a loss of a third.
pub const QUERIES: u8 = 6;

/// Time between the first two of these. It doubles with each: the last one waits for 1.6 s, which is longer than a round trip around the world. A
/// kernel answers the first one, so only hosts with neither Pagewire nor Linux keep a request waiting.
pub const QUERY_INTERVAL: Duration = Duration::from_millis(50);

/// Service timeout of an MRA, in the form of [`RESPONSE_TIMEOUT`].
pub const SERVICE_TIMEOUT: u8 = 24;

/// Requests that a listener keeps until the program takes them, at most, and where it asks for none or for more.
pub const MAX_BACKLOG: usize = 1024;

/// Refusals that are kept for people who look at the process. Those that are alike count as one.
pub const KEPT_REFUSALS: usize = 16;

/// Endpoints of a manager. Each takes a communication ID, whose lower half names it.
pub const MAX_ENDPOINTS: usize = 1 << 16;

/// READs and atomics that a queue pair can have outstanding, in either direction: the device's bound is lower or the same.
pub const MAX_DEPTH: u8 = 255;

/// A time as the messages say it: 4.096 us times two to the power of `exponent`.
pub fn timeout(exponent: u8) -> Duration {
    Duration::from_nanos(4096 << exponent.min(31))
}

/// How long a peer may be silent before a request goes to UDP port 4791: 3.15 s.
pub fn query_patience() -> Duration {
    QUERY_INTERVAL * ((1 << QUERIES) - 1)
}

/// The longest time between two repetitions: an answer takes twice the lifetime of a packet, and what the peer needs.
pub fn longest_interval() -> Duration {
    2 * timeout(PACKET_LIFETIME) + timeout(RESPONSE_TIMEOUT)
}

/// How long a connection that has ended keeps its communication ID: as long as a packet of it may be under way.
/// A peer's program chooses that time: beyond 2.1 s it would only use up IDs.
pub fn timewait(ack_timeout: u8) -> Duration {
    timeout(ack_timeout.min(19))
}

/// How long a message is repeated: what [`MAX_RETRIES`] repetitions at the longest interval take.
pub fn patience() -> Duration {
    longest_interval() * (u32::from(MAX_RETRIES) + 1)
}
