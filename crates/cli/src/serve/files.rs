//! The files that are served.

use super::lock;
use crate::arguments::ServeArguments;
use crate::limits::SERVED_FILES;
use crate::running::directory::{Entry, hexadecimal, is_good_name};
use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{MemfdFlags, memfd_create};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;

/// The name of memory that is no file.
const MEMORY: &str = "memory";

/// A file that is served.
pub(super) struct ServedFile {
    pub(super) name: String,
    pub(super) file: File,
    pub(super) writable: bool,
    /// Bytes when it was opened: as many are mapped.
    mapped: u64,
    upload: Mutex<Option<Upload>>,
}

/// What a client puts into a file.
struct Upload {
    /// Its [`identity`].
    identity: String,
    /// Bytes that are there, from the beginning on.
    done: u64,
}

/// Opens what the command line names.
///
/// # Errors
/// If that cannot be served; the error says which file, and why.
pub(super) fn open_all(arguments: &ServeArguments) -> Result<Vec<ServedFile>> {
    let ServeArguments { files, size, writable, .. } = arguments;
    ensure!(
        files.len() <= SERVED_FILES,
        "{} files are more than the {SERVED_FILES} that can be served",
        files.len()
    );
    let mut served: Vec<ServedFile> = Vec::new();
    if let (Some(size), []) = (size, files.as_slice()) {
        let file = File::from(memfd_create(MEMORY, MemfdFlags::CLOEXEC)?);
        file.set_len(*size).with_context(|| format!("{size} bytes of memory"))?;
        served.push(ServedFile::new(MEMORY.to_owned(), file, true)?);
    }
    for path in files {
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| is_good_name(name));
        let name =
            name.with_context(|| format!("{}: it has no name in UTF-8 to serve it by", path.display()))?;
        if served.iter().any(|file| file.name == name) {
            bail!("{}: another file has the name {name}, too: serve it from another port", path.display());
        }
        let file =
            open(path, *writable, *size).with_context(|| format!("{} cannot be served", path.display()))?;
        served.push(ServedFile::new(name.to_owned(), file, *writable)?);
    }
    Ok(served)
}

fn open(path: &Path, writable: bool, size: Option<u64>) -> Result<File> {
    // One that is no file is told before it is opened: to open a pipe waits.
    if let Ok(metadata) = path.metadata() {
        ensure!(metadata.is_file(), "it is no regular file");
    }
    let mut options = File::options();
    let file = options.read(true).write(writable).create(size.is_some()).truncate(false).open(path)?;
    ensure!(file.metadata()?.is_file(), "it is no regular file");
    if let Some(size) = size {
        file.set_len(size)?;
    }
    Ok(file)
}

/// Says which bytes a file has, as far as that is known without reading them: 16 hexadecimal digits of its number, its length, and when it
/// was changed.
///
/// # Errors
/// The kernel's.
pub fn identity(file: &File) -> std::io::Result<String> {
    let metadata = file.metadata()?;
    let mut hash = Sha256::new();
    for number in [metadata.dev(), metadata.ino(), metadata.len()] {
        hash.update(number.to_le_bytes());
    }
    for time in [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()] {
        hash.update(time.to_le_bytes());
    }
    Ok(hexadecimal(&hash.finalize()[..8]))
}

impl ServedFile {
    pub(super) fn new(name: String, file: File, writable: bool) -> Result<ServedFile> {
        let mapped = file.metadata()?.len();
        Ok(ServedFile { name, file, writable, mapped, upload: Mutex::default() })
    }

    /// What clients learn of it. Of one that was truncated meanwhile, the rest.
    pub(super) fn entry(&self) -> Entry {
        let now = self.file.metadata().map_or(self.mapped, |metadata| metadata.len());
        Entry { name: self.name.clone(), length: self.mapped.min(now), writable: self.writable }
    }

    /// Whether all bytes are there that clients have a token of.
    ///
    /// # Errors
    /// The file became shorter since it is served.
    pub(super) fn check_length(&self) -> Result<()> {
        let left = self.entry().length;
        ensure!(
            left == self.mapped,
            "{} became shorter since it is served: {left} of its {} bytes are left. Serve it again, as it is now",
            self.name,
            self.mapped
        );
        Ok(())
    }

    /// See [`identity`].
    pub(super) fn identity(&self) -> Result<String> {
        Ok(identity(&self.file)?)
    }

    /// A client is about to put something: how much of it is there already.
    pub(super) fn begin_upload(&self, identity: String) -> u64 {
        let mut upload = lock(&self.upload);
        match &*upload {
            Some(known) if known.identity == identity => known.done,
            _ => {
                // Names of uploads are short: a request is.
                *upload = Some(Upload { identity, done: 0 });
                0
            }
        }
    }

    /// So much of an upload is there; a note of another one, which came between, is forgotten.
    pub(super) fn note_upload(&self, identity: &str, done: u64) {
        if let Some(upload) = &mut *lock(&self.upload) {
            if upload.identity == identity {
                upload.done = done;
            }
        }
    }
}
