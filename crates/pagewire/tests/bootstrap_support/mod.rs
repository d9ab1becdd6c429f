//! The run that every job must survive, however it was started.

use pagewire::bootstrap::Job;

/// Bytes that tell their rank, round and place.
pub fn pattern(rank: usize, round: usize, length: usize) -> Vec<u8> {
    (0..length).map(|index| (rank * 31 + round * 7 + index) as u8).collect()
}

/// All operations, with no bytes, few bytes, and more bytes than a socket buffer or a PMIx value holds.
pub fn exercise(job: &Job) {
    for (round, unit) in [0, 1, 100, 40_000, 700_000].into_iter().enumerate() {
        // Each rank gives another number of bytes, and rank 0 gives none.
        let all = job.all_gather(&pattern(job.rank(), round, unit * job.rank())).expect("all_gather");
        let expected: Vec<_> = (0..job.size()).map(|rank| pattern(rank, round, unit * rank)).collect();
        assert!(all == expected, "round {round} at rank {}", job.rank());
        let root = round % job.size();
        let got = job.broadcast(root, &pattern(job.rank(), round, unit)).expect("broadcast");
        assert!(got == pattern(root, round, unit), "round {round} at rank {}", job.rank());
        job.barrier().expect("barrier");
    }
}
