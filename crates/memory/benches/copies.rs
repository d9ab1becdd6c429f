//! What a copy between the application and the engine costs, by each way; what an atomic and a look at residency cost.

use divan::Bencher;
use pagewire_memory::{ApplicationMemory, Arena, AtomicOperation, HostMemory, HostProcess, Segment};
use std::sync::atomic::AtomicU64;

fn main() {
    divan::main();
}

const SIZES: [usize; 6] = [8, 256, 4096, 16_384, 16_392, 65_536];

fn segment(bytes: &[u8]) -> [Segment; 1] {
    [Segment { address: bytes.as_ptr() as u64, length: bytes.len() as u64 }]
}

/// Into the application, from an arena.
#[divan::bench(args = SIZES)]
fn write_from_arena(bencher: Bencher, size: usize) {
    let (memory, target) = (HostMemory::new(), vec![1u8; size]);
    let mut arena = Arena::new(size).unwrap();
    arena.bytes_mut().fill(1);
    bencher.bench_local(|| memory.write(arena.bytes(), &segment(&target), true).unwrap());
}

/// Into the application, from the heap: by way of the scratch page where that is short.
#[divan::bench(args = SIZES)]
fn write_from_heap(bencher: Bencher, size: usize) {
    let (memory, source, target) = (HostMemory::new(), vec![1u8; size], vec![1u8; size]);
    bencher.bench_local(|| memory.write(&source, &segment(&target), true).unwrap());
}

/// Out of the application, into an arena.
#[divan::bench(args = SIZES)]
fn read_into_arena(bencher: Bencher, size: usize) {
    let (memory, source) = (HostMemory::new(), vec![1u8; size]);
    let mut arena = Arena::new(size).unwrap();
    bencher.bench_local(|| memory.read(&segment(&source), arena.bytes_mut()).unwrap());
}

/// Out of the application, into the heap.
#[divan::bench(args = SIZES)]
fn read_into_heap(bencher: Bencher, size: usize) {
    let (memory, source, mut target) = (HostMemory::new(), vec![1u8; size], vec![1u8; size]);
    bencher.bench_local(|| memory.read(&segment(&source), &mut target).unwrap());
}

/// Between processes (here: the same one): process_vm_writev.
#[divan::bench(args = SIZES)]
fn push(bencher: Bencher, size: usize) {
    let (memory, source, target) = (HostMemory::new(), vec![1u8; size], vec![1u8; size]);
    let own = HostProcess::current();
    bencher.bench_local(|| memory.push(&own, &segment(&source), &segment(&target), true).unwrap());
}

#[divan::bench]
fn atomic(bencher: Bencher) {
    let (memory, word) = (HostMemory::new(), AtomicU64::new(0));
    let address = word.as_ptr() as u64;
    bencher.bench_local(|| memory.atomic(address, AtomicOperation::FetchAdd { add: 1 }).unwrap());
}

/// Of a small buffer that is in use, and of 64 MiB.
#[divan::bench(args = [4096, 64 << 20])]
fn residency(bencher: Bencher, size: usize) {
    let (memory, buffer) = (HostMemory::new(), vec![1u8; size]);
    bencher.bench_local(|| memory.residency(&segment(&buffer)));
}
