//! What batched UDP (GSO and GRO) itself achieves between two hosts, from process to process.

use anyhow::{Context, Result, ensure};
use nix::sys::socket::{setsockopt, sockopt};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// How long one figure is measured.
const TIME: Duration = Duration::from_millis(200);

/// How long an answer, and the other process, may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// After this time one that has not answered yet is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// The port of the one that is asked, or receives.
const PORT: u16 = 4790;

/// Bytes of one system call: as many datagrams as fit.
const BATCH_BYTES: usize = 65_000;
/// Datagrams of one system call, as the kernel allows (UDP_MAX_SEGMENTS of older ones).
const BATCH: usize = 64;

fn batch(segment: usize) -> usize {
    segment * (BATCH_BYTES / segment).clamp(1, BATCH)
}

/// A socket that sends in batches of datagrams of `segment` bytes and does not wait.
fn socket(local: (Ipv4Addr, u16), segment: usize) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(local)?;
    socket.set_nonblocking(true)?;
    setsockopt(&socket, sockopt::UdpGsoSegment, &i32::try_from(segment)?)?;
    setsockopt(&socket, sockopt::UdpGroSegment, &true)?;
    Ok(socket)
}

/// Sends a message as datagrams, as many as may be in each system call.
fn send(socket: &UdpSocket, to: SocketAddr, message: &[u8], segment: usize) -> Result<()> {
    for part in message.chunks(batch(segment)) {
        loop {
            match socket.send_to(part, to) {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Spins until `length` bytes have come, and says from whom; `None` after `patience`.
fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
    length: usize,
    patience: Duration,
) -> Result<Option<SocketAddr>> {
    let (mut left, started) = (length, Instant::now());
    loop {
        match socket.recv_from(buffer) {
            Ok((came, from)) => {
                left = left.saturating_sub(came);
                if left == 0 {
                    return Ok(Some(from));
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if started.elapsed() >= patience {
                    return Ok(None);
                }
                // Two that spin on one processor would else wait for whole time slices.
                std::thread::yield_now();
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Answers at `address` for as long as somebody asks.
///
/// # Errors
/// The kernel's.
pub fn answer(address: Ipv4Addr, segment: usize, [there, back]: [usize; 2]) -> Result<()> {
    let socket = socket((address, PORT), segment)?;
    let (mut buffer, answer) = (vec![0; 1 << 16], vec![0; back]);
    while let Some(from) = receive(&socket, &mut buffer, there, PATIENCE)? {
        send(&socket, from, &answer, segment)?;
    }
    Ok(())
}

/// Microseconds of a round trip to who answers at `address`: `there` bytes, then `back` bytes; the median.
///
/// # Errors
/// If nobody answers, or a datagram is lost.
pub fn round_trip(address: Ipv4Addr, segment: usize, [there, back]: [usize; 2]) -> Result<f64> {
    let socket = socket((Ipv4Addr::UNSPECIFIED, 0), segment)?;
    let (mut buffer, request) = (vec![0; 1 << 16], vec![0; there]);
    let to = (address, PORT).into();
    let (begun, mut measuring, mut times) = (Instant::now(), None, Vec::new());
    loop {
        let started = Instant::now();
        if measuring.is_some_and(|since: Instant| since.elapsed() > TIME) {
            break;
        }
        send(&socket, to, &request, segment)?;
        let patience = if measuring.is_some() { PATIENCE } else { ASK_AGAIN };
        let answered = receive(&socket, &mut buffer, back, patience)?.is_some();
        match measuring {
            Some(_) if answered => times.push(started.elapsed().as_secs_f64() * 1e6),
            None if answered => measuring = Some(Instant::now()),
            // It may not have started yet.
            _ => ensure!(measuring.is_none() && begun.elapsed() < PATIENCE, "a datagram was lost"),
        }
    }
    pagewire_cli::median(&mut times).context("no round trip ended")
}

/// Sends to who receives at `address` for as long as it lives.
///
/// # Errors
/// The kernel's, of them that nobody receives any more.
pub fn flood(address: Ipv4Addr, segment: usize) -> Result<()> {
    let socket = socket((Ipv4Addr::UNSPECIFIED, 0), segment)?;
    let message = vec![3; batch(segment)];
    let begun = Instant::now();
    // Its receiver kills it sooner.
    while begun.elapsed() < 2 * PATIENCE {
        send(&socket, (address, PORT).into(), &message, segment)?;
    }
    Ok(())
}

/// Received MB/s of a flood at `address`, from its first datagram on.
///
/// # Errors
/// If none comes.
pub fn receive_flood(address: Ipv4Addr, segment: usize) -> Result<f64> {
    let socket = socket((address, PORT), segment)?;
    let mut buffer = vec![0; 1 << 16];
    ensure!(receive(&socket, &mut buffer, 1, PATIENCE)?.is_some(), "no datagram came");
    let (started, mut bytes) = (Instant::now(), 0_usize);
    while started.elapsed() < TIME {
        match socket.recv(&mut buffer) {
            Ok(length) => bytes += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes as f64 / started.elapsed().as_secs_f64() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_many_datagrams_makes_the_round_trip_and_a_flood_is_measured() {
        // One address for each: they all use one port.
        for (index, lengths) in [[8, 8], [batch(1472) + 100, 1], [8, 1 << 16]].into_iter().enumerate() {
            let address = Ipv4Addr::new(127, 0, 79, index as u8 + 1);
            std::thread::scope(|scope| {
                scope.spawn(move || answer(address, 1472, lengths));
                assert!(round_trip(address, 1472, lengths).expect("loopback") > 0.0);
            });
        }
        let address = Ipv4Addr::new(127, 0, 79, 9);
        std::thread::scope(|scope| {
            scope.spawn(move || flood(address, 1472));
            assert!(receive_flood(address, 1472).expect("loopback") > 0.0);
        });
    }
}
