//! Gets of random pieces of other processes' data, which are logged there (PAPERS AA-12, section 5.2.3).

use super::super::comparison::messages::mix;
use super::super::gathering::Gathering;
use super::super::processes::{Keys, compute};
use super::logged_gets::{LoggedGets, verify_log};
use super::{Load, other_than};
use anyhow::{Result, ensure};
use pagewire::Node;
use std::time::Instant;

/// Bytes of a get at most: one record of a log has it.
pub(super) const MOST_BYTES: u64 = 32 << 10;

/// Pieces of the data of each process.
const PIECES: u64 = 4_096;
/// Words of the data of each process at most.
const WORDS: u64 = 1 << 20;

/// Words of a get that a measured round compares at most, and the last one: more would be a part of what is measured.
const COMPARED: usize = 64;

/// What a word of a process's data is.
fn word_of(rank: usize, index: usize) -> u64 {
    mix((rank as u64) << 32 | index as u64)
}

/// Pieces that there are of so many words each.
fn pieces(words: u64) -> u64 {
    PIECES.min(WORDS / words).max(1)
}

/// What a process gets: the owner, and the first word.
fn place(rank: usize, processes: usize, words: u64, key: u64) -> (usize, usize) {
    let piece = (mix(key) >> 32) % pieces(words);
    (other_than(rank, processes, key), (piece * words) as usize)
}

/// Gives what makes a round: gets a second of all processes together.
pub(super) fn start<'j>(
    (node, gathering): (&'j Node, &'j Gathering),
    load: &'j Load,
) -> Result<impl FnMut(u32) -> Result<f64> + 'j> {
    let (rank, processes, words) = (node.rank(), node.size(), load.size / 8);
    let mut gets =
        LoggedGets::join(node, load, (pieces(words) * words) as usize, load.times * (processes as u64 - 1))?;
    let data: Vec<u64> = (0..gets.data.len()).map(|index| word_of(rank, index)).collect();
    gets.data.write(0, &data)?;
    Ok(move |round| {
        node.barrier()?;
        let mut check = |place: usize, got: &[u64]| {
            let (owner, first) = (place % processes, place / processes);
            // The first round is none that is measured: there all words are compared.
            let step = if round == 0 { 1 } else { got.len().div_ceil(COMPARED).max(1) };
            let is_right = |index: usize| got[index] == word_of(owner, first + index);
            let is_whole = (0..got.len()).step_by(step).all(is_right) && is_right(got.len() - 1);
            ensure!(is_whole, "a get gave other data than process {owner} has");
            Ok(())
        };
        let start = Instant::now();
        for key in Keys::of(rank, round).take(load.times as usize) {
            compute(load.computation);
            let (owner, first) = place(rank, processes, words, key);
            gets.get((owner, first, words as usize), first * processes + owner, &mut check)?;
        }
        gets.finish(gathering, &mut check)?;
        let elapsed = start.elapsed().as_secs_f64();
        if let Some(logged) = gets.take_log()? {
            for (caller, logged) in logged.iter().enumerate() {
                let all = Keys::of(caller, round).take(load.times as usize);
                let of_here = all
                    .map(|key| place(caller, processes, words, key))
                    .filter(|(owner, _)| caller != rank && *owner == rank)
                    .map(|(_, first)| (first, words as usize));
                verify_log(&data, logged, of_here)?;
            }
        }
        Ok((load.times * processes as u64) as f64 / elapsed)
    })
}
