//! Files to which the processes of a program append lines of JSON.

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes of such a file that are read.
const MAX_BYTES: u64 = 64 << 20;

/// The lines of a file; none, if there is no such file. A process that is killed may leave the last one unfinished: that is not read.
///
/// # Errors
/// If the file cannot be read or is longer than 64 MiB, or a line is in another format.
pub fn read<T: DeserializeOwned>(file: &Path) -> Result<Vec<T>> {
    let named = || file.display().to_string();
    let mut text = String::new();
    match File::open(file) {
        Ok(open) => open.take(MAX_BYTES + 1).read_to_string(&mut text).with_context(named)?,
        Err(error) if error.kind() == ErrorKind::NotFound => 0,
        Err(error) => return Err(error).with_context(named),
    };
    if text.len() as u64 > MAX_BYTES {
        bail!("{} is longer than {} MiB", named(), MAX_BYTES >> 20);
    }
    parse(&text).with_context(named)
}

fn parse<T: DeserializeOwned>(text: &str) -> Result<Vec<T>> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole.lines().enumerate();
    lines
        .map(|(place, line)| serde_json::from_str(line).with_context(|| format!("line {}", place + 1)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_line_is_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lines");
        assert!(read::<u32>(&file).expect("no file").is_empty());
        std::fs::write(&file, "1\n2\n{\"pi").expect("written");
        assert_eq!(read::<u32>(&file).expect("lines"), [1, 2]);
        std::fs::write(&file, "1\nx\n").expect("written");
        let error = format!("{:#}", read::<u32>(&file).expect_err("no number"));
        assert!(error.contains("lines: line 2"), "{error}");
    }

    #[test]
    fn long_file_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("lines");
        File::create(&file).and_then(|made| made.set_len(MAX_BYTES + 1)).expect("a file with a hole");
        let error = format!("{:#}", read::<u32>(&file).expect_err("too long"));
        assert!(error.contains("longer than 64 MiB"), "{error}");
    }
}
