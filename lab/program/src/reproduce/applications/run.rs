//! One run of an application by mpirun, over a path of Pagewire or over a transport of UCX.
//!
//! Programs run as an unprivileged user who may lock no memory at all. Where buffers are to be pinned they have the rights of the caller.

use super::cells::{Buffers, Cell, Transport};
use super::launcher::{self, Launcher};
use super::programs::{Application, HPCG_SOURCES};
use super::record::Measured;
use crate::limits::{APPLICATION_BUILD, APPLICATION_RUN, HOSTS_MTU};
use anyhow::{Context, Result, bail, ensure};
use pagewire_cli::hosts::{Host, Hosts, INTERFACE, NOBODY, programs_become_nobody};
use pagewire_cli::install::in_path;
use pagewire_cli::pair::Running;
use pagewire_cli::report::{self, ProcessReport};
use pagewire_cli::stage::Stage;
use pagewire_nic::PathChoice;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The library that counts what is sent, and prepares buffers.
const LIBRARY_SOURCE: &str = include_str!("../../../../helpers/mpi_buffers.c");

/// Messages of at least so many bytes go straight into the application's memory, where pages may be absent. UCX alone has its default.
pub(super) const RENDEZVOUS: &str = "8192";

/// How the library says that a user may not lock what pinned buffers need.
const NOT_PERMITTED: &str = "not permitted to lock so much memory";

/// Puts the library in front of the application alone: mpirun, the shell and the engine's command do without.
const PRELOAD: &str = r#"LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$0" exec "$@""#;

const DEVICE: &str = "pagewire0";
/// Lines of a run's output that its failure tells.
const LAST_LINES: usize = 30;

/// What runs need, and where they leave their files.
pub(super) struct Runner<'a> {
    stage: &'a Stage,
    mpirun: PathBuf,
    library: PathBuf,
    programs: Vec<(Application, PathBuf)>,
    /// Where results stand that others must equal.
    references: &'a Path,
    /// For cells of two hosts.
    hosts: Option<Hosts>,
}

impl<'a> Runner<'a> {
    /// Finds and builds what runs need; says of which applications there are none.
    ///
    /// # Errors
    /// If MPI is missing, something cannot be built, or the folder of HPCG has not its sources.
    pub(super) fn prepare(
        stage: &'a Stage,
        directory: &'a Path,
        hpcg: Option<&Path>,
        wanted: &[Application],
    ) -> Result<(Runner<'a>, Vec<String>)> {
        let mpirun = in_path("mpirun").context("mpirun is missing (Debian package openmpi-bin)")?;
        let library = build_library(stage)?;
        let (mut programs, mut notes) = (Vec::new(), Vec::new());
        for &application in wanted {
            let found = match (application, hpcg) {
                (Application::Hpcg, Some(sources)) => Ok(build_hpcg(stage, directory, sources)?),
                _ => application.installed(),
            };
            match found {
                Ok(program) => programs.push((application, program)),
                Err(why) => notes.push(format!("{}: not measured: {why}", application.name())),
            }
        }
        Ok((Runner { stage, mpirun, library, programs, references: directory, hosts: None }, notes))
    }

    /// Makes the hosts for cells of two.
    ///
    /// # Errors
    /// If the kernel refuses namespaces to this user.
    pub(super) fn make_hosts(&mut self) -> Result<()> {
        self.hosts = Some(Hosts::make(HOSTS_MTU)?);
        Ok(())
    }

    /// The applications that there are.
    pub(super) fn applications(&self) -> Vec<Application> {
        self.programs.iter().map(|(application, _)| *application).collect()
    }

    /// Runs a cell; the inner error says what went wrong. Equal seeds lose equal packets.
    ///
    /// # Errors
    /// If it cannot be started, or files cannot be made.
    pub(super) fn run(&self, cell: &Cell, seed: u32) -> Result<Result<Measured, String>> {
        let done = self.once(cell, seed)?;
        let Ok((measured, Some(result))) = done else { return Ok(done.map(|(measured, _)| measured)) };
        let reference = self.reference(cell)?;
        if reference.as_deref().is_ok_and(|reference| reference == result) {
            return Ok(Ok(measured));
        }
        Ok(Err(match reference {
            Ok(reference) => {
                format!("its result is not that of UCX's shared memory{}", difference(&reference, &result))
            }
            Err(why) => format!("there is no result of UCX's shared memory to compare with: {why}"),
        }))
    }

    /// The result over UCX's shared memory. The first run makes it.
    fn reference(&self, cell: &Cell) -> Result<Result<String, String>> {
        let name = format!("part-{}-{}.reference", cell.application.name().to_lowercase(), cell.processes);
        let file = self.references.join(name);
        if file.is_file() {
            return Ok(Ok(fs::read_to_string(&file).with_context(|| file.display().to_string())?));
        }
        let transport = Transport::SharedMemory;
        let plain = Cell::plain(cell.application, cell.processes, PathChoice::Local);
        let result = match self.once(&Cell { transport, ..plain }, 0)? {
            Ok((_, result)) => result.context("an application that has a result has one in each run")?,
            Err(why) => return Ok(Err(why)),
        };
        fs::write(&file, &result).with_context(|| file.display().to_string())?;
        Ok(Ok(result))
    }

    /// One run, and the result if it is the same in each run.
    fn once(&self, cell: &Cell, seed: u32) -> Result<Result<(Measured, Option<String>), String>> {
        let folder = self.stage.file("run");
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        cell.application.prepare(&folder, cell.processes)?;
        let deadline = || Instant::now() + APPLICATION_RUN;
        let launcher = if cell.hosts == 1 { None } else { Some(Launcher::prepare(&folder)?) };
        for entry in fs::read_dir(&folder)? {
            give_to_programs(&entry?.path())?;
        }
        give_to_programs(&folder)?;
        let files = [self.stage.writable_file("engines.jsonl")?, self.stage.writable_file("counts.jsonl")?];
        let run = ApplicationRun { cell, seed, folder: &folder, files: &files };
        let finished = match &launcher {
            None => {
                let words = self.mpi_words(cell, &folder, Vec::new())?;
                Running::start(self.command(&run, &Host::here(), words))?.wait_until(deadline())
            }
            Some(launcher) => {
                let hosts = self.hosts.as_ref().context("cells of two hosts are made with hosts alone")?;
                let words = self.mpi_words(cell, &folder, launcher.words(hosts, cell.processes))?;
                let mpirun = self.command(&run, &hosts.first, words);
                let daemon = self.command(&run, &hosts.second, launcher.daemon().into());
                launcher::run(mpirun, daemon, deadline())?
            }
        };
        let outcome = if finished.success() {
            outcome(cell, &folder, &finished.output, &files)
        } else {
            Err(format!("{}\n{}", finished.verdict(), last_lines(&finished.output)))
        };
        fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        for file in files {
            fs::remove_file(&file).with_context(|| file.display().to_string())?;
        }
        Ok(outcome)
    }

    /// A program and its words on a host, over the cell's path and with its settings.
    fn command(&self, run: &ApplicationRun, host: &Host, words: Vec<OsString>) -> Command {
        let &ApplicationRun { cell, seed, folder, files } = run;
        let start = |program: &OsStr| match (cell.buffers, cell.transport) {
            (Buffers::Pinned, _) => host.privileged(program),
            // UCX's TCP looks for devices in /sys, where another namespace has those of the machine.
            (_, Transport::UcxTcp) => host.command_with_devices(program),
            _ => host.command(program),
        };
        let mut words = words.into_iter();
        // Never empty: each begins with a program.
        let program = words.next().unwrap_or_default();
        let mut command = match cell.transport.path() {
            Some(path) => {
                let mut command = start(self.stage.command.as_os_str());
                command.args(["run", "--path", path.name(), "--device-name", DEVICE]);
                command.args(["--page-faults", cell.page_faults.name(), "--page-in", cell.page_in.name()]);
                if cell.lost > 0 {
                    let probability = f64::from(cell.lost) / 1e6;
                    let lose = format!("seed={seed}; on=packet probability={probability} action=lose");
                    command.args(["--fail", &lose]);
                }
                command.arg("--").arg(program);
                command
            }
            None => start(&program),
        };
        command.args(words);
        set_environment(&mut command, cell.transport);
        if cell.transport == Transport::UcxTcp && cell.hosts > 1 {
            // Each host has a loopback device beside it, by which the other one cannot be reached.
            command.env("UCX_NET_DEVICES", INTERFACE);
        }
        command
            .current_dir(folder)
            .env("HOME", folder)
            .env("PAGEWIRE_MPI_BUFFERS", cell.buffers.word())
            .env("PAGEWIRE_STATS", &files[0])
            .env("PAGEWIRE_MPI_COUNTS", &files[1]);
        command
    }

    /// mpirun with its own words, those of where processes start, and the application's.
    fn mpi_words(&self, cell: &Cell, folder: &Path, places: Vec<OsString>) -> Result<Vec<OsString>> {
        let (_, program) = self
            .programs
            .iter()
            .find(|(application, _)| *application == cell.application)
            .context("only applications that there are become cells")?;
        let limit = (APPLICATION_RUN.as_secs() - 10).to_string();
        let mut words: Vec<OsString> = vec![self.mpirun.clone().into()];
        words.extend(["--oversubscribe", "--bind-to", "none", "--timeout", &limit, "-n"].map(OsString::from));
        words.push(cell.processes.to_string().into());
        words.extend(places);
        // Open MPI itself takes UCX for verbs and adapters of its list alone.
        let over_ucx = [
            ("pml", "ucx"),
            ("osc", "ucx"),
            ("opal_common_ucx_tls", "any"),
            ("opal_common_ucx_devices", "any"),
        ];
        let choices: &[(&str, &str)] = match cell.transport {
            Transport::OpenMpiTcp => &[("pml", "ob1"), ("osc", "rdma,pt2pt"), ("btl", "tcp,self")],
            Transport::Pagewire(_) | Transport::SharedMemory | Transport::UcxTcp => &over_ucx,
        };
        for (name, value) in choices {
            words.extend(["--mca", name, value].map(OsString::from));
        }
        words.extend(["--mca".into(), "orte_tmpdir_base".into(), folder.into()]);
        words.extend(["sh".into(), "-c".into(), PRELOAD.into(), self.library.clone().into()]);
        words.push(program.into());
        words.extend(cell.application.words());
        Ok(words)
    }
}

/// The first line in which a result differs.
fn difference(reference: &str, result: &str) -> String {
    let pairs = reference.lines().zip(result.lines()).zip(1_u64..);
    let first = pairs.into_iter().find(|((one, other), _)| one != other);
    first.map_or_else(
        || ": one of them is longer".to_owned(),
        |((one, other), line)| format!(": line {line} is {other:?}, not {one:?}"),
    )
}

/// What a run has of its own.
struct ApplicationRun<'a> {
    cell: &'a Cell,
    seed: u32,
    /// In which it runs.
    folder: &'a Path,
    /// What engines and the library leave.
    files: &'a [PathBuf; 2],
}

/// Whether a failure is that of a user who may not lock memory.
pub(super) fn is_refused(failure: &str) -> bool {
    failure.contains(NOT_PERMITTED)
}

/// What UCX and the mathematics may use. What the caller chose for them is left out, as it would be measured as well.
fn set_environment(command: &mut Command, transport: Transport) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["UCX_", "OMPI_", "PMIX_", "PAGEWIRE_"].iter().any(|start| text.starts_with(start))
            && text != "PAGEWIRE_LIB"
        {
            command.env_remove(&name);
        }
    }
    command
        .env("UCX_WARN_UNUSED_ENV_VARS", "n")
        .env("OMP_NUM_THREADS", "1")
        .env("OPENBLAS_NUM_THREADS", "1")
        // Root of a user namespace alone becomes nobody else.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    match transport {
        Transport::Pagewire(_) => command
            .env("UCX_TLS", "rc_v,self")
            .env("UCX_NET_DEVICES", format!("{DEVICE}:1"))
            .env("UCX_RNDV_THRESH", RENDEZVOUS),
        Transport::SharedMemory => command.env("UCX_TLS", "posix,sysv,cma,self"),
        Transport::UcxTcp => command.env("UCX_TLS", "tcp,self"),
        Transport::OpenMpiTcp => command,
    };
}

/// Reads what a run left that ended well; says what is wrong with it.
fn outcome(
    cell: &Cell,
    folder: &Path,
    output: &str,
    [engines, counts]: &[PathBuf; 2],
) -> Result<(Measured, Option<String>), String> {
    let printed = cell.application.read(folder, output)?;
    let reports = report::read_file(engines).map_err(|error| format!("{error:#}"))?;
    let page_faults = page_faults(cell, &reports)?;
    let text = fs::read_to_string(counts).map_err(|error| error.to_string())?;
    let counts: Vec<Value> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if counts.len() != cell.processes as usize {
        return Err(format!("{} of {} processes left their counts", counts.len(), cell.processes));
    }
    let mut networks: Vec<&str> = counts.iter().filter_map(|line| line["network"].as_str()).collect();
    networks.sort_unstable();
    networks.dedup();
    if networks.len() != cell.hosts as usize {
        return Err(format!("its processes were on the hosts {networks:?}, not on {}", cell.hosts));
    }
    let sum = |name: &str| counts.iter().filter_map(|line| line[name].as_u64()).sum();
    let measured = Measured {
        seconds: printed.seconds,
        page_faults,
        sends: sum("sends"),
        send_bytes: sum("send_bytes"),
        collectives: sum("collectives"),
        touched_pages: sum("touched_pages"),
        pinned_bytes: sum("pinned_bytes"),
        version: printed.version,
    };
    Ok((measured, printed.result))
}

/// The accesses that found absent pages. Bytes that took another path than was asked for are no run of this cell.
fn page_faults(cell: &Cell, reports: &[ProcessReport]) -> Result<Option<u64>, String> {
    let Some(path) = cell.transport.path() else { return Ok(None) };
    let mut paths: Vec<&str> = reports.iter().flat_map(ProcessReport::paths).collect();
    paths.sort_unstable();
    paths.dedup();
    if cell.processes > 1 && paths != [path.name()] {
        return Err(format!(
            "by the engine's counters its bytes took the paths {paths:?}, not {}",
            path.name()
        ));
    }
    let of_process = |report: &ProcessReport| {
        let absent = &report.process.get("absent_pages")?;
        Some(absent["minor"].as_u64()? + absent["major"].as_u64()?)
    };
    reports
        .iter()
        .map(|report| of_process(report).ok_or_else(|| "a process counted no absent pages".to_owned()))
        .sum::<Result<u64, String>>()
        .map(Some)
}

fn last_lines(output: &str) -> String {
    // Open MPI puts rules around what it says.
    let says = |line: &&str| line.contains(|letter: char| !letter.is_whitespace() && letter != '-');
    let lines: Vec<&str> = output.lines().filter(says).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// Makes a file or folder that of the user as whom programs run.
fn give_to_programs(path: &Path) -> Result<()> {
    if programs_become_nobody() {
        chown(path, Some(NOBODY), Some(NOBODY)).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

fn build_library(stage: &Stage) -> Result<PathBuf> {
    let compiler = in_path("mpicc").context("mpicc is missing (Debian package libopenmpi-dev)")?;
    let (source, library) = (stage.file("mpi_buffers.c"), stage.file("libmpi_buffers.so"));
    fs::write(&source, LIBRARY_SOURCE)?;
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source);
    build(command)?;
    open_to_programs(&library)?;
    Ok(library)
}

/// Compiles HPCG's sources, once for a folder of results.
fn build_hpcg(stage: &Stage, directory: &Path, sources: &Path) -> Result<PathBuf> {
    let folder = sources.join("src");
    ensure!(
        folder.join("main.cpp").is_file() && folder.join("hpcg.hpp").is_file(),
        "--hpcg {}: no sources of HPCG are there (src/main.cpp, src/hpcg.hpp): git clone {HPCG_SOURCES}",
        sources.display()
    );
    let built = directory.join("part-hpcg");
    if !built.is_file() {
        let compiler = in_path("mpicxx").context("mpicxx is missing (Debian package libopenmpi-dev)")?;
        let mut files: Vec<PathBuf> = fs::read_dir(&folder)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<std::io::Result<_>>()?;
        files.retain(|file| file.extension().is_some_and(|extension| extension == "cpp"));
        files.sort();
        pagewire_cli::tell!("compiling HPCG: {} files", files.len());
        // As HPCG's own setup/Make.Linux_MPI.
        let mut command = Command::new(compiler);
        command.args(["-O3", "-ffast-math", "-ftree-vectorize", "-DHPCG_NO_OPENMP", "-I"]).arg(&folder);
        command.arg("-o").arg(&built).args(&files);
        build(command)?;
    }
    let program = stage.file("xhpcg");
    fs::copy(&built, &program).with_context(|| built.display().to_string())?;
    open_to_programs(&program)?;
    Ok(program)
}

fn open_to_programs(file: &Path) -> Result<()> {
    fs::set_permissions(file, Permissions::from_mode(0o755)).with_context(|| file.display().to_string())
}

fn build(command: Command) -> Result<()> {
    let name = format!("{:?}", command.get_program());
    let finished = Running::start(command)?.wait_until(Instant::now() + APPLICATION_BUILD);
    if !finished.success() {
        bail!("{name}: {}\n{}", finished.verdict(), last_lines(&finished.output));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::cells::groups;
    use super::*;

    fn reports(path: &str, counter: &str, absent: &str) -> Vec<ProcessReport> {
        let text = format!(
            r#"{{"pid":1,"program":"lmp","path_choice":"{path}","counters":{{"{counter}":1}},"absent_pages":{absent},"connections":[{{"qpn":1,"packets_sent":1}}]}}"#
        );
        report::parse(&text).expect("a report")
    }

    #[test]
    fn page_faults_are_of_chosen_path() {
        let groups = groups(&[Application::Lammps], None, 1);
        let over = |path: &str| {
            let is_over = |cell: &&Cell| cell.transport.name() == path;
            *groups.iter().flat_map(|group| &group.cells).find(is_over).expect("a cell")
        };
        let absent = r#"{"minor":2,"major":3}"#;
        let datagrams = reports("udp", "datagrams_sent", absent);
        assert_eq!(page_faults(&over("udp"), &datagrams), Ok(Some(5)));
        assert!(page_faults(&over("tcp"), &datagrams).expect_err("another path").contains("udp"));
        assert!(page_faults(&over("local"), &[]).is_err(), "no engine left counters");
        assert_eq!(page_faults(&over("UCX tcp"), &[]), Ok(None));
        let uncounted = reports("udp", "datagrams_sent", "{}");
        assert!(page_faults(&over("udp"), &uncounted).is_err());
    }

    #[test]
    fn folder_without_sources_of_hpcg_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let stage = Stage::prepare(&pagewire_cli::install::Installation {
            command: "/bin/sh".into(),
            library: directory.path().to_path_buf(),
            helpers: directory.path().join("helpers"),
        })
        .expect("a place");
        let refused = build_hpcg(&stage, directory.path(), directory.path()).expect_err("no sources");
        assert!(refused.to_string().contains(HPCG_SOURCES), "{refused}");
    }
}
