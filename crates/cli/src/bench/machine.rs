//! What the machine itself allows: the figures that no software on these paths can beat by much.

use super::median;
use crate::arguments::PathChoice;
use crate::probe::Holder;
use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one limit is measured.
const TIME: Duration = Duration::from_millis(200);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// The payload of one datagram of a batch: a path MTU of 4,096 bytes and headers fit in it.
const SEGMENT: usize = 4160;

/// Datagrams in one system call: what fits in 64 KB.
const BATCH: usize = 15;

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

/// One limit: what it is called, and how it is measured for messages of so many bytes.
#[derive(Clone, Copy)]
pub(super) struct Limit {
    pub(super) name: &'static str,
    pub(super) measure: fn(usize) -> Result<f64>,
}

/// The limit of `path` for `exchange` in `unit`, if there is one: a word of shared memory has none worth the name.
pub(super) fn limit(path: PathChoice, exchange: Exchange, unit: &str) -> Option<Limit> {
    let limit = |name, measure| Some(Limit { name, measure });
    match (path, exchange, unit) {
        (PathChoice::Udp, Exchange::Write, "us") => {
            limit("UDP round trip / 2", |size| Ok(udp_round_trip(size, size)? / 2.0))
        }
        // Of READs and atomics perftest gives the whole round trip.
        (PathChoice::Udp, _, "us") => limit("UDP round trip", |size| udp_round_trip(8, size)),
        (PathChoice::Udp, Exchange::Write | Exchange::Read, _) => {
            limit("UDP with GSO and GRO", |_| udp_rate())
        }
        (PathChoice::Udp, Exchange::Atomic, _) | (_, Exchange::Atomic, _) => None,
        (_, Exchange::Write, "us") => {
            limit("process_vm_writev", |size| Ok(cross_memory(size, false)?.typical))
        }
        (_, Exchange::Read, "us") => limit("process_vm_readv", |size| Ok(cross_memory(size, true)?.typical)),
        (_, Exchange::Write, _) => limit("process_vm_writev", |size| Ok(cross_memory(size, false)?.rate)),
        (_, Exchange::Read, _) => limit("process_vm_readv", |size| Ok(cross_memory(size, true)?.rate)),
    }
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

/// A pair of connected sockets that send in batches and do not wait.
fn sockets() -> Result<(UdpSocket, UdpSocket)> {
    let socket = || -> Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        setsockopt(&socket, sockopt::UdpGsoSegment, &(SEGMENT as i32))?;
        setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
        Ok(socket)
    };
    let (near, far) = (socket()?, socket()?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    Ok((near, far))
}

/// Microseconds of a round trip between two spinning threads: `there` bytes, then `back` bytes; the median.
fn udp_round_trip(there: usize, back: usize) -> Result<f64> {
    let (near, far) = sockets()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<()> {
            let (mut buffer, answer) = (vec![0; 1 << 16], vec![0; back]);
            while receive(&far, &mut buffer, there, &stop)? {
                send(&far, &answer)?;
            }
            Ok(())
        });
        let (mut buffer, request) = (vec![0; 1 << 16], vec![0; there]);
        let measured = repeat(back, || {
            send(&near, &request)?;
            ensure!(receive(&near, &mut buffer, back, &stop)?, "the echo thread has ended");
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        echo.join().ok().context("the echo thread")??;
        Ok(measured?.typical)
    })
}

/// Sends a message as datagrams, as many as may be in each system call.
fn send(socket: &UdpSocket, message: &[u8]) -> Result<()> {
    for batch in message.chunks(SEGMENT * BATCH) {
        socket.send(batch)?;
    }
    Ok(())
}

/// Spins until `length` bytes have come; false when told to stop.
fn receive(socket: &UdpSocket, buffer: &mut [u8], length: usize, stop: &AtomicBool) -> Result<bool> {
    let (mut left, started) = (length, Instant::now());
    while left > 0 {
        match socket.recv(buffer) {
            Ok(came) => left = left.saturating_sub(came),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if stop.load(Ordering::Relaxed) {
                    return Ok(false);
                }
                ensure!(started.elapsed() < PATIENCE, "a datagram was lost on the loopback device");
                // One core only would else spin for a whole time slice.
                std::thread::yield_now();
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

/// Received MB/s of batched UDP (GSO and GRO) from one thread to another.
fn udp_rate() -> Result<f64> {
    let (near, far) = sockets()?;
    near.set_nonblocking(false)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<()> {
            let batch = vec![3; SEGMENT * BATCH];
            while !stop.load(Ordering::Relaxed) {
                near.send(&batch)?;
            }
            Ok(())
        });
        let measured = (|| -> Result<f64> {
            let mut buffer = vec![0; 1 << 16];
            let (started, mut bytes) = (Instant::now(), 0_usize);
            while started.elapsed() < TIME {
                match far.recv(&mut buffer) {
                    Ok(length) => bytes += length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(bytes as f64 / started.elapsed().as_secs_f64() / 1e6)
        })();
        stop.store(true, Ordering::Relaxed);
        sender.join().ok().context("the sending thread")??;
        measured
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_many_datagrams_makes_the_round_trip() {
        for (there, back) in [(8, 8), (SEGMENT * BATCH + 100, 1), (8, 1 << 16)] {
            assert!(udp_round_trip(there, back).expect("loopback") > 0.0);
        }
    }

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
