//! One connection to a process of this host: how far its handshake is, and what the handshake needs to go on.

use super::because;
use crate::descriptors::Descriptor;
use crate::fabric::ChannelId;
use crate::handshake::{HandshakeMessage, Identity};
use crate::limits::{
    HANDSHAKE_TIME, HANDSHAKE_TIME_AT_MOST, MAILBOX_WORDS, RETRY_TIME, STOP_LOOK_TIME, TABLE_WORDS,
};
use crate::neighbours::HostChannel;
use crate::nonce::NoncePage;
use crate::trust::{self, PeerProcess};
use crate::words::{FileAccess, MappedWords};
use pagewire_memory::HostProcess;
use std::os::fd::OwnedFd;
use std::sync::Arc;

pub(super) struct ChannelConnection {
    pub(super) socket: Arc<Descriptor>,
    pub(super) stage: HandshakeStage,
    pub(super) since: u64,
    /// Who is at the other end, during the handshake.
    pub(super) peer: Option<PeerProcess>,
    /// When a handshake that takes long looks next at whether the peer is stopped.
    pub(super) next_look: u64,
    /// A message that could not be sent yet, since files of too many messages of this user wait to be received.
    pub(super) unsent: Option<WithFiles>,
}

/// A message with which this process sends the files of its tables and its mailbox, and the opener that of the channel's words.
pub(super) struct WithFiles {
    pub(super) message: HandshakeMessage,
    pub(super) words: Option<Descriptor>,
}

impl ChannelConnection {
    pub(super) fn new(
        socket: Arc<Descriptor>,
        stage: HandshakeStage,
        since: u64,
        peer: Option<PeerProcess>,
    ) -> Self {
        ChannelConnection { socket, stage, since, peer, next_look: since + HANDSHAKE_TIME, unsent: None }
    }

    /// What is to be done by now; `hellos`: a handshake that answers to Hello were deferred for has ended.
    pub(super) fn due(&mut self, now: u64, hellos: bool) -> Option<HandshakeStep> {
        if matches!(self.stage, HandshakeStage::Open { .. }) {
            return None;
        }
        if self.is_late(now) {
            let seconds = (now - self.since) / 1_000_000_000;
            return Some(HandshakeStep::End(format!("the process did not answer within {seconds} s")));
        }
        match self.stage {
            _ if self.unsent.is_some() => Some(HandshakeStep::SendFiles),
            HandshakeStage::Deferred { .. } if hellos => Some(HandshakeStep::AnswerHello),
            HandshakeStage::Unconnected { block, tried } if now.saturating_sub(tried) >= RETRY_TIME => {
                Some(HandshakeStep::Connect(block))
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
        let is_runnable = self.peer.as_ref().is_some_and(PeerProcess::is_runnable);
        !is_runnable || now - self.since > HANDSHAKE_TIME_AT_MOST
    }
}

/// What a handshake needs to go on.
pub(super) enum HandshakeStep {
    End(String),
    AnswerHello,
    SendFiles,
    Connect(u32),
}

pub(super) enum HandshakeStage {
    /// The peer's backlog was full: to be tried again.
    Unconnected { block: u32, tried: u64 },
    /// Opener: Hello was sent.
    Requested { block: u32, nonce: NoncePage },
    /// Opener: Ready was sent, with this process's files.
    Offered { block: u32, words: MappedWords, peer: Traceable },
    /// Acceptor: a Hello is expected.
    Accepted,
    /// Acceptor: Hello was received, and is answered when this process's own handshake with the peer has ended.
    Deferred { theirs: Identity },
    /// Acceptor: Welcome was sent.
    Challenged { nonce: NoncePage, peer: Traceable },
    /// Acceptor: the channel is known here, Accept was sent; the opener's Confirm is expected.
    Granted { channel: HostChannel },
    /// Both ends know the channel.
    Open { channel: ChannelId, process: HostProcess },
}

impl HandshakeStage {
    /// Whether this process is about to open a channel.
    pub(super) fn is_opening(&self) -> bool {
        self.block().is_some()
    }

    /// The block whose process this side asks for a channel.
    pub(super) fn block(&self) -> Option<u32> {
        match *self {
            HandshakeStage::Unconnected { block, .. }
            | HandshakeStage::Requested { block, .. }
            | HandshakeStage::Offered { block, .. } => Some(block),
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
    pub(super) fn new(peer: &mut PeerProcess, theirs: &Identity) -> Result<(Self, u64), DisconnectReason> {
        let refuse = |reason| DisconnectReason::Untraceable {
            here: format!("this process may not touch the peer's memory: {reason}"),
            there: format!("the peer may not touch this process's memory: {reason}"),
        };
        let (process, proof) = trust::read_nonce(peer, theirs.nonce_address).map_err(refuse)?;
        let Identity { instance, swaps_at_a_limit, .. } = *theirs;
        Ok((Traceable { process, instance, swaps_at_a_limit }, proof))
    }
}

/// The files of a channel, mapped.
pub(super) struct ChannelMappings {
    pub(super) words: MappedWords,
    pub(super) tables: MappedWords,
    pub(super) mailbox: MappedWords,
}

impl ChannelMappings {
    /// Of a channel with these words, what a peer has sent.
    pub(super) fn new(
        words: MappedWords,
        tables: &OwnedFd,
        mailbox: &OwnedFd,
    ) -> Result<Self, DisconnectReason> {
        Ok(ChannelMappings {
            words,
            tables: map(tables, TABLE_WORDS, FileAccess::Read)?,
            mailbox: map(mailbox, MAILBOX_WORDS, FileAccess::ReadWrite)?,
        })
    }
}

pub(super) fn map(
    file: &OwnedFd,
    length: usize,
    access: FileAccess,
) -> Result<MappedWords, DisconnectReason> {
    MappedWords::open(file, length, access).map_err(because("a file of the channel cannot be used"))
}

/// Why a connection ends.
pub(super) enum DisconnectReason {
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

impl DisconnectReason {
    /// As this process says it to its user.
    pub(super) fn reason(&self) -> &str {
        match self {
            DisconnectReason::Departed => "the process has ended",
            DisconnectReason::Untraceable { here: reason, .. }
            | DisconnectReason::Absent(reason)
            | DisconnectReason::RefusedByPeer(reason)
            | DisconnectReason::Because(reason) => reason,
        }
    }
}
