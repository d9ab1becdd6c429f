//! The thread that saves: from time to time, and when `pagewire checkpoint --now` asks.
//!
//! It listens on the abstract UNIX stream socket `\0pagewire-checkpoint-PID`, or with a number behind, as that of `pagewire explain` does. A
//! connection of the same user, or of root, is the request. The answer is one line of JSON ([`super::Round`]), when all is saved.

use crate::hooks::close_in_child;
use crate::limits::ANSWER_TIMEOUT_SECONDS;
use crate::process_socket::{bind, may_read};
use pagewire_memory::above_low_numbers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// What the name of the socket begins with.
const NAME: &str = "pagewire-checkpoint-";

/// Starts the thread. `every`: how often it saves without being asked.
///
/// # Errors
/// The kernel's.
pub fn start(every: Option<Duration>) -> io::Result<()> {
    let listener = UnixListener::from(above_low_numbers(bind(NAME)?.into())?);
    close_in_child(listener.as_raw_fd());
    pagewire_fabric::spawn("pagewire-checkpoint", move || serve(&listener, every))?;
    Ok(())
}

fn serve(listener: &UnixListener, every: Option<Duration>) {
    let mut next = every.map(|every| Instant::now() + every);
    loop {
        let left = next.map(|next| next.saturating_duration_since(Instant::now()));
        match wait_for_request(listener, left) {
            Ok(true) => {
                // Who asks and goes away is not waited for.
                if let Err(error) = accept(listener) {
                    log::debug!("a reader of the checkpoint socket was not answered: {error}");
                }
            }
            Ok(false) => {}
            Err(error) => {
                log::debug!("checkpoint socket: {error}");
                // Out of descriptors, for instance: that may pass.
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        if let (Some(at), Some(every)) = (next, every)
            && Instant::now() >= at
        {
            drop(super::save_all());
            // What takes longer than the time between two does not run without a pause.
            next = Some(Instant::now() + every);
        }
    }
}

/// Whether somebody has connected before the time is up.
fn wait_for_request(listener: &UnixListener, left: Option<Duration>) -> io::Result<bool> {
    let timeout = left.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
    let mut watched = [PollFd::new(listener, PollFlags::IN)];
    match poll(&mut watched, timeout.as_ref()) {
        Ok(found) => Ok(found > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn accept(listener: &UnixListener) -> io::Result<()> {
    let (reader, _): (UnixStream, _) = listener.accept()?;
    if !may_read(&reader)? {
        return Ok(());
    }
    reader.set_write_timeout(Some(Duration::from_secs(ANSWER_TIMEOUT_SECONDS)))?;
    let mut line = serde_json::to_vec(&super::save_all())?;
    line.push(b'\n');
    (&reader).write_all(&line)
}
