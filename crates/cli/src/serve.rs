//! `pagewire serve`: files as regions, and a directory over TCP that hands out their tokens.
//!
//! The server reads no file for a transfer: clients read and write the mapped pages by RDMA. It reads files itself only for checksums,
//! each in a thread of its own. What comes from clients is bounded and checked, and ends at most their own connection.

mod checksums;
mod files;

pub use self::files::identity;

use self::checksums::Checksums;
use self::files::{ServedFile, open_all};
use crate::arguments::ServeArguments;
use crate::limits::{CHECKSUM_TICK, SERVE_PATIENCE, SERVED_ADDRESSES, SERVED_CLIENTS};
use crate::running::directory::{Ask, Entry, Opened, Reply, ServedPlace, hexadecimal, read_request};
use crate::running::interrupt;
use anyhow::{Context, Result, bail};
use pagewire::{MappedFile, Node, Rights, Token};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, HashMap};
use std::io::{BufReader, ErrorKind, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// How often the server looks whether it is to end.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// How long it pauses where a connection cannot be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// What is served, and to whom.
struct Server {
    files: Vec<ServedFile>,
    /// For each address of this host to which clients came.
    published: Mutex<HashMap<IpAddr, Arc<Published>>>,
    checksums: Checksums,
    /// Connections that are answered.
    clients: AtomicUsize,
    silent: Silent,
}

/// Connections whose client has not said what it wants, the oldest first.
#[derive(Default)]
struct Silent(Mutex<BTreeMap<u64, TcpStream>>);

impl Silent {
    fn add(&self, number: u64, stream: &TcpStream) -> Result<()> {
        let stream = stream.try_clone()?;
        lock(&self.0).insert(number, stream);
        Ok(())
    }

    fn remove(&self, number: u64) {
        lock(&self.0).remove(&number);
    }

    /// Ends the oldest one; false: there is none.
    fn end_oldest(&self) -> bool {
        let Some((_, stream)) = lock(&self.0).pop_first() else { return false };
        // It ends where its client has gone meanwhile, too.
        let _ = stream.shutdown(Shutdown::Both);
        true
    }
}

/// The files as regions of a node.
struct Published {
    /// In the order of the files.
    regions: Vec<(MappedFile, Token)>,
    /// Dropped behind its regions.
    _node: Node,
}

/// Serves until it is interrupted.
///
/// # Errors
/// If a file cannot be served, or the address not be listened at.
pub fn serve(arguments: &ServeArguments) -> Result<u8> {
    interrupt::watch()?;
    let server = Arc::new(Server {
        files: open_all(arguments)?,
        published: Mutex::default(),
        checksums: Checksums::default(),
        clients: AtomicUsize::new(0),
        silent: Silent::default(),
    });
    let asked = SocketAddr::new(arguments.address, arguments.port);
    let listener = TcpListener::bind(asked).map_err(|error| {
        let hint = cannot_listen(asked, error.kind());
        anyhow::Error::new(error).context(hint)
    })?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    if !address.ip().is_unspecified() {
        // What cannot be had is told before anybody comes.
        server.published_at(address.ip())?;
    }
    show(&server, address, arguments)?;
    let mut number = 0;
    while !interrupt::has_come() {
        let mut listening = [PollFd::new(&listener, PollFlags::IN)];
        match poll(&mut listening, Some(&TICK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => server.take_client(&listener, number),
            Err(error) => return Err(error).context("clients cannot be waited for"),
        }
        number += 1;
    }
    for published in lock(&server.published).values() {
        for (region, _) in published.regions.iter().filter(|(region, _)| region.is_writable()) {
            region.sync()?;
        }
    }
    Ok(0)
}

fn cannot_listen(at: SocketAddr, why: ErrorKind) -> String {
    let hint = match why {
        ErrorKind::PermissionDenied => {
            "ports below 1024 are for root: --port takes one above, and 0 a port that is free"
        }
        _ => "--port 0 takes a port that is free; --address is to be one of this host",
    };
    format!("cannot listen at {at} ({hint})")
}

/// Says how each file can be had.
fn show(server: &Server, address: SocketAddr, arguments: &ServeArguments) -> Result<()> {
    let mut out = anstream::stdout().lock();
    if !arguments.json {
        let rights = if arguments.writable { "to read and write" } else { "to read" };
        writeln!(out, "serving at {address}, {rights}:")?;
    }
    // All addresses have one name.
    let host = match address.ip() {
        any if any.is_unspecified() => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        one => one.to_string(),
    };
    for file in &server.files {
        let Entry { name, length, writable } = file.entry();
        let place =
            ServedPlace { host: host.clone(), port: address.port(), name: Some(name.clone()) }.to_string();
        if arguments.json {
            let line =
                serde_json::json!({ "name": name, "place": place, "length": length, "writable": writable });
            writeln!(out, "{line}")?;
        } else {
            writeln!(out, "  pagewire get {place}    ({length} bytes)")?;
        }
    }
    if !address.ip().is_loopback() {
        crate::tell!(
            "pagewire: whoever can connect to port {} has these files; nothing is encrypted",
            address.port()
        );
    }
    Ok(out.flush()?)
}

/// The value; a thread that panicked while it had it has changed nothing in steps.
fn lock<T>(value: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// Takes a client, which has a number of its own.
    fn take_client(self: &Arc<Self>, listener: &TcpListener, number: u64) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => {
                crate::tell!("pagewire: a client could not be taken: {error}");
                std::thread::sleep(ACCEPT_PAUSE);
                return;
            }
        };
        // One that is ended may take a moment to go.
        let clients = self.clients.fetch_add(1, Ordering::Relaxed);
        let is_full = clients >= SERVED_CLIENTS && !self.silent.end_oldest();
        if is_full || clients >= 2 * SERVED_CLIENTS {
            let why = format!("it has {SERVED_CLIENTS} clients already: try again later");
            // Who does not read it has been refused all the same.
            let _ = stream.set_nonblocking(true);
            let _ = send(&stream, &Reply::Refused { why });
            self.clients.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let server = self.clone();
        let answered = Builder::new().name("pagewire-client".to_owned()).spawn(move || {
            // A client that goes, or says nothing, ends its connection, and is no matter of the server's.
            let _ = server.answer_client(stream, number);
            server.silent.remove(number);
            server.clients.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = answered {
            crate::tell!("pagewire: a client could not be answered: {error}");
            self.clients.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Answers all requests of a connection.
    fn answer_client(&self, stream: TcpStream, number: u64) -> Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SERVE_PATIENCE))?;
        let at = stream.local_addr()?.ip().to_canonical();
        let mut stream = BufReader::new(stream);
        loop {
            self.silent.add(number, stream.get_ref())?;
            let request = read_request(&mut stream, Instant::now() + SERVE_PATIENCE);
            self.silent.remove(number);
            let reply = match request {
                Ok(Ask::Checksum { name, length }) => self.sum(stream.get_ref(), &name, length)?,
                Ok(ask) => {
                    self.answer(at, ask).unwrap_or_else(|error| Reply::Refused { why: format!("{error:#}") })
                }
                Err(Some(refused)) => {
                    send(stream.get_ref(), &refused)?;
                    bail!("the client does not speak as one");
                }
                Err(None) => return Ok(()),
            };
            send(stream.get_ref(), &reply)?;
        }
    }

    fn answer(&self, at: IpAddr, ask: Ask) -> Result<Reply> {
        Ok(match ask {
            Ask::List => Reply::Files { files: self.files.iter().map(ServedFile::entry).collect() },
            Ask::Open { name, upload } => {
                let (index, file) = self.file(&name)?;
                file.check_length()?;
                let token = self.published_at(at)?.regions[index].1;
                Reply::Opened(Opened {
                    entry: file.entry(),
                    identity: file.identity()?,
                    token: hexadecimal(&token.to_bytes()),
                    done: upload.map_or(0, |upload| file.begin_upload(upload)),
                })
            }
            Ask::Note { name, upload, done } => {
                self.file(&name)?.1.note_upload(&upload, done);
                Reply::Noted
            }
            Ask::Checksum { .. } => bail!("a checksum is answered elsewhere"),
        })
    }

    /// The file of a name, and its place among all.
    fn file(&self, name: &str) -> Result<(usize, &ServedFile)> {
        let found = self.files.iter().enumerate().find(|(_, file)| file.name == name);
        found.with_context(|| format!("no file '{name}' is served ('pagewire get HOST' lists what there is)"))
    }

    /// Computes a checksum, and says meanwhile how far that is.
    fn sum(&self, stream: &TcpStream, name: &str, length: u64) -> Result<Reply> {
        let refused = |error: anyhow::Error| Reply::Refused { why: format!("{error:#}") };
        let job = match self.file(name).and_then(|(_, file)| self.checksums.start(file, length)) {
            Ok(job) => job,
            Err(error) => return Ok(refused(error)),
        };
        loop {
            match job.wait(CHECKSUM_TICK) {
                Some(Ok(sha256)) => return Ok(Reply::Checksum { sha256 }),
                Some(Err(why)) => return Ok(Reply::Refused { why }),
                None => send(stream, &Reply::Working { bytes: job.bytes() })?,
            }
        }
    }

    /// The files for clients that came to an address of this host.
    fn published_at(&self, address: IpAddr) -> Result<Arc<Published>> {
        let mut published = lock(&self.published);
        if let Some(known) = published.get(&address) {
            return Ok(known.clone());
        }
        if published.len() >= SERVED_ADDRESSES {
            bail!(
                "clients come to more than {SERVED_ADDRESSES} addresses of the server: connect to another one of it"
            );
        }
        let node =
            Node::alone_at(address).with_context(|| format!("the files cannot be served at {address}"))?;
        let publish = |file: &ServedFile| -> Result<(MappedFile, Token)> {
            let region = node.map_open_file(&file.file, file.writable)?;
            let rights = if file.writable { Rights::READ | Rights::WRITE } else { Rights::READ };
            let token = region.export(rights)?;
            Ok((region, token))
        };
        let regions = self.files.iter().map(|file| publish(file).with_context(|| file.name.clone()));
        let regions = regions.collect::<Result<Vec<_>>>()?;
        let made = Arc::new(Published { regions, _node: node });
        published.insert(address, made.clone());
        Ok(made)
    }
}

fn send(mut stream: &TcpStream, reply: &Reply) -> Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    Ok(stream.write_all(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_port_is_explained() {
        let at = SocketAddr::from(([127, 0, 0, 1], 22));
        assert!(cannot_listen(at, ErrorKind::PermissionDenied).contains("ports below 1024 are for root"));
        let taken = cannot_listen(at, ErrorKind::AddrInUse);
        assert!(taken.contains("--port 0") && !taken.contains("1024"), "{taken}");
    }
}
