//! The checkpoint of a volume: a file of its elements, which takes the place of the one before when it is whole.
//!
//! `what it is | generation | rank and count of the processes | elements: key, length, bytes | 0, count | checksum of all`. Words are little-endian.

use super::super::volume::MAX_VALUE;
use super::{check_file_size, damaged_file, failed};
use pagewire::Result;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const MAGIC: u64 = u64::from_le_bytes(*b"PWTABLE\x01");

/// Bytes that are read or written at once.
const BUFFER: usize = 1 << 18;

/// What a checkpoint is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Logs of this generation and later ones have what came since.
    pub generation: u64,
    pub rank: u32,
    pub size: u32,
}

/// What [`write()`] hands its elements to.
pub type Sink<'s> = dyn FnMut(u64, &[u8]) -> Result<()> + 's;

/// Writes the elements that `walk` hands over. `syncs`: they are on the disk when this returns.
pub fn write(
    path: &Path,
    header: Header,
    syncs: bool,
    walk: impl FnOnce(&mut Sink<'_>) -> Result<()>,
) -> Result<()> {
    let beside = path.with_extension("new");
    let written = write_beside(&beside, header, syncs, walk)
        .and_then(|()| std::fs::rename(&beside, path).map_err(failed("cannot rename the new file to", path)));
    if written.is_err() {
        // The one before stands. What this one has of the disk is for others, where it can be removed.
        let _ = std::fs::remove_file(&beside);
    }
    written?;
    if syncs && let Some(folder) = path.parent() {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed("cannot sync", folder))?;
    }
    Ok(())
}

fn write_beside(
    beside: &Path,
    header: Header,
    syncs: bool,
    walk: impl FnOnce(&mut Sink<'_>) -> Result<()>,
) -> Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(beside);
    let file = file.map_err(failed("cannot make", beside))?;
    let bounded = Bounded { file: &file, length: 0 };
    let mut writer =
        Summed { inner: BufWriter::with_capacity(BUFFER, bounded), sum: crc32fast::Hasher::new() };
    let cannot_write = || failed("cannot write", beside);
    let processes = u64::from(header.rank) << 32 | u64::from(header.size);
    writer.words(&[MAGIC, header.generation, processes]).map_err(cannot_write())?;
    let mut count = 0;
    walk(&mut |key, value| {
        count += 1;
        let written = writer.words(&[key, value.len() as u64]).and_then(|()| writer.write_all(value));
        written.map_err(cannot_write())
    })?;
    let sum = writer.words(&[0, count]).map(|()| writer.sum.clone().finalize());
    let sum = sum.and_then(|sum| writer.words(&[sum.into()])).and_then(|()| writer.inner.flush());
    sum.map_err(cannot_write())?;
    drop(writer);
    if syncs {
        file.sync_all().map_err(cannot_write())?;
    }
    Ok(())
}

/// A file that gets no more bytes than RLIMIT_FSIZE permits: the kernel would answer with SIGXFSZ, which ends the process.
struct Bounded<'f> {
    file: &'f File,
    length: u64,
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        check_file_size(self.length + bytes.len() as u64)?;
        let count = self.file.write(bytes)?;
        self.length += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads a checkpoint, and hands over its elements. `None`: there is none. An error: what was handed over counts for nothing.
pub fn read(path: &Path, mut each: impl FnMut(u64, &[u8]) -> Result<()>) -> Result<Option<Header>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("cannot open", path)(error)),
    };
    let length = file.metadata().map_err(failed("cannot read", path))?.len();
    let mut reader = Summed { inner: BufReader::with_capacity(BUFFER, file), sum: crc32fast::Hasher::new() };
    let mut at = 0;
    let cannot_read = |at: u64| {
        move |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged_file(path, at),
            _ => failed("cannot read", path)(error),
        }
    };
    let [magic, generation, processes] = reader.read_words().map_err(cannot_read(at))?;
    if magic != MAGIC {
        return Err(damaged_file(path, 0));
    }
    let (mut count, mut value) = (0u64, Vec::new());
    at += 24;
    loop {
        let [key, bytes] = reader.read_words().map_err(cannot_read(at))?;
        if key == 0 {
            let expected = reader.sum.clone().finalize();
            let [sum] = reader.read_words().map_err(cannot_read(at))?;
            if bytes != count || sum != u64::from(expected) {
                return Err(damaged_file(path, at));
            }
            break;
        }
        if bytes > length.saturating_sub(at) || bytes > MAX_VALUE as u64 {
            return Err(damaged_file(path, at));
        }
        value.resize(bytes as usize, 0);
        reader.read_exact(&mut value).map_err(cannot_read(at))?;
        each(key, &value)?;
        count += 1;
        at += 16 + bytes;
    }
    Ok(Some(Header { generation, rank: (processes >> 32) as u32, size: processes as u32 }))
}

/// Bytes that go through a checksum.
struct Summed<I> {
    inner: I,
    sum: crc32fast::Hasher,
}

impl<I: Write> Summed<I> {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sum.update(bytes);
        self.inner.write_all(bytes)
    }

    fn words(&mut self, words: &[u64]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.write_all(&word.to_le_bytes()))
    }
}

impl<I: Read> Summed<I> {
    fn read_exact(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact(bytes)?;
        self.sum.update(bytes);
        Ok(())
    }

    fn read_words<const N: usize>(&mut self) -> io::Result<[u64; N]> {
        let mut words = [0; N];
        for word in &mut words {
            let mut bytes = [0; 8];
            self.read_exact(&mut bytes)?;
            *word = u64::from_le_bytes(bytes);
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header = Header { generation: 7, rank: 1, size: 3 };

    type Elements = Vec<(u64, Vec<u8>)>;

    fn save(path: &Path, elements: &[(u64, Vec<u8>)]) {
        write(path, HEADER, false, |sink| elements.iter().try_for_each(|(key, value)| sink(*key, value)))
            .unwrap();
    }

    fn load(path: &Path) -> Result<(Option<Header>, Elements)> {
        let mut elements = Vec::new();
        let header = read(path, |key, value| {
            elements.push((key, value.to_vec()));
            Ok(())
        })?;
        Ok((header, elements))
    }

    proptest! {
        /// A checkpoint comes back, and no change of one byte, and no cut, goes unseen.
        #[test]
        fn a_checkpoint_comes_back_or_is_refused(
            elements in prop::collection::vec((1u64.., prop::collection::vec(any::<u8>(), 0..40)), 0..20),
            at in any::<prop::sample::Index>(), flip in 1u8..=255, cut in any::<prop::sample::Index>(),
        ) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("volume.checkpoint");
            prop_assert_eq!(load(&path).unwrap(), (None, vec![]));
            save(&path, &elements);
            prop_assert_eq!(load(&path).unwrap(), (Some(HEADER), elements));
            let bytes = std::fs::read(&path).unwrap();
            let mut damaged = bytes.clone();
            damaged[at.index(bytes.len())] ^= flip;
            std::fs::write(&path, damaged).unwrap();
            prop_assert!(load(&path).is_err());
            std::fs::write(&path, &bytes[..cut.index(bytes.len())]).unwrap();
            prop_assert!(load(&path).is_err());
        }
    }
}
