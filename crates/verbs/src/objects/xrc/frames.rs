//! Messages of the processes that share an XRC domain: words of 64 bits in the byte order of the host, with bytes of messages
//! behind them. Everything that is read is checked.

use crate::abi::*;
use pagewire_fabric::members::MemberStream;
use pagewire_nic::limits::MAX_RELAYED;
use pagewire_nic::{
    AtomicRequest, Denial, FlushRequest, RelayOperation, RelayOutcome, RelayRequest, RemoteAddress,
};
use std::io;
use std::sync::Arc;

/// Changes with what is said. A process that says something else is none that can be asked.
const VERSION: u64 = 0x5057_5852_4300_0001;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Requests follow that came to the queue pair with this number.
    Relay { queue_pair: u32 },
    /// The queue pair with this number is to be opened.
    Open { queue_pair: u32 },
}

impl Purpose {
    /// Sends it.
    pub fn send(self, stream: &MemberStream) -> io::Result<()> {
        let (kind, number) = match self {
            Purpose::Relay { queue_pair } => (1, queue_pair),
            Purpose::Open { queue_pair } => (2, queue_pair),
        };
        send_words(stream, &[VERSION, kind, number.into()], &[])
    }

    /// Receives it.
    pub fn receive(stream: &MemberStream) -> io::Result<Purpose> {
        let [version, kind, number] = receive_words(stream)?;
        match (version, kind, u32::try_from(number)) {
            (VERSION, 1, Ok(queue_pair)) => Ok(Purpose::Relay { queue_pair }),
            (VERSION, 2, Ok(queue_pair)) => Ok(Purpose::Open { queue_pair }),
            _ => Err(broken()),
        }
    }
}

const REQUEST_WORDS: usize = 9;
const HAS_IMMEDIATE: u64 = 1;
const SOLICITED: u64 = 2;
const GLOBAL: u64 = 4;
const PERSISTENT: u64 = 8;
const WHOLE_REGION: u64 = 16;

/// The words of a request: operation, queue, flags, address, key, length, two numbers, bytes that follow.
fn words_of(request: &RelayRequest) -> [u64; REQUEST_WORDS] {
    let immediate_of = |immediate: Option<u32>, solicited| {
        let has = if immediate.is_some() { HAS_IMMEDIATE } else { 0 };
        (has | if solicited { SOLICITED } else { 0 }, u64::from(immediate.unwrap_or(0)))
    };
    let nowhere = RemoteAddress { address: 0, key: 0 };
    let (code, flags, remote, length, numbers) = match request.operation {
        RelayOperation::Send { immediate, solicited } => {
            let (flags, immediate) = immediate_of(immediate, solicited);
            (1, flags, nowhere, 0, [immediate, 0])
        }
        RelayOperation::Write { remote, immediate, solicited } => {
            let (flags, immediate) = immediate_of(immediate, solicited);
            (2, flags, remote, 0, [immediate, 0])
        }
        RelayOperation::AtomicWrite { remote } => (3, 0, remote, 0, [0, 0]),
        RelayOperation::Atomic { remote, atomic } => match atomic {
            AtomicRequest::CompareSwap { compare, swap } => (4, 0, remote, 0, [compare, swap]),
            AtomicRequest::FetchAdd { add } => (5, 0, remote, 0, [add, 0]),
        },
        RelayOperation::Flush { remote, length, flush } => {
            let flag = |is_set, flag| if is_set { flag } else { 0 };
            let flags = flag(flush.global, GLOBAL)
                | flag(flush.persistent, PERSISTENT)
                | flag(flush.whole_region, WHOLE_REGION);
            (6, flags, remote, length, [0, 0])
        }
        RelayOperation::CheckRead { remote, length } => (7, 0, remote, length, [0, 0]),
        RelayOperation::Read { remote, length } => (8, 0, remote, length, [0, 0]),
    };
    let (queue, bytes) = (request.queue.into(), request.payload.len() as u64);
    [code, queue, flags, remote.address, remote.key.into(), length.into(), numbers[0], numbers[1], bytes]
}

/// The operation that words name. `None`: they are none.
fn operation_of(words: &[u64; REQUEST_WORDS]) -> Option<RelayOperation> {
    let [code, _, flags, address, key, length, first, second, _] = *words;
    let (key, length) = (u32::try_from(key).ok()?, u32::try_from(length).ok()?);
    let remote = RemoteAddress { address, key };
    let has = |flag| flags & flag != 0;
    let immediate = if has(HAS_IMMEDIATE) { Some(u32::try_from(first).ok()?) } else { None };
    let solicited = has(SOLICITED);
    let flush =
        FlushRequest { global: has(GLOBAL), persistent: has(PERSISTENT), whole_region: has(WHOLE_REGION) };
    Some(match code {
        1 => RelayOperation::Send { immediate, solicited },
        2 => RelayOperation::Write { remote, immediate, solicited },
        3 => RelayOperation::AtomicWrite { remote },
        4 => {
            let atomic = AtomicRequest::CompareSwap { compare: first, swap: second };
            RelayOperation::Atomic { remote, atomic }
        }
        5 => RelayOperation::Atomic { remote, atomic: AtomicRequest::FetchAdd { add: first } },
        6 => RelayOperation::Flush { remote, length, flush },
        7 => RelayOperation::CheckRead { remote, length },
        8 => RelayOperation::Read { remote, length },
        _ => return None,
    })
}

/// Sends a request.
pub fn send_request(stream: &MemberStream, request: &RelayRequest) -> io::Result<()> {
    send_words(stream, &words_of(request), &request.payload)
}

/// Receives a request that came to this queue pair.
pub fn receive_request(stream: &MemberStream, queue_pair: u32) -> io::Result<RelayRequest> {
    let words: [u64; REQUEST_WORDS] = receive_words(stream)?;
    let operation = operation_of(&words).ok_or_else(broken)?;
    let queue = u32::try_from(words[1]).map_err(|_| broken())?;
    let payload = Arc::new(receive_bytes(stream, words[8])?);
    Ok(RelayRequest { queue, queue_pair, operation, payload })
}

/// Sends how a request ended.
pub fn send_outcome(stream: &MemberStream, outcome: &RelayOutcome) -> io::Result<()> {
    let (code, bytes): (u64, &[u8]) = match outcome {
        RelayOutcome::Done(bytes) => (0, bytes),
        RelayOutcome::NotReady => (1, &[]),
        RelayOutcome::Denied(Denial::RemoteAccess) => (2, &[]),
        RelayOutcome::Denied(Denial::InvalidRequest) => (3, &[]),
        RelayOutcome::Denied(_) => (4, &[]),
    };
    send_words(stream, &[code, bytes.len() as u64], bytes)
}

/// Receives how a request ended.
pub fn receive_outcome(stream: &MemberStream) -> io::Result<RelayOutcome> {
    let [code, length] = receive_words(stream)?;
    let bytes = receive_bytes(stream, length)?;
    Ok(match code {
        0 => RelayOutcome::Done(bytes),
        1 => RelayOutcome::NotReady,
        2 => RelayOutcome::Denied(Denial::RemoteAccess),
        3 => RelayOutcome::Denied(Denial::InvalidRequest),
        4 => RelayOutcome::Denied(Denial::Operational),
        _ => return Err(broken()),
    })
}

const ATTRIBUTE_WORDS: usize = 31;

/// What is done with a queue pair that is open elsewhere.
pub enum QueuePairCall {
    Modify { attributes: Box<ibv_qp_attr>, mask: u32 },
    Query,
}

/// Sends a call.
pub fn send_call(stream: &MemberStream, call: &QueuePairCall) -> io::Result<()> {
    match call {
        QueuePairCall::Modify { attributes, mask } => {
            let mut words = vec![1, u64::from(*mask)];
            words.extend(words_of_attributes(attributes));
            send_words(stream, &words, &[])
        }
        QueuePairCall::Query => {
            let words: [u64; 2 + ATTRIBUTE_WORDS] =
                std::array::from_fn(|index| if index == 0 { 2 } else { 0 });
            send_words(stream, &words, &[])
        }
    }
}

/// Receives a call.
pub fn receive_call(stream: &MemberStream) -> io::Result<QueuePairCall> {
    let words: [u64; 2 + ATTRIBUTE_WORDS] = receive_words(stream)?;
    match (words[0], u32::try_from(words[1])) {
        (1, Ok(mask)) => {
            let attributes = attributes_of_words(&words[2..]).ok_or_else(broken)?;
            Ok(QueuePairCall::Modify { attributes: Box::new(attributes), mask })
        }
        (2, _) => Ok(QueuePairCall::Query),
        _ => Err(broken()),
    }
}

/// Sends the answer to a call: an error number, 0 for none, and attributes.
pub fn send_answer(stream: &MemberStream, errno: i32, attributes: &ibv_qp_attr) -> io::Result<()> {
    let mut words = vec![errno.unsigned_abs().into()];
    words.extend(words_of_attributes(attributes));
    send_words(stream, &words, &[])
}

/// Receives the answer to a call.
pub fn receive_answer(stream: &MemberStream) -> io::Result<(i32, ibv_qp_attr)> {
    let words: [u64; 1 + ATTRIBUTE_WORDS] = receive_words(stream)?;
    let errno = i32::try_from(words[0]).map_err(|_| broken())?;
    Ok((errno, attributes_of_words(&words[1..]).ok_or_else(broken)?))
}

/// All that a queue pair of type XRC_RECV has.
fn words_of_attributes(attributes: &ibv_qp_attr) -> [u64; ATTRIBUTE_WORDS] {
    let address = &attributes.ah_attr;
    // SAFETY: both members of the union are 16 plain bytes.
    let gid = unsafe { address.grh.dgid.raw };
    [
        attributes.qp_state.into(),
        attributes.cur_qp_state.into(),
        attributes.path_mtu.into(),
        attributes.path_mig_state.into(),
        attributes.qkey.into(),
        attributes.rq_psn.into(),
        attributes.sq_psn.into(),
        attributes.dest_qp_num.into(),
        attributes.qp_access_flags.into(),
        attributes.pkey_index.into(),
        attributes.en_sqd_async_notify.into(),
        attributes.sq_draining.into(),
        attributes.max_rd_atomic.into(),
        attributes.max_dest_rd_atomic.into(),
        attributes.min_rnr_timer.into(),
        attributes.port_num.into(),
        attributes.timeout.into(),
        attributes.retry_cnt.into(),
        attributes.rnr_retry.into(),
        address.grh.flow_label.into(),
        address.grh.sgid_index.into(),
        address.grh.hop_limit.into(),
        address.grh.traffic_class.into(),
        address.dlid.into(),
        address.sl.into(),
        address.src_path_bits.into(),
        address.static_rate.into(),
        address.is_global.into(),
        address.port_num.into(),
        u64::from_ne_bytes(gid[..8].try_into().unwrap_or_default()),
        u64::from_ne_bytes(gid[8..].try_into().unwrap_or_default()),
    ]
}

/// The attributes that words name; what they mean is checked as those of a program are. `None`: a number is too large for its place.
fn attributes_of_words(words: &[u64]) -> Option<ibv_qp_attr> {
    let long = |index: usize| u32::try_from(*words.get(index)?).ok();
    let short = |index: usize| u16::try_from(*words.get(index)?).ok();
    let byte = |index: usize| u8::try_from(*words.get(index)?).ok();
    let mut attributes = ibv_qp_attr::zeroed();
    attributes.qp_state = long(0)?;
    attributes.cur_qp_state = long(1)?;
    attributes.path_mtu = long(2)?;
    attributes.path_mig_state = long(3)?;
    attributes.qkey = long(4)?;
    attributes.rq_psn = long(5)?;
    attributes.sq_psn = long(6)?;
    attributes.dest_qp_num = long(7)?;
    attributes.qp_access_flags = long(8)?;
    attributes.pkey_index = short(9)?;
    attributes.en_sqd_async_notify = byte(10)?;
    attributes.sq_draining = byte(11)?;
    attributes.max_rd_atomic = byte(12)?;
    attributes.max_dest_rd_atomic = byte(13)?;
    attributes.min_rnr_timer = byte(14)?;
    attributes.port_num = byte(15)?;
    attributes.timeout = byte(16)?;
    attributes.retry_cnt = byte(17)?;
    attributes.rnr_retry = byte(18)?;
    let address = &mut attributes.ah_attr;
    address.grh.flow_label = long(19)?;
    address.grh.sgid_index = byte(20)?;
    address.grh.hop_limit = byte(21)?;
    address.grh.traffic_class = byte(22)?;
    address.dlid = short(23)?;
    address.sl = byte(24)?;
    address.src_path_bits = byte(25)?;
    address.static_rate = byte(26)?;
    address.is_global = byte(27)?;
    address.port_num = byte(28)?;
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&words.get(29)?.to_ne_bytes());
    gid[8..].copy_from_slice(&words.get(30)?.to_ne_bytes());
    address.grh.dgid.raw = gid;
    Some(attributes)
}

fn send_words(stream: &MemberStream, words: &[u64], bytes: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(8 * words.len());
    words.iter().for_each(|word| frame.extend_from_slice(&word.to_ne_bytes()));
    stream.send(&frame)?;
    stream.send(bytes)
}

fn receive_words<const COUNT: usize>(stream: &MemberStream) -> io::Result<[u64; COUNT]> {
    let mut bytes = vec![0; 8 * COUNT];
    stream.receive(&mut bytes)?;
    let mut words = bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
    Ok(std::array::from_fn(|_| words.next().unwrap_or_default()))
}

fn receive_bytes(stream: &MemberStream, length: u64) -> io::Result<Vec<u8>> {
    if length > MAX_RELAYED {
        return Err(broken());
    }
    let mut bytes = vec![0; length as usize];
    stream.receive(&mut bytes)?;
    Ok(bytes)
}

/// The other process says what cannot be understood.
fn broken() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_round_trip() {
        let remote = RemoteAddress { address: 0x1234_5678_9abc, key: 0xdead_beef };
        let flush = FlushRequest { global: true, persistent: false, whole_region: true };
        let operations = [
            RelayOperation::Send { immediate: None, solicited: true },
            RelayOperation::Send { immediate: Some(u32::MAX), solicited: false },
            RelayOperation::Write { remote, immediate: Some(0), solicited: true },
            RelayOperation::AtomicWrite { remote },
            RelayOperation::Atomic {
                remote,
                atomic: AtomicRequest::CompareSwap { compare: 1, swap: u64::MAX },
            },
            RelayOperation::Atomic { remote, atomic: AtomicRequest::FetchAdd { add: u64::MAX } },
            RelayOperation::Flush { remote, length: 5, flush },
            RelayOperation::CheckRead { remote, length: u32::MAX },
            RelayOperation::Read { remote, length: 1 },
        ];
        for operation in operations {
            let request = RelayRequest { queue: 3, queue_pair: 4, operation, payload: Arc::new(vec![1, 2]) };
            let words = words_of(&request);
            assert_eq!((operation_of(&words), words[1], words[8]), (Some(operation), 3, 2));
        }
    }

    #[test]
    fn senseless_words_are_no_operation() {
        let mut words = [0; REQUEST_WORDS];
        assert_eq!(operation_of(&words), None);
        words[0] = 9;
        assert_eq!(operation_of(&words), None);
        (words[0], words[4]) = (2, 1 << 32);
        assert_eq!(operation_of(&words), None);
        (words[4], words[2], words[6]) = (0, HAS_IMMEDIATE, 1 << 32);
        assert_eq!(operation_of(&words), None);
    }

    #[test]
    fn attributes_round_trip() {
        let words: [u64; ATTRIBUTE_WORDS] = std::array::from_fn(|index| index as u64 + 1);
        let attributes = attributes_of_words(&words).unwrap();
        assert_eq!(words_of_attributes(&attributes), words);
        for index in 0..29 {
            let mut too_large = words;
            too_large[index] = 1 << 32;
            assert!(attributes_of_words(&too_large).is_none(), "word {index}");
        }
    }
}
