//! `pagewire explain`: asks live processes about their connections.
//!
//! Each process with an engine listens on the abstract AF_UNIX stream socket `\0pagewire-explain-PID` and answers a
//! connection with JSON lines (see [`crate::report`]). Abstract names belong to a network namespace: only processes
//! of the caller's "host" are seen.

use crate::arguments::ExplainArguments;
use crate::limits::{EXPLAIN_BYTES, EXPLAIN_PATIENCE, WATCH_INTERVAL};
use crate::report::{self, ProcessReport};
use anyhow::{Context, Result};
use std::io::{IsTerminal, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};

const NAME: &str = "pagewire-explain-";

/// Prints the reports; gives the exit status.
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
    if processes.is_empty() && !arguments.json {
        writeln!(out, "No process in this network namespace has a Pagewire device open.")?;
    }
    let mut code = 0;
    for pid in processes {
        match ask(pid) {
            Ok(text) if arguments.json => out.write_all(text.as_bytes())?,
            Ok(text) => {
                for report in report::parse(&text)? {
                    report::write_report(&mut out, &report)?;
                    writeln!(out)?;
                }
            }
            // One that ended between the listing and the question is no error; one that was asked for is.
            Err(error) if named => {
                code = 1;
                anstream::eprintln!("pagewire: process {pid}: {error:#}");
            }
            Err(error) if is_gone(&error) => {}
            Err(error) => anstream::eprintln!("pagewire: process {pid}: {error:#}"),
        }
    }
    out.flush()?;
    Ok(code)
}

fn is_gone(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
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

/// Asks the process `pid`; gives its JSON lines.
///
/// # Errors
/// If it has no engine, belongs to another user, or does not answer in time.
pub fn ask(pid: u32) -> Result<String> {
    let address = SocketAddr::from_abstract_name(format!("{NAME}{pid}"))?;
    let stream = UnixStream::connect_addr(&address)?;
    stream.set_read_timeout(Some(EXPLAIN_PATIENCE))?;
    let mut text = String::new();
    stream.take(EXPLAIN_BYTES).read_to_string(&mut text).context("no answer (another user's, or stopped)")?;
    Ok(text)
}

/// Asks the process `pid`; gives its reports.
///
/// # Errors
/// As [`ask`], and if the answer is not in the format.
pub fn reports(pid: u32) -> Result<Vec<ProcessReport>> {
    report::parse(&ask(pid)?)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let address = SocketAddr::from_abstract_name(format!("{NAME}{pid}")).expect("short");
        let listener = std::os::unix::net::UnixListener::bind_addr(&address).expect("free name");
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
