//! Parts of jobs whose processes are nodes of one process here, which a directory joins.

use crate::bootstrap::{Job, JobError};
use crate::error::Error;
use crate::nodes::node::Node;
use std::ffi::OsString;
use std::sync::Barrier;
use std::time::Duration;

const PATIENT: Duration = Duration::from_secs(60);

/// Runs `body` in a thread for each process of a job; gives what they return, by rank.
fn run<T: Send>(size: usize, body: impl Fn(&Node) -> T + Sync) -> Vec<T> {
    let folder = tempfile::tempdir().unwrap();
    let lookup = |name: &str| match name {
        "PAGEWIRE_JOB_FILE" => Some(folder.path().as_os_str().to_owned()),
        "PAGEWIRE_SIZE" => Some(OsString::from(size.to_string())),
        "PAGEWIRE_JOB_TIMEOUT" => Some(OsString::from("60")),
        _ => None,
    };
    let member = || {
        let node = Node::of(Job::from_variables(&lookup).unwrap(), None).unwrap();
        (node.rank(), body(&node))
    };
    let mut all: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..size).map(|_| scope.spawn(member)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_by_key(|(rank, _)| *rank);
    all.into_iter().map(|(_, result)| result).collect()
}

fn is_late(result: &crate::Result<()>) -> bool {
    matches!(result, Err(Error::Job(JobError::TimedOut { .. })))
}

#[test]
fn part_has_ranks_and_exchanges() {
    run(5, |node| {
        let rank = node.rank();
        // Ranked backwards.
        let part = node.split(Some(rank as u64 % 2), -(rank as i64)).unwrap().unwrap();
        let members: Vec<usize> = (0..5).rev().filter(|other| other % 2 == rank % 2).collect();
        assert_eq!(part.size(), members.len());
        assert_eq!(part.job_rank(part.rank()).unwrap(), rank);
        let job_ranks: Vec<usize> = (0..part.size()).map(|member| part.job_rank(member).unwrap()).collect();
        assert_eq!(job_ranks, members);
        assert!(part.job_rank(part.size()).is_err());
        for round in 0..20 {
            let bytes = vec![rank as u8; rank * 1000 * (round % 3)];
            let all = part.all_gather_bytes(&bytes).unwrap();
            let expected: Vec<_> =
                members.iter().map(|rank| vec![*rank as u8; rank * 1000 * (round % 3)]).collect();
            assert_eq!(all, expected);
            part.barrier().unwrap();
            let root = round % part.size();
            assert_eq!(part.broadcast(root, &[rank as u8]).unwrap(), [members[root] as u8]);
        }
        // The job has not noticed.
        node.barrier().unwrap();
    });
}

#[test]
fn part_of_a_part() {
    run(6, |node| {
        let rank = node.rank() as u64;
        let half = node.split(Some(rank / 3), 0).unwrap().unwrap();
        let colour = (rank % 3 != 1).then_some(7);
        let ends = half.split(colour, 0).unwrap();
        assert_eq!(ends.is_none(), rank % 3 == 1);
        if let Some(ends) = ends {
            let expected = [rank / 3 * 3, rank / 3 * 3 + 2].map(|rank| rank.to_le_bytes().to_vec());
            assert_eq!(ends.all_gather_bytes(&rank.to_le_bytes()).unwrap(), expected);
            assert_eq!(ends.job_rank(1).unwrap() as u64, rank / 3 * 3 + 2);
        }
        half.barrier().unwrap();
    });
}

#[test]
fn late_barrier_of_a_part_goes_on() {
    let meet = Barrier::new(3);
    run(3, |node| {
        let part = node.split(Some(0), 0).unwrap().unwrap();
        if part.rank() == 2 {
            meet.wait();
            part.barrier().unwrap();
        } else {
            let late = part.barrier_for(Duration::from_millis(20));
            assert!(is_late(&late), "{late:?}");
            let other = part.all_gather_bytes(b"other");
            assert!(matches!(other, Err(Error::Job(JobError::Unfinished { .. }))), "{other:?}");
            meet.wait();
            part.barrier_for(PATIENT).unwrap();
        }
        assert_eq!(part.all_gather_bytes_for(b"all", PATIENT).unwrap().len(), 3);
    });
}

#[test]
fn member_that_leaves_ends_the_part() {
    for leaver in 0..3 {
        let failures = run(3, |node| {
            let part = node.split(Some(0), 0).unwrap().unwrap();
            part.barrier().unwrap();
            if part.rank() == leaver {
                return None;
            }
            let failure = part.barrier().unwrap_err();
            assert!(matches!(part.barrier(), Err(Error::Job(JobError::Ended(_)))));
            Some(failure)
        });
        for failure in failures.into_iter().flatten() {
            let is_lost = matches!(&failure, Error::Job(JobError::Lost { rank, .. }) if *rank == leaver);
            assert!(is_lost, "without {leaver}: {failure}");
        }
    }
}

#[test]
fn different_calls_are_an_error_for_all() {
    let failures = run(3, |node| {
        let part = node.split(Some(0), 0).unwrap().unwrap();
        if part.rank() == 1 {
            part.all_gather_bytes(b"").map(drop).unwrap_err()
        } else {
            part.barrier().unwrap_err()
        }
    });
    for failure in failures {
        assert!(matches!(&failure, Error::Job(JobError::Mismatch { rank: 1, .. })), "{failure}");
    }
}
