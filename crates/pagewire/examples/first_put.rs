//! A ring: each process of the job puts its rank to the next one, and waits for that of the one before.
//!
//! `mpirun -n 4 --oversubscribe first_put`, `srun --mpi=pmix -n 4 first_put`, or alone.

use pagewire::{Node, Rights};

fn main() -> pagewire::Result<()> {
    let node = Node::from_env()?;
    let table = node.zeroed::<u64>(2)?;
    let tokens = node.all_gather(&table.export(Rights::READ | Rights::WRITE | Rights::ATOMIC)?)?;

    let next = (node.rank() + 1) % node.size();
    let remote = node.open(&tokens[next])?;
    let put = remote.put_signal(0, vec![node.rank() as u64 + 100], remote.signal(8).add(1));
    table.signal(8)?.wait_until(|count| count >= 1)?;
    put.wait()?;

    let before = (node.rank() + node.size() - 1) % node.size();
    assert_eq!(table.get(0)?, before as u64 + 100);
    println!(
        "{} of {}: got {} from {before}; to {next}: {}",
        node.rank(),
        node.size(),
        table.get(0)?,
        node.explain(&tokens[next])?
    );
    // Nobody leaves before all have what they wait for.
    node.barrier()
}
