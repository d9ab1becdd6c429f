//! A mixed random workload in both directions, with a model that knows every byte and value.

use std::collections::VecDeque;

use pagewire_transport::*;

use super::host::{Received, SHARED_QUEUE, apply};
use super::network::{MEMORY, Pair};
use super::*;

/// The responder's memory: read-only bytes, written bytes, words of atomics.
const STATIC: usize = 1 << 20;
const WRITTEN: usize = 2 << 20;
const WORDS_AT: usize = STATIC + WRITTEN;
const WORDS: usize = 16;

#[derive(Debug, Clone, Copy)]
pub struct Mix {
    pub operations: usize,
    pub largest: u32,
    /// Receives are posted late this often, which makes RNR NAKs.
    pub late_receives: bool,
    pub depth: usize,
}

struct Side {
    works: usize,
    /// What the peer's memory must hold once everything is done.
    model: Vec<u8>,
    /// What each READ and atomic must have brought.
    responses: Vec<(WorkId, Vec<u8>)>,
    /// What the peer's memory must hold when each FLUSH is executed.
    flushes: Vec<Vec<u8>>,
    /// What the peer's receives must report.
    arrivals: VecDeque<Received>,
    /// A READ of written memory is under way: what changes memory next must be fenced.
    fence_next: bool,
}

/// Runs it and checks everything; panics with what is wrong.
pub fn run(pair: &mut Pair, mix: Mix, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut sides = [0, 1].map(|side: usize| {
        let mut model = vec![0; MEMORY];
        random.fill(&mut model[..STATIC]);
        pair.ends[1 - side].host.memory.borrow_mut().copy_from_slice(&model);
        Side {
            works: 0,
            model,
            responses: Vec::new(),
            flushes: Vec::new(),
            arrivals: VecDeque::new(),
            fence_next: false,
        }
    });
    let mut receives = [0; 2];
    loop {
        let mut left = false;
        for at in 0..2 {
            while sides[at].works < mix.operations && pair.ends[at].connection.outstanding() < mix.depth {
                sides[at].works += 1;
                post_one(pair, at, &mut sides[at], mix, &mut random);
            }
            // The peer's receives follow what was posted here.
            let wanted = sides[at].arrivals.len();
            while receives[at] < wanted && (!mix.late_receives || random.f64() < 0.2) {
                receives[at] += 1;
                pair.ends[1 - at].host.post_receive(mix.largest as usize);
            }
            left |= pair.ends[at].host.completions.len() < mix.operations;
        }
        if !left {
            break;
        }
        let before = pair.now;
        pair.run_while(before + 200_000, |pair| {
            (0..2).all(|at| pair.ends[at].connection.outstanding() > mix.depth / 2)
        });
        if pair.now == before {
            pair.run(before + 200_000);
        }
        pair.now = pair.now.max(before + 1_000);
        if std::env::var_os("TRACE").is_some() && pair.ends.iter().any(|end| end.connection.is_dead()) {
            pair.print_log(150);
        }
        for end in &pair.ends {
            assert!(!end.host.failed, "{:?} {:?}", end.host.completions.last(), end.connection.counters());
            assert!(!end.connection.is_dead(), "{:?}", end.host.events);
        }
        assert!(
            pair.now < 3_600_000_000_000,
            "stuck: {:?}",
            pair.ends.each_ref().map(|end| end.connection.counters())
        );
    }
    // Stragglers change nothing.
    let until = pair.now + 10_000_000_000;
    pair.run(until);
    for (at, side) in sides.iter().enumerate() {
        let (own, peer) = (&pair.ends[at].host, &pair.ends[1 - at].host);
        let ids: Vec<_> = own.completions.iter().map(|completion| completion.0.0).collect();
        assert_eq!(ids, (0..mix.operations as u64).collect::<Vec<_>>());
        assert!(own.completions.iter().all(|completion| completion.1 == Status::Success));
        for (id, bytes) in &side.responses {
            assert!(own.buffers[id] == *bytes, "response of {id:?} is wrong");
        }
        assert_eq!(peer.flushed.len(), side.flushes.len(), "each FLUSH is executed once");
        assert!(peer.flushed == side.flushes, "a FLUSH overtook what was before it, or was overtaken");
        assert_eq!(peer.received.len(), side.arrivals.len());
        for (index, (got, wanted)) in peer.received.iter().zip(&side.arrivals).enumerate() {
            assert_eq!(got.result, wanted.result, "receive {index}");
            assert!(got.bytes == wanted.bytes, "bytes of receive {index}");
        }
        assert!(*peer.memory.borrow() == side.model, "the peer's memory is wrong");
        assert!(pair.ends[at].connection.is_drained());
        assert_eq!(own.events, []);
    }
}

fn post_one(pair: &mut Pair, at: usize, side: &mut Side, mix: Mix, random: &mut fastrand::Rng) {
    let length = match random.u8(0..4) {
        0 => random.u32(0..=64),
        1 => random.u32(0..=5000),
        2 => 1 << random.u32(0..=mix.largest.ilog2()),
        _ => random.u32(0..=mix.largest),
    };
    let mut bytes = vec![0; length as usize];
    random.fill(&mut bytes);
    let immediate = random.bool().then(|| random.u32(..));
    let solicited = random.bool();
    let fence = random.u8(0..8) == 0;
    let base =
        WorkRequest { solicited, fence, shared_queue: SHARED_QUEUE, ..work(WorkOperation::default(), 0) };
    let written = |random: &mut fastrand::Rng| STATIC + random.usize(0..WRITTEN - length as usize);
    match random.u8(0..12) {
        0..=2 => {
            let invalidate = if immediate.is_none() && random.bool() { Some(random.u32(..)) } else { None };
            let operation = WorkOperation::Send { immediate, invalidate };
            pair.post(at, WorkRequest { operation, length, ..base }, bytes.clone());
            let arrival =
                Arrival { kind: ArrivalKind::Send, length, immediate, invalidated: invalidate, solicited };
            side.arrivals.push_back(Received { result: Ok(arrival), bytes });
        }
        3..=5 => {
            let start = written(random);
            side.model[start..start + length as usize].copy_from_slice(&bytes);
            let operation = WorkOperation::Write { remote: remote(start as u64), immediate };
            let fence = fence || std::mem::take(&mut side.fence_next);
            pair.post(at, WorkRequest { operation, length, fence, ..base }, bytes);
            if immediate.is_some() {
                let arrival = Arrival {
                    kind: ArrivalKind::WriteImmediate,
                    length,
                    immediate,
                    invalidated: None,
                    solicited,
                };
                side.arrivals.push_back(Received { result: Ok(arrival), bytes: Vec::new() });
            }
        }
        6..=7 => {
            let start = if random.bool() {
                random.usize(0..STATIC - length as usize)
            } else {
                side.fence_next = true;
                written(random)
            };
            let operation = WorkOperation::Read { remote: remote(start as u64) };
            let id = pair.post(at, WorkRequest { operation, length, ..base }, vec![0; length as usize]);
            side.responses.push((id, side.model[start..start + length as usize].to_vec()));
        }
        8 => {
            let start = WORDS_AT + 8 * random.usize(0..WORDS);
            let word: &mut [u8; 8] = (&mut side.model[start..start + 8]).try_into().unwrap();
            let original = u64::from_ne_bytes(*word);
            let atomic = if random.bool() {
                AtomicRequest::FetchAdd { add: random.u64(..) }
            } else {
                let compare = if random.bool() { original } else { random.u64(..) };
                AtomicRequest::CompareSwap { compare, swap: random.u64(..) }
            };
            *word = apply(original, atomic).to_ne_bytes();
            let operation = WorkOperation::Atomic { remote: remote(start as u64), atomic };
            let id = pair.post(at, WorkRequest { operation, length: 8, ..base }, vec![0; 8]);
            side.responses.push((id, original.to_ne_bytes().to_vec()));
        }
        9 => {
            let start = WORDS_AT + 8 * random.usize(0..WORDS);
            let bytes = random.u64(..).to_ne_bytes();
            side.model[start..start + 8].copy_from_slice(&bytes);
            let operation = WorkOperation::AtomicWrite { remote: remote(start as u64) };
            pair.post(at, WorkRequest { operation, length: 8, ..base }, bytes.to_vec());
        }
        10 => {
            let start = random.usize(0..MEMORY - length as usize);
            let [global, whole_region] = [random.bool(), random.u8(0..16) == 0];
            let flush = FlushRequest { global, persistent: !global || random.bool(), whole_region };
            let range = if whole_region { 0..MEMORY } else { start..start + length as usize };
            side.flushes.push(side.model[range].to_vec());
            let operation = WorkOperation::Flush { remote: remote(start as u64), length, flush };
            pair.post(at, WorkRequest { operation, ..base }, Vec::new());
        }
        _ => {
            let operation = WorkOperation::Local(LocalWork::Invalidate);
            pair.post(at, WorkRequest { operation, ..base }, Vec::new());
        }
    }
}
