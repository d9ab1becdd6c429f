//! What is measured, the most important first.
//!
//! A cell is one application with one choice of everything. The cells of a group are made in turn, so that what disturbs the machine
//! disturbs all of them. The first cell of a group is the one that the others are compared with.

use super::programs::Application;
use pagewire_nic::{FaultHandling, PageIn, PathChoice};

/// Packets of a million that are lost, in the cells with loss.
const LOST: [u32; 3] = [0, 1_000, 10_000];

/// What carries the messages between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transport {
    /// UCX over a device of Pagewire, on this path.
    Pagewire(PathChoice),
    /// UCX's own shared memory.
    SharedMemory,
    /// UCX's own TCP.
    UcxTcp,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Pagewire(path) => path.name(),
            Transport::SharedMemory => "UCX shared memory",
            Transport::UcxTcp => "UCX tcp",
        }
    }

    /// The path, if Pagewire carries the messages.
    pub(super) const fn path(self) -> Option<PathChoice> {
        match self {
            Transport::Pagewire(path) => Some(path),
            Transport::SharedMemory | Transport::UcxTcp => None,
        }
    }
}

/// What happens to a buffer before MPI has it (`lab/helpers/mpi_buffers.c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Buffers {
    /// Nothing. The process may lock no memory.
    Plain,
    /// Each page is touched before each use.
    Touched,
    /// It is locked before each use.
    Pinned,
}

impl Buffers {
    pub(super) const fn title(self) -> &'static str {
        match self {
            Buffers::Plain => "never pinned",
            Buffers::Touched => "touched before each use",
            Buffers::Pinned => "pinned",
        }
    }

    /// As the library calls it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Buffers::Plain => "plain",
            Buffers::Touched => "touched",
            Buffers::Pinned => "pinned",
        }
    }
}

/// One choice of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) application: Application,
    pub(super) processes: u32,
    pub(super) transport: Transport,
    pub(super) buffers: Buffers,
    pub(super) page_faults: FaultHandling,
    pub(super) page_in: PageIn,
    /// Packets of a million that are lost.
    pub(super) lost: u32,
    /// For which comparison it is measured, beside which path: an equal cell of another group runs at other times.
    pub(super) difference: Difference,
    pub(super) beside: PathChoice,
}

impl Cell {
    /// Over a path, never pinned, with the default policy.
    pub(super) const fn plain(application: Application, processes: u32, path: PathChoice) -> Cell {
        Cell {
            application,
            processes,
            transport: Transport::Pagewire(path),
            buffers: Buffers::Plain,
            page_faults: FaultHandling::Stash,
            page_in: PageIn::Dynamic,
            lost: 0,
            difference: Difference::Buffers,
            beside: path,
        }
    }

    /// A name that no other cell has: how the file of finished runs calls it.
    pub(super) fn key(&self) -> String {
        let Cell { application, processes, transport, buffers, difference, beside, .. } = self;
        let (application, beside) = (application.name(), beside.name());
        let cell = format!("{application}, {processes}, {beside}, {}", buffers.word());
        match difference {
            Difference::Buffers if transport.path().is_none() => {
                format!("{application}, {processes}, {beside}, {}", transport.name())
            }
            Difference::Buffers => cell,
            Difference::Policy => format!("{cell}, {} with {}", self.page_faults.name(), self.page_in.name()),
            Difference::Loss => format!("{cell}, {} ppm lost", self.lost),
        }
    }

    /// Whether its page faults are those of a never pinned run, of which there must be some.
    pub(super) fn must_fault(&self) -> bool {
        self.transport.path().is_some() && self.buffers == Buffers::Plain && self.processes > 1
    }
}

/// What the cells of a group differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Buffers, and UCX's own transport last.
    Buffers,
    /// What happens at an absent page, and how much comes in.
    Policy,
    /// How many packets are lost.
    Loss,
}

impl Difference {
    pub(super) const ALL: [Difference; 3] = [Difference::Buffers, Difference::Policy, Difference::Loss];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Difference::Buffers => "Never pinned, touched, pinned",
            Difference::Policy => "Policies of page faults, never pinned",
            Difference::Loss => "Packets lost on purpose, never pinned",
        }
    }

    /// What the first cell of such a group is called.
    pub(super) const fn first(self) -> &'static str {
        match self {
            Difference::Buffers => "never pinned",
            Difference::Policy => "stash with dynamic",
            Difference::Loss => "without loss",
        }
    }
}

/// Cells that are made in turn.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) difference: Difference,
    pub(super) cells: Vec<Cell>,
}

/// All groups of these applications, on one path if one is asked for.
pub(super) fn groups(applications: &[Application], only: Option<PathChoice>) -> Vec<Group> {
    let paths: Vec<PathChoice> = [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp]
        .into_iter()
        .filter(|path| only.is_none_or(|only| only == *path))
        .collect();
    let mut groups = Vec::new();
    let mut add = |processes: u32, differences: &[Difference], paths: &[PathChoice]| {
        for &difference in differences {
            for &application in applications {
                groups.extend(paths.iter().map(|&path| group(difference, application, processes, path)));
            }
        }
    };
    add(2, &[Difference::Buffers], &paths);
    // Inside a host nothing is dropped or sent again, and only datagrams are lost on purpose.
    let networks: Vec<PathChoice> = paths.iter().copied().filter(|&path| path != PathChoice::Local).collect();
    let datagrams: Vec<PathChoice> = paths.iter().copied().filter(|&path| path == PathChoice::Udp).collect();
    add(2, &[Difference::Loss], &datagrams);
    add(2, &[Difference::Policy], &networks);
    add(4, &[Difference::Buffers], &paths);
    // One process sends nothing: a path makes no difference.
    add(1, &[Difference::Buffers], &paths[..1]);
    groups
}

fn group(difference: Difference, application: Application, processes: u32, path: PathChoice) -> Group {
    let plain = Cell { difference, ..Cell::plain(application, processes, path) };
    let with = |buffers| Cell { buffers, ..plain };
    let cells = match difference {
        Difference::Buffers => {
            let own = if path == PathChoice::Local { Transport::SharedMemory } else { Transport::UcxTcp };
            let peer = Cell { transport: own, ..plain };
            vec![plain, with(Buffers::Touched), with(Buffers::Pinned), peer]
        }
        Difference::Policy => policies(plain),
        Difference::Loss => LOST.into_iter().map(|lost| Cell { lost, ..plain }).collect(),
    };
    Group { difference, cells }
}

/// Each policy with each page-in, the default first.
fn policies(plain: Cell) -> Vec<Cell> {
    let all = FaultHandling::ALL.into_iter().flat_map(|page_faults| {
        PageIn::ALL.into_iter().map(move |page_in| Cell { page_faults, page_in, ..plain })
    });
    [plain].into_iter().chain(all.filter(|cell| *cell != plain)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        let groups = groups(&Application::ALL, None);
        let keys: Vec<String> = groups.iter().flat_map(|group| &group.cells).map(Cell::key).collect();
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), keys.len());
    }

    #[test]
    fn two_processes_come_first_and_every_policy_is_there() {
        let groups = groups(&[Application::Lammps], None);
        let is_first =
            |group: &Group| group.cells[0].processes == 2 && group.difference == Difference::Buffers;
        assert!(groups[..3].iter().all(is_first));
        let policies: Vec<usize> = groups
            .iter()
            .filter(|group| group.difference == Difference::Policy)
            .map(|group| group.cells.len())
            .collect();
        assert_eq!(policies, [20, 20]);
    }

    #[test]
    fn local_path_alone_has_neither_policies_nor_loss() {
        let groups = groups(&[Application::Hpl], Some(PathChoice::Local));
        assert!(groups.iter().all(|group| group.difference == Difference::Buffers));
        assert_eq!(groups.iter().map(|group| group.cells[0].processes).collect::<Vec<_>>(), [2, 4, 1]);
    }
}
