//! A connection on its way to an open stream: it says whom it asks for, agrees on keys where streams are encrypted, and gets an answer.

use super::format::{PREFACE, Preface, PrefaceKind};
use super::send_side::SendSide;
use super::{tcp, tls_bytes};
use crate::descriptors::Descriptor;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv};
use rustls::ClientConnection;
use std::io::{self, Write};

/// Bytes of an answer inside TLS that are read at once.
const ANSWER_BYTES: usize = 4096;

/// A connection that was begun.
pub struct Opening {
    socket: Descriptor,
    preface: [u8; PREFACE],
    has_sent_question: bool,
    tls: Option<Box<ClientConnection>>,
    /// What waits for room in the socket.
    out: Vec<u8>,
    answer: Vec<u8>,
    /// Whether it has begun to answer inside TLS.
    is_answered: bool,
    /// Whether the other side answers as one that has no TLS.
    is_clear: bool,
}

impl Opening {
    /// Asks by a connection, inside TLS once more: so nobody changes what was asked outside.
    ///
    /// # Errors
    /// rustls', of which none is known here.
    pub fn new(socket: Descriptor, preface: Preface, tls: Option<ClientConnection>) -> io::Result<Self> {
        let preface = preface.emit();
        let mut tls = tls.map(Box::new);
        if let Some(tls) = &mut tls {
            tls.writer().write_all(&preface)?;
        }
        let is_clear = tls.is_none();
        let (has_sent_question, is_answered, out, answer) = Default::default();
        Ok(Opening { socket, preface, has_sent_question, tls, out, answer, is_answered, is_clear })
    }

    /// Its socket.
    pub fn socket(&self) -> &Descriptor {
        &self.socket
    }

    /// Whether the host is there, and has been asked.
    pub fn has_sent_question(&self) -> bool {
        self.has_sent_question
    }

    /// Whether something waits for room in the socket.
    pub fn waits_for_room(&self) -> bool {
        !self.has_sent_question || !self.out.is_empty()
    }

    /// Goes on as far as it can. `None`: the answer has not come.
    ///
    /// # Errors
    /// The kernel's; `ConnectionReset`: the other side has closed it; `InvalidData`: it is no Pagewire, or not the peer.
    pub fn step(&mut self) -> io::Result<Option<PrefaceKind>> {
        tcp::error_of(&self.socket)?;
        if !self.has_sent_question {
            match rustix::net::send(&self.socket, &self.preface, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // A new connection has room for it.
                Ok(PREFACE) => self.has_sent_question = true,
                Err(Errno::AGAIN | Errno::NOTCONN | Errno::INTR) => return Ok(None),
                Ok(_) => return Err(io::ErrorKind::WriteZero.into()),
                Err(error) => return Err(error.into()),
            }
        }
        self.send()?;
        while self.answer.len() < PREFACE {
            if self.receive()? {
                return Ok(None);
            }
        }
        let kind = self.answer.first_chunk().and_then(Preface::parse).map(|preface| preface.kind);
        match kind {
            Some(PrefaceKind::Ask) | None => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "another program answers"))
            }
            // Whoever changes what travels in the clear may refuse, and no more.
            Some(PrefaceKind::Accept) if self.is_clear && self.tls.is_some() => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it answers in the clear"))
            }
            kind => Ok(kind),
        }
    }

    /// Reads on; says whether the socket was empty.
    fn receive(&mut self) -> io::Result<bool> {
        let mut bytes = vec![0; if self.is_clear { PREFACE - self.answer.len() } else { ANSWER_BYTES }];
        let received = match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::ConnectionReset.into()),
            Ok((_, received)) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(error) => return Err(error.into()),
        };
        let bytes = &bytes[..received];
        match &mut self.tls {
            // No record of TLS begins as a preface does.
            Some(tls) if !self.is_clear && (self.is_answered || bytes[0] != self.preface[0]) => {
                self.is_answered = true;
                let taken = tls_bytes::receive_bytes(tls, bytes);
                // Also why it is not.
                let sent = self.send();
                taken.and(sent)?;
                self.read_answer()?;
            }
            _ => {
                self.is_clear = true;
                let left = PREFACE - self.answer.len();
                self.answer.extend_from_slice(&bytes[..left.min(received)]);
            }
        }
        Ok(false)
    }

    fn read_answer(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        let mut bytes = [0; PREFACE];
        let read = tls_bytes::read(tls, &mut bytes[..PREFACE - self.answer.len()])?;
        self.answer.extend_from_slice(&bytes[..read]);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls_bytes::seal(tls, &mut self.out)?;
        }
        tls_bytes::flush(&self.socket, &mut self.out)
    }

    /// Whether the process that has accepted it may send by it, too.
    pub fn serves_both(&self) -> bool {
        let answer = self.answer.first_chunk().and_then(Preface::parse);
        self.tls.is_none() && answer.is_some_and(|answer| answer.own_block != 0)
    }

    /// The connection, which was accepted.
    pub fn open(self) -> SendSide {
        SendSide::new(self.socket, self.tls, self.out)
    }
}
