//! Puts of 8 bytes a second to an owner whose handler sees each: in batches, and one by one. And one by one to ordinary memory.

use super::{Pair, WINDOW};
use anyhow::{Context, Result, ensure};
use pagewire::{Operation, Region, Rights, Token};
use pagewire_active::{Batch, Batches};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Puts in batches for each one by itself: most of them share a message.
const BATCHED: u64 = 10;

/// Words that are put to.
const WORDS: u64 = 512;

/// Puts of a run.
fn puts(name: &str, times: u64) -> u64 {
    if name == "batch" { times * BATCHED } else { times }
}

pub(super) struct Batched {
    /// At the owner: what serves it, and how many puts its handler has seen.
    served: Option<(Batches, Arc<AtomicU64>)>,
    /// Puts of others go to the owner's.
    _table: Arc<Region<u64>>,
    /// Of the owner: of its batches, and of its memory.
    address: Vec<u8>,
    token: Token,
}

/// Both sides of a benchmark by its name. `None`: it is none of these.
pub(super) fn start(pair: &Pair<'_>, name: &str) -> Result<Option<Batched>> {
    if !matches!(name, "batch" | "batch_single" | "batch_plain") {
        return Ok(None);
    }
    let table = Arc::new(pair.node.zeroed::<u64>(WORDS as usize)?);
    let token = table.export(Rights::all())?;
    let served = match pair.is_caller {
        true => None,
        false => {
            let seen = Arc::new(AtomicU64::new(0));
            let sees = seen.clone();
            let served = match name {
                // Nobody puts to it.
                "batch_plain" => Batches::to_memory(pair.node, &table)?,
                _ => Batches::redirect(pair.node, &table, move |put| {
                    sees.fetch_add(put.bytes().len() as u64 / 8, Ordering::Relaxed);
                })?,
            };
            Some((served, seen))
        }
    };
    let own = served
        .as_ref()
        .map_or_else(Vec::new, |(served, _)| [&token.to_bytes()[..], &served.address()].concat());
    let all = pair.node.all_gather_bytes(&own)?;
    let (token, address) = all[0].split_at_checked(Token::LEN).context("the owner has no address")?;
    let (token, address) = (Token::from_bytes(token)?, address.to_vec());
    Ok(Some(Batched { served, _table: table, address, token }))
}

impl Batched {
    /// Puts a second, until the last one is handled. 0 at the owner.
    pub(super) fn measure(&self, pair: &Pair<'_>, name: &str, times: u64) -> Result<f64> {
        if !pair.is_caller {
            return Ok(0.0);
        }
        let puts = puts(name, times);
        let offset = |put: u64| 8 * (put % WORDS);
        if name == "batch" {
            let mut batch = Batch::open(pair.node, &self.address)?;
            let begun = Instant::now();
            for put in 0..puts {
                batch.put_value(offset(put), put)?;
            }
            batch.flush_handled()?;
            return Ok(puts as f64 / begun.elapsed().as_secs_f64());
        }
        let remote = pair.node.open(&self.token)?;
        let mut spare: Vec<Vec<u64>> = (0..WINDOW).map(|_| vec![0]).collect();
        let mut in_flight = VecDeque::new();
        let begun = Instant::now();
        for put in 0..puts {
            let mut buffer = match spare.pop() {
                Some(buffer) => buffer,
                None => {
                    let oldest: Operation<Vec<u64>> = in_flight.pop_front().context("no put is under way")?;
                    oldest.wait()?
                }
            };
            buffer[0] = put;
            in_flight.push_back(remote.put(offset(put), buffer));
        }
        for put in in_flight {
            put.wait()?;
        }
        remote.flush_handled(None).wait()?;
        Ok(puts as f64 / begun.elapsed().as_secs_f64())
    }

    /// The handler must have seen each put.
    pub(super) fn end(self, name: &str, times: u64) -> Result<()> {
        let Some((_, seen)) = self.served else { return Ok(()) };
        let (seen, expected) =
            (seen.load(Ordering::Acquire), if name == "batch_plain" { 0 } else { puts(name, times) });
        ensure!(seen == expected, "the handler has seen {seen} puts of {expected}");
        Ok(())
    }
}
