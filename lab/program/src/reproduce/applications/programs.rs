//! The applications: their input, the figure that they print, and whether their result is right.

use anyhow::{Context, Result};
use pagewire_cli::install::in_path;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where HPCG's sources come from.
pub(super) const HPCG_SOURCES: &str = "https://github.com/hpcg-benchmark/hpcg";

/// Cells of LAMMPS's lattice along each edge; each has four atoms.
const LATTICE: u32 = 16;
const LAMMPS_STEPS: u32 = 200;
/// Systems that HPL solves in one run, their order, and the width of a panel.
const SOLVES: usize = 10;
const ORDER: usize = 1_000;
const PANEL: usize = 80;
/// Points of a process's part of HPCG's grid, along each edge.
const GRID: usize = 48;
/// Checks of HPCG that must have passed.
const HPCG_CHECKS: usize = 4;

/// A melt of Lennard-Jones particles. The last command writes each atom with all digits.
const LAMMPS_INPUT: &str = "\
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 LATTICE 0 LATTICE 0 LATTICE
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287 loop geom
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
thermo 50
thermo_modify format float %20.17g
run STEPS
write_dump all custom final.dump id x y z vx vy vz modify sort id format float %.17g
";

/// An application of the paper's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Application {
    /// Molecular dynamics (table 2).
    Lammps,
    /// Dense systems of equations, in HPCC (table 3).
    Hpl,
    /// Conjugate gradients (table 4).
    Hpcg,
}

/// What an application printed.
#[derive(Debug, PartialEq)]
pub(super) struct Printed {
    /// Of its own clock: the loop of LAMMPS, all solves of HPL, the benchmark of HPCG.
    pub(super) seconds: f64,
    /// As it says.
    pub(super) version: String,
    /// Its whole result, if that is the same in each run.
    pub(super) result: Option<String>,
}

impl Application {
    pub(super) const ALL: [Application; 3] = [Application::Lammps, Application::Hpl, Application::Hpcg];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Application::Lammps => "LAMMPS",
            Application::Hpl => "HPL",
            Application::Hpcg => "HPCG",
        }
    }

    /// The paper's table of it.
    pub(super) const fn table(self) -> u32 {
        match self {
            Application::Lammps => 2,
            Application::Hpl => 3,
            Application::Hpcg => 4,
        }
    }

    /// What it computes here.
    pub(super) fn input(self) -> String {
        match self {
            Application::Lammps => {
                format!("melt of {} atoms, {LAMMPS_STEPS} steps", 4 * LATTICE * LATTICE * LATTICE)
            }
            Application::Hpl => format!("{SOLVES} systems of {ORDER} equations, panels of {PANEL}"),
            Application::Hpcg => format!("grid of {GRID} x {GRID} x {GRID} a process, one set of iterations"),
        }
    }

    /// The installed program; of HPCG there is none.
    pub(super) fn installed(self) -> Result<PathBuf, String> {
        let find = |program: &str, package: &str| {
            in_path(program).ok_or_else(|| format!("{program} is missing (Debian package {package})"))
        };
        match self {
            Application::Lammps => find("lmp", "lammps"),
            Application::Hpl => find("hpcc", "hpcc"),
            Application::Hpcg => Err(format!("--hpcg names no folder of its sources ({HPCG_SOURCES})")),
        }
    }

    /// Writes its input into the folder in which it runs.
    pub(super) fn prepare(self, folder: &Path, processes: u32) -> Result<()> {
        let (name, text) = match self {
            Application::Lammps => ("melt.in", lammps_input()),
            Application::Hpl => ("hpccinf.txt", hpl_input(processes)?),
            Application::Hpcg => return Ok(()),
        };
        let file = folder.join(name);
        fs::write(&file, text).with_context(|| file.display().to_string())
    }

    /// Its arguments.
    pub(super) fn words(self) -> Vec<OsString> {
        let words: &[&str] = match self {
            Application::Lammps => &["-in", "melt.in", "-log", "none"],
            Application::Hpl => &[],
            Application::Hpcg => {
                let edges = ["--nx", "--ny", "--nz"].map(|edge| format!("{edge}={GRID}").into());
                return edges.into_iter().chain(["--rt=0".into()]).collect();
            }
        };
        words.iter().map(OsString::from).collect()
    }

    /// Reads what it printed, and wrote into the folder; says what is wrong with it.
    pub(super) fn read(self, folder: &Path, output: &str) -> Result<Printed, String> {
        let text = |file: &Path| fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()));
        match self {
            Application::Lammps => lammps(output, &text(&folder.join("final.dump"))?),
            Application::Hpl => hpl(&text(&folder.join("hpccoutf.txt"))?),
            Application::Hpcg => hpcg(&text(&hpcg_report(folder)?)?),
        }
    }
}

fn lammps_input() -> String {
    LAMMPS_INPUT.replace("LATTICE", &LATTICE.to_string()).replace("STEPS", &LAMMPS_STEPS.to_string())
}

/// The loop time; and as the result its lines of energies, and each atom.
fn lammps(output: &str, atoms: &str) -> Result<Printed, String> {
    let seconds = output
        .lines()
        .find_map(|line| line.strip_prefix("Loop time of ")?.split(' ').next()?.parse().ok())
        .ok_or_else(|| format!("LAMMPS printed no loop time:\n{output}"))?;
    let version = output.lines().find(|line| line.starts_with("LAMMPS (")).unwrap_or("LAMMPS").to_owned();
    let is_of_numbers = |line: &str| line.split_whitespace().all(|word| word.parse::<f64>().is_ok());
    // UCX warns in between, for example of an address that was added.
    let energies: Vec<&str> = output
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("Step"))
        .take_while(|line| !line.starts_with("Loop time"))
        .filter(|line| line.trim_start().starts_with("Step") || is_of_numbers(line))
        .collect();
    let atoms_here = atoms.lines().count();
    if energies.len() < 3 || atoms_here < (4 * LATTICE * LATTICE * LATTICE) as usize {
        return Err(format!("LAMMPS wrote {} lines of energies and {atoms_here} of atoms", energies.len()));
    }
    Ok(Printed { seconds, version, result: Some(energies.join("\n") + "\n" + atoms) })
}

/// HPCC's input: HPL alone has a size; those of the other tests follow from it.
fn hpl_input(processes: u32) -> Result<String> {
    let (rows, columns) = match processes {
        1 => (1, 1),
        2 => (1, 2),
        4 => (2, 2),
        other => anyhow::bail!("HPL has no grid of {other} processes here"),
    };
    let orders = vec![ORDER.to_string(); SOLVES].join(" ");
    // HPL skips the second word of each line, which says what the first is.
    let lines = [
        "HPLinpack benchmark input file".to_owned(),
        "Pagewire".to_owned(),
        "HPL.out output file".to_owned(),
        "8 device out".to_owned(),
        format!("{SOLVES} problem sizes"),
        format!("{orders} Ns"),
        "1 NBs".to_owned(),
        format!("{PANEL} NBs"),
        "0 PMAP".to_owned(),
        "1 grid".to_owned(),
        format!("{rows} Ps"),
        format!("{columns} Qs"),
        "16.0 threshold".to_owned(),
        "1 panel factorisation".to_owned(),
        "2 PFACTs".to_owned(),
        "1 stopping criterion".to_owned(),
        "4 NBMINs".to_owned(),
        "1 panels in recursion".to_owned(),
        "2 NDIVs".to_owned(),
        "1 recursive factorisation".to_owned(),
        "1 RFACTs".to_owned(),
        "1 broadcast".to_owned(),
        "1 BCASTs".to_owned(),
        "1 lookahead".to_owned(),
        "1 DEPTHs".to_owned(),
        "2 SWAP".to_owned(),
        "64 swapping threshold".to_owned(),
        "0 L1 transposed".to_owned(),
        "0 U transposed".to_owned(),
        "1 equilibration".to_owned(),
        "8 alignment".to_owned(),
        "a line that HPCC ignores".to_owned(),
        "0 PTRANS sizes".to_owned(),
        "1200 N".to_owned(),
        "0 PTRANS blocking sizes".to_owned(),
        "40 NB".to_owned(),
    ];
    Ok(lines.join("\n") + "\n")
}

/// The seconds of all solves. HPL prints them with two digits, so they come from its operations each second.
fn hpl(report: &str) -> Result<Printed, String> {
    let rates: Vec<f64> = report.lines().filter_map(rate_of_solve).collect();
    let passed =
        report.lines().filter(|line| line.starts_with("||Ax-b||") && line.ends_with("PASSED")).count();
    let has = |text: &str| report.lines().any(|line| line.trim() == text);
    let is_valid = has("Success=1")
        && has(&format!("{SOLVES} tests completed and passed residual checks,"))
        && has("0 tests completed and failed residual checks,");
    if rates.len() != SOLVES || passed != SOLVES || !is_valid {
        let ends = report.lines().rev().take(5).collect::<Vec<_>>().join("; ");
        return Err(format!(
            "HPL: {} solves, {passed} passed, the whole valid: {is_valid}: {ends}",
            rates.len()
        ));
    }
    let order = ORDER as f64;
    let operations = order.powi(3) * 2.0 / 3.0 + order.powi(2) * 1.5;
    let value = |name: &str| report.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?");
    let parts = ["VersionMajor=", "VersionMinor=", "VersionMicro="].map(value);
    let seconds = rates.into_iter().map(|rate| operations / (rate * 1e9)).sum();
    Ok(Printed { seconds, version: format!("HPCC {}", parts.join(".")), result: None })
}

/// Gflops of a line such as `WR11C2R4 1000 80 1 2 0.13 5.157e+00`.
fn rate_of_solve(line: &str) -> Option<f64> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, order, _, _, _, _, rate] = words[..] else { return None };
    let is_solve = name.starts_with("WR") || name.starts_with("WC");
    (is_solve && order.parse() == Ok(ORDER)).then(|| rate.parse().ok())?
}

fn hpcg_report(folder: &Path) -> Result<PathBuf, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("HPCG-Benchmark") && name.ends_with(".txt")
        })
        .ok_or_else(|| "HPCG left no report".to_owned())
}

fn hpcg(report: &str) -> Result<Printed, String> {
    let value = |name: &str| report.lines().find_map(|line| line.strip_prefix(name));
    let passed = report.lines().filter(|line| line.ends_with("::Result=PASSED")).count();
    let is_valid = report.contains("HPCG result is VALID") && !report.contains("FAILED");
    let seconds = value("Benchmark Time Summary::Total=").and_then(|text| text.parse().ok());
    match seconds {
        Some(seconds) if is_valid && passed >= HPCG_CHECKS => {
            let version = format!("HPCG {}", value("version=").unwrap_or("?"));
            Ok(Printed { seconds, version, result: None })
        }
        _ => Err(format!("HPCG: {passed} checks passed, valid: {is_valid}, seconds: {seconds:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hpl_report(last: &str) -> String {
        let solve = "WR11C2R4        1000    80     1     2               0.13              5.000e+00\n\
                     ||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0072510 ...... PASSED\n";
        let ends = "             10 tests completed and passed residual checks,\n              0 tests completed and failed residual checks,\n";
        format!("{}{last}{ends}VersionMajor=1\nVersionMinor=5\nVersionMicro=0\nSuccess=1\n", solve.repeat(9))
    }

    #[test]
    fn seconds_of_hpl_are_of_all_solves_and_each_must_pass() {
        let good = hpl_report(
            "WR11C2R4        1000    80     1     2               0.13              2.500e+00\n\
             ||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0072510 ...... PASSED\n",
        );
        let printed = hpl(&good).expect("valid");
        let operations = 2e9 / 3.0 + 1.5e6;
        let expected = 9.0 * operations / 5e9 + operations / 2.5e9;
        assert!((printed.seconds - expected).abs() < 1e-9 && printed.version == "HPCC 1.5.0");
        assert!(hpl(&good.replace("Success=1", "Success=0")).is_err());
        assert!(hpl(&good.replacen("PASSED", "FAILED", 1)).is_err());
        assert!(hpl(&hpl_report("")).is_err());
    }

    #[test]
    fn result_of_lammps_is_every_line_of_energies_and_every_atom() {
        let output = "LAMMPS (7 Jan 2022)\nStep Temp\n 0 3\n 50 1.5\nLoop time of 0.25 on 2 procs\n";
        let atoms = "1 0 0 0 0 0 0\n".repeat(16_384);
        let printed = lammps(output, &atoms).expect("complete");
        assert_eq!((printed.seconds, printed.version.as_str()), (0.25, "LAMMPS (7 Jan 2022)"));
        let other = lammps(&output.replace("1.5", "1.6"), &atoms).expect("complete");
        assert_ne!(printed.result, other.result);
        let warned = output.replace(" 50 1.5", "[1.5] UCX  WARN  IB Async event\n 50 1.5");
        assert_eq!(lammps(&warned, &atoms).expect("complete").result, printed.result);
        assert!(lammps(output, "1 0 0 0 0 0 0\n").is_err());
        assert!(lammps("Step\n", &atoms).is_err());
    }

    #[test]
    fn hpcg_must_say_that_it_is_valid() {
        let good = format!(
            "version=3.1\n{}Benchmark Time Summary::Total=0.5\nFinal Summary::HPCG result is VALID with a rating of=1\n",
            "Check::Result=PASSED\n".repeat(4)
        );
        assert_eq!(hpcg(&good).expect("valid").seconds, 0.5);
        assert!(hpcg(&good.replace("VALID", "INVALID.")).is_err());
        assert!(hpcg(&good.replacen("PASSED", "FAILED", 1)).is_err());
    }

    #[test]
    fn hpl_has_a_grid_for_each_count_of_processes() {
        for (processes, grid) in [(1, "1 Ps\n1 Qs"), (2, "1 Ps\n2 Qs"), (4, "2 Ps\n2 Qs")] {
            assert!(hpl_input(processes).expect("a grid").contains(grid));
        }
        assert!(hpl_input(3).is_err());
        assert!(!lammps_input().contains("LATTICE") && !lammps_input().contains("STEPS"));
    }
}
