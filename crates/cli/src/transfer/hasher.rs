//! The checksum of a transfer, computed in a thread of its own while pieces come and go. It gives the buffers back.

use crate::limits::{TRANSFER_BUFFERS, TRANSFER_PIECE};
use crate::running::interrupt;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

/// Sums pieces in the order in which they come, and has the buffers of a transfer.
pub(super) struct Hasher {
    pieces: Sender<Vec<u8>>,
    summed: Receiver<Vec<u8>>,
    thread: JoinHandle<Sha256>,
    /// Buffers that were made.
    buffers: usize,
}

impl Hasher {
    pub(super) fn start() -> Result<Hasher> {
        let (pieces, to_sum) = channel::<Vec<u8>>();
        let (give_back, summed) = channel();
        let sum = move || {
            let mut hash = Sha256::new();
            for piece in to_sum {
                hash.update(&piece);
                // At the end nobody takes buffers any more.
                let _ = give_back.send(piece);
            }
            hash
        };
        let thread = Builder::new().name("pagewire-hash".to_owned()).spawn(sum);
        Ok(Hasher { pieces, summed, thread: thread.context("a thread for the checksum")?, buffers: 0 })
    }

    /// A buffer of so many bytes, at most [`TRANSFER_PIECE`]: waits until one is summed if there are as many as there may be.
    pub(super) fn buffer(&mut self, count: usize) -> Result<Vec<u8>> {
        let mut buffer = match self.summed.try_recv() {
            Ok(buffer) => buffer,
            Err(_) if self.buffers < TRANSFER_BUFFERS => {
                self.buffers += 1;
                Vec::with_capacity(TRANSFER_PIECE)
            }
            Err(_) => self.summed.recv().context("the thread of the checksum has ended")?,
        };
        buffer.resize(count, 0);
        Ok(buffer)
    }

    /// Adds a piece.
    pub(super) fn add(&self, piece: Vec<u8>) -> Result<()> {
        self.pieces.send(piece).ok().context("the thread of the checksum has ended")
    }

    /// Adds the first bytes of a file.
    pub(super) fn add_file(&mut self, file: &File, length: u64) -> Result<()> {
        let mut at = 0;
        while at < length {
            interrupt::check()?;
            let count = (length - at).min(TRANSFER_PIECE as u64) as usize;
            let mut buffer = self.buffer(count)?;
            file.read_exact_at(&mut buffer, at)?;
            self.add(buffer)?;
            at += count as u64;
        }
        Ok(())
    }

    /// The checksum of all, in hexadecimal digits.
    pub(super) fn finish(self) -> Result<String> {
        drop(self.pieces);
        let hash = self.thread.join().ok().context("the thread of the checksum failed")?;
        Ok(crate::running::directory::hexadecimal(&hash.finalize()))
    }
}
