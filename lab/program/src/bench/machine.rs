//! What the machine itself allows: the figures that no software on these paths can beat by much.

use super::ground::{Ground, LINK_MTU};
use crate::limits::BENCH_RUN;
use crate::probe::{Holder, Kind};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use pagewire_cli::hosts::Host;
use pagewire_cli::median;
use pagewire_cli::pair::Running;
use pagewire_nic::PathChoice;
use std::io::{IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

/// How long one limit is measured.
const TIME: Duration = Duration::from_millis(200);

/// The payload of the largest datagram between the two hosts, without the headers of IPv4 and UDP.
const SEGMENT: u32 = LINK_MTU - 28;

/// Who asks for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exchange {
    /// Bytes go to the other side.
    Write,
    /// Bytes are asked for and come back.
    Read,
    /// A word is asked for and comes back.
    Atomic,
}

/// What is measured for it.
#[derive(Clone, Copy, Debug)]
enum Measured {
    CrossMemory {
        read: bool,
    },
    /// Bytes there, and half of the round trip or the whole.
    RoundTrip {
        there: Option<usize>,
        share: f64,
    },
    Flood,
    /// As [`RoundTrip`](Self::RoundTrip), by TCP.
    TcpRoundTrip {
        there: Option<usize>,
        share: f64,
    },
    Stream,
}

/// One limit: what it is called, and how it is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    unit: &'static str,
    measured: Measured,
}

/// The limit of `path` for `exchange` in `unit`, if there is one: a word of shared memory has none worth the name.
pub(super) fn limit(path: PathChoice, exchange: Exchange, unit: &'static str) -> Option<Limit> {
    let limit = |name, measured| Some(Limit { name, unit, measured });
    match (path, exchange, unit) {
        (PathChoice::Udp, Exchange::Write, "us") => {
            limit("UDP round trip / 2", Measured::RoundTrip { there: None, share: 0.5 })
        }
        // Of READs and atomics perftest gives the whole round trip.
        (PathChoice::Udp, _, "us") => {
            limit("UDP round trip", Measured::RoundTrip { there: Some(8), share: 1.0 })
        }
        (PathChoice::Udp, Exchange::Write | Exchange::Read, _) => {
            limit("UDP with GSO and GRO", Measured::Flood)
        }
        (PathChoice::Tcp, Exchange::Write, "us") => {
            limit("TCP round trip / 2", Measured::TcpRoundTrip { there: None, share: 0.5 })
        }
        (PathChoice::Tcp, _, "us") => {
            limit("TCP round trip", Measured::TcpRoundTrip { there: Some(8), share: 1.0 })
        }
        (PathChoice::Tcp, Exchange::Write | Exchange::Read, _) => limit("bare TCP stream", Measured::Stream),
        (_, Exchange::Atomic, _) => None,
        (_, Exchange::Write, _) => limit("process_vm_writev", Measured::CrossMemory { read: false }),
        (_, Exchange::Read, _) => limit("process_vm_readv", Measured::CrossMemory { read: true }),
    }
}

impl Limit {
    /// The figure for messages of `size` bytes.
    ///
    /// # Errors
    /// If the kernel refuses something, or there are no two hosts.
    pub(super) fn measure(self, ground: &Ground, size: usize) -> Result<f64> {
        match self.measured {
            Measured::CrossMemory { read } => {
                let cost = cross_memory(size, read)?;
                Ok(if self.unit == "us" { cost.typical } else { cost.rate })
            }
            Measured::RoundTrip { there, share } => {
                let lengths = [there.unwrap_or(size).to_string(), size.to_string()];
                Ok(between_hosts(ground, [Kind::Answerer, Kind::Asker], &lengths)? * share)
            }
            Measured::TcpRoundTrip { there, share } => {
                let lengths = [there.unwrap_or(size).to_string(), size.to_string()];
                Ok(between_hosts(ground, [Kind::TcpAnswerer, Kind::TcpAsker], &lengths)? * share)
            }
            Measured::Stream => between_hosts(ground, [Kind::Sink, Kind::Source], &[size.to_string()]),
            Measured::Flood => between_hosts(ground, [Kind::Flooder, Kind::Receiver], &[]),
        }
    }
}

/// Starts one side, which serves until it is killed, and gives the figure that the other prints.
fn between_hosts(ground: &Ground, [server, client]: [Kind; 2], lengths: &[String]) -> Result<f64> {
    let (first, second) = ground.ends(PathChoice::Udp)?;
    // The answerer is asked, the flooder sends: the address is that of who binds it.
    let bound = if server == Kind::Flooder { second } else { first };
    let start = |host: &Host, kind: Kind| {
        let mut command = host.command(&ground.program);
        command.args(["probe", kind.name(), &bound.address.to_string(), &SEGMENT.to_string()]);
        command.args(lengths);
        Running::start(command)
    };
    let (server, client) = (start(first, server)?, start(second, client)?);
    let finished = client.wait_until(Instant::now() + BENCH_RUN);
    if !finished.success() {
        let served = server.wait_until(Instant::now());
        bail!("{} {} {}", finished.verdict(), finished.output.trim(), served.output.trim());
    }
    finished.output.trim().parse().with_context(|| finished.output.clone())
}

/// What repeated calls cost.
struct Cost {
    /// Median microseconds of one.
    typical: f64,
    /// MB/s of all together.
    rate: f64,
}

/// Calls `operation`, which moves `size` bytes, for [`TIME`].
fn repeat(size: usize, mut operation: impl FnMut() -> Result<()>) -> Result<Cost> {
    let (started, mut times) = (Instant::now(), Vec::new());
    let mut last = started;
    while last.duration_since(started) < TIME {
        operation()?;
        let now = Instant::now();
        times.push(now.duration_since(last).as_secs_f64() * 1e6);
        last = now;
    }
    let rate = (size * times.len()) as f64 / last.duration_since(started).as_secs_f64() / 1e6;
    Ok(Cost { typical: median(&mut times).context("no call ended")?, rate })
}

/// process_vm_writev or process_vm_readv of `size` bytes, into or out of another process.
fn cross_memory(size: usize, read: bool) -> Result<Cost> {
    let holder = Holder::start(size)?;
    let mut data = vec![2; size];
    let remote = [RemoteIoVec { base: holder.address, len: size }];
    repeat(size, || {
        let moved = match read {
            true => process_vm_readv(holder.pid(), &mut [IoSliceMut::new(&mut data)], &remote)?,
            false => process_vm_writev(holder.pid(), &[IoSlice::new(&data)], &remote)?,
        };
        ensure!(moved == size, "only {moved} of {size} bytes were copied");
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_that_of_the_calls() {
        let mut calls = 0_u64;
        let cost = repeat(1000, || {
            calls += 1;
            std::thread::sleep(Duration::from_millis(1));
            Ok(())
        })
        .expect("no failure");
        assert!(calls > 0 && cost.typical >= 1000.0, "{} us", cost.typical);
        // 1000 bytes in a millisecond or more.
        assert!(cost.rate > 0.0 && cost.rate <= 1.0, "{} MB/s", cost.rate);
    }
}
