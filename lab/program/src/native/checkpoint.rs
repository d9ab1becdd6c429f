//! What an incremental checkpoint costs, as the bench measures it by `pagewire-lab probe checkpoint SIZE`.

use anyhow::{Context, Result, ensure};
use pagewire::{Node, Region, Rights};
use pagewire_active::{Checkpoint, CheckpointKind};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Measures an incremental checkpoint of memory of so many bytes, of which a hundredth has changed, and a full copy to a file, both in
/// microseconds and with their data on the disk.
///
/// # Errors
/// If there is no memory or no disk for it.
pub(crate) fn measure(bytes: usize) -> Result<[f64; 2]> {
    let directory = tempfile::Builder::new().prefix("pagewire-checkpoint-").tempdir()?;
    let node = Node::alone()?;
    let table = node.zeroed::<u64>(bytes / 8)?;
    let remote = node.open(&table.export(Rights::all())?)?;
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for word in 0..table.len() {
        random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        table.set(word, random)?;
    }
    let mut checkpoint = Checkpoint::open(&node, directory.path().join("incremental"))?;
    checkpoint.save(&table)?;
    // As a program runs that has saved before.
    let (mut own, mut copy) = (0.0, 0.0);
    for round in 0..2 {
        let pages = bytes as u64 / PAGE;
        for index in 0..pages / 100 {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            let word = (random >> 33) % pages * PAGE / 8;
            // Half by this process, half by a peer.
            match index % 2 {
                0 => table.set(word as usize, random)?,
                _ => drop(remote.put_value(8 * word, random).wait()?),
            }
        }
        let start = Instant::now();
        let saved = checkpoint.save(&table)?;
        own = start.elapsed().as_secs_f64() * 1e6;
        ensure!(saved.kind == CheckpointKind::Incremental, "round {round} was full: {saved:?}");
        let start = Instant::now();
        full_copy(&table, &directory.path().join("full"))?;
        copy = start.elapsed().as_secs_f64() * 1e6;
    }
    Ok([own, copy])
}

/// What a program does that knows nothing of changes.
fn full_copy(table: &Region<u64>, path: &Path) -> Result<()> {
    let mut file = File::create(path).with_context(|| path.display().to_string())?;
    let mut buffer = vec![0; 1 << 20];
    for offset in (0..table.bytes()).step_by(buffer.len()) {
        let length = (table.bytes() - offset).min(buffer.len() as u64) as usize;
        table.read_bytes(offset, &mut buffer[..length])?;
        file.write_all(&buffer[..length])?;
    }
    Ok(file.sync_data()?)
}
