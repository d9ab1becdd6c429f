//! The program of the guide "A hash table".

use pagewire::Node;
use pagewire_active::{HashTable, TableOptions};
use std::sync::Arc;

fn main() -> pagewire::Result<()> {
    let node = Arc::new(Node::from_env()?); // mpirun, srun, a rendezvous, or alone
    let table = HashTable::join(&node, &TableOptions::new(1000))?;

    table.insert(7, b"seven")?;
    table.insert_batch((100..200).map(|key| (key, &b"one of many"[..])))?;
    table.flush()?; // what this process has inserted is found by everyone
    node.barrier()?;

    assert_eq!(table.lookup(7)?.as_deref(), Some(&b"seven"[..]));
    node.barrier()?; // all have looked
    table.delete(7)?;
    table.flush()?;
    assert_eq!(table.lookup(7)?, None);
    println!("{} elements here", table.statistics()?.elements);
    node.barrier()?; // a process that leaves takes its part along
    Ok(())
}
