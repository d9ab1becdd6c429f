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
    /// Open MPI's own TCP (btl tcp), without UCX.
    OpenMpiTcp,
}

impl Transport {
    pub(super) fn name(self) -> &'static str {
        match self {
            Transport::Pagewire(path) => path.name(),
            Transport::SharedMemory => "UCX shared memory",
            Transport::UcxTcp => "UCX tcp",
            Transport::OpenMpiTcp => "Open MPI tcp",
        }
    }

    /// The path, if Pagewire carries the messages.
    pub(super) const fn path(self) -> Option<PathChoice> {
        match self {
            Transport::Pagewire(path) => Some(path),
            Transport::SharedMemory | Transport::UcxTcp | Transport::OpenMpiTcp => None,
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
    /// Two have half of the processes each.
    pub(super) hosts: u32,
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
    /// Over a path of one host, never pinned, with the default policy.
    pub(super) const fn plain(application: Application, processes: u32, path: PathChoice) -> Cell {
        Cell {
            application,
            processes,
            hosts: 1,
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
        let cell = match difference {
            Difference::Buffers if transport.path().is_none() => {
                format!("{application}, {processes}, {beside}, {}", transport.name())
            }
            Difference::Buffers => cell,
            Difference::Policy => format!("{cell}, {} with {}", self.page_faults.name(), self.page_in.name()),
            Difference::Loss => format!("{cell}, {} ppm lost", self.lost),
        };
        if self.hosts == 1 { cell } else { format!("{cell}, {} hosts", self.hosts) }
    }

    /// Whether its page faults are those of a never pinned run, of which there must be some.
    pub(super) fn must_fault(&self) -> bool {
        self.transport.path().is_some() && self.buffers == Buffers::Plain && self.processes > 1
    }
}

/// What the cells of a group differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    /// Buffers, and other transports last.
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

/// All groups of these applications on so many hosts, on one path if one is asked for.
pub(super) fn groups(applications: &[Application], only: Option<PathChoice>, hosts: u32) -> Vec<Group> {
    // Between hosts there is no local path.
    let paths: Vec<PathChoice> = [PathChoice::Local, PathChoice::Udp, PathChoice::Tcp]
        .into_iter()
        .filter(|path| only.is_none_or(|only| only == *path) && (hosts == 1 || *path != PathChoice::Local))
        .collect();
    let mut groups = Vec::new();
    let group = |difference, application, processes, path| {
        group(difference, Cell { hosts, ..Cell::plain(application, processes, path) })
    };
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
    // One process sends nothing: a path makes no difference, and it is on one host.
    if hosts == 1 {
        add(1, &[Difference::Buffers], &paths[..1]);
    }
    groups
}

fn group(difference: Difference, plain: Cell) -> Group {
    let plain = Cell { difference, ..plain };
    let with = |buffers| Cell { buffers, ..plain };
    let cells = match difference {
        Difference::Buffers => {
            let own: &[Transport] = match (plain.beside, plain.hosts) {
                (PathChoice::Local, _) => &[Transport::SharedMemory],
                (_, 1) => &[Transport::UcxTcp],
                _ => &[Transport::UcxTcp, Transport::OpenMpiTcp],
            };
            let peers = own.iter().map(|&transport| Cell { transport, ..plain });
            [plain, with(Buffers::Touched), with(Buffers::Pinned)].into_iter().chain(peers).collect()
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
        let groups: Vec<Group> =
            [1, 2].into_iter().flat_map(|hosts| groups(&Application::ALL, None, hosts)).collect();
        let keys: Vec<String> = groups.iter().flat_map(|group| &group.cells).map(Cell::key).collect();
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), keys.len());
    }

    #[test]
    fn two_processes_come_first_and_every_policy_is_there() {
        let groups = groups(&[Application::Lammps], None, 1);
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
    fn two_hosts_have_neither_local_path_nor_single_process() {
        let groups = groups(&[Application::Lammps], None, 2);
        let cells = || groups.iter().flat_map(|group| &group.cells);
        assert!(cells().all(|cell| cell.beside != PathChoice::Local && cell.processes >= cell.hosts));
        let peers: Vec<&str> = groups[0].cells[3..].iter().map(|cell| cell.transport.name()).collect();
        assert_eq!(peers, ["UCX tcp", "Open MPI tcp"]);
    }

    #[test]
    fn local_path_alone_has_neither_policies_nor_loss() {
        let groups = groups(&[Application::Hpl], Some(PathChoice::Local), 1);
        assert!(groups.iter().all(|group| group.difference == Difference::Buffers));
        assert_eq!(groups.iter().map(|group| group.cells[0].processes).collect::<Vec<_>>(), [2, 4, 1]);
    }
}
