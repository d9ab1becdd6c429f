//! Many small puts in few messages (docs/guide/batches.md).

use pagewire::Node;
use pagewire_active::{Batch, Batches};
use std::sync::Arc;

fn main() -> pagewire::Result<()> {
    let node = Node::alone()?;
    let histogram = Arc::new(node.zeroed::<u64>(1000)?);
    let counts = histogram.clone();
    // Each put to a word adds to it.
    let served = Batches::redirect(&node, &histogram, move |put| {
        let word = (put.offset() / 8) as usize;
        let sum = counts.get(word).and_then(|sum| counts.set(word, sum + put.value().unwrap_or(0)));
        sum.expect("it lies inside");
    })?;

    // This could be any process that has the address.
    let mut batch = Batch::open(&node, &served.address())?;
    for number in 0..100_000u64 {
        batch.put_value(8 * (number * number % 1000), 1u64)?;
    }
    batch.flush_handled()?; // all of them are added

    let counts = served.counts();
    println!("{} puts in {} messages", counts.puts, counts.messages);
    println!("{} squares end in 001, and {} in 002", histogram.get(1)?, histogram.get(2)?);
    Ok(())
}
