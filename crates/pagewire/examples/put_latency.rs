//! Latency of small operations between two processes: `mpirun -n 2 put_latency`.

use pagewire::{Node, RemoteRegion, Rights};
use std::hint::black_box;
use std::time::Instant;

const TIMES: u32 = 100_000;

fn main() -> pagewire::Result<()> {
    let node = Node::from_env()?;
    let table = node.zeroed::<u64>(1 << 20)?;
    let tokens = node.all_gather(&table.export(Rights::all())?)?;
    let remote = node.open(&tokens[node.size() - 1])?;
    if node.rank() == 0 {
        println!("{}", node.explain(&tokens[node.size() - 1])?);
        each(&remote)?;
    }
    node.barrier()
}

fn each(remote: &RemoteRegion) -> pagewire::Result<()> {
    let mut buffer = vec![1u64];
    time("put 8 B", TIMES, || {
        buffer = remote.put(0, std::mem::take(&mut buffer)).wait()?;
        Ok(())
    })?;
    time("get 8 B", TIMES, || {
        buffer = remote.get_into(0, std::mem::take(&mut buffer)).wait()?;
        Ok(())
    })?;
    time("fetch-add", TIMES / 10, || {
        black_box(remote.fetch_add(0, 1).wait()?);
        Ok(())
    })?;
    let mut long = vec![1u64; 1 << 19];
    time("put 4 MiB", TIMES / 1000, || {
        long = remote.put(0, std::mem::take(&mut long)).wait()?;
        Ok(())
    })
}

fn time(name: &str, times: u32, mut operation: impl FnMut() -> pagewire::Result<()>) -> pagewire::Result<()> {
    for _ in 0..times / 10 {
        operation()?;
    }
    let start = Instant::now();
    for _ in 0..times {
        operation()?;
    }
    println!("{name}: {:.0} ns", start.elapsed().as_nanos() as f64 / f64::from(times));
    Ok(())
}
