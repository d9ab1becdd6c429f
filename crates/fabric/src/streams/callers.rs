//! Connections whose opening side is not known yet: it says whom it asks for, and proves who it is where streams are encrypted.

use super::format::{PREFACE, Preface, PrefaceKind};
use super::tls_bytes;
use crate::descriptors::Descriptor;
use crate::limits::TLS_READS;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::ServerConnection;
use std::io;

/// A connection that was accepted.
pub struct Caller {
    pub socket: Descriptor,
    pub stage: CallerStage,
    /// When it is closed.
    pub until: u64,
}

/// How far it has come.
pub enum CallerStage {
    /// What has come of its preface.
    Asking(Vec<u8>),
    /// The process that it asks for has not taken what it was given before.
    Waiting(Preface),
    /// It proves who it is.
    Proving(Box<CallerProof>),
    /// It was refused, and what it has said since is not read: a connection that is closed so takes the refusal back.
    Leaving,
}

/// What a connection has to prove.
pub struct CallerProof {
    question: Preface,
    tls: ServerConnection,
    /// What was asked, inside TLS.
    repeated: Vec<u8>,
    /// What waits for room in the socket.
    out: Vec<u8>,
}

/// How far a caller has come now.
pub enum CallerProgress {
    /// Whom it asks for.
    Asked(Preface),
    /// Who it is; what it says from now on is encrypted.
    Proved(Preface, Box<ServerConnection>),
}

impl Caller {
    /// One that has just connected.
    pub fn new(socket: Descriptor, until: u64) -> Self {
        Caller { socket, stage: CallerStage::Asking(Vec::new()), until }
    }

    /// One that has asked for this process, and has to prove who it is.
    pub fn proving(socket: Descriptor, question: Preface, tls: ServerConnection, until: u64) -> Self {
        let proof = CallerProof { question, tls, repeated: Vec::new(), out: Vec::new() };
        Caller { socket, stage: CallerStage::Proving(Box::new(proof)), until }
    }

    /// Whether something waits for room in its socket.
    pub fn waits_for_room(&self) -> bool {
        matches!(&self.stage, CallerStage::Proving(proof) if !proof.out.is_empty())
    }

    /// Reads on. `None`: not all of it has come.
    ///
    /// # Errors
    /// The kernel's; `UnexpectedEof`; `InvalidData`: this is no Pagewire, or not who it says.
    pub fn read(&mut self) -> io::Result<Option<CallerProgress>> {
        match &mut self.stage {
            CallerStage::Asking(preface) => {
                let question = read_preface(&self.socket, preface)?;
                Ok(question.map(CallerProgress::Asked))
            }
            CallerStage::Waiting(_) => Ok(None),
            CallerStage::Leaving => drop_input(&self.socket).map(|()| None),
            CallerStage::Proving(proof) => {
                let proved = proof.step(&self.socket);
                let sent = tls_bytes::seal(&mut proof.tls, &mut proof.out)
                    .and_then(|()| tls_bytes::flush(&self.socket, &mut proof.out));
                let proved = proved?;
                sent?;
                if !proved {
                    return Ok(None);
                }
                let stage = std::mem::replace(&mut self.stage, CallerStage::Asking(Vec::new()));
                let CallerStage::Proving(proof) = stage else { return Ok(None) };
                Ok(Some(CallerProgress::Proved(proof.question, Box::new(proof.tls))))
            }
        }
    }
}

/// Reads a preface that asks. `None`: not all of it has come.
fn read_preface(socket: &Descriptor, preface: &mut Vec<u8>) -> io::Result<Option<Preface>> {
    let mut bytes = [0; PREFACE];
    let left = PREFACE - preface.len();
    if left > 0 {
        match recv(socket, &mut bytes[..left], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok((_, received)) => preface.extend_from_slice(&bytes[..received]),
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
    let Ok(whole) = <&[u8; PREFACE]>::try_from(&preface[..]) else { return Ok(None) };
    match Preface::parse(whole) {
        Some(preface) if preface.kind == PrefaceKind::Ask => Ok(Some(preface)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Reads some of what has come, and drops it. Whoever sends without end keeps nobody here.
fn drop_input(socket: &Descriptor) -> io::Result<()> {
    let mut bytes = vec![0; 16 << 10];
    match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

impl CallerProof {
    /// Goes on as far as what has come allows; says whether all is proved.
    fn step(&mut self, socket: &Descriptor) -> io::Result<bool> {
        for _ in 0..TLS_READS {
            let mut bytes = [0; PREFACE];
            let read = tls_bytes::read(&mut self.tls, &mut bytes[..PREFACE - self.repeated.len()])?;
            self.repeated.extend_from_slice(&bytes[..read]);
            if self.repeated.len() == PREFACE || read == 0 && tls_bytes::receive(&mut self.tls, socket)? {
                break;
            }
        }
        if self.repeated.len() < PREFACE {
            return Ok(false);
        }
        match self.repeated == self.question.emit() && !self.tls.is_handshaking() {
            true => Ok(true),
            false => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it asks otherwise inside TLS than outside"))
            }
        }
    }
}
