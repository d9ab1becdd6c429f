//! `pagewire explain`: asks live processes about their connections.
//!
//! Each process with an engine listens on the abstract AF_UNIX stream socket `\0pagewire-explain-PID` and answers a
//! connection with JSON lines (see [`crate::output::report`]). Abstract names belong to a network namespace: only processes
//! of the caller's "host" are seen. PIDs belong to PID namespaces: the one in the name is what the process has in its own
//! (followed by `.N` where that is not the first of this number); which it is here the kernel tells of its socket.
//! Anybody may take such a name: an answer counts only if the user who gives it is one to be believed.

use crate::arguments::ExplainArguments;
use crate::limits::{CHECKPOINT_PATIENCE, EXPLAIN_BYTES, EXPLAIN_PATIENCE, WATCH_INTERVAL};
use crate::output::report::{self, ProcessReport};
use anyhow::{Context, Result};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, UnixAddr, connect, getsockopt, setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{Uid, User, geteuid};
use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const NAME: &str = "pagewire-explain-";

/// Of processes that save their regions.
const CHECKPOINT_NAME: &str = "pagewire-checkpoint-";

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
    let answers: Vec<(u32, Result<Vec<ProcessReport>, Silence>)> = if named {
        arguments.processes.iter().map(|&pid| (pid, reports(pid))).collect()
    } else {
        listening()?.iter().map(Listener::ask).collect()
    };
    let mut out = anstream::stdout().lock();
    if arguments.watch && !arguments.json && std::io::stdout().is_terminal() {
        write!(out, "\x1b[2J\x1b[H")?;
    }
    let (mut code, mut shown, mut silent, mut foreign) = (0, 0_u32, 0_u32, 0_u32);
    for (pid, answer) in answers {
        match answer {
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
                crate::tell!("pagewire: {}: {silence}", titled(pid));
            }
            Err(Silence::OtherUser { .. }) => foreign += 1,
            // One that ended between the listing and the question is no error.
            Err(Silence::NoProcess | Silence::NoEngine) => {}
            Err(silence) => {
                silent += 1;
                crate::tell!("pagewire: {}: {silence}", titled(pid));
            }
        }
    }
    if foreign > 0 {
        crate::tell!("pagewire: {foreign} of other users not shown: only they and root may ask");
    }
    if !named && !arguments.json && shown + silent + foreign == 0 {
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
    /// What answers in its name belongs to a user who does not run it.
    Foreign {
        /// That user.
        user: u32,
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
                write!(f, "it belongs to the user {}; only that user and root may ask it", name_of(*owner))
            }
            Silence::Foreign { user } => write!(
                f,
                "the user {} answers in its name, and is not known to run it; the answer is not shown (if it is in another \
                 PID namespace, ask there)",
                name_of(*user)
            ),
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

fn name_of(user: u32) -> String {
    let known = User::from_uid(Uid::from_raw(user)).ok().flatten();
    known.map_or_else(|| user.to_string(), |user| user.name)
}

/// A process of this network namespace that can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// Its PID in its own PID namespace.
    number: u32,
    /// The name of its socket.
    name: String,
}

/// The processes of this network namespace that can be asked.
///
/// # Errors
/// If /proc/net/unix cannot be read.
pub fn listening() -> Result<Vec<Listener>> {
    listening_as(NAME)
}

/// Those that listen on sockets whose names begin so.
fn listening_as(prefix: &str) -> Result<Vec<Listener>> {
    let sockets = std::fs::read_to_string("/proc/net/unix").context("/proc/net/unix")?;
    Ok(parse_sockets(&sockets, prefix))
}

fn parse_sockets(sockets: &str, prefix: &str) -> Vec<Listener> {
    let listener = |name: &str| {
        let (number, namesake) = match name.strip_prefix(prefix)?.split_once('.') {
            Some((number, namesake)) => (number, namesake),
            None => (name.strip_prefix(prefix)?, "0"),
        };
        namesake.parse::<u32>().ok()?;
        Some(Listener { number: number.parse().ok()?, name: name.to_owned() })
    };
    let mut found: Vec<Listener> = sockets
        .lines()
        .filter_map(|line| line.rsplit(' ').next())
        .filter_map(|name| listener(name.strip_prefix('@')?))
        .collect();
    // An accepted connection bears the listener's name too.
    found.sort_unstable();
    found.dedup();
    found
}

/// Asks the process that this one sees under the number `pid`; gives its reports.
///
/// # Errors
/// Why there is none.
pub fn reports(pid: u32) -> Result<Vec<ProcessReport>, Silence> {
    connection(pid, NAME)?.reports()
}

/// Has the process that this one sees under the number `pid` save its regions (`PAGEWIRE_CHECKPOINT`); gives its answer when it has.
///
/// # Errors
/// Why there is none. `NoEngine`: it saves none.
pub(crate) fn checkpoint(pid: u32) -> Result<String, Silence> {
    connection(pid, CHECKPOINT_NAME)?.text(CHECKPOINT_PATIENCE)
}

/// A connection to the process that this one sees under the number `pid`.
fn connection(pid: u32, prefix: &str) -> Result<Connection, Silence> {
    let number = own_number(pid).unwrap_or(pid);
    let listeners = listening_as(prefix).map_err(|error| Silence::Failed(format!("{error:#}")))?;
    let mut silence = None;
    for listener in listeners.iter().filter(|listener| listener.number == number) {
        match listener.connect() {
            Ok(connection) if connection.pid == Some(pid) => return Ok(connection),
            // A namesake.
            Ok(_) => {}
            Err(Silence::NoEngine) => {}
            Err(other) => silence = Some(other),
        }
    }
    Err(silence.unwrap_or_else(|| why_silent(pid)))
}

/// The number that a process has in its own PID namespace.
fn own_number(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    // `NSpid: here ... there`
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}

/// A process that has not been asked yet, as the kernel tells of it.
struct Connection {
    stream: UnixStream,
    /// Its number here; `None`: this process does not see it.
    pid: Option<u32>,
    user: u32,
}

impl Listener {
    /// The PID of the process in its own PID namespace.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    #[cfg(test)]
    pub(crate) fn for_test(number: u32) -> Listener {
        Listener { number, name: format!("{NAME}{number}") }
    }

    /// Asks; gives the number of the process, here where it has one.
    pub(crate) fn ask(&self) -> (u32, Result<Vec<ProcessReport>, Silence>) {
        match self.connect() {
            Ok(connection) => (connection.pid.unwrap_or(self.number), connection.reports()),
            Err(silence) => (self.number, Err(silence)),
        }
    }

    fn connect(&self) -> Result<Connection, Silence> {
        let connected = || -> io::Result<Connection> {
            let socket = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
            let patience = TimeVal::milliseconds(EXPLAIN_PATIENCE.as_millis() as i64);
            // Connecting waits too, where a stopped process has been asked often.
            setsockopt(&socket, sockopt::SendTimeout, &patience)?;
            connect(socket.as_raw_fd(), &UnixAddr::new_abstract(self.name.as_bytes())?)?;
            let peer = getsockopt(&socket, sockopt::PeerCredentials)?;
            let pid = u32::try_from(peer.pid()).ok().filter(|pid| *pid > 0);
            Ok(Connection { stream: UnixStream::from(socket), pid, user: peer.uid() })
        };
        connected().map_err(|error| silence(&error))
    }
}

impl Connection {
    /// Whether `caller` may believe that this is the process itself: its own programs and root's. Root sees others, too,
    /// where they run as who answers.
    fn believed_by(&self, caller: Uid) -> Result<(), Silence> {
        let user = Uid::from_raw(self.user);
        if user == caller || user.is_root() {
            return Ok(());
        }
        if !caller.is_root() {
            return Err(Silence::OtherUser { owner: self.user });
        }
        match self.pid.and_then(owner) {
            Some(owner) if owner == self.user => Ok(()),
            _ => Err(Silence::Foreign { user: self.user }),
        }
    }

    /// What it tells.
    fn text(&self, patience: Duration) -> Result<String, Silence> {
        self.believed_by(geteuid())?;
        let read = || -> io::Result<String> {
            self.stream.set_read_timeout(Some(patience))?;
            let mut text = String::new();
            (&self.stream).take(EXPLAIN_BYTES).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|error| silence(&error))?;
        if text.is_empty() {
            // It closes without a word to whom it does not trust.
            return Err(match self.user {
                owner if owner != geteuid().as_raw() => Silence::OtherUser { owner },
                _ => Silence::Failed("it closed the connection without an answer".to_owned()),
            });
        }
        Ok(text)
    }

    /// What it tells of itself, under the number that it has here.
    fn reports(self) -> Result<Vec<ProcessReport>, Silence> {
        let text = self.text(EXPLAIN_PATIENCE)?;
        let mut reports = report::parse(&text)
            .map_err(|error| Silence::Failed(format!("its answer is not understood: {error:#}")))?;
        if let Some(pid) = self.pid {
            for report in &mut reports {
                report.process.insert("pid".to_owned(), pid.into());
            }
        }
        Ok(reports)
    }
}

fn silence(error: &io::Error) -> Silence {
    match error.kind() {
        ErrorKind::ConnectionRefused => Silence::NoEngine,
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Silence::Stopped,
        _ => Silence::Failed(error.to_string()),
    }
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

/// The program that the process `pid` runs, by its command line as an engine itself tells it, else by the kernel's name for it.
pub(crate) fn program(pid: u32) -> Option<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = match String::from_utf8_lossy(first).rsplit('/').next() {
        Some(name) if !name.is_empty() => name.to_owned(),
        _ => std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim().to_owned(),
    };
    // Chosen by the process, which may be anybody's.
    (!name.is_empty()).then(|| report::printable(&name))
}

/// How to call a process that says nothing of itself.
pub(crate) fn titled(pid: u32) -> String {
    program(pid).map_or_else(|| format!("process {pid}"), |name| format!("process {pid} ({name})"))
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

    fn listener(name: &str) -> (UnixListener, Listener) {
        let listener = Listener { number: 0, name: format!("{NAME}test-{name}-{}", std::process::id()) };
        let address = SocketAddr::from_abstract_name(&listener.name).expect("short");
        (UnixListener::bind_addr(&address).expect("free name"), listener)
    }

    #[test]
    fn silence_has_its_reason() {
        // Above the kernel's largest PID.
        assert_eq!(reports(1 << 23).err(), Some(Silence::NoProcess));
        assert_eq!(reports(std::process::id()).err(), Some(Silence::NoEngine));
        let own = std::env::current_exe().expect("this test");
        let name = own.file_name().expect("a name").to_string_lossy().into_owned();
        assert_eq!(titled(std::process::id()), format!("process {} ({name})", std::process::id()));
        assert_eq!(titled(1 << 23), format!("process {}", 1 << 23));
    }

    #[test]
    fn a_process_that_does_not_answer_is_given_up() {
        let (_never_accepts, listener) = listener("never");
        assert_eq!(listener.ask().1.err(), Some(Silence::Stopped));
    }

    #[test]
    fn garbage_is_refused_with_its_reason() {
        let (server, listener) = listener("garbage");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a caller");
            stream.write_all(b"nonsense").expect("a reader");
        });
        let silence = listener.ask().1.expect_err("nonsense");
        server.join().expect("no panic");
        assert!(silence.to_string().contains("not understood"), "{silence}");
    }

    /// Who `caller` believes, of a process `pid` in whose name `user` answers.
    fn believed(caller: u32, user: u32, pid: Option<u32>) -> Result<(), Silence> {
        let (stream, _other) = UnixStream::pair().expect("two sockets");
        Connection { stream, pid, user }.believed_by(Uid::from_raw(caller))
    }

    #[test]
    fn only_who_runs_a_process_answers_for_it() {
        let (own, pid) = (geteuid().as_raw(), Some(std::process::id()));
        let other = own + 4711;
        for user in [0, other] {
            assert_eq!(believed(other, user, pid), Ok(()), "one's own, and root's");
        }
        assert_eq!(believed(other, other + 1, pid), Err(Silence::OtherUser { owner: other + 1 }));
        // Root: this process runs as its own user, and not as another one.
        assert_eq!(believed(0, own, pid), Ok(()));
        assert_eq!(believed(0, other, pid), Err(Silence::Foreign { user: other }));
        assert_eq!(believed(0, other, None), Err(Silence::Foreign { user: other }), "nobody can tell");
        assert_eq!(believed(0, other, Some(1 << 23)), Err(Silence::Foreign { user: other }), "it has gone");
    }

    #[test]
    fn sockets_are_found_once_and_others_are_passed_over() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000: 00000002 00000000 00010000 0001 01 123 @pagewire-explain-42\n\
            0000: 00000003 00000000 00000000 0001 03 124 @pagewire-explain-42\n\
            0000: 00000002 00000000 00010000 0001 01 125 /run/pagewire-explain-7\n\
            0000: 00000002 00000000 00010000 0001 01 126 @pagewire-explain-x\n\
            0000: 00000002 00000000 00010000 0001 01 128 @pagewire-explain-42.1\n\
            0000: 00000002 00000000 00010000 0001 01 129 @pagewire-explain-42.x\n\
            0000: 00000002 00000000 00010000 0001 01 127\n";
        let named = |name: &str| Listener { number: 42, name: format!("{NAME}{name}") };
        assert_eq!(parse_sockets(table, NAME), [named("42"), named("42.1")]);
    }

    #[test]
    fn a_process_answers_over_its_socket() {
        let (server, listener) = listener("answers");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = server.accept().expect("a caller");
            stream
                .write_all(b"{\"pid\":1,\"program\":\"p\"}\n{\"qpn\":17,\"ring_packets_sent\":1}\n")
                .expect("a reader");
        });
        let (pid, reports) = listener.ask();
        server.join().expect("no panic");
        let reports = reports.expect("an answer");
        assert_eq!(reports[0].paths(), ["local"]);
        // Not the number that the process itself gives.
        assert_eq!(pid, std::process::id());
        assert_eq!(reports[0].process["pid"], std::process::id());
    }
}
