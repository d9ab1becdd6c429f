//! Every rank but 0: connects, proves that it belongs to the job, and checks that rank 0 does.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::thread::sleep;

use super::{JOIN, Meeting, job_error, random_nonce, system};
use crate::bootstrap::error::{JobError, Result};
use crate::bootstrap::limits::{CONNECT_RETRY, CONNECT_TIME, GRACE, PROOF_TIME};
use crate::bootstrap::link::{LinkError, RankLink, transfer};
use crate::bootstrap::message::{
    CHALLENGE, Challenge, FrameHeader, FrameKind, Malformed, MemberHello, Prover, Subject, decode_failure,
    decode_gathered, frame,
};
use crate::bootstrap::{Exchange, Operation, Ranks, Wait};

struct RendezvousMember {
    link: RankLink,
    meeting: Meeting,
}

/// How an attempt to join ends.
enum Attempt {
    Welcome(RankLink),
    /// Rank 0 is not there yet, or had no place for this connection.
    Again,
}

pub fn join_as_member(meeting: Meeting, rank: usize, wait: Wait) -> Result<Box<dyn Exchange>> {
    while !wait.is_over() {
        if let Some(stream) = connect(&meeting, wait)? {
            if let Attempt::Welcome(link) = introduce(stream, &meeting, rank, wait)? {
                return Ok(Box::new(RendezvousMember { link, meeting }));
            }
        }
        sleep(CONNECT_RETRY.min(wait.left()));
    }
    Err(wait.absent(JOIN, Ranks::from_iter([0]), &meeting.place))
}

/// Connects to the first address that answers. None where nobody listens yet.
fn connect(meeting: &Meeting, wait: Wait) -> Result<Option<TcpStream>> {
    for address in &meeting.addresses {
        let time = CONNECT_TIME.min(wait.left());
        if time.is_zero() {
            break;
        }
        match TcpStream::connect_timeout(address, time) {
            // Where nobody listens at a port of the kernel's own range, a socket can connect to itself.
            Ok(stream) if stream.local_addr().ok() == Some(*address) => {}
            Ok(stream) => return Ok(Some(stream)),
            Err(error) => match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported => {
                    let mend =
                        "PAGEWIRE_RENDEZVOUS must name an address and a port that this process may use";
                    return Err(system("connect to", &meeting.place, &error, mend));
                }
                _ => {}
            },
        }
    }
    Ok(None)
}

fn introduce(stream: TcpStream, meeting: &Meeting, rank: usize, wait: Wait) -> Result<Attempt> {
    let mut bytes = [0; CHALLENGE];
    let time = PROOF_TIME.min(wait.left()).max(CONNECT_RETRY);
    let read = stream.set_read_timeout(Some(time)).and_then(|()| (&stream).read_exact(&mut bytes));
    if read.is_err() {
        return Ok(Attempt::Again);
    }
    let wrong = |error: Malformed| wrong_place(meeting, &error);
    let root_nonce = Challenge::decode(&bytes).map_err(wrong)?.nonce;
    let member_nonce = random_nonce()?;
    let word = |number: usize| u32::try_from(number).expect("ranks and sizes fit 32 bits");
    let subject = Subject {
        root_nonce: &root_nonce,
        member_nonce: &member_nonce,
        rank: word(rank),
        size: word(meeting.size),
    };
    let proof = subject.prove(Prover::Member, &meeting.secret);
    let hello = MemberHello { rank: subject.rank, size: subject.size, nonce: member_nonce, proof };
    if (&stream).write_all(&hello.encode()).is_err() {
        return Ok(Attempt::Again);
    }
    let Ok(mut link) = RankLink::new(0, stream, usize::MAX) else { return Ok(Attempt::Again) };
    link.receive();
    let longer = wait.longer(GRACE);
    match transfer(std::slice::from_mut(&mut link), longer) {
        Ok(()) => {}
        Err(LinkError::Lost { .. }) => return Ok(Attempt::Again),
        Err(trouble) => return Err(job_error(trouble, JOIN, &meeting.place, longer)),
    }
    let (header, body) = link.take().expect("the transfer is complete");
    match header.kind {
        FrameKind::Welcome => {
            let proof = body.as_slice().try_into().map_err(|_| wrong(Malformed::Fields))?;
            if !subject.verify(Prover::Root, &meeting.secret, proof) {
                let reason = "it cannot prove that it knows PAGEWIRE_JOB; take another port".to_string();
                return Err(JobError::WrongPlace { place: meeting.place.clone(), reason });
            }
            Ok(Attempt::Welcome(link))
        }
        FrameKind::Refusal(reason) => Err(JobError::Refused { place: meeting.place.clone(), reason }),
        FrameKind::Failure => Err(failure(&body, JOIN, meeting, longer)),
        FrameKind::Data(_) => Err(wrong(Malformed::Fields)),
    }
}

fn wrong_place(meeting: &Meeting, error: &Malformed) -> JobError {
    let reason = format!("{error}; PAGEWIRE_RENDEZVOUS must name the port where rank 0 of this job listens");
    JobError::WrongPlace { place: meeting.place.clone(), reason }
}

fn failure(body: &[u8], operation: Operation, meeting: &Meeting, wait: Wait) -> JobError {
    decode_failure(body, operation, &meeting.place, wait).unwrap_or_else(|error| wrong_place(meeting, &error))
}

impl RendezvousMember {
    fn read_reply(
        &self,
        operation: Operation,
        header: FrameHeader,
        body: &[u8],
        wait: Wait,
    ) -> Result<Vec<Vec<u8>>> {
        let wrong = |error| wrong_place(&self.meeting, &error);
        match header.kind {
            FrameKind::Failure => Err(failure(body, operation, &self.meeting, wait)),
            FrameKind::Data(kind) if kind == operation.kind && header.number == operation.number => {
                decode_gathered(body, self.meeting.size).map_err(wrong)
            }
            _ => Err(wrong(Malformed::Fields)),
        }
    }
}

impl Exchange for RendezvousMember {
    fn exchange(&mut self, operation: Operation, bytes: &[u8], wait: Wait) -> Result<Vec<Vec<u8>>> {
        let wait = wait.longer(GRACE);
        self.link.send(Arc::new(frame(FrameKind::Data(operation.kind), operation.number, bytes)));
        self.link.receive();
        let place = &self.meeting.place;
        transfer(std::slice::from_mut(&mut self.link), wait)
            .map_err(|trouble| job_error(trouble, operation, place, wait))?;
        let (header, body) = self.link.take().expect("the transfer is complete");
        self.read_reply(operation, header, &body, wait)
    }
}
