//! `pagewire get` and `pagewire put`: files that another process serves, by RDMA, piece by piece.

mod bars;
mod get;
mod hasher;
mod pieces;
mod put;

use crate::arguments::{GetArguments, PutArguments};
use crate::limits::TRANSFERS;
use crate::output::report::printable;
use crate::running::directory::{Ask, Client, Entry, Opened, Reply, ServedPlace};
use crate::running::interrupt::{self, Interrupted};
use anyhow::{Context, Result, bail};
use bars::Bars;
use pagewire::{Node, RemoteRegion, Token};
use serde::Serialize;
use std::collections::HashMap;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A file that was transferred.
#[derive(Debug, Serialize)]
struct Done {
    name: String,
    server: String,
    /// The file of this side.
    file: PathBuf,
    bytes: u64,
    /// Bytes of an earlier run.
    resumed: u64,
    seconds: f64,
    path: String,
    sha256: String,
}

/// What all transfers of one run share.
struct Transfers {
    /// By the own address. They end with the process: a peer that is stopped would hold up their end by themselves.
    nodes: ManuallyDrop<Mutex<HashMap<IpAddr, Arc<Node>>>>,
    bars: Bars,
    json: bool,
}

/// A file of a server, ready to be transferred.
struct Remote {
    opened: Opened,
    region: RemoteRegion,
    token: Token,
    /// The node that the region is of.
    node: Arc<Node>,
}

impl Remote {
    /// The path to it, and why it is no better one: known once something was transferred.
    fn path(&self) -> Result<String> {
        let explained = self.node.explain(&self.token)?;
        Ok(explained.split_once(": ").map_or(explained.clone(), |(_, path)| path.to_owned()))
    }
}

/// Gets files; gives the exit status.
///
/// # Errors
/// If it is interrupted, or the command line makes no sense. A file that is not had is told, and the others go on.
pub fn get(arguments: &GetArguments) -> Result<u8> {
    interrupt::watch()?;
    let transfers = Transfers::new(arguments.json);
    let is_list = |place: &&ServedPlace| arguments.list || place.name.is_none();
    let (lists, files): (Vec<&ServedPlace>, Vec<&ServedPlace>) = arguments.sources.iter().partition(is_list);
    let mut status = 0;
    for place in lists {
        status |= transfers.conclude(place, list(place, arguments.json))?;
    }
    let jobs = get::jobs(&files, arguments)?;
    Ok(status | transfers.run(&jobs, |job| &job.place, |job| get::get(&transfers, job, arguments.force))?)
}

/// Puts files; gives the exit status.
///
/// # Errors
/// If it is interrupted, or the command line makes no sense. A file that is not put is told, and the others go on.
pub fn put(arguments: &PutArguments) -> Result<u8> {
    interrupt::watch()?;
    let transfers = Transfers::new(arguments.json);
    let jobs = put::jobs(arguments)?;
    transfers.run(&jobs, |job| &job.place, |job| put::put(&transfers, job))
}

/// Prints what a server has.
fn list(place: &ServedPlace, json: bool) -> Result<()> {
    let Reply::Files { files } = Client::connect(place)?.ask(Ask::List)? else {
        bail!("the server at {place} answers something else");
    };
    let mut out = anstream::stdout().lock();
    let mut table = crate::output::table::Table::new(&["name", "bytes", ""]);
    for Entry { name, length, writable } in files {
        if json {
            let line = serde_json::json!({ "name": name, "length": length, "writable": writable });
            writeln!(out, "{line}")?;
        } else {
            let rights = if writable { "writable" } else { "" };
            table.row(vec![printable(&name), length.to_string(), rights.to_owned()]);
        }
    }
    if !json {
        table.write(&mut out, "")?;
    }
    Ok(out.flush()?)
}

impl Transfers {
    fn new(json: bool) -> Transfers {
        Transfers { nodes: ManuallyDrop::default(), bars: Bars::new(), json }
    }

    /// Does all jobs, several at a time.
    fn run<J: Sync>(
        &self,
        jobs: &[J],
        place: impl Fn(&J) -> &ServedPlace + Sync,
        work: impl Fn(&J) -> Result<Done> + Sync,
    ) -> Result<u8> {
        let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let worker = || -> Result<()> {
            while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                interrupt::check()?;
                let concluded = work(job).and_then(|done| self.show(&done));
                failed.fetch_add(self.conclude(place(job), concluded)?.into(), Ordering::Relaxed);
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..jobs.len().min(TRANSFERS)).map(|_| scope.spawn(worker)).collect();
            let mut results = vec![worker()];
            results.extend(others.into_iter().map(|other| match other.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }));
            results.into_iter().collect::<Result<()>>()
        })?;
        Ok(u8::from(failed.into_inner() > 0))
    }

    /// The status of one place; what went wrong there is told. An interruption ends everything.
    fn conclude(&self, place: &ServedPlace, result: Result<()>) -> Result<u8> {
        let Err(error) = result else { return Ok(0) };
        // Who reads no more of the output has seen enough: nobody is left to be told.
        let is_closed_pipe = |error: &std::io::Error| error.kind() == std::io::ErrorKind::BrokenPipe;
        if error.downcast_ref().is_some_and(is_closed_pipe) {
            return Err(error);
        }
        let interrupted = error.is::<Interrupted>();
        let told = || -> Result<()> {
            if self.json {
                let line = serde_json::json!({
                    "name": place.name,
                    "server": ServedPlace { name: None, ..place.clone() }.to_string(),
                    "error": format!("{error:#}"),
                });
                return Ok(writeln!(std::io::stdout(), "{line}")?);
            }
            crate::tell!("pagewire: {place}: {error:#}");
            if let Some(limit) = crate::limit_in_the_way(&error) {
                crate::tell!("pagewire: {limit}");
            }
            Ok(())
        };
        self.bars.suspend(told)?;
        if interrupted { Err(error) } else { Ok(1) }
    }

    /// Says of a file that it is there.
    fn show(&self, done: &Done) -> Result<()> {
        self.bars.suspend(|| {
            let mut out = anstream::stdout().lock();
            if self.json {
                writeln!(out, "{}", serde_json::to_string(done)?)?;
            } else {
                let Done { file, bytes, resumed, seconds, path, sha256, .. } = done;
                let speed = (bytes - resumed) as f64 / seconds.max(1e-9) / 1e6;
                let rest = if *resumed > 0 { format!(", {resumed} of them before") } else { String::new() };
                let file = printable(&file.display().to_string());
                writeln!(out, "{file}: {bytes} bytes{rest} in {seconds:.2} s, {speed:.0} MB/s, {path}")?;
                writeln!(out, "sha256 {sha256}")?;
            }
            Ok(out.flush()?)
        })
    }

    /// Opens a file of a server. `upload`: what is to be put into it.
    fn open(&self, place: &ServedPlace, upload: Option<String>) -> Result<Remote> {
        let mut client = Client::connect(place)?;
        let name = place.name.clone().context("no name is given")?;
        let Reply::Opened(opened) = client.ask(Ask::Open { name, upload })? else {
            bail!("the server answers something else than was asked for");
        };
        let token = opened.token().context("the server's answer makes no sense")?;
        let node = self.node(client.own_address()?)?;
        let region = node.open(&token)?;
        Ok(Remote { opened, region, token, node })
    }

    fn node(&self, address: IpAddr) -> Result<Arc<Node>> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = nodes.get(&address) {
            return Ok(node.clone());
        }
        let node = Arc::new(Node::alone_at(address)?);
        nodes.insert(address, node.clone());
        Ok(node)
    }
}

/// Asks a server for a checksum, and waits for it.
fn checksum(mut client: Client, place: &ServedPlace, length: u64) -> Result<String> {
    let name = place.name.clone().context("no name is given")?;
    let mut reply = client.ask(Ask::Checksum { name, length })?;
    loop {
        match reply {
            Reply::Checksum { sha256 } => return Ok(sha256),
            Reply::Working { .. } => reply = client.reply()?,
            _ => bail!("the server answers something else than a checksum"),
        }
        interrupt::check()?;
    }
}

/// What a transfer took.
fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e6
}
