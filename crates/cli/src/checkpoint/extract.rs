//! The bytes of a checkpoint as a plain file.

use anyhow::{Context, Result};
use pagewire_active::{Inspection, MemoryError, SavedMemory};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The place of a region in the file that is written. What it does not get is zeros, and takes no space.
struct RegionPlace<'f> {
    file: &'f File,
    at: u64,
    bytes: u64,
}

impl SavedMemory for RegionPlace<'_> {
    fn address(&self) -> u64 {
        self.at
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn copy_out(&self, offset: u64, bytes: &mut [u8]) -> Result<(), MemoryError> {
        Ok(self.file.read_exact_at(bytes, self.at + offset)?)
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        Ok(self.file.write_all_at(bytes, self.at + offset)?)
    }
}

/// Writes the regions of a checkpoint, of the last one if no number is given, one behind the other; gives the exit status.
///
/// # Errors
/// If the file cannot be made.
pub fn extract(from: &Path, number: Option<u64>, to: &Path) -> Result<u8> {
    let inspection = match Inspection::open(from) {
        Ok(inspection) => inspection,
        Err(error) => {
            crate::tell!("pagewire: {error}");
            return Ok(1);
        }
    };
    let last = inspection.checkpoints().last().map(|last| last.number);
    let Some(number) = number.or(last) else {
        crate::tell!("pagewire: {} has no checkpoint: nothing can be restored", from.display());
        return Ok(1);
    };
    let with_path = || format!("--extract {}", to.display());
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(to).with_context(with_path)?;
    let written = write(&inspection, number, &file);
    if written.is_err() {
        std::fs::remove_file(to).with_context(with_path)?;
    }
    match written {
        Ok(()) => Ok(0),
        Err(error) => {
            crate::tell!("pagewire: {}: {error}", with_path());
            Ok(1)
        }
    }
}

fn write(inspection: &Inspection, number: u64, file: &File) -> Result<(), pagewire_active::SaveError> {
    let mut at: u64 = 0;
    let mut places = Vec::new();
    for bytes in inspection.regions() {
        places.push(RegionPlace { file, at, bytes: *bytes });
        at = at
            .checked_add(*bytes)
            .ok_or_else(|| MemoryError::from("its regions are longer than a file can be"))?;
    }
    file.set_len(at).map_err(MemoryError::from)?;
    let places: Vec<&dyn SavedMemory> = places.iter().map(|place| place as _).collect();
    inspection.restore(number, &places)?;
    Ok(())
}
