//! What others have got of the sorted run of this process, in its own memory (PAPERS AA-12): for each other process the index and key of each get, as
//! the access log shows them. Whoever takes the place of a process that died gets it in one piece.

use super::error::SortError;
use pagewire::access_log::LoggedOperation;
use pagewire::{Node, Region, RemoteRegion, Rights, Token};
use pagewire_active::Access;
use std::collections::HashMap;

/// Entries that one get of a log brings.
const ENTRIES_AT_ONCE: u64 = 1 << 12;

/// The gets of one other process: a count, and pairs of index and key.
pub struct GotLog {
    entries: Region<u64>,
    count: u64,
}

impl GotLog {
    /// A log of so many gets; later ones are not kept.
    pub fn new(node: &Node, gets: usize) -> Result<GotLog, SortError> {
        Ok(GotLog { entries: node.zeroed::<u64>(1 + 2 * gets)?, count: 0 })
    }

    pub fn export(&self) -> Result<Token, SortError> {
        Ok(self.entries.export(Rights::READ)?)
    }

    /// Notes what a get has returned. `run`: the address of the run.
    pub fn note(&mut self, access: &Access<'_>, run: u64) {
        let (Some(at), LoggedOperation::Read) = (access.offset_from(run), access.operation()) else { return };
        for (place, key) in access.bytes().chunks_exact(8).enumerate() {
            let pair = [at / 8 + place as u64, key.try_into().map_or(0, u64::from_ne_bytes)];
            // The count last: who reads it finds the pairs.
            let index = 1 + 2 * self.count as usize;
            if self.entries.write(index, &pair).and_then(|()| self.entries.set(0, self.count + 1)).is_err() {
                return; // It is full. What is not noted is got again.
            }
            self.count += 1;
        }
    }
}

/// Gets all that a process has noted, as keys by index.
pub fn get_log(remote: &RemoteRegion) -> Result<HashMap<u64, u64>, pagewire::Error> {
    let count = remote.get::<u64>(0, 1)?.wait()?[0];
    let mut keys = HashMap::new();
    let mut at = 0;
    while at < count {
        let length = ENTRIES_AT_ONCE.min(count - at);
        let words = remote.get::<u64>(8 + 16 * at, 2 * length as usize)?.wait()?;
        keys.extend(words.chunks_exact(2).map(|pair| (pair[0], pair[1])));
        at += length;
    }
    Ok(keys)
}
