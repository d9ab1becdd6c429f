//! Getting one file: into a partial file, which becomes the file when its checksum is right.

use super::hasher::Hasher;
use super::pieces::transfer;
use super::{Done, Remote, Transfers, checksum, seconds};
use crate::arguments::GetArguments;
use crate::running::directory::{Ask, Client, Opened, Reply, ServedPlace, ServerRefusal, is_good_name};
use crate::running::interrupt::Interrupted;
use anyhow::{Context, Error, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// A file to be had.
pub(super) struct Job {
    pub(super) place: ServedPlace,
    output: PathBuf,
}

/// What the command line asks for.
///
/// # Errors
/// If two files would become one.
pub(super) fn jobs(places: &[&ServedPlace], arguments: &GetArguments) -> Result<Vec<Job>> {
    let directory = arguments.output.as_deref().filter(|output| output.is_dir());
    ensure!(
        places.len() < 2 || arguments.output.is_none() || directory.is_some(),
        "--output: several files need a directory that is there"
    );
    ensure!(
        arguments.output.as_deref() != Some(Path::new("-")),
        "--output -: a file is not written to standard output: name a file (./- for one of this name)"
    );
    let mut jobs: Vec<Job> = Vec::new();
    for &place in places {
        let name = place.name.as_deref().unwrap_or_default();
        let output = match (&arguments.output, directory) {
            (Some(output), None) => output.clone(),
            (_, directory) => {
                ensure!(is_good_name(name), "{place}: this is no name for a file: give one with --output");
                directory.unwrap_or(Path::new("")).join(name)
            }
        };
        if jobs.iter().any(|job| job.output == output) {
            bail!("{} would be written twice: give --output, in two calls", output.display());
        }
        jobs.push(Job { place: place.clone(), output });
    }
    Ok(jobs)
}

/// Why a file is not replaced.
fn is_there(output: &Path) -> String {
    format!(
        "{} is there already: give --force to replace it, or another name with --output",
        output.display()
    )
}

/// Refuses an output that a transfer cannot become: a directory, what is no regular file, and, without `force`, whatever has its name.
fn check_output(output: &Path, force: bool) -> Result<()> {
    if let Ok(metadata) = output.metadata() {
        ensure!(!metadata.is_dir(), "{} is a directory", output.display());
        ensure!(
            metadata.is_file(),
            "{} is no regular file: 'pagewire get' replaces no device and no pipe. Give another name with --output",
            output.display()
        );
    }
    // A symbolic link has its name wherever it leads.
    ensure!(force || output.symlink_metadata().is_err(), is_there(output));
    Ok(())
}

/// Gets a file.
pub(super) fn get(transfers: &Transfers, job: &Job, force: bool) -> Result<Done> {
    let Job { place, output } = job;
    check_output(output, force)?;
    let begun = Instant::now();
    let remote = transfers.open(place, None)?;
    let length = remote.opened.entry.length;
    let partial = Partial::open(output, &remote)?;
    let resumed = partial.done;
    let client = Client::connect(place)?;
    let closer = client.closer()?;
    let (sum, expected) = std::thread::scope(|scope| {
        // The server sums meanwhile.
        let expected = scope.spawn(|| checksum(client, place, length));
        let sum = fetch(transfers, job, &remote, &partial);
        if sum.is_err() {
            closer.close();
        }
        (sum, expected.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let kept = |error: Error| match refusal_now(&error, place) {
        Some(refusal) => {
            // Nobody goes on with it. A directory that cannot be changed keeps it.
            let _ = std::fs::remove_file(&partial.path);
            error.context(refusal)
        }
        None => partial.explain(error, length),
    };
    let (sum, expected) = (sum.map_err(kept)?, expected.map_err(kept)?);
    if sum != expected {
        partial.remove()?;
        let differ = format!("its bytes are not those of the server (SHA-256 {sum}, there {expected})");
        let is_unchanged = opened_again(place)?.identity == remote.opened.identity;
        if is_unchanged && resumed > 0 {
            bail!(
                "{differ}: the {resumed} bytes of an earlier run in {} were corrupted, as the file at the server is unchanged. They are removed: run the command again to get all of it",
                partial.path.display()
            );
        }
        bail!("{differ}: the file was changed meanwhile. Run the command again");
    }
    if !partial.rename(output, force)? {
        bail!(is_there(output));
    }
    Ok(Done {
        name: place.name.clone().unwrap_or_default(),
        server: ServedPlace { name: None, ..place.clone() }.to_string(),
        file: output.clone(),
        bytes: length,
        resumed,
        seconds: seconds(begun.elapsed()),
        path: remote.path()?,
        sha256: sum,
    })
}

/// What the server says of a file now.
fn opened_again(place: &ServedPlace) -> Result<Opened> {
    let name = place.name.clone().context("no name is given")?;
    match Client::connect(place)?.ask(Ask::Open { name, upload: None })? {
        Reply::Opened(opened) => Ok(opened),
        _ => bail!("the server answers something else than was asked for"),
    }
}

/// Why the server refuses the file now, where a transfer has failed: it knows whether the file became shorter. `None`: it does not.
fn refusal_now(error: &Error, place: &ServedPlace) -> Option<ServerRefusal> {
    if error.is::<Interrupted>() {
        return None;
    }
    opened_again(place).err()?.downcast().ok()
}

/// Gets what the partial file has not, and gives the checksum of all.
fn fetch(transfers: &Transfers, job: &Job, remote: &Remote, partial: &Partial) -> Result<String> {
    let length = remote.opened.entry.length;
    let bar = transfers.bars.add(job.place.name.as_deref().unwrap_or_default(), length);
    let mut hasher = Hasher::start()?;
    hasher.add_file(&partial.file, partial.done).with_context(|| partial.path.display().to_string())?;
    transfer(
        partial.done..length,
        &mut hasher,
        &bar,
        &mut |offset, buffer| Ok(remote.region.get_into(offset, buffer)),
        &mut |offset, bytes| {
            let written = partial.file.write_all_at(bytes, offset);
            written.with_context(|| format!("{} cannot be written", partial.path.display()))
        },
    )?;
    bar.say("waiting for the server's checksum".to_owned());
    hasher.finish()
}

/// What was had of a file. Its name has the identity of the file at the server: what was had of another one is not gone on with.
struct Partial {
    path: PathBuf,
    /// Locked: nobody else writes it.
    file: Flock<File>,
    /// Bytes that an earlier run has left.
    done: u64,
}

impl Partial {
    fn open(output: &Path, remote: &Remote) -> Result<Partial> {
        ensure!(remote.opened.has_good_identity(), "the server's answer makes no sense");
        let mut name = OsString::from(output);
        name.push(format!(".{}.part", remote.opened.identity));
        let path = PathBuf::from(name);
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.with_context(|| format!("{} cannot be written", path.display()))?;
        let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(file) => file,
            Err((_, nix::errno::Errno::EWOULDBLOCK)) => {
                bail!("{} is being written by another 'pagewire get'", path.display())
            }
            Err((_, errno)) => {
                return Err(errno).with_context(|| format!("{} cannot be locked", path.display()));
            }
        };
        let metadata = file.metadata()?;
        ensure!(metadata.is_file(), "{} is no regular file", path.display());
        let mut done = metadata.len();
        if done > remote.opened.entry.length {
            file.set_len(0)?;
            done = 0;
        }
        Ok(Partial { path, file, done })
    }

    /// Says what is left of a transfer that has failed.
    fn explain(&self, error: Error, length: u64) -> Error {
        if error.is::<Interrupted>() {
            crate::tell!("pagewire: {}: the same command goes on where it was", self.path.display());
            return error;
        }
        match self.file.metadata() {
            Ok(metadata) if metadata.len() > 0 => {
                let kept = format!("{} of {length} bytes are in {}", metadata.len(), self.path.display());
                anyhow::anyhow!("{error:#} ({kept}: run the same command again to go on)")
            }
            _ => {
                // An empty one is of no use to anybody, and a directory that cannot be changed keeps it.
                let _ = std::fs::remove_file(&self.path);
                error
            }
        }
    }

    fn remove(&self) -> Result<()> {
        std::fs::remove_file(&self.path).with_context(|| self.path.display().to_string())
    }

    /// Gives it its name. False: a file has that, and is not to be replaced.
    fn rename(&self, output: &Path, force: bool) -> Result<bool> {
        let flags = if force { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        match renameat_with(CWD, &self.path, CWD, output, flags) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::EXIST) => Ok(false),
            // A file system that cannot do that: there was no such file at the beginning.
            Err(rustix::io::Errno::INVAL) if !output.exists() => {
                std::fs::rename(&self.path, output).map(|()| true).map_err(Into::into)
            }
            Err(errno) => Err(errno).with_context(|| format!("{} cannot be made", output.display())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;

    #[test]
    fn output_that_no_file_can_become_is_refused() {
        let folder = tempfile::tempdir().expect("a directory");
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), b"x").expect("a file");
        mkfifo(&at("pipe"), Mode::S_IRWXU).expect("a pipe");
        symlink("/dev/null", at("null")).expect("a link");
        symlink("absent", at("dangling")).expect("a link");
        let refusal = |name: &str, force| check_output(&at(name), force).err().map(|error| error.to_string());
        for force in [false, true] {
            assert_eq!(refusal("new", force), None);
            for special in ["pipe", "null"] {
                let said = refusal(special, force).expect("no regular file");
                assert!(said.contains(&format!("{special} is no regular file: ")), "{said}");
            }
            assert!(refusal(".", force).is_some_and(|said| said.contains("is a directory")));
        }
        for there in ["file", "dangling"] {
            assert!(refusal(there, false).is_some_and(|said| said.contains("is there already")), "{there}");
            assert_eq!(refusal(there, true), None, "{there}");
        }
    }
}
