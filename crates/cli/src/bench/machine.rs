//! What the machine itself allows: the figures that no software on these paths can beat by much.

use crate::arguments::PathChoice;
use crate::probe::Holder;
use anyhow::{Context, Result};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::uio::{RemoteIoVec, process_vm_writev};
use std::io::{ErrorKind, IoSlice};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long one limit is measured.
const TIME: Duration = Duration::from_millis(200);

/// The payload of one datagram of a batch: a path MTU of 4,096 bytes and headers fit in it.
const SEGMENT: usize = 4160;

/// Datagrams in one system call: what fits in 64 KB.
const BATCH: usize = 15;

/// The limit of `path` in `unit` for messages of `size` bytes.
pub(super) fn limit(path: PathChoice, unit: &str, size: u64) -> Result<f64> {
    let size = usize::try_from(size)?;
    match (path, unit) {
        (PathChoice::Udp, "us") => udp_half_round_trip(size),
        (PathChoice::Udp, _) => udp_rate(),
        (_, "us") => cross_memory_write(size),
        _ => Ok(size as f64 / cross_memory_write(size)?),
    }
}

/// Microseconds of one process_vm_writev of `size` bytes into another process (so bytes over it are MB/s).
fn cross_memory_write(size: usize) -> Result<f64> {
    let holder = Holder::start(size)?;
    let data = vec![2; size];
    let remote = [RemoteIoVec { base: holder.address, len: size }];
    let (started, mut count) = (Instant::now(), 0_u32);
    while started.elapsed() < TIME {
        process_vm_writev(holder.pid(), &[IoSlice::new(&data)], &remote)?;
        count += 1;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count))
}

fn socket() -> Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Half a round trip of `size` bytes in one datagram (at most) between two spinning threads, in microseconds.
fn udp_half_round_trip(size: usize) -> Result<f64> {
    let size = size.min(SEGMENT);
    let (near, far) = (socket()?, socket()?);
    near.connect(far.local_addr()?)?;
    far.connect(near.local_addr()?)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> Result<()> {
            let mut buffer = [0; SEGMENT];
            while let Some(length) = receive(&far, &mut buffer, &stop)? {
                far.send(&buffer[..length])?;
            }
            Ok(())
        });
        let measured = (|| -> Result<f64> {
            let mut buffer = [0; SEGMENT];
            let (started, mut count) = (Instant::now(), 0_u32);
            while started.elapsed() < TIME {
                near.send(&buffer[..size])?;
                receive(&near, &mut buffer, &stop)?;
                count += 1;
            }
            Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(count) / 2.0)
        })();
        stop.store(true, Ordering::Relaxed);
        echo.join().ok().context("the echo thread")??;
        measured
    })
}

/// Spins for a datagram; `None` when told to stop.
fn receive(socket: &UdpSocket, buffer: &mut [u8], stop: &AtomicBool) -> Result<Option<usize>> {
    while !stop.load(Ordering::Relaxed) {
        match socket.recv(buffer) {
            Ok(length) => return Ok(Some(length)),
            // One core only would else spin for a whole time slice.
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// Received MB/s of batched UDP (GSO and GRO) from one thread to another.
fn udp_rate() -> Result<f64> {
    let (near, far) = (socket()?, socket()?);
    setsockopt(&near, sockopt::UdpGsoSegment, &(SEGMENT as i32))?;
    setsockopt(&far, sockopt::UdpGroSegment, &true)?;
    near.connect(far.local_addr()?)?;
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
