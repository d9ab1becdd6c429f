//! Bugs that are planted on purpose, so that the checker can be seen to find them.

use parking_lot::Mutex;

/// A bug in the memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// One byte of a copy is wrong.
    LostByte,
    /// One byte beyond a copy is touched.
    Overrun,
    /// An atomic is run twice.
    AtomicTwice,
    /// A copy panics.
    Panic,
}

impl Plant {
    const ALL: [Plant; 4] = [Plant::LostByte, Plant::Overrun, Plant::AtomicTwice, Plant::Panic];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Plant::LostByte => "lost-byte",
            Plant::Overrun => "overrun",
            Plant::AtomicTwice => "atomic-twice",
            Plant::Panic => "panic",
        }
    }

    /// The bug of a name.
    pub fn named(name: &str) -> Option<Plant> {
        Plant::ALL.into_iter().find(|plant| plant.name() == name)
    }
}

/// The bug that a process carries, and how many chances it lets pass first.
#[derive(Default)]
pub struct Planted(Mutex<Option<(Plant, u32)>>);

impl Planted {
    /// Plants a bug that shows once, after `chances` harmless ones.
    pub fn set(&self, plant: Plant, chances: u32) {
        *self.0.lock() = Some((plant, chances));
    }

    /// The bug that shows in this copy of `length` bytes; `last`: nothing of the message comes behind them.
    pub(crate) fn fires(&self, length: usize, last: bool) -> Option<Plant> {
        self.chance(|plant| match plant {
            Plant::LostByte | Plant::Panic => length > 0,
            Plant::Overrun => last && length > 0,
            Plant::AtomicTwice => false,
        })
    }

    pub(crate) fn fires_at_atomic(&self) -> bool {
        self.chance(|plant| plant == Plant::AtomicTwice).is_some()
    }

    fn chance(&self, fits: impl Fn(Plant) -> bool) -> Option<Plant> {
        let mut planted = self.0.lock();
        let (plant, chances) = (*planted)?;
        if !fits(plant) {
            return None;
        }
        if chances == 0 {
            *planted = None;
            return Some(plant);
        }
        *planted = Some((plant, chances - 1));
        None
    }
}
