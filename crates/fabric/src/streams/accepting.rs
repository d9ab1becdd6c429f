//! How a process accepts streams: it reads whom each is for, gives those of other processes to them, and has its own prove who opens them.

use super::callers::{Caller, CallerProgress, CallerStage};
use super::format::{Preface, PrefaceKind};
use super::incoming::{RxStream, answer};
use super::{CALLERS, INCOMING, LISTENERS, Streams, now, tcp};
use crate::descriptors::Descriptor;
use crate::limits::{RETRY_TIME, STREAM_CALL_TIME, STREAM_CALLERS, STREAM_LEAVE_TIME, STREAM_PAUSE, STREAMS};
use crate::{names, sockets};
use rustix::event::epoll;
use rustls::ServerConnection;
use slab::Slab;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What became of a connection for another process.
enum HandOff {
    /// That process has it.
    Taken,
    /// It has not taken what it was given before.
    Busy,
    /// There is none.
    NoReceiver,
}

impl Streams {
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    pub(super) fn accept(&self, place: usize) {
        let Some(listener) = self.listeners.read().get(place).cloned() else { return };
        let mut callers = self.callers.lock();
        // Others wait in the kernel.
        while callers.len() < STREAM_CALLERS {
            let socket = match tcp::accept(&listener) {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(error) => {
                    log::debug!("no stream is accepted: {error}");
                    break;
                }
            };
            self.add_caller(&mut callers, Caller::new(socket, now() + STREAM_CALL_TIME));
        }
        // A listener that is ready and not served would keep every sleeper awake.
        self.paused.store(true, Ordering::Release);
        self.watch_listeners(epoll::EventFlags::empty());
        self.due.fetch_min(now() + STREAM_PAUSE, Ordering::Relaxed);
    }

    fn watch_listeners(&self, flags: epoll::EventFlags) {
        for (place, listener) in self.listeners.read().iter().enumerate() {
            let token = epoll::EventData::new_u64(LISTENERS + place as u64);
            if let Err(error) = epoll::modify(&*self.events, &**listener, token, flags) {
                log::debug!("streams are not accepted as they should be: {error}");
            }
        }
    }

    /// Reads whom a caller asks for, and gives it to them.
    #[inline(never)] // What other packets are not to carry, on the program's stack.
    pub(super) fn read_caller(&self, place: usize, serves: &dyn Fn(u32) -> bool) {
        let mut callers = self.callers.lock();
        let Some(caller) = callers.get_mut(place) else { return };
        let waited = caller.waits_for_room();
        let told = match caller.read() {
            Ok(None) => {
                if caller.waits_for_room() != waited {
                    self.watch_caller(place, caller);
                }
                return;
            }
            Ok(Some(told)) => told,
            Err(error) => {
                log::debug!("a TCP connection is no stream: {error}");
                let caller = callers.remove(place);
                let _ = epoll::delete(&*self.events, &caller.socket);
                return;
            }
        };
        let mut caller = callers.remove(place);
        let _ = epoll::delete(&*self.events, &caller.socket);
        match told {
            CallerProgress::Asked(question) if serves(question.block.into()) => {
                drop(callers);
                self.welcome(caller.socket, question);
            }
            CallerProgress::Asked(question) => match self.hand_on(&caller.socket, question) {
                HandOff::Taken => {}
                HandOff::Busy => {
                    caller.stage = CallerStage::Waiting(question);
                    callers.insert(caller);
                    self.due.fetch_min(now() + RETRY_TIME, Ordering::Relaxed);
                }
                HandOff::NoReceiver => {
                    self.refuse(&mut callers, caller.socket, question, PrefaceKind::Refuse)
                }
            },
            CallerProgress::Proved(question, tls) => {
                drop(callers);
                self.adopt(caller.socket, question, Some(tls));
            }
        }
    }

    /// Has room told for a caller where something waits for it.
    fn watch_caller(&self, place: usize, caller: &Caller) {
        let room = if caller.waits_for_room() { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        let token = epoll::EventData::new_u64(CALLERS + place as u64);
        if let Err(error) = epoll::modify(&*self.events, &caller.socket, token, epoll::EventFlags::IN | room)
        {
            log::debug!("room for a caller is not told: {error}");
        }
    }

    /// Takes a connection that asks for this process, once it has proved who it is where that is asked for.
    fn welcome(&self, socket: Descriptor, question: Preface) {
        if question.is_encrypted && self.callers.lock().len() >= STREAM_CALLERS {
            return log::debug!(
                "a stream is not taken: {STREAM_CALLERS} others have not proved who they are"
            );
        }
        match (&self.options.tls, question.is_encrypted) {
            (None, false) => self.adopt(socket, question, None),
            (None, true) => {
                self.refuse(&mut self.callers.lock(), socket, question, PrefaceKind::RefuseEncrypted);
            }
            (Some(_), false) => {
                self.refuse(&mut self.callers.lock(), socket, question, PrefaceKind::RefuseClear);
            }
            (Some(tls), true) => match tls.accepting() {
                Ok(tls) => self.add_caller(
                    &mut self.callers.lock(),
                    Caller::proving(socket, question, tls, now() + STREAM_CALL_TIME),
                ),
                Err(error) => log::debug!("a stream is not taken: {error}"),
            },
        }
    }

    fn add_caller(&self, callers: &mut Slab<Caller>, caller: Caller) {
        let entry = callers.vacant_entry();
        let token = epoll::EventData::new_u64(CALLERS + entry.key() as u64);
        match epoll::add(&*self.events, &caller.socket, token, epoll::EventFlags::IN) {
            Ok(()) => {
                self.due.fetch_min(caller.until, Ordering::Relaxed);
                entry.insert(caller);
            }
            Err(error) => log::debug!("a stream is not taken: {error}"),
        }
    }

    /// Gives a connection to the process that leases the block.
    fn hand_on(&self, socket: &Descriptor, question: Preface) -> HandOff {
        let given = names::of_forwarding(question.block.into()).and_then(|name| {
            let parts = [&question.emit()[..], &[]];
            sockets::send_datagram_with_files(&self.hand_on, &name, &parts, &[socket.as_fd()])
        });
        match given {
            Ok(()) => HandOff::Taken,
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ETOOMANYREFS)
                ) =>
            {
                HandOff::Busy
            }
            Err(error) => {
                log::debug!("nobody takes a stream for block {}: {error}", question.block);
                HandOff::NoReceiver
            }
        }
    }

    /// Takes a connection that another process of this user has accepted, with what its opening side said. False: that is no such message.
    pub fn take_handed(&self, message: &[u8], files: Vec<OwnedFd>, serves: &dyn Fn(u32) -> bool) -> bool {
        let Some(question) = message.try_into().ok().and_then(Preface::parse) else { return false };
        for socket in files.into_iter().take(1).filter_map(|file| Descriptor::new(file).ok()) {
            if serves(question.block.into()) {
                self.welcome(socket, question);
            } else {
                self.refuse(&mut self.callers.lock(), socket, question, PrefaceKind::Refuse);
            }
        }
        true
    }

    fn adopt(&self, socket: Descriptor, question: Preface, tls: Option<Box<ServerConnection>>) {
        let has_right_name = match (&self.options.tls, &tls) {
            (Some(keys), Some(connection)) => keys.certificate_is_for(connection, question.source),
            (None, None) => true,
            _ => false,
        };
        // What a process sends to itself goes by two connections, and one of TLS encrypts one direction.
        let serves_both = tls.is_none() && question.instance != self.instance;
        let question = if serves_both { question } else { Preface { own_block: 0, ..question } };
        let (stream, peer) = match RxStream::new(socket, question, tls) {
            Ok((stream, peer)) => (Arc::new(stream), peer),
            Err(error) => return log::debug!("a stream is not taken: {error}"),
        };
        let refuse = |kind| {
            log::debug!("a stream from {peer} in the name of {} is not taken: {kind:?}", question.source);
            if let Err(error) = stream.answer(Preface { kind, instance: self.instance, ..question }) {
                log::debug!("a stream is not refused: {error}");
            }
        };
        if !self.is_believed(question, peer) {
            return refuse(PrefaceKind::RefuseSource);
        }
        if !has_right_name {
            return refuse(PrefaceKind::RefuseName);
        }
        // Nobody opens one to its process meanwhile.
        let outgoing = self.outgoing.read();
        let own = outgoing.iter().find(|own| own.target.leads_back(question));
        let is_theirs_first = question.instance > self.instance;
        if own.is_some_and(|own| own.waits_for_answer(is_theirs_first, now())) {
            return refuse(PrefaceKind::RefuseCrossed);
        }
        let mut all = self.incoming.write();
        if all.iter().filter(|(_, stream)| stream.is_accepted()).count() >= STREAMS {
            drop(all);
            return refuse(PrefaceKind::Refuse);
        }
        let accepted = Preface { kind: PrefaceKind::Accept, instance: self.instance, ..question };
        let entry = all.vacant_entry();
        let token = INCOMING + entry.key() as u64;
        let data = epoll::EventData::new_u64(token);
        let added = stream
            .answer(accepted)
            .and_then(|()| Ok(epoll::add(&*self.events, stream.socket(), data, epoll::EventFlags::IN)?));
        if let Err(error) = added {
            return log::debug!("a stream is not taken: {error}");
        }
        entry.insert(stream.clone());
        drop(all);
        if own.is_some_and(|own| own.accept(&stream, is_theirs_first, now())) {
            (self.changed)();
        }
        drop(outgoing);
        if stream.is_encrypted() {
            // What was decrypted with the proof is told by no event.
            self.leave(token);
        }
    }

    /// Whether the opening side of a connection from this address may have the addresses that it names: its own is the one that the connection
    /// comes from, or one that this process reaches by another, and the other is one of this host.
    fn is_believed(&self, question: Preface, peer: IpAddr) -> bool {
        let is_known = |address| self.addresses.contains(address, now()).unwrap_or(false);
        let is_local = |address| {
            is_known(address) || {
                // It may be a new one.
                self.addresses.forget();
                is_known(address)
            }
        };
        let is_its_own = question.source == peer
            || self.options.connect_to.names(question.source) && !is_local(question.source);
        is_its_own && is_local(question.destination)
    }

    /// Refuses a connection in the clear. Whoever asks for an encrypted one has said more than its preface, and is listened to for a while.
    fn refuse(&self, callers: &mut Slab<Caller>, socket: Descriptor, question: Preface, kind: PrefaceKind) {
        self.say_refusal(&socket, question, kind);
        if question.is_encrypted && callers.len() < STREAM_CALLERS {
            let until = now() + STREAM_LEAVE_TIME;
            self.add_caller(callers, Caller { socket, stage: CallerStage::Leaving, until });
        }
    }

    fn say_refusal(&self, socket: &Descriptor, question: Preface, kind: PrefaceKind) {
        let refused = Preface { kind, instance: self.instance, ..question };
        if let Err(error) = answer(socket, refused) {
            log::debug!("a stream is not refused: {error}");
        }
    }

    /// Gives up callers that have waited long enough, and hands on others; says when that is due again.
    pub(super) fn keep_up_callers(&self, now: u64) -> u64 {
        let mut due = u64::MAX;
        let mut callers = self.callers.lock();
        callers.retain(|_, caller| {
            if caller.until <= now {
                let _ = epoll::delete(&*self.events, &caller.socket);
                return false;
            }
            let again = match caller.stage {
                CallerStage::Waiting(question) => match self.hand_on(&caller.socket, question) {
                    HandOff::Taken => return false,
                    HandOff::Busy => now + RETRY_TIME,
                    HandOff::NoReceiver => {
                        self.say_refusal(&caller.socket, question, PrefaceKind::Refuse);
                        if !question.is_encrypted {
                            return false;
                        }
                        // It is not watched since it waits, so what it says stays unread. It has read the refusal by then.
                        (caller.stage, caller.until) = (CallerStage::Leaving, now + STREAM_LEAVE_TIME);
                        caller.until
                    }
                },
                CallerStage::Asking(_) | CallerStage::Proving(_) | CallerStage::Leaving => caller.until,
            };
            due = due.min(again);
            true
        });
        if self.paused.load(Ordering::Acquire) {
            match callers.len() < STREAM_CALLERS {
                true => {
                    self.paused.store(false, Ordering::Release);
                    self.watch_listeners(epoll::EventFlags::IN);
                }
                false => due = due.min(now + STREAM_PAUSE),
            }
        }
        due
    }
}
