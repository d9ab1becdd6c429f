//! A job by an address: rank 0 listens, the other ranks connect, and every operation goes through rank 0.
//!
//! Whoever connects is a stranger until its proof has come. A stranger costs a bounded amount of memory and time, and
//! its end changes nothing for the job. Once all ranks have come, rank 0 no longer listens.
//!
//! The messages stand in `message`, the sockets in `link`. Rank 0 starts at `join_as_root`, the others at `join_as_member`.

mod member;
mod root;

use std::fs::File;
use std::io::{self, Read};
use std::net::{SocketAddr, ToSocketAddrs};

use super::error::{JobError, OperationKind, Result};
use super::link::LinkError;
use super::message::{NONCE, Nonce};
use super::{Joined, Operation, Ranks, Wait, check_sum};
use crate::nodes::engine::tls_variable;

const JOIN: Operation = Operation { kind: OperationKind::Join, number: 0 };

/// What all processes of the job know from the start.
#[derive(Clone, Debug)]
struct Meeting {
    /// `host:port`, as the variable says it.
    place: String,
    addresses: Vec<SocketAddr>,
    secret: String,
    size: usize,
}

pub(super) fn join(address: &str, job: &str, rank: usize, size: usize, wait: Wait) -> Result<Joined> {
    let addresses = resolve(address)?;
    if let Some(keys) = tls_variable()
        && !addresses.iter().all(|address| address.ip().is_loopback())
    {
        return Err(JobError::BadVariable {
            name: "PAGEWIRE_TLS",
            value: keys.to_string_lossy().into_owned(),
            rule: "not set where PAGEWIRE_RENDEZVOUS is outside the loopback: jobs meet in the clear"
                .to_owned(),
        });
    }
    if job.is_empty() && !addresses.iter().all(|address| address.ip().is_loopback()) {
        return Err(JobError::MissingVariable {
            name: "PAGEWIRE_JOB",
            needed_by: "PAGEWIRE_RENDEZVOUS with an address outside the loopback",
            expected: "a secret that all processes of the job share, and nobody else knows",
        });
    }
    let meeting = Meeting { place: address.to_string(), addresses, secret: job.to_string(), size };
    let exchange = match rank {
        0 => root::join_as_root(meeting, wait)?,
        _ => member::join_as_member(meeting, rank, wait)?,
    };
    let started_by = format!("PAGEWIRE_RENDEZVOUS={address} (rank 0 listens there)");
    Ok(Joined { rank, size, started_by, exchange })
}

fn resolve(address: &str) -> Result<Vec<SocketAddr>> {
    let failed = |error: String| JobError::System {
        action: "resolve",
        place: address.to_string(),
        error,
        mend: "PAGEWIRE_RENDEZVOUS must name a host that this process can reach",
    };
    let addresses: Vec<_> = address.to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    if addresses.is_empty() {
        return Err(failed("it has no address".to_string()));
    }
    Ok(addresses)
}

/// A number that nobody can guess. The reply of an earlier job is no proof in this one.
fn random_nonce() -> Result<Nonce> {
    let mut nonce = [0; NONCE];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut nonce)).map_err(|error| {
        system(
            "read",
            "/dev/urandom",
            &error,
            "the process needs this device for the proofs of the rendezvous",
        )
    })?;
    Ok(nonce)
}

fn system(action: &'static str, place: &str, error: &io::Error, mend: &'static str) -> JobError {
    JobError::System { action, place: place.to_string(), error: error.to_string(), mend }
}

/// What a trouble of the sockets means for the operation.
fn job_error(trouble: LinkError, operation: Operation, place: &str, wait: Wait) -> JobError {
    match trouble {
        LinkError::Late(ranks) => wait.absent(operation, Ranks::from_iter(ranks), place),
        LinkError::Lost { rank, reason } => {
            JobError::Lost { operation, rank, place: place.to_string(), reason }
        }
        LinkError::Malformed { rank, error } => {
            let reason = format!("{error}");
            JobError::Lost { operation, rank, place: place.to_string(), reason }
        }
        LinkError::TooMuch { bytes } => {
            check_sum(operation, [bytes].into_iter()).expect_err("more than the bound")
        }
        LinkError::System(error) => {
            system("wait for the sockets at", place, &error, "raise the limits of the process")
        }
    }
}
