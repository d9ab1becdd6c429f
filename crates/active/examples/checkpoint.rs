//! A counter that peers put to, and that goes on where it was after its process was killed (docs/guide/checkpoint.md).

use pagewire::{Node, Rights};
use pagewire_active::{Checkpoint, CheckpointError};

fn main() -> Result<(), CheckpointError> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "counter.checkpoint".to_owned());
    let node = Node::alone()?;
    let table = node.zeroed::<u64>(1000 * 512)?; // a thousand pages
    let mut checkpoint = Checkpoint::open(&node, &path)?;
    match checkpoint.restore(&table)? {
        Some(restored) => println!("checkpoint {}: the counter is {}", restored.number, table.get(0)?),
        None => println!("no checkpoint yet"),
    }

    // This could be any other process that has the token.
    let remote = node.open(&table.export(Rights::all())?)?;
    for round in 0..3u64 {
        let count = remote.fetch_add(0, 1).wait()?;
        remote.put_value(4096 * (1 + count % 900), count).wait()?;
        let saved = checkpoint.save(&table)?;
        println!("round {round}: checkpoint {}, {:?}, {} pages", saved.number, saved.kind, saved.pages);
    }
    Ok(())
}
