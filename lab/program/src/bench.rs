//! `pagewire bench`: Pagewire beside peers and beside the limits of the machine, in one interleaved run.
//!
//! A figure counts only beside another from the same run on the same machine: each benchmark and each of its peers run
//! in turn, several times, and medians are compared. A peer that is not installed gives `null`, never a figure from
//! elsewhere; where only a published figure exists, its name says "published" and of which machine, and there is no ratio.

mod accesses;
mod checkpoint;
mod faults;
mod goals;
mod ground;
mod hash_table;
mod libfabric;
mod machine;
mod native;
mod plot;
mod queue_pairs;
mod registration;
mod start;
mod targets;
mod ucx;

use self::faults::Absent;
use self::goals::Goal;
use self::ground::Ground;
use self::libfabric::Libfabric;
use self::machine::Exchange;
use self::native::{Beside, Native};
use self::targets::{PING_PONG, POLLING, TARGETS, Target};
use self::ucx::Ucx;
use crate::arguments::BenchArguments;
use crate::figures::{Line, Measure, Peer, What, beside};
use crate::limits::BENCH_RUN;
use crate::native::Strategy;
use crate::native::hash_table::Operation;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use pagewire_cli::install::{Installation, find_program};
use pagewire_cli::interrupt;
use pagewire_cli::perftest::rows;
use pagewire_cli::stage::Stage;
use pagewire_cli::table::{self, Table};
use pagewire_cli::workload::Workload;
use pagewire_nic::PathChoice;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;

/// A benchmark made of a perftest program.
struct Bench {
    name: &'static str,
    program: &'static str,
    unit: &'static str,
    /// Sizes on the local path, and over UDP.
    sizes: [&'static [u64]; 2],
    /// The test of ucx_perftest that does the same.
    ucx: &'static str,
    /// What the machine itself needs for it.
    limit: Exchange,
}

impl Bench {
    fn sizes(&self, path: PathChoice) -> &'static [u64] {
        self.sizes[usize::from(path != PathChoice::Local)]
    }
}

const LATENCY: [&[u64]; 2] = [&[8, 4096, 65_536]; 2];
const BANDWIDTH: [&[u64]; 2] = [&[4096, 65_536, 1 << 20, 4 << 20], &[4096, 65_536, 1 << 18, 1 << 20]];
const WORD: [&[u64]; 2] = [&[8]; 2];

#[rustfmt::skip]
const BENCHES: &[Bench] = &[
    Bench { name: "write_lat", program: "ib_write_lat", unit: "us", sizes: LATENCY, ucx: "ucp_put_lat", limit: Exchange::Write },
    Bench { name: "write_bw", program: "ib_write_bw", unit: "MB/s", sizes: BANDWIDTH, ucx: "ucp_put_bw", limit: Exchange::Write },
    Bench { name: "send_lat", program: "ib_send_lat", unit: "us", sizes: LATENCY, ucx: "tag_lat", limit: Exchange::Write },
    Bench { name: "send_bw", program: "ib_send_bw", unit: "MB/s", sizes: BANDWIDTH, ucx: "tag_bw", limit: Exchange::Write },
    Bench { name: "read_lat", program: "ib_read_lat", unit: "us", sizes: LATENCY, ucx: "ucp_get", limit: Exchange::Read },
    Bench { name: "read_bw", program: "ib_read_bw", unit: "MB/s", sizes: BANDWIDTH, ucx: "ucp_get", limit: Exchange::Read },
    Bench { name: "atomic_lat", program: "ib_atomic_lat", unit: "us", sizes: WORD, ucx: "ucp_fadd", limit: Exchange::Atomic },
    Bench { name: "atomic_bw", program: "ib_atomic_bw", unit: "MB/s", sizes: WORD, ucx: "ucp_fadd", limit: Exchange::Atomic },
];

/// One thing to measure, beside its peers.
enum Task {
    Registration(Vec<&'static str>),
    Program(&'static Bench, PathChoice, u64),
    /// On the local path only.
    Target(Target, u64),
    Faults(Absent, PathChoice, u64),
    QueuePairs(Vec<&'static str>, PathChoice),
    Native(&'static Native, PathChoice, u64),
    View(PathChoice, u64),
    Heap,
    NewMemory,
    HashTable((&'static str, Operation), PathChoice),
    Accesses(accesses::Row, PathChoice),
    Checkpoint,
    Start,
}

impl Task {
    /// The names of the rows that it gives.
    fn rows(&self) -> Vec<&'static str> {
        match self {
            Task::Registration(names) | Task::QueuePairs(names, _) => names.clone(),
            Task::Program(bench, ..) => vec![bench.name],
            Task::Target(target, _) => vec![target.name],
            Task::Faults(absent, ..) => vec![absent.name()],
            Task::Native(native, ..) => vec![native.name],
            Task::View(..) => vec![native::VIEW.name],
            Task::Heap => vec![native::HEAP],
            Task::NewMemory => vec![native::NEW_MEMORY],
            Task::HashTable((name, _), _) => vec![name],
            Task::Accesses(row, _) => vec![row.name],
            Task::Checkpoint => vec![checkpoint::NAME],
            Task::Start => vec![start::NAME],
        }
    }

    /// Whether it has the choice of a strategy of registration.
    fn takes_strategy(&self) -> bool {
        matches!(self, Task::Native(native, ..) if native.takes_strategy())
    }

    /// Whether it takes two hosts.
    fn is_on_hosts(&self) -> bool {
        matches!(
            self,
            Task::Program(_, PathChoice::Tcp | PathChoice::Udp, _)
                | Task::Native(_, PathChoice::Udp, _)
                | Task::View(PathChoice::Udp, _)
                | Task::HashTable(_, PathChoice::Udp)
                | Task::Accesses(_, PathChoice::Udp)
        )
    }

    fn title(&self) -> String {
        let rows = self.rows().join(", ");
        match self {
            Task::Registration(_) | Task::Heap | Task::NewMemory | Task::Checkpoint | Task::Start => rows,
            Task::Program(_, path, size)
            | Task::Faults(_, path, size)
            | Task::Native(_, path, size)
            | Task::View(path, size) => {
                format!("{rows} {size} B {}", path.name())
            }
            Task::Target(_, size) => format!("{rows} {size} B local"),
            Task::Accesses(row, path) => format!("{rows} {} B {}", row.size, path.name()),
            Task::QueuePairs(_, path) | Task::HashTable(_, path) => format!("{rows} {}", path.name()),
        }
    }
}

/// The peers that are installed.
struct Peers {
    ucx: Vec<Ucx>,
    libfabric: Option<Libfabric>,
}

impl Peers {
    /// Looks for them; says on standard error what is missing.
    fn find() -> Result<Peers> {
        let peers = Peers { ucx: Ucx::find()?, libfabric: Libfabric::find() };
        let missing = |program, package| {
            pagewire_cli::tell!(
                "pagewire: {program} is not installed (Debian package {package}): that peer is null"
            );
        };
        if peers.ucx.is_empty() {
            missing("ucx_perftest", "ucx-utils");
        }
        if peers.libfabric.is_none() {
            missing("fi_pingpong", "libfabric-bin");
        }
        Ok(peers)
    }
}

/// What there is to measure, by name.
pub fn names() -> Vec<&'static str> {
    let targets = std::iter::once(&PING_PONG).chain(&TARGETS).map(|target| target.name);
    let programs = BENCHES.iter().map(|bench| bench.name);
    let faults = faults::ALL.iter().map(|absent| absent.name());
    let heap = [native::VIEW.name, native::HEAP, native::NEW_MEMORY];
    let native = native::ALL.iter().map(|native| native.name).chain(heap);
    let tables = hash_table::ALL.into_iter().map(|(name, _)| name);
    let last = [accesses::SORT, checkpoint::NAME, start::NAME];
    let others = queue_pairs::NAMES.into_iter().chain(native).chain(tables).chain(last);
    registration::NAMES.into_iter().chain(targets).chain(programs).chain(faults).chain(others).collect()
}

/// What the command line asks for.
fn tasks(arguments: &BenchArguments) -> Vec<Task> {
    let wanted = |name: &str| arguments.names.is_empty() || arguments.names.iter().any(|n| n == name);
    let both = [PathChoice::Local, PathChoice::Udp].into_iter();
    let paths: Vec<PathChoice> =
        both.filter(|&path| arguments.path.is_none_or(|only| only == path)).collect();
    let mut tasks = Vec::new();
    let registration: Vec<&str> = registration::NAMES.into_iter().filter(|name| wanted(name)).collect();
    if !registration.is_empty() {
        tasks.push(Task::Registration(registration));
    }
    if paths.contains(&PathChoice::Local) {
        for target in std::iter::once(PING_PONG).chain(TARGETS).filter(|target| wanted(target.name)) {
            tasks.extend(target.sizes.iter().map(|&size| Task::Target(target, size)));
        }
    }
    // Other things are not measured over TCP.
    let over_tcp = arguments.path.filter(|path| *path == PathChoice::Tcp);
    for bench in BENCHES.iter().filter(|bench| wanted(bench.name)) {
        for &path in paths.iter().chain(&over_tcp) {
            tasks.extend(bench.sizes(path).iter().map(|&size| Task::Program(bench, path, size)));
        }
    }
    for absent in faults::ALL.into_iter().filter(|absent| wanted(absent.name())) {
        for &path in &paths {
            tasks.extend(absent.sizes().iter().map(|&size| Task::Faults(absent, path, size)));
        }
    }
    let queue_pairs: Vec<&str> = queue_pairs::NAMES.into_iter().filter(|name| wanted(name)).collect();
    if !queue_pairs.is_empty() {
        tasks.extend(paths.iter().map(|&path| Task::QueuePairs(queue_pairs.clone(), path)));
    }
    let has_scheme = arguments.table.scheme.is_some();
    let is_by_scheme = |name: &str| has_scheme && accesses::ALL.iter().any(|(known, _)| *known == name);
    for native in native::ALL.iter().filter(|native| wanted(native.name) && !is_by_scheme(native.name)) {
        for &path in &paths {
            tasks.extend(native.sizes(path).iter().map(|&size| Task::Native(native, path, size)));
        }
    }
    if wanted(native::VIEW.name) {
        let sizes = |path| native::VIEW.sizes(path).iter();
        tasks.extend(paths.iter().flat_map(|&path| sizes(path).map(move |&size| Task::View(path, size))));
    }
    if wanted(native::HEAP) {
        tasks.push(Task::Heap);
    }
    if wanted(native::NEW_MEMORY) {
        tasks.push(Task::NewMemory);
    }
    let is_named = arguments.path.is_none() && !arguments.names.is_empty();
    let table_paths = if is_named { &[PathChoice::Local][..] } else { &paths };
    for row in hash_table::ALL.into_iter().filter(|(name, _)| wanted(name)) {
        tasks.extend(table_paths.iter().map(|&path| Task::HashTable(row, path)));
    }
    for (name, workload) in accesses::ALL.into_iter().filter(|(name, _)| wanted(name)) {
        if has_scheme || name == accesses::SORT {
            let row = |&size: &u64| accesses::Row { name, workload, size };
            for row in accesses::sizes(workload).iter().map(row) {
                tasks.extend(table_paths.iter().map(|&path| Task::Accesses(row, path)));
            }
        }
    }
    if wanted(checkpoint::NAME) {
        tasks.push(Task::Checkpoint);
    }
    if wanted(start::NAME) {
        tasks.push(Task::Start);
    }
    tasks
}

/// Looks for the programs that are to be measured.
fn are_installed(tasks: &[Task]) -> Result<()> {
    let programs = tasks.iter().filter_map(|task| match task {
        Task::Program(bench, ..) => Some(bench.program),
        _ => None,
    });
    let missing: BTreeSet<&str> = programs.filter(|program| find_program(program).is_none()).collect();
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.into_iter().collect();
        bail!("not installed: {} (Debian package perftest)", missing.join(", "));
    }
    Ok(())
}

/// An option that some of what is to be measured does not take.
fn misplaced(arguments: &BenchArguments, tasks: &[Task]) -> Option<String> {
    if arguments.strategy.is_some() && !tasks.iter().all(Task::takes_strategy) {
        return Some("--strategy is for conditional_write and conditional_write_file: name those".to_owned());
    }
    let table = &arguments.table;
    let is_table = |task: &Task| matches!(task, Task::HashTable(..));
    let is_by_accesses = |task: &Task| matches!(task, Task::Accesses(..));
    if table.is_of_tables() && !tasks.iter().all(is_table) {
        return Some(
            "--cells and --inserts are for hashtable, hashtable_batch and hashtable_lookup: name those"
                .to_owned(),
        );
    }
    if table.accesses.is_some() && !tasks.iter().all(is_by_accesses) {
        return Some(
            "--accesses is for sort, and for counter and get_logged with --scheme: name those".to_owned(),
        );
    }
    if table.is_given() && !tasks.iter().all(|task| is_table(task) || is_by_accesses(task)) {
        return Some(
            "--processes and --scheme are for hashtable, hashtable_batch, hashtable_lookup, sort, and counter and get_logged by scheme: name \
             those"
                .to_owned(),
        );
    }
    let wrong = |task: &Task| match task {
        Task::HashTable(..) => hash_table::scheme(table).err(),
        Task::Accesses(row, _) => accesses::scheme(table, row.workload).err(),
        _ => None,
    };
    tasks.iter().find_map(wrong).map(|error| format!("--scheme: {error:#}"))
}

/// Runs the benchmarks; gives the exit status: 1 if one of Pagewire's own could not be had.
///
/// # Errors
/// If the engine is not installed, or the pictures cannot be written.
pub fn bench(arguments: &BenchArguments) -> Result<u8> {
    let tasks = tasks(arguments);
    if tasks.is_empty() {
        let path = arguments.path.map_or("this", PathChoice::name);
        pagewire_cli::tell!("pagewire: not measured on the path {path}: {}", arguments.names.join(", "));
        return Ok(2);
    }
    if let Some(misplaced) = misplaced(arguments, &tasks) {
        pagewire_cli::tell!("pagewire: {misplaced}");
        return Ok(2);
    }
    // Known before minutes are spent on measuring.
    if let Some(directory) = &arguments.plot {
        crate::chart::prepare("--plot", directory)?;
    }
    let mut saved = arguments
        .save
        .as_ref()
        .map(|file| File::create(file).with_context(|| format!("--save {}", file.display())))
        .transpose()?;
    are_installed(&tasks)?;
    interrupt::watch()?;
    let has_peers = |task: &Task| matches!(task, Task::Program(..) | Task::Target(..) | Task::Native(..));
    let needs_peers = tasks.iter().any(|task| has_peers(task) && !task.takes_strategy());
    let path = if tasks.iter().any(Task::is_on_hosts) { PathChoice::Udp } else { PathChoice::Local };
    let ground = Ground::prepare(Stage::prepare(&Installation::of_helper()?)?, path)?;
    let rounds = arguments.rounds;
    let peers = if needs_peers { Peers::find()? } else { Peers { ucx: Vec::new(), libfabric: None } };

    let view = View { json: arguments.json, progress: Progress::new(tasks.len() as u64) };
    let mut lines = Vec::new();
    let mut measure = |task: &Task| -> Result<()> {
        view.progress.start(&task.title());
        let new = match task {
            Task::Registration(names) => registration::measure(&ground.stage, names, rounds)?,
            Task::Program(bench, path, size) => {
                measure_program(&ground, &peers, (bench, *path, *size), rounds)?
            }
            Task::Target(target, size) => measure_target(&ground, &peers, (*target, *size), rounds)?,
            Task::Faults(absent, path, size) => absent.measure(&ground, *path, *size, rounds)?,
            Task::QueuePairs(names, path) => queue_pairs::measure(&ground.stage, names, *path, rounds)?,
            Task::Native(native, path, size) => {
                measure_native(&ground, &peers, (native, *path, *size), (arguments.strategy, rounds))?
            }
            Task::View(path, size) => native::measure_view(&ground, *path, *size, rounds)?,
            Task::Heap => native::measure_heap(&ground, rounds)?,
            Task::NewMemory => native::measure_new_memory(rounds)?,
            Task::Accesses(row, path) => row.measure(&ground, *path, (&arguments.table, rounds))?,
            Task::HashTable(row, path) => {
                hash_table::measure(&ground, *row, *path, (&arguments.table, rounds))?
            }
            Task::Checkpoint => checkpoint::measure(rounds)?,
            Task::Start => start::measure(&ground.stage, rounds)?,
        };
        let before = lines.len();
        lines.extend(new);
        view.show(&lines[before..])?;
        if let (Some(file), Some(name)) = (&mut saved, &arguments.save) {
            write_lines(file, &lines[before..]).with_context(|| format!("--save {}", name.display()))?;
        }
        Ok(())
    };
    let measured = tasks.iter().try_for_each(&mut measure);
    view.progress.finish();
    // What was measured until then is not lost.
    if !arguments.json && !lines.is_empty() {
        print(&lines)?;
    }
    measured?;
    if let Some(directory) = &arguments.plot {
        for file in plot::draw(&lines, directory)? {
            pagewire_cli::tell!("drawn: {}", file.display());
        }
    }
    Ok(u8::from(lines.iter().any(|line| line.value.is_none())))
}

fn write_lines(out: &mut impl Write, lines: &[Line]) -> Result<()> {
    for line in lines {
        writeln!(out, "{}", serde_json::to_string(line)?)?;
    }
    Ok(out.flush()?)
}

/// What is seen while it measures: JSON lines as they come, and how far it is.
struct View {
    json: bool,
    progress: Progress,
}

impl View {
    fn show(&self, new: &[Line]) -> Result<()> {
        self.progress.step();
        if !self.json {
            return Ok(());
        }
        self.progress.suspend(|| write_lines(&mut std::io::stdout().lock(), new))
    }
}

/// The installed UCXs, or one that is not installed.
fn ucx_peers<'a>(
    ground: &'a Ground,
    peers: &'a Peers,
    test: &'a str,
    (_, size, _, unit): What,
    path: PathChoice,
) -> Vec<Peer<'a>> {
    if peers.ucx.is_empty() {
        return vec![None];
    }
    let peer = |ucx: &'a Ucx| -> Peer<'a> {
        Some((ucx.name(path), Box::new(move || ucx.measure(ground, test, unit, path, size))))
    };
    peers.ucx.iter().map(peer).collect()
}

/// A perftest program beside UCX, libfabric and the limits of the machine.
fn measure_program(
    ground: &Ground,
    peers: &Peers,
    (bench, path, size): (&Bench, PathChoice, u64),
    rounds: u32,
) -> Result<Vec<Line>> {
    let what = (bench.name, size, path.name(), bench.unit);
    let mut beside_it = ucx_peers(ground, peers, bench.ucx, what, path);
    if (bench.name, path) == ("send_lat", PathChoice::Local) {
        beside_it.push(peers.libfabric.as_ref().map(|libfabric| -> (String, Measure) {
            (libfabric.name.clone(), Box::new(move || libfabric.send_latency(ground, size)))
        }));
    }
    beside_it.extend(machine_limit(ground, path, bench.limit, what));
    let own: Measure = Box::new(|| run_perftest(bench, path, size, ground));
    beside(what, &own, beside_it, rounds)
}

/// What the machine itself needs for an exchange, where that can be told.
fn machine_limit(
    ground: &Ground,
    path: PathChoice,
    exchange: Exchange,
    (_, size, _, unit): What,
) -> Option<Peer<'_>> {
    let limit = machine::limit(path, exchange, unit)?;
    let measure = move || Ok(limit.measure(ground, size as usize).map_err(|error| format!("{error:#}")));
    Some(Some((limit.name.to_owned(), Box::new(measure))))
}

/// A benchmark of the native interface beside UCX and the limits of the machine.
fn measure_native(
    ground: &Ground,
    peers: &Peers,
    (native, path, size): (&Native, PathChoice, u64),
    (strategy, rounds): (Option<Strategy>, u32),
) -> Result<Vec<Line>> {
    let what = (native.name, size, path.name(), native.unit);
    let mut beside_it = match native.beside {
        Beside::Others(limit, ucx) => {
            let ucx = ucx.map(|test| ucx_peers(ground, peers, test, what, path));
            let mut others = ucx.unwrap_or_default();
            others.extend(machine_limit(ground, path, limit, what));
            others
        }
        Beside::TraditionalOrder(name) => {
            let strategy_title = strategy.map_or_else(String::new, |chosen| format!(", {}", chosen.title()));
            let measure: Measure =
                Box::new(move || Native::measure_other(ground, name, (path, size), strategy));
            vec![Some((format!("traditional order{strategy_title}"), measure))]
        }
        Beside::Schemes(schemes) => {
            let scheme = |&(title, name): &(&str, &'static str)| -> Peer<'_> {
                let measure = move || Native::measure_other(ground, name, (path, size), None);
                Some((title.to_owned(), Box::new(measure)))
            };
            schemes.iter().map(scheme).collect()
        }
    };
    if beside_it.is_empty() {
        beside_it.push(None);
    }
    let own: Measure = Box::new(|| native.measure(ground, (path, size), strategy));
    beside(what, &own, beside_it, rounds)
}

/// WRITEs to a target that does this or that, beside what that figure is to be compared with.
fn measure_target(
    ground: &Ground,
    peers: &Peers,
    (target, size): (Target, u64),
    rounds: u32,
) -> Result<Vec<Line>> {
    let what = (target.name, size, PathChoice::Local.name(), "us");
    let beside_it = if target.name == PING_PONG.name {
        ucx_peers(ground, peers, "ucp_put_lat", what, PathChoice::Local)
    } else {
        let polling: Measure = Box::new(|| POLLING.measure(ground, size));
        vec![Some(("Pagewire to a target that polls".to_owned(), polling))]
    };
    let own: Measure = Box::new(|| target.measure(ground, size));
    beside(what, &own, beside_it, rounds)
}

/// Runs the perftest program once; the inner error says what went wrong with it.
fn run_perftest(bench: &Bench, path: PathChoice, size: u64, ground: &Ground) -> Result<Result<f64, String>> {
    let (server, client) = match ground.ends(path) {
        Ok(ends) => ends,
        Err(reason) => return Ok(Err(format!("{reason:#}"))),
    };
    let (size, iterations) = (size.to_string(), iterations(path, size).to_string());
    // A time-out of 1 s: on a busy machine a process that is kept on one processor may not get it for some tenths of one.
    let mut arguments = vec!["-F", "-u", "18", "-n", &iterations];
    if !bench.name.starts_with("atomic") {
        arguments.extend(["-s", &size]);
    }
    if bench.unit == "MB/s" {
        // perftest's MB are 2^20 bytes; its Gb are 10^9 bits.
        arguments.push("--report_gbits");
    }
    let workload = Workload {
        program: bench.program,
        arguments: &arguments,
        server,
        client,
        path,
        options: &[],
        environment: &[],
        limit: BENCH_RUN,
    };
    let outcome = workload.run(&ground.stage)?;
    if !outcome.pair.success() {
        return Ok(Err(outcome.pair.complaint()));
    }
    if outcome.paths() != [path.name()] {
        return Ok(Err(format!("took the path {:?}", outcome.paths())));
    }
    let output = outcome.pair.client.map(|client| client.output).unwrap_or_default();
    let row = rows(&output).pop();
    let figure = match bench.unit {
        "us" => row.and_then(|row| row.typical_latency()),
        _ => row.and_then(|row| row.average_bandwidth()).map(|gigabits| gigabits * 1000.0 / 8.0),
    };
    Ok(figure.ok_or_else(|| format!("no figure in its output:\n{output}")))
}

/// So many that a run takes some tenths of a second.
fn iterations(path: PathChoice, size: u64) -> u64 {
    let bytes: u64 = if path == PathChoice::Local { 2 << 30 } else { 256 << 20 };
    (bytes / size).clamp(100, 20_000)
}

fn print(lines: &[Line]) -> Result<()> {
    let head = ["bench", "size", "path", "Pagewire", "unit", "peer", "its value", "ratio", "at least"];
    let mut table = Table::new(&head);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.3}"));
    for line in lines {
        let goal = Goal::of(line);
        let style = match goal.and_then(|goal| goal.is_reached(line)) {
            Some(true) => table::good(),
            Some(false) => table::bad(),
            None => anstyle::Style::new(),
        };
        table.row(vec![
            line.bench.to_owned(),
            line.size.to_string(),
            line.path.to_owned(),
            number(line.value),
            line.unit.to_owned(),
            line.peer.clone().unwrap_or_else(|| "-".to_owned()),
            number(line.peer_value),
            number(line.ratio),
            goal.map(|goal| format!("{style}{}{style:#}", goal.text())).unwrap_or_default(),
        ]);
    }
    let mut out = anstream::stdout().lock();
    table.write(&mut out, "")?;
    writeln!(
        out,
        "\nA ratio above 1: Pagewire is better. -: not installed, failed, or published for another machine."
    )?;
    writeln!(out, "This machine: {}.", processors())?;
    let judged = lines.iter().filter_map(|line| Goal::of(line)?.is_reached(line));
    if let Some(conclusion) = conclusion(&judged.collect::<Vec<_>>()) {
        writeln!(out, "{conclusion}")?;
    }
    Ok(())
}

/// The processors of this machine, as far as the kernel says (proc_cpuinfo(5)).
fn processors() -> String {
    let about = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let value = |line: &str| line.split_once(':').map(|(_, value)| value.trim().to_owned());
    let model = about.lines().find(|line| line.starts_with("model name") || line.starts_with("CPU part"));
    let count = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let model = model.and_then(value).unwrap_or_else(|| "processors of unknown model".to_owned());
    format!("{count} x {model}")
}

/// How many of the rows that have a goal reach it; nothing where none has one.
fn conclusion(reached: &[bool]) -> Option<String> {
    let [all, well] = [reached.len(), reached.iter().filter(|well| **well).count()];
    match (all, well) {
        (0, _) => None,
        (1, 1) => Some("The one row that has a goal reaches it.".to_owned()),
        (1, _) => Some("The one row that has a goal does not reach it.".to_owned()),
        (all, well) if all == well => Some(format!("All {all} rows that have a goal reach it.")),
        (all, 0) => Some(format!("None of the {all} rows that have a goal reaches it.")),
        (all, 1) => Some(format!("Of {all} rows that have a goal 1 reaches it.")),
        (all, well) => Some(format!("Of {all} rows that have a goal {well} reach it.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::TableArguments;

    #[test]
    fn the_last_line_is_right_for_no_row_and_one_and_many() {
        assert_eq!(conclusion(&[]), None);
        for (reached, text) in [
            (&[true] as &[bool], "The one row that has a goal reaches it."),
            (&[false], "The one row that has a goal does not reach it."),
            (&[true, true], "All 2 rows that have a goal reach it."),
            (&[false, false], "None of the 2 rows that have a goal reaches it."),
            (&[true, false], "Of 2 rows that have a goal 1 reaches it."),
            (&[true, false, true], "Of 3 rows that have a goal 2 reach it."),
        ] {
            assert_eq!(conclusion(reached).as_deref(), Some(text));
        }
    }

    #[test]
    fn this_machine_has_a_name() {
        let name = processors();
        assert!(name.contains(" x ") && !name.starts_with("0 "), "{name}");
    }

    /// Whoever chooses a row by the name that it has gets that row, and none of another name.
    #[test]
    fn rows_are_chosen_by_the_names_that_they_have() {
        for name in names() {
            let arguments = BenchArguments {
                names: vec![name.to_owned()],
                path: None,
                json: false,
                save: None,
                plot: None,
                rounds: 1,
                strategy: None,
                table: TableArguments {
                    processes: 2,
                    cells: None,
                    inserts: None,
                    accesses: None,
                    scheme: None,
                },
            };
            for task in tasks(&arguments) {
                assert_eq!(task.rows(), [name]);
            }
        }
        assert!(["reg_mr", "dereg_mr"].iter().all(|name| names().contains(name)));
    }
}
