//! The bounds of the protocol. Nothing in this crate grows beyond them.

/// Longest message in bytes: 2 GiB (InfiniBand specification, volume 1, section 9.7.7).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// PSNs outstanding at most on a link that loses nothing. The specification allows 2^23.
pub const MAX_OUTSTANDING_PSNS: u32 = 1 << 22;

/// PSNs between the oldest unacknowledged and the next one on a link that may lose packets: what the
/// bitmap of a selective acknowledgement spans.
pub const LOSSY_SPAN: u32 = 256;

/// Nanoseconds after which a peer is asked again for requests that were dropped because they came before a missing one, which
/// has come since. Chosen: as long as the shortest acknowledgement timeouts in use, and longer than a thread waits for a processor.
pub const REPETITION_TIME: u64 = 50_000_000;

/// Payload bytes in flight at most on a link that may lose packets. A UDP socket's receive buffer
/// holds about 208 KiB where the administrator has not changed it.
pub const MAX_IN_FLIGHT: u32 = 192 << 10;

/// Payload bytes of one connection in flight at most in a stream, which says itself when it is full.
pub const MAX_IN_STREAM: u32 = 2 << 20;

/// Bytes that one READ request asks for at most there: several make the way of the next request short against their time.
pub const STREAM_READ_CHUNK: u32 = 512 << 10;

/// Payload bytes in flight when a connection starts.
pub const INITIAL_IN_FLIGHT: u32 = 64 << 10;

/// Packets that may be in flight after any loss.
pub const MIN_WINDOW: u32 = 2;

/// Nanoseconds of the shortest round trip below which acknowledgements are asked for half a window apart. Chosen: between two namespaces of a host it is
/// faster, at 400,000 through a short queue slower (docs/experiments/udp-streams.md).
pub const NEAR: u64 = 100_000;

/// Packets that may leave at once where sending is paced.
pub const BURST: u64 = 4;
/// Nanoseconds by which a timer is late without anybody's fault (prctl(2), `PR_SET_TIMERSLACK`): what is to leave within
/// them may leave at once.
pub const TIMER_SLACK: u64 = 50_000;

/// Bytes that one READ request asks for at most on a link that may lose packets; longer READs go out
/// as several requests, so that the requester, who sees the loss, meters the responses. Less while the window is smaller.
pub const READ_CHUNK: u32 = 64 << 10;
/// Bytes that one READ request asks for at least, however small the window has become. Most losses pass, and short requests are slow.
pub const LEAST_READ_CHUNK: u32 = 16 << 10;

/// PSNs that one READ request spans at most on a link that loses nothing.
pub const LOSSLESS_READ_SPAN: u32 = 1 << 20;

/// Packets kept out of order by one side of a connection, and their bytes.
pub const KEPT_PACKETS: usize = LOSSY_SPAN as usize;
/// See [`KEPT_PACKETS`].
pub const KEPT_BYTES: usize = 256 << 10;

/// Packets that one call of `progress` hands out at most.
pub const PROGRESS_PACKETS: u32 = 128;

/// Times in a row that a request is repeated on a link that loses nothing because the peer asks for it. Once is enough where the peer
/// could not read its bytes.
pub const LOSSLESS_REPETITIONS: u32 = 1000;

/// Nanoseconds after which a link that loses nothing is asked how it is, however long the
/// acknowledgement timeout.
pub const LOSSLESS_POLL: u64 = 100_000_000;

/// Bounds, in nanoseconds, of the early retransmission timer between two Pagewires.
pub const MIN_PROBE: u64 = 1_000_000;
/// See [`MIN_PROBE`].
pub const MAX_PROBE: u64 = 1_000_000_000;
/// Nanoseconds of the early retransmission timer before a round trip was measured.
pub const FIRST_PROBE: u64 = 20_000_000;

/// Repetitions between two Pagewires while their budget of time passes in silence, about. If a fifth of all packets is lost
/// either way, one of them goes unanswered with probability 0.36, and all of them with 10^-28.
pub const BUDGET_PROBES: u64 = 64;
/// Of them so many must have been sent, and have gone unanswered, before a peer is given up: who shares the network with many
/// others cannot always repeat when it is time.
pub const LEAST_UNANSWERED: u64 = 16;
/// Nanoseconds between two of them at least, however short the budget; timers are hardly more exact.
pub const LEAST_PROBE: u64 = 100_000;

/// Nanoseconds after which a request that waits at the peer for a page is repeated at the latest, unless the time in which a peer must
/// get on is shorter.
pub const HELD_PROBE: u64 = 1_000_000_000;

/// Nanoseconds between two HOLDs of one connection.
pub const HOLD_INTERVAL: u64 = 1_000_000;

/// Nanoseconds after which RESUME is sent for a request that was dropped for want of a page, whether the page is there or not,
/// and sent again: nobody tells of a region that ends meanwhile, and RESUME may be lost.
pub const RESUME_INTERVAL: u64 = 10_000_000;
/// Each interval is twice the one before while the packet does not come, up to so many nanoseconds.
pub const MAX_RESUME_INTERVAL: u64 = 1_000_000_000;
/// RESUMEs after which, if the packet has not come, its source is left to its timer.
pub const UNANSWERED_RESUMES: u32 = 16;

/// Payload bytes of a UC connection on the way between two Pagewires, at most; see [`MAX_IN_FLIGHT`].
pub const UC_WINDOW: u32 = 96 << 10;
/// Packets of a UC connection on the way at most: small ones cost a socket as much room as larger ones, and what overtakes
/// others must fit among the [`KEPT_PACKETS`].
pub const UC_MOST: u32 = 96;
/// Packets of a UC connection on the way at least, however many share the sockets.
pub const UC_LEAST: u32 = 4;
/// Reports that a UC receiver makes in the time of one window.
pub const UC_REPORTS: u32 = 8;
/// Nanoseconds after which a full window of a peer that reports is taken as received.
pub const UC_PATIENCE: u64 = 200_000_000;
/// Nanoseconds after which a full window of a peer that has not said what it is is taken as received.
pub const UC_PROBE: u64 = 5_000_000;
/// Nanoseconds after which a peer whose packets come and whose HELLO does not is taken for a standard one: longer than
/// a Pagewire goes on greeting.
pub const LONGEST_GREETING: u64 = 250_000_000;
/// Nanoseconds that a UC packet of a peer that is no standard one is kept for one before it that is missing: datagrams
/// overtake each other where the kernel and another process hand them over, and that process may just not be running.
pub const UC_REORDERING: u64 = 50_000_000;
