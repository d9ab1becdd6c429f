//! Bounds of this crate.

use std::time::Duration;

/// Blocks of queue pair numbers that one process may lease.
pub const BLOCKS: usize = pagewire_iommu::limits::MAX_BLOCKS;
/// Words of the published tables.
pub const TABLE_WORDS: usize = pagewire_iommu::layout::TABLE_WORDS;
/// Words of a mailbox (4 KiB).
pub const MAILBOX_WORDS: usize = 512;
/// Words of a channel, both directions (8 MiB; only touched pages exist).
pub const CHANNEL_WORDS: usize = 1 << 20;
/// Channels of one process.
pub const CHANNELS: usize = 4096;
/// Connections of strangers that have not finished the handshake; others wait in the kernel.
pub const HANDSHAKES: usize = 256;
/// Channels that a process opens at a time; more requests wait.
pub const OPENINGS: usize = 128;
/// Handshakes of either kind take this part of the descriptors that the process may have, at two or three each: the files of a channel
/// that arrive where no descriptor is left are lost, and the channel with them.
pub const DESCRIPTORS_PER_HANDSHAKE: u64 = 16;
/// Where that is less than so many, there is no such bound.
pub const FEW_HANDSHAKES: usize = 8;
/// Connections that wait in the kernel until they are accepted.
pub const BACKLOG: i32 = 1024;
/// Nanoseconds that a handshake may take with a peer that is stopped, or of which this process does not know whether it is.
pub const HANDSHAKE_TIME: u64 = 5_000_000_000;
/// Nanoseconds that a handshake may take with a peer that lives and is not stopped. Where hundreds of processes poll on few processors,
/// each of a handshake's messages waits for seconds until its receiver gets one.
pub const HANDSHAKE_TIME_AT_MOST: u64 = 300_000_000_000;
/// Nanoseconds from one look at whether such a peer is stopped to the next.
pub const STOP_LOOK_TIME: u64 = 1_000_000_000;
/// Nanoseconds after which a connection attempt at a full backlog is repeated, and after which one is accepted that had to wait.
pub const RETRY_TIME: u64 = 2_000_000;
/// Bytes of the longest message of a handshake.
pub const MESSAGE_BYTES: usize = 640;
/// Bytes of a reason that a peer may send.
pub const REASON_BYTES: usize = 512;
/// Messages taken from one connection in a row, before others have their turn.
pub const MESSAGES_IN_A_ROW: usize = 64;
/// Nanoseconds between two ticks of the kernel's coarse clock at most (CONFIG_HZ is 100 at least).
pub const TICK: u64 = 10_000_000;
/// Nanoseconds after which a polling program looks at other processes' news, if no thread sleeps on them.
pub const LOOK_TIME: u64 = 50_000;
/// Events that wait to be taken; beyond it nothing more is read from peers.
pub const EVENTS: usize = 65_536;

/// How long the end of a region waits for threads that are just bringing in a piece of it.
pub const PAGE_IN_BOUND: Duration = Duration::from_millis(100);
/// After so much of it they are interrupted: pages that come at once have come by then.
pub const INTERRUPT_AFTER: Duration = Duration::from_micros(200);
/// And again.
pub const INTERRUPT_AGAIN: Duration = Duration::from_millis(1);

/// Bytes from which on several threads bring in what one access waits for: one for each so many, as many as [`PAGE_IN_HELPERS`] beside the
/// first.
pub const SHARED_PAGE_IN: u64 = 256 << 10;
/// See [`SHARED_PAGE_IN`].
pub const PAGE_IN_HELPERS: u64 = 3;

/// Bytes of a part of a transfer that several threads share.
pub const MOVED_AT_ONCE: u64 = 128 << 10;

/// UDP payload bytes of the largest packet, ICRC included.
pub const PACKET_BYTES: usize = pagewire_wire::limits::MAX_PACKET_LEN;
/// Packets of one batch.
pub const BATCH_PACKETS: usize = 128;
/// Bytes of one batch.
pub const BATCH_BYTES: usize = 256 << 10;
/// Batches kept for reuse.
pub const BATCHES_KEPT: usize = 16;
/// Segments that the kernel cuts one send into (UDP_MAX_SEGMENTS before Linux 6.9).
pub const SEGMENTS: usize = 64;
/// Bytes of one send that is cut into segments: the largest IPv4 datagram's payload.
pub const SEGMENTED_BYTES: usize = 65_507;
/// Sockets connected to peers, each to the one that much is sent to.
pub const TX_PEER_SOCKETS: usize = 16;
/// Sends to a peer, about, after which it gets such a socket.
pub const TX_PEER_SOCKET_AFTER: u32 = 64;
/// Times that a peer is asked whether what leaves by it arrives; twice as many sends lie between two as before.
pub const MOST_ECHO_REQUESTS: u32 = 10;
/// Bytes asked for as its receive buffer: nothing is read from it (the kernel gives its least).
pub const TX_PEER_SOCKET_RECEIVE_BUFFER: usize = 1;
/// Sockets that receive what one socket of a peer sends.
pub const RX_PEER_SOCKETS: usize = 8;
/// Nanoseconds in which nothing must have come by one before another may take its place.
pub const RX_PEER_SOCKET_IDLE: u64 = 100_000_000;
/// Nanoseconds after which a socket for one peer that nothing went by is closed.
pub const UNUSED_TIME: u64 = 250_000_000;
/// Polls that look at all sockets after something came by another one than before.
pub const POLLS_OF_ALL: u32 = 256;
/// Messages that one system call receives.
pub const RECEIVE_MESSAGES: usize = 8;
/// Bytes of one received message: merged by UDP_GRO.
pub const RECEIVE_BYTES: usize = 64 << 10;
/// Reads of [`RECEIVE_MESSAGES`] after which everything has been read that a full socket buffer held when they began.
pub const RX_WATERMARK_READS: u32 = (2 * SOCKET_BUFFER / 512 / RECEIVE_MESSAGES) as u32;
/// Bytes asked for as socket buffers; the kernel gives what its limits allow.
pub const SOCKET_BUFFER: usize = 8 << 20;
/// Nanoseconds after which datagrams are offered again to a process that had no room for them.
pub const FORWARD_RETRY: u64 = 50_000;
/// Datagrams that one process forwards to another: bytes of the header in front.
pub const FORWARD_HEADER: usize = 48;
/// Forwarding sockets read in one round.
pub const FORWARD_ROUND: usize = 64;

/// Streams of one process, in each direction.
pub const STREAMS: usize = 4096;
/// Connections whose opening side has not said whom it asks for; others wait in the kernel.
pub const STREAM_CALLERS: usize = 256;
/// Nanoseconds that saying so may take.
pub const STREAM_CALL_TIME: u64 = 10_000_000_000;
/// Reads of an encrypted connection that give nothing, before others have their turn.
pub const TLS_READS: usize = 32;
/// Nanoseconds for which a connection that was refused is listened to.
pub const STREAM_LEAVE_TIME: u64 = 1_000_000_000;
/// Nanoseconds that a connection and its answer may take, where the caller has no more patience.
pub const STREAM_ANSWER_TIME: u64 = 250_000_000;
/// Nanoseconds that a connection may take at most: the kernel repeats its first packet after a second.
pub const STREAM_CONNECT_TIME: u64 = 2_000_000_000;
/// Nanoseconds after which a process that has not answered may be stopped: a new connection may be accepted by another one.
pub const STREAM_ATTEMPT_TIME: u64 = 5_000_000_000;
/// Nanoseconds after which a stream that could not be opened, or has ended, is opened anew.
pub const STREAM_PAUSE: u64 = 100_000_000;
/// Nanoseconds after which that is tried again with a host that did not answer at all.
pub const STREAM_SILENT_PAUSE: u64 = 10_000_000_000;
/// Nanoseconds after which a stream is closed by whose connection nothing has come or gone. The next packet opens it again.
pub const STREAM_IDLE: u64 = 60_000_000_000;
/// Nanoseconds for which a stream must have been open to be opened anew at once.
pub const STREAM_WORKED: u64 = 10_000_000;
/// Nanoseconds after which one is opened anew that was open for less. The pause doubles each time, up to [`STREAM_PAUSE`].
pub const STREAM_SHORT_PAUSE: u64 = 1_000_000;
/// Packets wait for so many connections that break at once, which takes a quarter of a second. Then they are lost, and whoever sends them finds out.
pub const STREAM_SHORT_LIVES: u32 = 8;
/// So often in a row a process at the end may say that it has asked itself. Then packets are lost.
pub const STREAM_CROSSINGS: u32 = 8;
/// Marks of a stream that are read before others have their turn.
pub const STREAM_MARKS: usize = 64;
/// Bytes of a stream that wait in this process for room in the socket.
pub const STREAM_UNSENT: usize = 1 << 20;
/// Bytes that wait unsent in the kernel (TCP_NOTSENT_LOWAT).
pub const STREAM_LOWAT: i32 = 256 << 10;
/// Milliseconds for which a peer's kernel may be silent (TCP_USER_TIMEOUT).
pub const STREAM_SILENCE: u32 = 10_000;
/// Bytes that are read of a stream at a time.
pub const STREAM_BUFFER: usize = 256 << 10;
/// Bytes from which on a payload is a frame of its own, and is not copied on its way between memory and the kernel.
pub const LONG_PAYLOAD: usize = 8 << 10;
/// Bytes that are read behind a long payload: headers of what follows.
pub const BEHIND_PAYLOAD: usize = 256;
/// How often a long payload of which a part has come is waited for. Then what is there is read, to make room in the socket.
pub const PAYLOAD_LOOKS: u32 = 64;
/// Bytes of the longest packet in a stream.
pub const STREAM_PACKET_BYTES: usize = pagewire_wire::limits::MAX_STREAM_PACKET_LEN;
/// Bytes of the packets that leave together: the receiver is at them while the next are filled.
pub const STREAM_FRAME_BYTES: usize = 2 * STREAM_PACKET_BYTES;

/// Packets that the capture keeps in memory until its thread has written them.
pub const CAPTURE_QUEUE: usize = 16_384;
/// Milliseconds between two writes of the capture.
pub const CAPTURE_FLUSH: u64 = 50;

/// Packets that the fault injector delays at once.
pub const DELAYED_PACKETS: usize = 65_536;
/// Nanoseconds before a delayed packet is due from which on the thread that is to send it does not sleep any more: to be woken takes about as long.
pub const AWAKE_BEFORE_DUE: u64 = 30_000;
/// Milliseconds for which the list of this host's addresses is believed.
pub const ADDRESSES_TIME: u64 = 500;
/// Runs of blocks that the steering program of port 4791 knows: three instructions each, of at most 4,096.
pub const STEERED_RUNS: usize = 1360;
/// Processes that share the port and are found by probes.
pub const STEERED_PLACES: u16 = 1024;
/// Probes under way at once (the kernel queues 10 messages at a UNIX datagram socket by default).
pub const STEERING_PROBES: u16 = 4;
/// Times in a row that so many probes may stay without any answer before the list of sockets is taken to end: members that
/// were stopped do not answer.
pub const STEERING_SILENCE: u16 = 3;
/// Nanoseconds that the answers to probes may take.
pub const STEERING_TIME: u64 = 20_000_000;
/// Nanoseconds between two rounds of probing by one process.
pub const STEERING_PAUSE: u64 = 50_000_000;
/// Nanoseconds for which a process waits for its turn to probe: whoever has it longer is taken to have been stopped in it.
pub const STEERING_PATIENCE: u64 = 60_000_000;
/// Nanoseconds between two looks whether somebody else still has it.
pub const STEERING_RETRY: u64 = 10_000_000;
/// Nanoseconds behind the time for answers after which a process does not go on with a round of probing.
pub const STEERING_STALE: u64 = 1_000_000_000;
/// Nanoseconds between two looks of a process at whether its own datagrams come back, while it uses the network and
/// others share the port.
pub const STEERING_CHECK: u64 = 100_000_000;
/// Nanoseconds that [`STEERING_CHECK`] grows to where datagrams do not come back although the steering was set up anew.
pub const STEERING_CHECK_MOST: u64 = 6_400_000_000;
/// Nanoseconds that a process waits for the steering at most, before peers send to its new numbers.
pub const STEERING_WAIT: u64 = 120_000_000;
/// Time between two looks meanwhile.
pub const STEERING_STEP: Duration = Duration::from_micros(200);

/// After so long a thread that waits for a page looks once more at what is there, and then each time that it has waited as long again.
pub const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// The longest time between two such looks of a thread that waits for a page ([`LOOK_AGAIN`]).
pub const MOST_LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Tasks for pages that rules lose at once (`on=page action=lose`).
pub const LOST_PAGES: usize = 4096;
