//! Files as regions: a file is mapped, not read in, and peers access its pages.
//!
//! This process never touches the mapping: the engine does, by copies that survive a page that cannot be had. So a file that is truncated
//! meanwhile is an error at the caller, and nothing here gives a reference to its bytes.

use crate::error::{Error, Result, refused, system};
use crate::nodes::services::NodeServices;
use crate::regions::region::Exported;
use crate::regions::rights::Rights;
use crate::regions::token::Token;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io;
use std::ops::RangeBounds;
use std::path::Path;
use std::sync::Arc;

/// A region whose memory is a file: pages come in when peers access them, and what peers write goes to the file.
///
/// It has as many bytes as the file had when it was mapped. Others may change the file at any time, and peers then read the new bytes. If it
/// is truncated, an access behind its new end fails at the caller with [`Rule::Memory`](crate::Rule::Memory). A program that replaces the handler
/// of SIGBUS takes that protection away.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pagewire::{Node, Rights};
/// let node = Node::alone()?;
/// let directory = tempfile::tempdir()?;
/// let file = node.map_file_writable(directory.path().join("table"), Some(4096))?;
/// let remote = node.open(&file.export(Rights::READ | Rights::WRITE)?)?;
/// remote.put(8, vec![7u64]).wait()?;
/// file.sync()?;
/// assert_eq!(std::fs::read(directory.path().join("table"))?[8], 7);
/// # Ok(())
/// # }
/// ```
pub struct MappedFile {
    exported: Exported<FileMapping>,
}

struct FileMapping {
    map: MmapRaw,
    /// Bytes of the file. The mapping of an empty one has a byte, which nobody is given.
    length: u64,
    writable: bool,
}

impl MappedFile {
    pub(crate) fn open(services: &Arc<NodeServices>, path: &Path) -> Result<MappedFile> {
        let mapped = File::open(path).and_then(|file| MappedFile::map(services, &file, false));
        mapped.map_err(system(format!("{} cannot be mapped", path.display())))
    }

    pub(crate) fn open_writable(
        services: &Arc<NodeServices>,
        path: &Path,
        length: Option<u64>,
    ) -> Result<MappedFile> {
        let open = || -> io::Result<MappedFile> {
            if let Some(length) = length {
                check_length(length)?;
            }
            let mut options = File::options();
            let file = options.read(true).write(true).create(length.is_some()).truncate(false).open(path)?;
            if let Some(length) = length {
                file.set_len(length)?;
            }
            MappedFile::map(services, &file, true)
        };
        open().map_err(system(format!("{} cannot be mapped for writing", path.display())))
    }

    pub(crate) fn map(services: &Arc<NodeServices>, file: &File, writable: bool) -> io::Result<MappedFile> {
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let length = metadata.len();
        let size = usize::try_from(length.max(1)).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut options = MmapOptions::new();
        options.len(size);
        let map = if writable { options.map_raw(file) } else { options.map_raw_read_only(file) }?;
        Ok(MappedFile { exported: Exported::new(services, FileMapping { map, length, writable }) })
    }

    /// Bytes in it.
    pub fn bytes(&self) -> u64 {
        self.exported.memory().length
    }

    /// Whether peers may be given the right to write.
    pub fn is_writable(&self) -> bool {
        self.exported.memory().writable
    }

    /// Makes a token of all of it.
    ///
    /// # Errors
    /// As those of [`export_part`](Self::export_part).
    pub fn export(&self, rights: Rights) -> Result<Token> {
        self.export_part(.., rights)
    }

    /// Makes a token of some of its bytes, with a key of its own, in constant time.
    ///
    /// # Errors
    /// `Range`: the bytes are not in it; `Engine`: the file was not mapped for writing, or there are too many exports.
    pub fn export_part(&self, bytes: impl RangeBounds<u64>, rights: Rights) -> Result<Token> {
        let FileMapping { map, length, writable } = self.exported.memory();
        if !writable && !Rights::READ.contains(rights) {
            let why =
                pagewire_nic::Error::InvalidArgument("peers may only read a file that is mapped read-only");
            return Err(refused("an export")(why));
        }
        self.exported.export((map.as_ptr() as u64, *length), bytes, rights)
    }

    /// Waits until what peers have written is in the file on its device.
    ///
    /// # Errors
    /// `System`: the device refuses.
    pub fn sync(&self) -> Result<(), Error> {
        self.exported.check_owner()?;
        self.exported.memory().map.flush().map_err(system("a mapped file cannot be written back"))
    }
}

/// Refuses a length before a file is made for it. Beyond the limit of the process the kernel would send SIGXFSZ (setrlimit(2)).
fn check_length(length: u64) -> io::Result<()> {
    let limit = pagewire_memory::file_size_limit().unwrap_or(u64::MAX);
    match i64::try_from(length) {
        Ok(_) if length <= limit => Ok(()),
        Ok(_) => {
            let why =
                format!("{length} bytes are more than files may have here, which is {limit} (ulimit -f)");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
        }
        Err(_) => {
            let why = format!("{length} bytes are more than a file can have");
            Err(io::Error::new(io::ErrorKind::FileTooLarge, why))
        }
    }
}
