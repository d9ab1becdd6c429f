//! `pagewire explain`: asks live processes about their connections.
//!
//! Each process with an engine listens on the abstract AF_UNIX stream socket `\0pagewire-explain-PID` and answers a
//! connection with JSON lines (see [`crate::report`]). Abstract names belong to a network namespace: only processes
//! of the caller's "host" are seen.

use crate::arguments::ExplainArguments;
use crate::limits::{EXPLAIN_BYTES, EXPLAIN_PATIENCE, WATCH_INTERVAL};
use crate::report::{self, ProcessReport};
use anyhow::{Context, Result};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{Uid, User, geteuid};
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

const NAME: &str = "pagewire-explain-";

/// Prints the reports; gives the exit status: 1 if a process that was named did not answer.
///
/// # Errors
/// If they cannot be printed, or no list of sockets can be had.
pub fn explain(arguments: &ExplainArguments) -> Result<u8> {
    loop {
        let code = show(arguments)?;
        if !arguments.watch {
            return Ok(code);
        }
        std::thread::sleep(WATCH_INTERVAL);
    }
}

fn show(arguments: &ExplainArguments) -> Result<u8> {
    let named = !arguments.processes.is_empty();
    let processes = if named { arguments.processes.clone() } else { listening()? };
    let mut out = anstream::stdout().lock();
    if arguments.watch && !arguments.json && std::io::stdout().is_terminal() {
        write!(out, "\x1b[2J\x1b[H")?;
    }
    let (mut code, mut shown, mut foreign) = (0, 0_u32, 0_u32);
    for pid in processes {
        match reports(pid) {
            Ok(reports) => {
                for report in reports {
                    shown += 1;
                    if arguments.json {
                        report::write_lines(&mut out, &report)?;
                    } else {
                        report::write_report(&mut out, &report)?;
                        writeln!(out)?;
                    }
                }
            }
            Err(silence) if named => {
                code = 1;
                anstream::eprintln!("pagewire: process {pid}: {silence}");
            }
            Err(Silence::OtherUser { .. }) => foreign += 1,
            // One that ended between the listing and the question is no error.
            Err(Silence::NoProcess | Silence::NoEngine) => {}
            Err(silence) => anstream::eprintln!("pagewire: process {pid}: {silence}"),
        }
    }
    if foreign > 0 {
        anstream::eprintln!("pagewire: {foreign} of other users not shown: only they and root may ask");
    }
    if !named && !arguments.json && shown == 0 && foreign == 0 {
        writeln!(
            out,
            "No process in this network namespace has a Pagewire device open (start one: pagewire run -- PROGRAM)."
        )?;
    }
    out.flush()?;
    Ok(code)
}

/// Why a process did not tell anything.
#[derive(Debug, PartialEq, Eq)]
pub enum Silence {
    /// There is no such process.
    NoProcess,
    /// It is in another network namespace, where its socket cannot be seen.
    OtherNamespace(u32),
    /// It belongs to another user, and this one is not root.
    OtherUser {
        /// Its user.
        owner: u32,
    },
    /// No engine runs in it.
    NoEngine,
    /// It does not answer in time.
    Stopped,
    /// Its answer cannot be understood, or the question could not be put.
    Failed(String),
}

impl fmt::Display for Silence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Silence::NoProcess => write!(f, "there is no such process"),
            Silence::OtherNamespace(pid) => write!(
                f,
                "it is in another network namespace; ask there: nsenter --target {pid} --net pagewire explain {pid}"
            ),
            Silence::OtherUser { owner } => {
                let name = User::from_uid(Uid::from_raw(*owner)).ok().flatten();
                let name = name.map_or_else(|| owner.to_string(), |user| user.name);
                write!(f, "it belongs to the user {name}; only that user and root may ask it")
            }
            Silence::NoEngine => write!(
                f,
                "it does not run on Pagewire, or has not opened a device yet (start programs with pagewire run)"
            ),
            Silence::Stopped => write!(
                f,
                "no answer within {} s; it may be stopped (kill -CONT lets it go on)",
                EXPLAIN_PATIENCE.as_secs()
            ),
            Silence::Failed(why) => write!(f, "{why}"),
        }
    }
}

/// The processes of this network namespace that answer, by PID.
///
/// # Errors
/// If /proc/net/unix cannot be read.
pub fn listening() -> Result<Vec<u32>> {
    let sockets = std::fs::read_to_string("/proc/net/unix").context("/proc/net/unix")?;
    Ok(parse_sockets(&sockets))
}

fn parse_sockets(sockets: &str) -> Vec<u32> {
    let mut processes: Vec<u32> = sockets
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter_map(|name| name.strip_prefix('@')?.strip_prefix(NAME)?.parse().ok())
        .collect();
    // An accepted connection bears the listener's name too.
    processes.sort_unstable();
    processes.dedup();
    processes
}

/// Asks the process `pid`; gives its reports.
///
/// # Errors
/// Why there is none.
pub fn reports(pid: u32) -> Result<Vec<ProcessReport>, Silence> {
    let text = match ask(pid) {
        Ok(text) => text,
        Err(error) => {
            return Err(match error.kind() {
                ErrorKind::ConnectionRefused => why_silent(pid),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Silence::Stopped,
                _ => Silence::Failed(error.to_string()),
            });
        }
    };
    if text.is_empty() {
        // It closes without a word to whom it does not trust.
        return Err(match owner(pid) {
            Some(owner) if owner != geteuid().as_raw() => Silence::OtherUser { owner },
            Some(_) => Silence::Failed("its answer is empty".to_owned()),
            None => Silence::NoProcess,
        });
    }
    report::parse(&text).map_err(|error| Silence::Failed(format!("its answer is not understood: {error:#}")))
}

/// Reads the JSON lines of the process `pid`.
fn ask(pid: u32) -> io::Result<String> {
    let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let patience = TimeVal::milliseconds(EXPLAIN_PATIENCE.as_millis() as i64);
    // Connecting waits too, where a stopped process has been asked often.
    setsockopt(&socket, sockopt::SendTimeout, &patience)?;
    connect(socket.as_raw_fd(), &UnixAddr::new_abstract(format!("{NAME}{pid}").as_bytes())?)?;
    let stream = UnixStream::from(socket);
    stream.set_read_timeout(Some(EXPLAIN_PATIENCE))?;
    let mut text = String::new();
    stream.take(EXPLAIN_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Why nobody listens in the name of the process `pid`.
fn why_silent(pid: u32) -> Silence {
    let Some(owner) = owner(pid) else { return Silence::NoProcess };
    let namespace = |who: &str| std::fs::read_link(format!("/proc/{who}/ns/net"));
    match (namespace(&pid.to_string()), namespace("self")) {
        (Ok(its), Ok(ours)) if its != ours => Silence::OtherNamespace(pid),
        // Of another user's process not even the namespace may be seen.
        (Err(_), _) if owner != geteuid().as_raw() => Silence::OtherUser { owner },
        _ => Silence::NoEngine,
    }
}

/// The user that the process `pid` runs as, if there is such a process.
fn owner(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // `Uid: real effective saved file-system`
    let fields = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    fn listener(pid: u32) -> UnixListener {
        let address = SocketAddr::from_abstract_name(format!("{NAME}{pid}")).expect("short");
        UnixListener::bind_addr(&address).expect("free name")
    }

    #[test]
    fn silence_has_its_reason() {
        // Above the kernel's largest PID.
        assert_eq!(reports(1 << 23).err(), Some(Silence::NoProcess));
        assert_eq!(reports(std::process::id()).err(), Some(Silence::NoEngine));
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up() {
        let pid = (1 << 24) + std::process::id();
        let _never_accepts = listener(pid);
        assert_eq!(reports(pid).err(), Some(Silence::Stopped));
    }

    #[test]
    fn garbage_is_refused_with_its_reason() {
        let pid = (1 << 25) + std::process::id();
        let listener = listener(pid);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            stream.write_all(b"nonsense").expect("a reader");
        });
        let silence = reports(pid).expect_err("nonsense");
        server.join().expect("no panic");
        assert!(silence.to_string().contains("not understood"), "{silence}");
    }

    #[test]
    fn sockets_are_found_once_and_others_are_passed_over() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 123 @pagewire-explain-42\n\
            0000: 00000003 00000000 00000000 0001 03 124 @pagewire-explain-42\n\
            0000: 00000002 00000000 00010000 0001 01 125 /run/pagewire-explain-7\n\
            0000: 00000002 00000000 00010000 0001 01 126 @pagewire-explain-x\n\
            0000: 00000002 00000000 00010000 0001 01 127\n";
        assert_eq!(parse_sockets(table), [42]);
    }

    #[test]
    fn a_process_answers_over_its_socket() {
        let pid = u32::MAX - std::process::id();
        let listener = listener(pid);
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a caller");
            stream
                .write_all(b"{\"pid\":1,\"program\":\"p\"}\n{\"qpn\":17,\"ring_packets_sent\":1}\n")
                .expect("a reader");
        });
        assert!(listening().expect("/proc").contains(&pid));
        let reports = reports(pid).expect("an answer");
        server.join().expect("no panic");
        assert_eq!(reports[0].paths(), ["local"]);
    }
}
