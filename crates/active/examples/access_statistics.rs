//! Which pages of a table do peers use, and who tries what they may not do? (docs/guide/access-statistics.md)

use pagewire::{Node, Rights};
use pagewire_active::AccessStatistics;

fn main() -> pagewire::Result<()> {
    let node = Node::alone()?;
    let table = node.zeroed::<u64>(100 * 512)?; // a hundred pages
    let statistics = AccessStatistics::of(&node, &table).start()?;

    // These could be any other processes that have the token.
    let remote = node.open(&table.export(Rights::all())?)?;
    for index in 0..1000u64 {
        remote.put_value(8 * (index * index % 51_200), index).wait()?;
    }
    remote.get::<u64>(0, 1024)?.wait()?;

    println!("{} puts, {} gets", statistics.total().puts, statistics.total().gets);
    for (page, counts) in statistics.hottest(3) {
        println!("page {page}: {} accesses", counts.accesses());
    }

    // From here on puts are refused, and it is counted that somebody tried.
    drop(statistics);
    let statistics = AccessStatistics::of(&node, &table).refuse_puts().start()?;
    assert!(remote.put_value(0, 1u64).wait().is_err());
    println!("{} refused", statistics.total().refused());
    Ok(())
}
