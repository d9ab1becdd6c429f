//! Putting one file into what a server has, and comparing checksums behind that.

use super::hasher::Hasher;
use super::pieces::transfer;
use super::{Done, Remote, Transfers, checksum, seconds};
use crate::arguments::PutArguments;
use crate::limits::PUT_NOTE;
use crate::running::directory::{Ask, Client, ServedPlace};
use crate::serve::identity;
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Instant;

/// A file to be put.
pub(super) struct Job {
    pub(super) place: ServedPlace,
    file: PathBuf,
}

/// What the command line asks for.
///
/// # Errors
/// If several files would go to one name, or one has none.
pub(super) fn jobs(arguments: &PutArguments) -> Result<Vec<Job>> {
    let PutArguments { files, destination, .. } = arguments;
    ensure!(
        files.len() < 2 || destination.name.is_none(),
        "{destination}: several files cannot have one name: leave it out, and each has its own"
    );
    let job = |file: &PathBuf| -> Result<Job> {
        let own = || file.file_name().and_then(|name| name.to_str()).map(str::to_owned);
        let name = destination.name.clone().or_else(own);
        let name = name.with_context(|| format!("{}: this is no name in UTF-8", file.display()))?;
        Ok(Job { place: ServedPlace { name: Some(name), ..destination.clone() }, file: file.clone() })
    };
    files.iter().map(job).collect()
}

/// Puts a file.
pub(super) fn put(transfers: &Transfers, job: &Job) -> Result<Done> {
    let Job { place, file: path } = job;
    let begun = Instant::now();
    let cannot = || format!("{} cannot be read", path.display());
    // One that is no file is told before it is opened: to open a pipe waits.
    if let Ok(metadata) = path.metadata() {
        ensure!(metadata.is_file(), "{} is no regular file", path.display());
    }
    let file = File::open(path).with_context(cannot)?;
    let metadata = file.metadata().with_context(cannot)?;
    ensure!(metadata.is_file(), "{} is no regular file", path.display());
    let (length, upload) = (metadata.len(), identity(&file).with_context(cannot)?);
    let remote = transfers.open(place, Some(upload.clone()))?;
    let name = &remote.opened.entry.name;
    ensure!(remote.opened.entry.writable, "{name} may only be read: start the server with --writable");
    let place_for = remote.opened.entry.length;
    ensure!(
        length <= place_for,
        "{} has {length} bytes, and {name} place for {place_for}: start the server with --size {length}",
        path.display()
    );
    let mut note = Note { place, upload, written: begun };
    let resumed = remote.opened.done.min(length);
    let sum = send(transfers, job, &remote, &file, &mut note)?;
    let there = checksum(Client::connect(place)?, place, length)?;
    // What comes next has no use for the note: if somebody has changed the bytes meanwhile, all are put again.
    note.write(0)?;
    if sum != there {
        bail!(
            "the server has other bytes now (SHA-256 {there}, and of the file {sum}): the file, or what is there, was changed meanwhile. Run the command again"
        );
    }
    Ok(Done {
        name: name.clone(),
        server: ServedPlace { name: None, ..place.clone() }.to_string(),
        file: path.clone(),
        bytes: length,
        resumed,
        seconds: seconds(begun.elapsed()),
        path: remote.path()?,
        sha256: sum,
    })
}

/// Puts what the server has not, and gives the checksum of all.
fn send(transfers: &Transfers, job: &Job, remote: &Remote, file: &File, note: &mut Note) -> Result<String> {
    let length = file.metadata()?.len();
    let done = remote.opened.done.min(length);
    let bar = transfers.bars.add(remote.opened.entry.name.as_str(), length);
    let read = || format!("{} cannot be read, or was truncated", job.file.display());
    let mut hasher = Hasher::start()?;
    hasher.add_file(file, done).with_context(read)?;
    let sent = transfer(
        done..length,
        &mut hasher,
        &bar,
        &mut |offset, mut buffer| {
            file.read_exact_at(&mut buffer, offset).with_context(read)?;
            Ok(remote.region.put(offset, buffer))
        },
        &mut |offset, bytes| note.is_at(offset + bytes.len() as u64),
    );
    sent?;
    bar.say("waiting for the server's checksum".to_owned());
    hasher.finish()
}

/// What the server knows of how far a put is.
struct Note<'a> {
    place: &'a ServedPlace,
    upload: String,
    written: Instant,
}

impl Note<'_> {
    /// All bytes before this one are there.
    fn is_at(&mut self, done: u64) -> Result<()> {
        if self.written.elapsed() < PUT_NOTE {
            return Ok(());
        }
        self.written = Instant::now();
        self.write(done)
    }

    fn write(&self, done: u64) -> Result<()> {
        let name = self.place.name.clone().unwrap_or_default();
        let note = Ask::Note { name, upload: self.upload.clone(), done };
        Client::connect(self.place)?.ask(note).map(drop)
    }
}
