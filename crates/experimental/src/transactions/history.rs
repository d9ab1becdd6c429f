//! Checks histories of transactions: committed ones are serialisable if and only if their dependency graph has no cycle (Adya, Liskov and
//! O'Neil, "Generalized isolation level definitions", ICDE 2000).
//!
//! It knows the order of the versions of each cell and which version each transaction read. Nothing of the protocol is used.

use std::collections::BTreeMap;

/// A transaction, by a number of the history's own.
pub type Id = u64;

/// What committed transactions have done.
#[derive(Debug, Default, Clone)]
pub struct History {
    /// Of each cell: who wrote versions 1, 2, and so on. Version 0 is the initial one.
    writers: BTreeMap<u64, Vec<Id>>,
    /// Transaction, cell and version.
    reads: Vec<(Id, u64, u64)>,
}

/// Why a history is none of serialisable transactions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Anomaly {
    #[error("transactions depend on each other in a circle: {0:?}")]
    Cycle(Vec<Id>),
    #[error("transaction {reader} read version {version} of cell {cell}, which nobody committed")]
    NotCommitted { reader: Id, cell: u64, version: u64 },
}

impl History {
    /// A transaction has written the next version of a cell.
    pub fn write(&mut self, by: Id, cell: u64) {
        self.writers.entry(cell).or_default().push(by);
    }

    /// A transaction has read a version of a cell.
    pub fn read(&mut self, by: Id, cell: u64, version: u64) {
        self.reads.push((by, cell, version));
    }

    /// # Errors
    /// The first anomaly.
    pub fn check(&self) -> Result<(), Anomaly> {
        find_cycle(&self.edges()?).map_or(Ok(()), |cycle| Err(Anomaly::Cycle(cycle)))
    }

    /// Who must come before whom.
    fn edges(&self) -> Result<BTreeMap<Id, Vec<Id>>, Anomaly> {
        let mut edges: BTreeMap<Id, Vec<Id>> = BTreeMap::new();
        let mut add = |from: Id, to: Id| {
            if from != to {
                edges.entry(from).or_default().push(to);
            }
        };
        for writers in self.writers.values() {
            writers.windows(2).for_each(|pair| add(pair[0], pair[1])); // ww
        }
        for &(reader, cell, version) in &self.reads {
            let writers = self.writers.get(&cell).map_or(&[][..], Vec::as_slice);
            if version > writers.len() as u64 {
                return Err(Anomaly::NotCommitted { reader, cell, version });
            }
            if let Some(before) = version.checked_sub(1) {
                add(writers[before as usize], reader); // wr
            }
            if let Some(next) = writers.get(version as usize) {
                add(reader, *next); // rw
            }
        }
        Ok(edges)
    }
}

/// A circle of the graph, if it has one: a search in depth without recursion.
fn find_cycle(edges: &BTreeMap<Id, Vec<Id>>) -> Option<Vec<Id>> {
    let mut is_finished: BTreeMap<Id, bool> = BTreeMap::new();
    for start in edges.keys() {
        let mut path: Vec<(Id, usize)> = Vec::new();
        if !is_finished.contains_key(start) {
            is_finished.insert(*start, false);
            path.push((*start, 0));
        }
        while let Some((at, next)) = path.last_mut() {
            let Some(to) = edges.get(at).and_then(|all| all.get(*next)).copied() else {
                is_finished.insert(*at, true);
                path.pop();
                continue;
            };
            *next += 1;
            match is_finished.get(&to) {
                Some(true) => {}
                Some(false) => {
                    let first = path.iter().position(|(id, _)| *id == to).unwrap_or(0);
                    return Some(path[first..].iter().map(|(id, _)| *id).collect());
                }
                None => {
                    is_finished.insert(to, false);
                    path.push((to, 0));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads and writes as (transaction, cell, version read), with `None` for a write.
    fn history(accesses: &[(Id, u64, Option<u64>)]) -> History {
        let mut history = History::default();
        for (by, cell, read) in accesses {
            match read {
                Some(version) => history.read(*by, *cell, *version),
                None => history.write(*by, *cell),
            }
        }
        history
    }

    #[test]
    fn serial_transactions_have_no_cycle() {
        let all =
            [(1, 0, Some(0)), (1, 0, None), (2, 0, Some(1)), (2, 0, None), (3, 0, Some(2)), (3, 1, None)];
        assert_eq!(history(&all).check(), Ok(()));
        assert_eq!(history(&[(1, 0, None), (1, 0, None), (1, 0, Some(1))]).check(), Ok(()), "its own");
    }

    /// Each anomaly of the literature, and who is in its circle.
    #[test]
    fn anomalies_are_found() {
        let lost_update = [(1, 0, Some(0)), (2, 0, Some(0)), (1, 0, None), (2, 0, None)];
        let write_skew = [(1, 0, Some(0)), (2, 1, Some(0)), (1, 1, None), (2, 0, None)];
        let dirty_write = [(1, 0, None), (2, 0, None), (2, 1, None), (1, 1, None)];
        let torn_read = [(1, 0, None), (1, 1, None), (2, 0, Some(1)), (2, 1, Some(0))];
        let circular = [(1, 0, None), (2, 1, None), (1, 1, Some(1)), (2, 0, Some(1))];
        for anomaly in [&lost_update[..], &write_skew, &dirty_write, &torn_read, &circular] {
            match history(anomaly).check() {
                Err(Anomaly::Cycle(mut cycle)) => {
                    cycle.sort_unstable();
                    assert_eq!(cycle, [1, 2], "{anomaly:?}");
                }
                other => panic!("{anomaly:?}: {other:?}"),
            }
        }
        // Only a reader sees that two writers are in the wrong order.
        let reader =
            [(1, 0, None), (2, 1, None), (3, 0, Some(1)), (3, 1, Some(0)), (4, 0, Some(0)), (4, 1, Some(1))];
        assert!(matches!(history(&reader).check(), Err(Anomaly::Cycle(cycle)) if cycle.len() == 4));
        let aborted = history(&[(1, 0, Some(1))]).check();
        assert_eq!(aborted, Err(Anomaly::NotCommitted { reader: 1, cell: 0, version: 1 }));
    }
}
