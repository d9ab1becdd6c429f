//! Rank 0: admits the members, collects their bytes and distributes the bytes of all.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::{JOIN, Meeting, job_error, random_nonce, system};
use crate::bootstrap::error::{JobError, Refusal, Result};
use crate::bootstrap::limits::{MAX_CONTRIBUTION, MAX_PENDING, PROOF_TIME};
use crate::bootstrap::link::{Incoming, RankLink, poll_for, transfer};
use crate::bootstrap::message::{
    Challenge, FrameKind, HELLO, MemberHello, Nonce, Proof, Prover, Subject, encode_failure, encode_gathered,
    frame,
};
use crate::bootstrap::{Exchange, Operation, Ranks, Wait, check_sum};

/// Rank 0 after all members have come.
struct Root {
    links: Vec<RankLink>,
    place: String,
}

pub fn join_as_root(meeting: Meeting, wait: Wait) -> Result<Box<dyn Exchange>> {
    let mut links = Vec::new();
    if meeting.size > 1 {
        let mut admission = Admission::new(&meeting, listen(&meeting)?);
        while admission.absent().next().is_some() {
            if wait.is_over() {
                let error = wait.absent(JOIN, Ranks::from_iter(admission.absent()), &meeting.place);
                admission.fail(&error);
                return Err(error);
            }
            admission.step(wait)?;
        }
        links = admission.welcome()?;
    }
    Ok(Box::new(Root { links, place: meeting.place }))
}

fn listen(meeting: &Meeting) -> Result<TcpListener> {
    let listener = TcpListener::bind(meeting.addresses.as_slice())
        .and_then(|listener| listener.set_nonblocking(true).map(|()| listener));
    listener.map_err(|error| {
        let mend = match error.kind() {
            ErrorKind::AddrInUse => "another job or program listens there; take another port",
            ErrorKind::AddrNotAvailable => {
                "PAGEWIRE_RENDEZVOUS must name an address of the host where rank 0 runs"
            }
            _ => "PAGEWIRE_RENDEZVOUS must name an address and a port that this process may use",
        };
        system("listen at", &meeting.place, &error, mend)
    })
}

/// A connection that has not proved yet that it belongs to the job.
struct UnprovenConnection {
    stream: TcpStream,
    nonce: Nonce,
    hello: Incoming,
    since: Instant,
}

/// A member that has proved it, with the proof that it gets in return.
struct Admitted {
    link: RankLink,
    proof: Proof,
}

struct Admission<'a> {
    meeting: &'a Meeting,
    listener: TcpListener,
    pending: VecDeque<UnprovenConnection>,
    /// By rank; the first entry stays empty.
    members: Vec<Option<Admitted>>,
}

impl<'a> Admission<'a> {
    fn new(meeting: &'a Meeting, listener: TcpListener) -> Self {
        let members = (0..meeting.size).map(|_| None).collect();
        Self { meeting, listener, pending: VecDeque::new(), members }
    }

    fn absent(&self) -> impl Iterator<Item = usize> {
        (1..self.members.len()).filter(|rank| self.members[*rank].is_none())
    }

    /// Waits for something to happen, and handles it.
    fn step(&mut self, wait: Wait) -> Result<()> {
        self.poll(wait.left().min(Duration::from_millis(200)))?;
        // A member is silent until it is welcome. One that ends, or speaks, must come again.
        for member in &mut self.members {
            let is_silent = |admitted: &mut Admitted| {
                let peeked = admitted.link.stream().peek(&mut [0]);
                peeked.is_err_and(|error| {
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
                })
            };
            if !member.as_mut().is_none_or(is_silent) {
                *member = None;
            }
        }
        self.accept()?;
        for _ in 0..self.pending.len() {
            let Some(mut pending) = self.pending.pop_front() else { break };
            match pending.hello.read_from(&pending.stream) {
                Ok(true) => self.admit(pending),
                Ok(false) if pending.since.elapsed() < PROOF_TIME => self.pending.push_back(pending),
                // A stranger, or a member that connects again.
                Ok(false) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn poll(&self, time: Duration) -> Result<()> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.pending.iter().map(|pending| PollFd::new(&pending.stream, PollFlags::IN)));
        let members = self.members.iter().flatten();
        fds.extend(members.map(|admitted| PollFd::new(admitted.link.stream(), PollFlags::IN)));
        poll_for(&mut fds, time)
            .map_err(|error| system("wait for members at", &self.meeting.place, &error, "raise ulimit -n"))
    }

    /// Takes what connects. In a flood, a connection has several steps for its hello until younger ones take its place.
    fn accept(&mut self) -> Result<()> {
        for _ in 0..MAX_PENDING / 8 {
            match self.listener.accept() {
                Ok((stream, _)) => self.challenge(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_shortage(&error) => {
                    // Strangers must not use up the descriptors. Without strangers, the limit is too low for the job.
                    if self.pending.pop_front().is_none() {
                        let mend = "raise ulimit -n above the number of processes";
                        return Err(system("accept members at", &self.meeting.place, &error, mend));
                    }
                }
                // The connection ended before it was accepted (accept(2), "Error handling").
                Err(_) => {}
            }
        }
        Ok(())
    }

    fn challenge(&mut self, stream: TcpStream) -> Result<()> {
        let nonce = random_nonce()?;
        let bytes = Challenge { nonce }.encode();
        let sent = stream.set_nonblocking(true).and_then(|()| (&stream).write(&bytes));
        if !matches!(sent, Ok(written) if written == bytes.len()) {
            return Ok(());
        }
        if self.pending.len() == MAX_PENDING {
            self.pending.pop_front();
        }
        let hello = Incoming::new(HELLO);
        self.pending.push_back(UnprovenConnection { stream, nonce, hello, since: Instant::now() });
        Ok(())
    }

    /// Judges a hello. Who is refused gets the reason, if its bytes are a hello at all.
    fn admit(&mut self, pending: UnprovenConnection) {
        let Ok(bytes) = pending.hello.bytes().try_into() else { return };
        let Ok(hello) = MemberHello::decode(bytes) else { return };
        match self.judge(&hello, &pending.nonce) {
            Ok((rank, proof)) => {
                if let Ok(link) = RankLink::new(rank, pending.stream, MAX_CONTRIBUTION) {
                    self.members[rank] = Some(Admitted { link, proof });
                }
            }
            Err(refusal) => {
                // The stranger may be gone; nothing depends on it.
                let _ = (&pending.stream).write(&frame(FrameKind::Refusal(refusal), 0, &[]));
            }
        }
    }

    fn judge(&self, hello: &MemberHello, root_nonce: &Nonce) -> std::result::Result<(usize, Proof), Refusal> {
        let subject = Subject { root_nonce, member_nonce: &hello.nonce, rank: hello.rank, size: hello.size };
        // The proof comes first: nobody else learns anything about the job.
        if !subject.verify(Prover::Member, &self.meeting.secret, &hello.proof) {
            return Err(Refusal::AnotherJob);
        }
        let rank = hello.rank as usize;
        if hello.size as usize != self.members.len() || rank >= self.members.len() {
            return Err(Refusal::AnotherSize);
        }
        if rank == 0 || self.members[rank].is_some() {
            return Err(Refusal::RankTaken);
        }
        Ok((rank, subject.prove(Prover::Root, &self.meeting.secret)))
    }

    fn welcome(self) -> Result<Vec<RankLink>> {
        let mut links = Vec::with_capacity(self.members.len());
        for Admitted { mut link, proof } in self.members.into_iter().flatten() {
            link.send(Arc::new(frame(FrameKind::Welcome, 0, &proof)));
            links.push(link);
        }
        let wait = Wait::new(PROOF_TIME);
        transfer(&mut links, wait).map_err(|trouble| {
            let error = job_error(trouble, JOIN, &self.meeting.place, wait);
            fail(&mut links, &error);
            error
        })?;
        Ok(links)
    }

    fn fail(self, error: &JobError) {
        let mut links: Vec<_> = self.members.into_iter().flatten().map(|admitted| admitted.link).collect();
        fail(&mut links, error);
    }
}

fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

/// Tells all members why the job ends.
fn fail(links: &mut [RankLink], error: &JobError) {
    let bytes = frame(FrameKind::Failure, 0, &encode_failure(error));
    links.iter_mut().for_each(|link| link.send_last(&bytes));
}

impl Root {
    fn collect(&mut self, operation: Operation, own: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
        self.links.iter_mut().for_each(RankLink::receive);
        transfer(&mut self.links, wait)
            .map_err(|trouble| job_error(trouble, operation, &self.place, wait))?;
        let mut all = vec![own.to_vec()];
        for link in &mut self.links {
            let (header, body) = link.take().expect("the transfer is complete");
            if header.kind != FrameKind::Data(operation.kind) || header.number != operation.number {
                return Err(JobError::Mismatch { operation, rank: link.rank() });
            }
            all.push(body);
        }
        check_sum(operation, all.iter().map(Vec::len))?;
        Ok(all)
    }

    fn distribute(&mut self, operation: Operation, all: &[Vec<u8>], wait: Wait) -> Result<()> {
        let kind = FrameKind::Data(operation.kind);
        let bytes = Arc::new(frame(kind, operation.number, &encode_gathered(all)));
        self.links.iter_mut().for_each(|link| link.send(Arc::clone(&bytes)));
        transfer(&mut self.links, wait).map_err(|trouble| job_error(trouble, operation, &self.place, wait))
    }
}

impl Exchange for Root {
    fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
        let all = self.collect(operation, bytes, wait).and_then(|all| {
            self.distribute(operation, &all, Wait::new(wait.timeout))?;
            Ok(all)
        });
        if let Err(error) = &all {
            fail(&mut self.links, error);
        }
        all
    }
}
