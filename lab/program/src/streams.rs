//! What a bare TCP stream achieves between two hosts: a header and a message by one system call, received straight into one place.

use anyhow::{Context, Result};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long one figure is measured.
const TIME: Duration = Duration::from_millis(500);

/// How long the other process may take to listen.
const PATIENCE: Duration = Duration::from_secs(2);

/// The port of the one that is connected to.
const PORT: u16 = 4789;

/// Bytes in front of a message: about those of a packet's headers.
const HEADER: usize = 48;

/// Listens, and serves one connection after the other.
fn serve(address: Ipv4Addr, each: impl Fn(TcpStream) -> std::io::Result<()>) -> Result<()> {
    let listener = TcpListener::bind((address, PORT)).context("listening")?;
    for stream in listener.incoming() {
        let stream = stream?;
        stream.set_nodelay(true)?;
        match each(stream) {
            // It has ended, as it does when it has its figure.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {}
            ended => ended?,
        }
    }
    Ok(())
}

/// Connects as soon as the other one listens.
fn connect(address: Ipv4Addr) -> Result<TcpStream> {
    let started = Instant::now();
    loop {
        match TcpStream::connect((address, PORT)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if started.elapsed() > PATIENCE => return Err(error).context("connecting"),
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Receives messages of `size` bytes until each connection ends, and then says so by a byte.
pub fn sink(address: Ipv4Addr, size: usize) -> Result<()> {
    serve(address, |mut stream| {
        let (mut header, mut message) = ([0; HEADER], vec![0; size]);
        loop {
            match stream.read_exact(&mut header) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return stream.write_all(&[0]),
                read => read?,
            }
            stream.read_exact(&mut message)?;
        }
    })
}

/// MB/s of messages of `size` bytes that a sink has received.
pub fn source(address: Ipv4Addr, size: usize) -> Result<f64> {
    let mut stream = connect(address)?;
    let (header, message) = ([1; HEADER], vec![1; size]);
    let (started, mut sent) = (Instant::now(), 0_u64);
    while started.elapsed() < TIME {
        let written = stream.write_vectored(&[IoSlice::new(&header), IoSlice::new(&message)])?;
        // What the kernel had no room for.
        stream.write_all(header.get(written..).unwrap_or(&[]))?;
        stream.write_all(&message[written.saturating_sub(HEADER).min(size)..])?;
        sent += size as u64;
    }
    stream.shutdown(Shutdown::Write)?;
    stream.read_exact(&mut [0; 1])?;
    Ok(sent as f64 / started.elapsed().as_secs_f64() / 1e6)
}

/// Reads without sleeping.
fn poll(stream: &mut TcpStream, bytes: &mut [u8]) -> std::io::Result<()> {
    let mut read = 0;
    while read < bytes.len() {
        match stream.read(&mut bytes[read..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Answers each `there` bytes by `back` bytes.
pub fn answer(address: Ipv4Addr, [there, back]: [usize; 2]) -> Result<()> {
    serve(address, |mut stream| {
        stream.set_nonblocking(true)?;
        let (mut question, answer) = (vec![0; there], vec![1; back]);
        loop {
            poll(&mut stream, &mut question)?;
            write_all(&mut stream, &answer)?;
        }
    })
}

fn write_all(stream: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The median microseconds of a question of `there` bytes and its answer of `back`.
pub fn round_trip(address: Ipv4Addr, [there, back]: [usize; 2]) -> Result<f64> {
    let mut stream = connect(address)?;
    stream.set_nonblocking(true)?;
    let (question, mut answer, mut times) = (vec![1; there], vec![0; back], Vec::new());
    let started = Instant::now();
    while started.elapsed() < TIME {
        let asked = Instant::now();
        write_all(&mut stream, &question)?;
        poll(&mut stream, &mut answer)?;
        times.push(asked.elapsed().as_secs_f64() * 1e6);
    }
    pagewire_cli::median(&mut times).context("no answer came")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process of its own serves until it is killed: here a thread does, at an address that no other test has.
    #[test]
    fn a_stream_has_a_rate_and_a_round_trip() {
        let [rate, trip] = [Ipv4Addr::new(127, 7, 7, 1), Ipv4Addr::new(127, 7, 7, 2)];
        std::thread::spawn(move || sink(rate, 5000));
        std::thread::spawn(move || answer(trip, [8, 100]));
        assert!(source(rate, 5000).expect("a rate") > 0.0);
        assert!(round_trip(trip, [8, 100]).expect("a round trip") > 0.0);
    }
}
