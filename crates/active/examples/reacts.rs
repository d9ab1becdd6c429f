//! The program of the guide "Memory that reacts".

use pagewire::{Node, Rights};
use pagewire_active::{AttributesOf, Logs};

fn main() -> pagewire::Result<()> {
    let node = Node::alone()?;
    let table = node.zeroed::<u64>(2 * 512)?; // two pages
    let log = node.access_log(1 << 20)?; // bytes for each source

    // Puts to the first page go to the log, and not to memory. Those to the second are counted, and reach memory.
    table.attributes(..4096).redirect_puts().to(&log)?;
    table.attributes(4096..).log_puts().to(&log)?;

    let serving = log.serve(|access| match access.value::<u64>() {
        Some(letter) => println!("a letter: {letter}"),
        None => println!("{} bytes were put", access.length()),
    })?;

    // This could be any other process that has the token.
    let remote = node.open(&table.export(Rights::READ | Rights::WRITE)?)?;
    remote.put_value(0, 7u64).wait()?;
    remote.put(4096, vec![1u64, 2, 3]).wait()?;
    remote.flush_handled(None).wait()?; // both handlers have returned

    assert_eq!((table.get(0)?, table.get(512)?), (0, 1));
    println!("{:?}", serving.end());
    Ok(())
}
