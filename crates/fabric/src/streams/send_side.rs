//! The sending side of an open stream, and what waits for room in its socket.

use super::format::{FRAME_HEADER, Frame, LONG_HEADERS, Mark};
use super::incoming::RxStream;
use super::{in_place, tls_bytes};
use crate::descriptors::Descriptor;
use crate::limits::STREAM_UNSENT;
use pagewire_memory::{ApplicationMemory, HostMemory, Segment};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, Shutdown, sendmsg, shutdown};
use rustls::ClientConnection;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

/// An open stream, where packets leave.
pub struct SendSide {
    socket: Descriptor,
    tls: Option<Box<ClientConnection>>,
    /// What the kernel had no room for.
    rest: Vec<u8>,
    /// What reads the other direction of the connection, and how often something had come at the last look.
    reader: Option<(Arc<RxStream>, u32)>,
    /// How often the peer was asked what it has read.
    questions: u32,
}

/// How memory of the program was not sent.
pub enum UnsentMemory {
    /// It cannot be read, and nothing has left.
    Unreadable,
    /// A part has left, the rest cannot be read, and there is nothing to end the frame with.
    Torn,
    /// The connection is over.
    Ended,
}

impl SendSide {
    /// One of a connection that was accepted; `rest` has not left yet.
    pub fn new(socket: Descriptor, tls: Option<Box<ClientConnection>>, rest: Vec<u8>) -> Self {
        SendSide { socket, tls, rest, reader: None, questions: 0 }
    }

    /// One of a connection whose other direction is read.
    pub fn beside(socket: Descriptor, reader: Arc<RxStream>) -> Self {
        SendSide { reader: Some((reader, 0)), ..SendSide::new(socket, None, Vec::new()) }
    }

    /// Has the other direction read from now on.
    pub fn set_reader(&mut self, reader: Arc<RxStream>) {
        self.reader = Some((reader, 0));
    }

    /// What reads the other direction.
    pub fn reader(&self) -> Option<&Arc<RxStream>> {
        self.reader.as_ref().map(|(reader, _)| reader)
    }

    /// Whether something has come by the other direction since this was last asked.
    pub fn has_received(&mut self) -> bool {
        let Some((reader, before)) = &mut self.reader else { return false };
        let now = reader.reads();
        std::mem::replace(before, now) != now
    }

    /// Asks whether the peer has read everything so far; gives the question's number. `None`: nobody would hear the answer.
    ///
    /// # Errors
    /// The kernel's: the connection is over.
    pub fn ask(&mut self) -> io::Result<Option<u32>> {
        if self.reader.is_none() || !self.has_room(FRAME_HEADER) {
            return Ok(None);
        }
        self.questions = self.questions.wrapping_add(1).max(1);
        self.mark(Mark::Question(self.questions))?;
        Ok(Some(self.questions))
    }

    /// Sends a mark behind what waits for room, if that is not too much.
    ///
    /// # Errors
    /// The kernel's: the connection is over.
    pub fn mark(&mut self, mark: Mark) -> io::Result<()> {
        if self.has_room(FRAME_HEADER) {
            self.rest.extend_from_slice(&mark.bytes());
        }
        self.flush()
    }

    /// Ends the connection for whoever reads it, too.
    pub fn shut(&self) {
        if self.reader.is_some()
            && let Err(error) = shutdown(&self.socket, Shutdown::Both)
        {
            log::debug!("a connection was over before its end: {error}");
        }
    }

    /// Its socket.
    pub fn socket(&self) -> &Descriptor {
        &self.socket
    }

    /// Whether something waits for room in the socket.
    pub fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Whether so many bytes may wait, too.
    pub fn has_room(&self, length: usize) -> bool {
        self.rest.len() + length <= STREAM_UNSENT
    }

    /// Sends what waits for room.
    ///
    /// # Errors
    /// The kernel's.
    pub fn flush(&mut self) -> io::Result<()> {
        tls_bytes::flush(&self.socket, &mut self.rest)
    }

    /// Sends a frame. What the kernel has no room for waits.
    ///
    /// # Errors
    /// The kernel's: the connection is over.
    pub fn send(&mut self, frame: Frame, packets: &[u8]) -> io::Result<()> {
        let header = frame.header();
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(&header)?;
            tls.writer().write_all(packets)?;
            tls_bytes::seal(tls, &mut self.rest)?;
            return self.flush();
        }
        let mut sent = 0;
        if self.rest.is_empty() {
            let parts = [IoSlice::new(&header), IoSlice::new(packets)];
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            sent = match sendmsg(&self.socket, &parts, &mut SendAncillaryBuffer::default(), flags) {
                Ok(sent) => sent,
                Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => 0,
                Err(error) => return Err(error.into()),
            };
        }
        self.rest.extend_from_slice(header.get(sent..).unwrap_or(&[]));
        self.rest.extend_from_slice(&packets[sent.saturating_sub(FRAME_HEADER).min(packets.len())..]);
        Ok(())
    }

    /// Sends a packet whose payload the kernel reads where the program has it; nothing waits for room. What the kernel has no room for is copied.
    ///
    /// # Errors
    /// See [`UnsentMemory`].
    pub fn send_from_memory(
        &mut self,
        headers: &[u8],
        memory: &HostMemory,
        payload: Segment,
    ) -> Result<(), UnsentMemory> {
        let length = headers.len() + payload.length as usize;
        let frame = Frame { length, segment: length, headers: headers.len() };
        let mut first = [0; FRAME_HEADER + LONG_HEADERS];
        first[..FRAME_HEADER].copy_from_slice(&frame.header());
        let first = &mut first[..FRAME_HEADER + headers.len()];
        first[FRAME_HEADER..].copy_from_slice(headers);
        let sent =
            in_place::send(&self.socket, first, payload).map_err(|error| match error.raw_os_error() {
                Some(libc::EFAULT) => UnsentMemory::Unreadable,
                _ => UnsentMemory::Ended,
            })?;
        let from = sent.saturating_sub(first.len()) as u64;
        if sent < first.len() + payload.length as usize {
            self.rest.extend_from_slice(first.get(sent..).unwrap_or(&[]));
            let begun = self.rest.len();
            self.rest.resize(begun + (payload.length - from) as usize, 0);
            let left = payload.part(from, payload.length - from);
            if memory.read(&[left], &mut self.rest[begun..]).is_err() {
                return Err(UnsentMemory::Torn);
            }
        }
        Ok(())
    }
}
