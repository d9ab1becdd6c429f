//! A TCP proxy for the tests: it forwards connections, passes bytes on in pieces of random lengths, and breaks each connection after a random
//! number of bytes where it is told to, of which it prints a line.
#![forbid(unsafe_code)]

use anyhow::{Context, Result};
use clap::Parser;
use rustix::net::sockopt::set_socket_linger;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// The longest piece that is passed on at once.
const PIECE: usize = 100_000;
/// Of so many pieces about one is one byte long.
const SHORT: u64 = 16;

/// Forwards connections to another address.
#[derive(Debug, Parser)]
struct Arguments {
    /// Where connections are taken
    listen: SocketAddr,
    /// Where they go
    target: SocketAddr,
    /// Break each connection after at most so many bytes of one direction; 0: never
    #[arg(long, default_value_t = 0)]
    cut: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For how long it runs at most
    #[arg(long, default_value_t = 600)]
    seconds: u64,
}

fn main() -> Result<()> {
    let Arguments { listen, target, cut, mut seed, seconds } = Arguments::parse();
    let listener = TcpListener::bind(listen).with_context(|| format!("listening at {listen}"))?;
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let Ok(to) = TcpStream::connect(target) else { continue };
            seed = next(seed);
            forward(from, to, cut, seed);
        }
    });
    std::thread::sleep(Duration::from_secs(seconds));
    Ok(())
}

/// A linear congruential generator: any numbers will do.
fn next(seed: u64) -> u64 {
    seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn below(seed: &mut u64, bound: u64) -> u64 {
    *seed = next(*seed);
    (*seed >> 33) % bound.max(1)
}

/// Passes bytes on in both directions.
fn forward(from: TcpStream, to: TcpStream, cut: u64, seed: u64) {
    for socket in [&from, &to] {
        // Else pieces are joined again, and wait for each other.
        let _ = socket.set_nodelay(true);
    }
    let other = (to.try_clone(), from.try_clone());
    if let (Ok(back), Ok(forth)) = other {
        std::thread::spawn(move || pass(from, to, cut, seed));
        std::thread::spawn(move || pass(back, forth, 0, seed));
    }
}

/// Passes bytes of one direction on, until one of the ends is over or so many have been passed.
fn pass(mut from: TcpStream, mut to: TcpStream, cut: u64, mut seed: u64) {
    // Short lives are as likely as long ones.
    let bits = u64::from(64 - cut.leading_zeros());
    let mut left = match cut {
        0 => u64::MAX,
        _ => {
            let bits = 1 + below(&mut seed, bits);
            below(&mut seed, 1 << bits)
        }
    };
    let mut bytes = vec![0; PIECE];
    loop {
        let length = match below(&mut seed, SHORT) {
            0 => 1,
            _ => 1 + below(&mut seed, PIECE as u64 - 1),
        };
        let Ok(read @ 1..) = from.read(&mut bytes[..length.min(left.max(1)) as usize]) else { break };
        let passed = (read as u64).min(left);
        if to.write_all(&bytes[..passed as usize]).is_err() {
            break;
        }
        left -= passed;
        if left == 0 {
            println!("cut");
            // Half of them end as after a crash of the host.
            if below(&mut seed, 2) == 0 {
                let _ = set_socket_linger(&to, Some(Duration::ZERO));
                let _ = set_socket_linger(&from, Some(Duration::ZERO));
            }
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
