//! Transfers to memory that the peer has to name first: a conditional write, and the traditional order (FRRWP-1, FRRWP-2).
//!
//! Rank 1 has the data, and measures from then on until its write has ended. Rank 0 has the memory. In the traditional order rank 1 registers its
//! buffer and sends a request; rank 0 registers its memory and answers; rank 1 writes. Messages of that order are signals.

use super::strategy::{BUFFERS, Registrar, Strategy, sequence};
use super::{Figure, path_of};
use anyhow::{Context, Result, ensure};
use pagewire::{Atomic, MappedFile, Node, Peer, Region, RemoteRegion, Rights, Token};
use pagewire_cli::median;
use pagewire_papers::frrwp::Access;
use std::time::{Duration, Instant};

/// What one process waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Measurement {
    is_conditional: bool,
    /// The memory is a mapped file, which no peer maps.
    is_to_file: bool,
}

impl Measurement {
    /// The one of this name.
    pub(super) fn by_name(name: &str) -> Option<Measurement> {
        let of = |is_conditional, is_to_file| Some(Measurement { is_conditional, is_to_file });
        match name {
            "conditional_write" => of(true, false),
            "conditional_write_file" => of(true, true),
            "rendezvous_write" => of(false, false),
            "rendezvous_write_file" => of(false, true),
            _ => None,
        }
    }
}

/// The memory that data go to.
enum Inbox {
    Heap(Region<u8>),
    File(MappedFile),
}

impl Inbox {
    fn new(node: &Node, is_file: bool, size: u64) -> Result<Inbox> {
        if !is_file {
            return Ok(Inbox::Heap(node.zeroed(size as usize)?));
        }
        let file = tempfile::tempfile().context("a file for the inbox")?;
        file.set_len(size)?;
        Ok(Inbox::File(node.map_open_file(&file, true)?))
    }

    fn export(&self) -> Result<Token> {
        Ok(match self {
            Inbox::Heap(region) => region.export(Rights::WRITE)?,
            Inbox::File(file) => file.export(Rights::WRITE)?,
        })
    }
}

/// What both processes have.
struct Side<'a> {
    node: &'a Node,
    peer: Peer,
    /// Word 0 counts the signals of the other side.
    words: Region<u64, Atomic>,
    there: RemoteRegion,
    inbox: RemoteRegion,
    inbox_token: Token,
    /// Signals that were waited for.
    taken: u64,
    registrar: Option<Registrar>,
}

/// Measures one of these; `None` at the process that has the memory.
pub(super) fn measure(
    node: &Node,
    what: Measurement,
    (size, times): (u64, u64),
    strategy: Option<Strategy>,
) -> Result<Option<Figure>> {
    let words = node.words(1)?;
    let inbox = Inbox::new(node, what.is_to_file, size)?;
    let signals = node.all_gather(&words.export(Rights::all())?)?;
    let inboxes = node.all_gather(&inbox.export()?)?;
    let other = 1 - node.rank();
    let inbox_token = *inboxes.first().context("no first process")?;
    let mut buffers = match strategy {
        Some(_) => (0..BUFFERS).map(|buffer| Registrar::memory(buffer, size)).collect(),
        None => vec![vec![1; size as usize]],
    };
    let mut side = Side {
        node,
        peer: node.peer(other)?,
        words,
        there: node.open(signals.get(other).context("no second process")?)?,
        inbox: node.open(&inbox_token)?,
        inbox_token,
        taken: 0,
        registrar: strategy.map(|strategy| Registrar::new(strategy, size)).transpose()?,
    };
    let warm_up = times / 10;
    let transfers = match strategy {
        Some(_) => sequence((warm_up + times) as usize, size),
        None => vec![Access { buffer: 0, pages: 0 }; (warm_up + times) as usize],
    };
    node.barrier()?;
    if node.rank() == 0 {
        side.receive_all(what, &transfers, &buffers)?;
        node.barrier()?;
        return Ok(None);
    }
    let mut rows = side.write_all(what, &transfers, &mut buffers)?.split_off(warm_up as usize);
    let path = path_of(node, &inbox_token)?;
    node.barrier()?;
    // Of a sequence the mean, as few transfers wait for all that a cache gives up.
    let value = match strategy {
        Some(_) => rows.iter().sum::<f64>() / rows.len() as f64,
        None => median(&mut rows).context("nothing was measured")?,
    };
    Ok(Some(Figure { value, path, beside: Vec::new() }))
}

impl Side<'_> {
    fn signal(&self) {
        // Its failure shows as the lack of an answer. Within the host it ends with this look, so no thread need be woken for it.
        let signal = self.there.signal_only(self.there.signal(0).add(1));
        signal.is_done();
    }

    /// Waits for the next signal of the other side.
    fn wait(&mut self) -> Result<()> {
        self.taken += 1;
        let taken = self.taken;
        self.words.signal(0)?.wait_until_within(PATIENCE, |value| value >= taken)?;
        Ok(())
    }

    fn register(&mut self, access: Access, memory: &Vec<u8>) -> Result<()> {
        self.registrar.as_mut().map_or(Ok(()), |registrar| registrar.register(access, memory))
    }

    fn finish(&mut self, access: Access) {
        if let Some(registrar) = &mut self.registrar {
            registrar.finish(access);
        }
    }

    /// Whether the initiator needs no message: the target's memory is registered for it (firehose).
    fn needs_no_message(&self, access: Access) -> bool {
        self.registrar.as_ref().is_some_and(|registrar| registrar.needs_no_message(access))
    }

    /// The data of one transfer go by `send`, from the pool if there is one.
    fn send(
        &mut self,
        buffer: Vec<u8>,
        send: impl FnOnce(&mut Self, Vec<u8>) -> Result<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        let Some(copy) = self.registrar.as_mut().and_then(|registrar| registrar.copy_to_pool(&buffer)) else {
            return send(self, buffer);
        };
        let copy = send(self, copy)?;
        if let Some(registrar) = &mut self.registrar {
            registrar.return_to_pool(copy);
        }
        Ok(buffer)
    }

    /// Microseconds of each transfer.
    fn write_all(
        &mut self,
        what: Measurement,
        transfers: &[Access],
        buffers: &mut [Vec<u8>],
    ) -> Result<Vec<f64>> {
        let mut rows = Vec::with_capacity(transfers.len());
        for (tag, &access) in (0..).zip(transfers) {
            // Both sides are awake.
            self.signal();
            self.wait()?;
            let buffer = std::mem::take(&mut buffers[access.buffer]);
            let start = Instant::now();
            let buffer = if self.needs_no_message(access) {
                self.register(access, &buffer)?;
                self.send(buffer, |side, buffer| Ok(side.inbox.put(0, buffer).wait()?))?
            } else if what.is_conditional {
                self.write_conditionally(tag, access, buffer)?
            } else {
                self.register(access, &buffer)?;
                self.signal();
                self.wait()?;
                self.send(buffer, |side, buffer| Ok(side.inbox.put(0, buffer).wait()?))?
            };
            self.finish(access);
            rows.push(start.elapsed().as_secs_f64() * 1e6);
            buffers[access.buffer] = buffer;
        }
        Ok(rows)
    }

    /// The peer learns of it before this side registers. Without registration the opening is the only message.
    fn write_conditionally(&mut self, tag: u64, access: Access, buffer: Vec<u8>) -> Result<Vec<u8>> {
        if self.registrar.is_some() {
            self.signal();
            self.register(access, &buffer)?;
        }
        self.send(buffer, |side, buffer| {
            let held = side.node.conditional_write(side.peer, tag, buffer)?;
            Ok(held.within(PATIENCE).wait().into_result()?)
        })
    }

    /// The buffers stand for the memory behind the inbox.
    fn receive_all(&mut self, what: Measurement, transfers: &[Access], buffers: &[Vec<u8>]) -> Result<()> {
        for (tag, &access) in (0..).zip(transfers) {
            self.wait()?;
            self.signal();
            if self.needs_no_message(access) {
                self.register(access, &buffers[access.buffer])?;
                continue;
            }
            if what.is_conditional && self.registrar.is_none() {
                let opened = self.node.next_conditional_request(PATIENCE)?;
                ensure!(opened.tag() == tag, "tag {} came in place of {tag}", opened.tag());
                opened.accept(&self.inbox_token)?.wait()?;
                continue;
            }
            self.wait()?;
            self.register(access, &buffers[access.buffer])?;
            if what.is_conditional {
                self.node.accept_conditional_write(self.peer, tag, &self.inbox_token)?.wait()?;
            } else {
                self.signal();
            }
            self.finish(access);
        }
        Ok(())
    }
}
