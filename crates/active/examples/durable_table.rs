//! A table that is there again when its process is started again (docs/guide/durable-tables.md).

use pagewire::Node;
use pagewire_active::hash_table::{Durability, Service};
use pagewire_active::{Events, HashTable, TableOptions};
use std::sync::Arc;

fn main() -> pagewire::Result<()> {
    let node = Arc::new(Node::from_env()?); // mpirun, srun, a rendezvous, or alone
    let folder = std::env::args().nth(1).unwrap_or_else(|| "table".into());
    let durability = Durability::new(folder);
    let service = Service::Events(Events::default());
    let table = HashTable::join_durable(&node, &TableOptions::new(1000), &durability, service)?;
    println!("{} elements were there", table.statistics()?.elements);

    for key in 1..=100 {
        table.insert(key, b"it stays")?;
    }
    table.flush()?;
    std::process::exit(0) // nothing is closed, and nothing was saved
}
