//! A fault-tolerant sort (experimental): `sort FOLDER RANK SIZE`. Kill one of its processes at any instant, start it again, and the result is the same.

use pagewire::Node;
use pagewire_experimental::sort::{SortOptions, sort};
use std::path::Path;

/// Keys of each process.
const KEYS: u64 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, rank, size] = &arguments[..] else {
        return Err(
            "sort FOLDER RANK SIZE: an empty folder, this process's number from 0 on, and how many there are"
                .into(),
        );
    };
    let (rank, size): (usize, usize) = (rank.parse()?, size.parse()?);
    let node = Node::alone()?;
    let key = |index: u64| (rank as u64 * KEYS + index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let options = SortOptions::new(Path::new(folder), rank, size);
    let sorted = sort(&node, &options, || (0..KEYS).map(key).collect())?;
    println!("{} keys from position {} on: {:?}", sorted.keys.len(), sorted.position, sorted.statistics);
    Ok(())
}
