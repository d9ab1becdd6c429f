//! Bytes between TLS and a socket.

use crate::descriptors::Descriptor;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv};
use rustls::{ConnectionCommon, SideData};
use std::io::{self, Read};

/// Sends what there is room for, and takes it from the bytes.
///
/// # Errors
/// The kernel's.
pub fn flush(socket: &Descriptor, bytes: &mut Vec<u8>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    match rustix::net::send(socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
        Ok(sent) => drop(bytes.drain(..sent)),
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOTCONN) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

/// Adds what TLS has to send to bytes on their way.
///
/// # Errors
/// rustls', of which none is known here.
pub fn seal<S: SideData>(tls: &mut ConnectionCommon<S>, bytes: &mut Vec<u8>) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(bytes)?;
    }
    Ok(())
}

/// Reads on from a socket; gives whether it was empty.
///
/// # Errors
/// The kernel's; `UnexpectedEof`: the peer has closed it; `InvalidData`: what is wrong with what the peer says, or whom it is.
pub fn receive<S: SideData>(tls: &mut ConnectionCommon<S>, socket: &Descriptor) -> io::Result<bool> {
    match tls.read_tls(&mut SocketReader(socket)) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
        Err(error) => return Err(error),
    }
    take(tls).map(|()| false)
}

/// Takes bytes that were read from the socket.
///
/// # Errors
/// As [`receive`].
pub fn receive_bytes<S: SideData>(tls: &mut ConnectionCommon<S>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        // Nothing is taken behind the end.
        if tls.read_tls(&mut bytes)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        take(tls)?;
    }
    Ok(())
}

fn take<S: SideData>(tls: &mut ConnectionCommon<S>) -> io::Result<()> {
    let taken = tls.process_new_packets();
    taken.map(drop).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, cause(&error)))
}

/// What is wrong, in the words of who sets keys.
fn cause(error: &rustls::Error) -> String {
    use rustls::{AlertDescription, CertificateError, Error};
    match error {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "the peer does not have the same secret".to_owned()
        }
        Error::InvalidCertificate(wrong) => format!("the certificate of the peer is of no use: {wrong}"),
        Error::AlertReceived(AlertDescription::HandshakeFailure) | Error::PeerIncompatible(_) => {
            format!("the peer has keys of another kind, a secret or certificates ({error})")
        }
        Error::AlertReceived(alert) => {
            format!("the peer does not take the certificate or key of this process: {alert:?}")
        }
        _ => format!("TLS: {error}"),
    }
}

/// What the peer said, as far as it has been received: 0 bytes where there is no more.
///
/// # Errors
/// `UnexpectedEof`: it has said that it says no more.
pub fn read<S: SideData>(tls: &mut ConnectionCommon<S>, bytes: &mut [u8]) -> io::Result<usize> {
    match tls.reader().read(bytes) {
        Ok(0) if !bytes.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        read => read,
    }
}

struct SocketReader<'s>(&'s Descriptor);

impl Read for SocketReader<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match recv(self.0, bytes, RecvFlags::DONTWAIT) {
            Ok((_, received)) => Ok(received),
            Err(Errno::AGAIN | Errno::INTR) => Err(io::ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
        }
    }
}
