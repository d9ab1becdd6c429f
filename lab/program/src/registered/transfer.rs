//! Puts of registered memory to another process.

use super::{HeapVec, TRIALS, allocated, lock, median_of, microseconds, print, registered};
use anyhow::{Context, Result};
use pagewire::{Node, RemoteRegion, Rights};
use pagewire_heap::HeapRef;
use std::hint::black_box;
use std::time::Instant;

/// All sizes: `put` alone, and with it how the memory is had: `registered` (reused), `by_hand` (malloc, touch and mlock) and `copied` (malloc and
/// touch, then a copy into registered memory). Filling the memory is not counted.
pub(super) fn measure(node: &Node, sizes: &[usize]) -> Result<()> {
    let most = sizes.iter().copied().max().unwrap_or(1);
    let inbox = node.zeroed::<u8>(most)?;
    let tokens = node.all_gather(&inbox.export(Rights::WRITE)?)?;
    if node.rank() == 0 {
        let there = node.open(tokens.get(1).context("no second process")?)?;
        let heap = node.heap()?;
        for &size in sizes {
            one(&heap, &there, size)?;
        }
    }
    // The inbox stays until the last put.
    Ok(node.barrier()?)
}

fn one(heap: &HeapRef, there: &RemoteRegion, size: usize) -> Result<()> {
    let mut buffer = vec![1_u8; size];
    let put = median_of(*TRIALS.end(), || {
        let start = Instant::now();
        buffer = there.put(0, std::mem::take(&mut buffer)).wait()?;
        Ok(Some(microseconds(start)))
    })?;
    let put_of = |memory: HeapVec| -> Result<f64> {
        let start = Instant::now();
        black_box(there.put(0, memory).wait()?);
        Ok(microseconds(start))
    };
    let registered_space = median_of(*TRIALS.end(), || {
        let start = Instant::now();
        let mut memory = black_box(registered(heap.clone(), size));
        let acquired = microseconds(start);
        memory.resize(size, 1);
        Ok(Some(acquired + put_of(memory)?))
    })?;
    let by_hand = median_of(*TRIALS.end(), || {
        let start = Instant::now();
        let mut memory = black_box(allocated(size));
        let Some(guard) = lock(&memory, size) else { return Ok(None) };
        let acquired = microseconds(start);
        memory.resize(size, 1);
        let start = Instant::now();
        let memory = there.put(0, memory).wait()?;
        let time = acquired + microseconds(start);
        drop(guard);
        black_box(memory);
        Ok(Some(time))
    })?;
    let copied = median_of(*TRIALS.end(), || {
        let start = Instant::now();
        let mut view = black_box(allocated(size));
        let acquired = microseconds(start);
        view.resize(size, 1);
        let start = Instant::now();
        let mut memory = black_box(registered(heap.clone(), size));
        let acquired = acquired + microseconds(start);
        memory.resize(size, 0);
        let start = Instant::now();
        memory.copy_from_slice(&view);
        let copied = microseconds(start);
        Ok(Some(acquired + copied + put_of(memory)?))
    })?;
    print(size, [("put", put), ("registered", registered_space), ("by_hand", by_hand), ("copied", copied)])
}
