//! The program of the guide "Built-in handlers".

use pagewire::Node;
use pagewire_active::built_in::{BuiltIns, Chain, Outcome, Place, RemoteBuiltIns, begin_area};
use std::sync::Arc;

fn main() -> pagewire::Result<()> {
    let node = Arc::new(Node::alone()?);
    let memory = Arc::new(node.words(512)?);
    begin_area(memory.words(), 64, 128..4096)?; // where values are appended
    let served = BuiltIns::serve(&node, &memory)?;

    // This could be any process that has the address.
    let remote = RemoteBuiltIns::open(&node, &served.address())?;
    remote.run(&Chain::new().fetch_add(0, 1))?; // a count

    // A value is appended, and the pointer at 8 names it if it is 0 still.
    let push = Chain::new().append(64, b"hello").compare_swap(8, &[0; 8], &128u64.to_le_bytes());
    println!("{:?}", remote.run(&push)?[1]);

    // What the pointer names.
    let read = Chain::new().read(Place::Behind { pointer: 8, by: 0 }, 5);
    assert_eq!(remote.run(&read)?, [Outcome::Bytes(b"hello".to_vec())]);
    Ok(())
}
