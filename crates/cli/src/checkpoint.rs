//! `pagewire checkpoint`: what a file of checkpoints has, and whether it is whole. And what a checkpoint costs, for `bench`.

use crate::arguments::CheckpointArguments;
use crate::table::Table;
use anyhow::{Context, Result};
use pagewire::{Node, Region, Rights};
use pagewire_active::{Checkpoint, CheckpointInfo, CheckpointKind, Inspection};
use serde_json::json;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Instant;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Prints the checkpoints of files; gives the exit status: 1 if one is damaged, or is no such file.
///
/// # Errors
/// If they cannot be printed.
pub fn checkpoint(arguments: &CheckpointArguments) -> Result<u8> {
    let mut out = anstream::stdout().lock();
    let mut code = 0;
    for path in &arguments.files {
        let looked = Inspection::open(path).and_then(|inspection| {
            if arguments.verify {
                inspection.verify()?;
            }
            Ok(inspection)
        });
        match looked {
            Ok(inspection) if arguments.json => write_json(&mut out, path, &inspection, arguments.verify)?,
            Ok(inspection) => write_table(&mut out, path, &inspection, arguments.verify)?,
            Err(error) => {
                crate::tell!("pagewire: {error}");
                code = 1;
            }
        }
    }
    Ok(code)
}

fn kind(info: &CheckpointInfo) -> &'static str {
    match info.kind {
        CheckpointKind::Full => "full",
        CheckpointKind::Incremental => "incremental",
    }
}

fn write_json(out: &mut impl Write, path: &Path, inspection: &Inspection, verified: bool) -> Result<()> {
    let checkpoints = inspection.checkpoints();
    let checkpoints: Vec<_> = checkpoints
        .iter()
        .map(|info| {
            let bytes = info.end - info.start;
            json!({ "number": info.number, "kind": kind(info), "pages": info.pages, "bytes": bytes, "note": info.note, "time": info.time })
        })
        .collect();
    let object = json!({
        "file": path.display().to_string(),
        "regions": inspection.regions(),
        "verified": verified,
        "unfinished": inspection.unfinished(),
        "checkpoints": checkpoints,
    });
    Ok(writeln!(out, "{object}")?)
}

fn write_table(out: &mut impl Write, path: &Path, inspection: &Inspection, verified: bool) -> Result<()> {
    let regions: Vec<String> = inspection.regions().iter().map(u64::to_string).collect();
    writeln!(out, "{}: regions of {} bytes", path.display(), regions.join(", "))?;
    let mut table = Table::new(&["checkpoint", "kind", "pages", "bytes", "note"]);
    for info in inspection.checkpoints() {
        let bytes = info.end - info.start;
        let numbers = [info.pages, bytes, u64::from(info.note)].map(|number| number.to_string());
        let mut row = vec![info.number.to_string(), kind(&info).to_owned()];
        row.extend(numbers);
        table.row(row);
    }
    table.write(out, "  ")?;
    if inspection.unfinished() > 0 {
        writeln!(out, "  {} bytes of one that is not finished", inspection.unfinished())?;
    }
    let last = inspection.checkpoints().last().map(|info| info.number);
    match (last, verified) {
        (None, _) => writeln!(out, "  no checkpoint")?,
        (Some(last), true) => writeln!(out, "  all data are what was saved; {last} is the last")?,
        (Some(last), false) => writeln!(out, "  {last} is the last (--verify reads all data)")?,
    }
    Ok(())
}

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
        anyhow::ensure!(saved.kind == CheckpointKind::Incremental, "round {round} was full: {saved:?}");
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
