//! One connection to a process of this host: how far its handshake is, and what the handshake needs to go on.

use super::because;
use crate::descriptors::Descriptor;
use crate::fabric::ChannelId;
use crate::handshake::{Identity, Message};
use crate::limits::{
    HANDSHAKE_TIME, HANDSHAKE_TIME_AT_MOST, MAILBOX_WORDS, RETRY_TIME, STOP_LOOK_TIME, TABLE_WORDS,
};
use crate::neighbours::HostChannel;
use crate::nonce::Nonce;
use crate::trust::{self, Peer};
use crate::words::{Access, MappedWords};
use pagewire_memory::HostProcess;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(super) struct Connection {
    pub(super) socket: Arc<Descriptor>,
    pub(super) stage: Stage,
    pub(super) since: u64,
    /// Who is at the other end, during the handshake.
    pub(super) peer: Option<Peer>,
    /// When a handshake that takes long looks next at whether the peer is stopped.
    pub(super) next_look: u64,
    /// A message that could not be sent yet, since files of too many messages of this user wait to be received.
    pub(super) unsent: Option<WithFiles>,
}

/// A message with which this process sends the files of its tables and its mailbox, and the opener that of the channel's words.
pub(super) struct WithFiles {
    pub(super) message: Message,
    pub(super) words: Option<Descriptor>,
}

impl Connection {
    pub(super) fn new(socket: Arc<Descriptor>, stage: Stage, since: u64, peer: Option<Peer>) -> Self {
        Connection { socket, stage, since, peer, next_look: since + HANDSHAKE_TIME, unsent: None }
    }

    /// What is to be done by now; `hellos`: a handshake that answers to Hello were deferred for has ended.
    pub(super) fn due(&mut self, now: u64, hellos: bool) -> Option<Due> {
        if matches!(self.stage, Stage::Open { .. }) {
            return None;
        }
        if self.is_late(now) {
            let seconds = (now - self.since) / 1_000_000_000;
            return Some(Due::End(format!("the process did not answer within {seconds} s")));
        }
        match self.stage {
            _ if self.unsent.is_some() => Some(Due::SendFiles),
            Stage::Deferred { .. } if hellos => Some(Due::AnswerHello),
            Stage::Unconnected { block, tried } if now.saturating_sub(tried) >= RETRY_TIME => {
                Some(Due::Connect(block))
            }
            _ => None,
        }
    }

    /// Whether the handshake has taken too long. A peer that merely gets no processor has more time than one that is stopped.
    pub(super) fn is_late(&mut self, now: u64) -> bool {
        if now < self.next_look {
            return false;
        }
        self.next_look = now + STOP_LOOK_TIME;
        let is_runnable = self.peer.as_ref().is_some_and(Peer::is_runnable);
        !is_runnable || now - self.since > HANDSHAKE_TIME_AT_MOST
    }
}

/// What a handshake needs to go on.
pub(super) enum Due {
    End(String),
    AnswerHello,
    SendFiles,
    Connect(u32),
}

pub(super) enum Stage {
    /// The peer's backlog was full: to be tried again.
    Unconnected { block: u32, tried: u64 },
    /// Opener: Hello was sent.
    Requested { block: u32, nonce: Nonce },
    /// Opener: Ready was sent, with this process's files.
    Offered { block: u32, words: MappedWords, peer: Traceable },
    /// Acceptor: a Hello is expected.
    Accepted,
    /// Acceptor: Hello was received, and is answered when this process's own handshake with the peer has ended.
    Deferred { theirs: Identity },
    /// Acceptor: Welcome was sent.
    Challenged { nonce: Nonce, peer: Traceable },
    /// Acceptor: the channel is known here, Accept was sent; the opener's Confirm is expected.
    Granted { channel: HostChannel },
    /// Both ends know the channel.
    Open { channel: ChannelId, process: HostProcess },
}

impl Stage {
    /// Whether this process is about to open a channel.
    pub(super) fn is_opening(&self) -> bool {
        self.block().is_some()
    }

    /// The block whose process this side asks for a channel.
    pub(super) fn block(&self) -> Option<u32> {
        match *self {
            Stage::Unconnected { block, .. }
            | Stage::Requested { block, .. }
            | Stage::Offered { block, .. } => Some(block),
            _ => None,
        }
    }
}

/// A peer whose memory this process can read.
#[derive(Clone)]
pub(super) struct Traceable {
    pub(super) process: HostProcess,
    pub(super) instance: u64,
    pub(super) swaps_at_a_limit: bool,
}

impl Traceable {
    /// Reads the nonce that the peer's identity names. The value is the proof for the peer.
    pub(super) fn new(peer: &mut Peer, theirs: &Identity) -> Result<(Self, u64), End> {
        let refuse = |reason| End::Untraceable {
            here: format!("this process may not touch the peer's memory: {reason}"),
            there: format!("the peer may not touch this process's memory: {reason}"),
        };
        let (process, proof) = trust::read_nonce(peer, theirs.nonce_address).map_err(refuse)?;
        let Identity { instance, swaps_at_a_limit, .. } = *theirs;
        Ok((Traceable { process, instance, swaps_at_a_limit }, proof))
    }
}

/// The files of a channel, mapped.
pub(super) struct Pieces {
    pub(super) words: MappedWords,
    pub(super) tables: MappedWords,
    pub(super) mailbox: MappedWords,
}

impl Pieces {
    /// Of a channel with these words, what a peer has sent.
    pub(super) fn new(words: MappedWords, tables: &OwnedFd, mailbox: &OwnedFd) -> Result<Self, End> {
        Ok(Pieces {
            words,
            tables: map(tables, TABLE_WORDS, Access::Read)?,
            mailbox: map(mailbox, MAILBOX_WORDS, Access::ReadWrite)?,
        })
    }
}

pub(super) fn map(file: &OwnedFd, length: usize, access: Access) -> Result<MappedWords, End> {
    MappedWords::open(file, length, access).map_err(because("a file of the channel cannot be used"))
}

/// Why a connection ends.
pub(super) enum End {
    /// The process has ended.
    Departed,
    /// There is no such process, for this reason.
    Absent(String),
    /// One of the two may not touch the other's memory: as this process says it to its user, and as the peer says it.
    Untraceable { here: String, there: String },
    /// The peer makes no channel, for this reason.
    RefusedByPeer(String),
    /// Something failed, or the peer broke the rules.
    Because(String),
}

impl End {
    /// As this process says it to its user.
    pub(super) fn reason(&self) -> &str {
        match self {
            End::Departed => "the process has ended",
            End::Untraceable { here: reason, .. }
            | End::Absent(reason)
            | End::RefusedByPeer(reason)
            | End::Because(reason) => reason,
        }
    }
}
