//! Each process sends its rank to the next one by a conditional write, and takes that of the one before: nobody knows the other's memory
//! beforehand.
//!
//! `mpirun -n 4 --oversubscribe conditional_write`, `srun --mpi=pmix -n 4 conditional_write`, or alone.

use pagewire::{Node, Rights};
use std::time::Duration;

/// Couples the writes and their releases.
const TAG: u64 = 1;

fn main() -> pagewire::Result<()> {
    let node = Node::from_env()?;
    let next = node.peer((node.rank() + 1) % node.size())?;
    let before = node.peer((node.rank() + node.size() - 1) % node.size())?;

    // The message goes out first: the peer prepares its memory while this process prepares its own.
    let held = node.conditional_write(next, TAG, vec![node.rank() as u64; 1000])?;
    let opened = node.next_conditional_request(Duration::from_secs(60))?;
    assert_eq!(opened.peer(), before);
    let inbox = node.zeroed::<u64>(opened.length() as usize / 8)?;
    let written = opened.accept(&inbox.export(Rights::WRITE)?)?.wait()?;
    held.wait().into_result()?;

    println!("{} of {}: {written} bytes from {}", node.rank(), node.size(), inbox.get(999)?);
    assert_eq!(inbox.get(999)?, ((node.rank() + node.size() - 1) % node.size()) as u64);
    node.barrier()
}
