//! Counts what an operation costs in instructions, by valgrind, and compares that with `instructions.tsv`.
//!
//! Nothing but the code decides a count: `tests/instructions/verbs.c` and `native.c` say how, and only the thread that calls is
//! counted. A row fails where the least of [`RUNS`] runs is more than [`ALLOWED`] above the record. Counts depend on the compiler, the C
//! library and valgrind, so each record is of one toolchain; with another, the test prints the counts, judges nothing and says
//! so. `make instructions` records anew, and prints the spread of [`RECORDED_RUNS`] runs.
//!
//! Records creep. `instructions-base.tsv` has the counts of an earlier state, which no record replaces: the geometric mean of the operations
//! that both files have is at most [`ALLOWED_MEAN`] times theirs.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::{compile, not_checked};
use anyhow::{Context, Result, bail, ensure};
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The per cent by which an operation may become dearer.
const ALLOWED: u64 = 2;

/// Runs of a path, where the first is dearer than allowed.
const RUNS: usize = 3;

/// Runs of a path for a record.
const RECORDED_RUNS: usize = 20;

/// A record is refused where the runs of an operation differ by more per cent: [`ALLOWED`] could then be noise.
const LARGEST_SPREAD: u64 = 1;

/// The environment variable that, set to `record`, has the counts written instead of compared.
const VARIABLE: &str = "PAGEWIRE_INSTRUCTIONS";

const HEAD: &str = "# Instructions of one operation, both sides together (make instructions).\n\
                    # toolchain\tpath\toperation\tinstructions\n";

/// What the geometric mean of all operations may be, as a multiple of the base's: 1.007, what registrations pay since calls can be observed,
/// 1.015 for the whole of verbs (requests that are built by calls, windows, XRC, atomic WRITEs, imports), of which 1.0304 was measured, and
/// 1.007 for completion counters and XRC domains that processes share.
const ALLOWED_MEAN: f64 = 1.038;

/// A program that counts operations.
struct Counter {
    program: PathBuf,
    settings: &'static [Setting],
}

/// Path and operation.
type Operation = (String, String);

/// Instructions of each operation.
type Counts = BTreeMap<Operation, u64>;

/// The least and the largest count of each operation in several runs.
type Spreads = BTreeMap<Operation, (u64, u64)>;

/// The hot paths cost no more instructions than is recorded.
///
/// # Errors
/// If one does, by more than [`ALLOWED`], or cannot be counted.
pub fn hot_paths(ground: &Ground) -> Result<()> {
    let counters = counters(ground)?;
    let toolchain = toolchain(ground)?;
    let mut records = read(&file("instructions.tsv"))?;
    let known = records.get(&toolchain).cloned();
    if std::env::var(VARIABLE).is_ok_and(|value| value == "record") {
        let spreads = count_all(ground, &counters, |_, runs| runs == RECORDED_RUNS)?;
        print!("{}", table(&known.unwrap_or_default(), &spreads));
        ensure_repeatable(&spreads)?;
        records.insert(toolchain, least(&spreads));
        return Ok(std::fs::write(file("instructions.tsv"), written(&records))?);
    }
    let is_enough = |spreads: &Spreads, runs| {
        runs == RUNS || known.as_ref().is_none_or(|known| dearer(known, &least(spreads)).is_empty())
    };
    let spreads = count_all(ground, &counters, is_enough)?;
    print!("{}", table(known.as_ref().unwrap_or(&Counts::new()), &spreads));
    let Some(known) = known else {
        not_checked::tell(format_args!("nothing is recorded for {toolchain} (make instructions)"));
        return Ok(());
    };
    ensure!(
        known.keys().eq(spreads.keys()),
        "recorded are other operations than were counted (make instructions)"
    );
    let dearer = dearer(&known, &least(&spreads));
    ensure!(dearer.is_empty(), "dearer than recorded for {toolchain}:\n{}", dearer.join("\n"));
    let Some(base) = read(&file("instructions-base.tsv"))?.remove(&toolchain) else {
        not_checked::tell(format_args!("there is no base for {toolchain}"));
        return Ok(());
    };
    let mean = geometric_mean(&base, &least(&spreads));
    println!("geometric mean against the base: {mean:.4}");
    ensure!(mean <= ALLOWED_MEAN, "{mean:.4} times the instructions of the base, allowed {ALLOWED_MEAN}");
    Ok(())
}

/// Counts with each program over each of its paths, until `is_enough` of its runs.
fn count_all(
    ground: &Ground,
    counters: &[Counter],
    is_enough: impl Fn(&Spreads, usize) -> bool,
) -> Result<Spreads> {
    let mut all = Spreads::new();
    let of_each = counters
        .iter()
        .flat_map(|counter| counter.settings.iter().map(|&setting| (counter.program.as_path(), setting)));
    for (program, setting) in of_each {
        let mut spreads = Spreads::new();
        for runs in 1.. {
            for (operation, count) in count(ground, program, setting)? {
                let (least, most) = spreads.entry(operation).or_insert((count, count));
                (*least, *most) = (count.min(*least), count.max(*most));
            }
            if is_enough(&spreads, runs) {
                break;
            }
        }
        all.append(&mut spreads);
    }
    Ok(all)
}

fn least(spreads: &Spreads) -> Counts {
    spreads.iter().map(|(operation, &(least, _))| (operation.clone(), least)).collect()
}

/// Refuses counts that differ from run to run by more than [`LARGEST_SPREAD`].
fn ensure_repeatable(spreads: &Spreads) -> Result<()> {
    let is_wide = |(least, most): (u64, u64)| (most - least) * 100 > least * LARGEST_SPREAD;
    let wide = spreads.iter().filter(|(_, spread)| is_wide(**spread));
    let wide: Vec<String> = wide.map(|((path, name), spread)| format!("{path} {name}: {spread:?}")).collect();
    ensure!(wide.is_empty(), "counts vary by more than {LARGEST_SPREAD} %:\n{}", wide.join("\n"));
    Ok(())
}

/// The per cent by which a count has changed.
fn per_cent(before: u64, after: u64) -> f64 {
    (after as f64 / before as f64 - 1.0) * 100.0
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The mean of what each operation costs as a multiple of what it costs in the base.
fn geometric_mean(base: &Counts, counts: &Counts) -> f64 {
    let logarithms: Vec<f64> = counts
        .iter()
        .filter_map(|(operation, &count)| Some((count as f64 / *base.get(operation)? as f64).ln()))
        .collect();
    (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp()
}

/// The operations whose count exceeds the known one by more than is allowed.
fn dearer(known: &Counts, counts: &Counts) -> Vec<String> {
    counts
        .iter()
        .filter_map(|(operation, &count)| {
            let &known = known.get(operation)?;
            let (path, name) = operation;
            let change = per_cent(known, count);
            (count * 100 > known * (100 + ALLOWED))
                .then(|| format!("{path} {name}: {known} -> {count} ({change:+.1} %)"))
        })
        .collect()
}

fn table(known: &Counts, spreads: &Spreads) -> String {
    let mut text = "path   operation       least  against record  spread\n".to_owned();
    for (operation, &(least, most)) in spreads {
        let change = known
            .get(operation)
            .map_or_else(|| "-".to_owned(), |&known| format!("{:+.1} %", per_cent(known, least)));
        let ((path, name), spread) = (operation, per_cent(least, most));
        // A string takes everything.
        let _ = writeln!(text, "{path:6} {name:12} {least:>8}  {change:>14}  {spread:.2} %");
    }
    text
}

/// The records of each toolchain in a file.
fn read(file: &Path) -> Result<BTreeMap<String, Counts>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    parse(&text).with_context(|| file.display().to_string())
}

fn parse(text: &str) -> Result<BTreeMap<String, Counts>> {
    let mut records: BTreeMap<String, Counts> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [toolchain, path, name, count] = fields[..] else { bail!("{line}: not four fields") };
        let count = count.parse().with_context(|| line.to_owned())?;
        ensure!(count > 0, "{line}: nothing costs nothing");
        records.entry(toolchain.into()).or_default().insert((path.into(), name.into()), count);
    }
    Ok(records)
}

fn written(records: &BTreeMap<String, Counts>) -> String {
    let mut text = HEAD.to_owned();
    for (toolchain, counts) in records {
        for ((path, name), count) in counts {
            // A string takes everything.
            let _ = writeln!(text, "{toolchain}\t{path}\t{name}\t{count}");
        }
    }
    text
}

fn library(ground: &Ground) -> Result<PathBuf> {
    Ok(ground.stage.library()?.join("libpagewire.so.1"))
}

/// What the counts depend on beside this project: what made the library, and what runs it.
fn toolchain(ground: &Ground) -> Result<String> {
    let library = std::fs::read(library(ground)?)?;
    let mark = b"rustc version ";
    let at = library.windows(mark.len()).position(|bytes| bytes == mark);
    let at = at.context("the library does not say which rustc made it")?;
    let version = library[at..].split(|&byte| byte == 0 || byte == b'(').next().unwrap_or_default();
    let rustc = String::from_utf8_lossy(version).replace(" version", "");
    let glibc = answer(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
    let valgrind = answer(Command::new(valgrind()?).arg("--version"))?;
    // The C library and the checksums have code for each, and valgrind shows programs no later extensions.
    let flags = std::fs::read_to_string("/proc/cpuinfo")?;
    let has = |flag: &str| flags.lines().any(|line| line.split_whitespace().any(|word| word == flag));
    let extensions = ["avx2", "pclmulqdq"].map(|flag| if has(flag) { flag } else { "-" }).join(" ");
    Ok(format!("{}, {glibc}, {valgrind}, {} {extensions}", rustc.trim(), std::env::consts::ARCH))
}

fn answer(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| command.get_program().to_string_lossy().into_owned())?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn valgrind() -> Result<PathBuf> {
    find_program("valgrind").context("the program valgrind is missing (Debian package valgrind)")
}

fn counters(ground: &Ground) -> Result<[Counter; 2]> {
    Ok([
        Counter { program: program(ground, "verbs")?, settings: &[Setting::Local, Setting::Udp] },
        // Over udp another thread does a part of a put.
        Counter { program: program(ground, "native")?, settings: &[Setting::Local] },
    ])
}

fn program(ground: &Ground, name: &str) -> Result<PathBuf> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let program = ground.stage.file(&format!("{name}-instructions"));
    let mut options = vec!["-O1".into(), "-I".into(), project.join("crates/capi/include").into_os_string()];
    options.extend([library(ground)?.into_os_string(), "-Wl,--allow-shlib-undefined".into()]);
    compile::c([project.join("tests/instructions").join(name).with_extension("c")], &program, &options)?;
    Ok(program)
}

/// One run over the path of a setting.
fn count(ground: &Ground, program: &Path, setting: Setting) -> Result<Counts> {
    let directory = ground.stage.file("callgrind");
    // Left by a run before.
    match std::fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => std::fs::create_dir(&directory)?,
    }
    open_to_all(&directory)?;
    let path = setting.path().name();
    let mut command = ground.ends(setting).0.command(valgrind()?);
    command.args(["--tool=callgrind", "--collect-atstart=no", "--separate-threads=yes", "--vgdb=no"]);
    command.arg(format!("--callgrind-out-file={}/%p", directory.display())).arg(program);
    command.env("LD_LIBRARY_PATH", ground.stage.library()?).env("PAGEWIRE_PATH", path);
    // valgrind refuses the address space of the usual heap.
    command.env("PAGEWIRE_HEAP_RANGE", (4_u64 << 30).to_string());
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{path}: {}\n{}", finished.verdict(), finished.output);
    let times = |operation: &str| -> Result<u64> {
        let mut lines = finished.output.lines();
        let line = lines.find_map(|line| line.strip_prefix(operation)?.strip_prefix(' ')?.parse().ok());
        line.with_context(|| format!("how often was {operation}?\n{}", finished.output))
    };
    let mut totals = Counts::new();
    for entry in std::fs::read_dir(&directory)? {
        let dump = std::fs::read_to_string(entry?.path())?;
        let field = |name| dump.lines().find_map(|line| line.strip_prefix(name));
        let Some(operation) = field("desc: Trigger: Client Request: ").filter(|name| *name != "-") else {
            continue;
        };
        // The first thread makes the calls.
        if field("thread: ").context("a dump of no thread")?.trim() != "1" {
            continue;
        }
        let total: u64 = field("totals: ").context("a dump without a total")?.trim().parse()?;
        *totals.entry((path.to_owned(), operation.to_owned())).or_default() += total;
    }
    ensure!(!totals.is_empty(), "callgrind has counted nothing:\n{}", finished.output);
    for ((_, operation), total) in &mut totals {
        *total /= times(operation)?;
    }
    Ok(totals)
}

fn open_to_all(directory: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o777))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, u64)]) -> Counts {
        list.iter().map(|&(name, count)| (("local".to_owned(), name.to_owned()), count)).collect()
    }

    #[test]
    fn more_than_two_per_cent_above_the_record_is_too_much() {
        let known = counts(&[("a", 1000), ("b", 1000), ("c", 1000)]);
        let found = dearer(&known, &counts(&[("a", 1020), ("b", 1021), ("c", 500)]));
        assert_eq!(found, ["local b: 1000 -> 1021 (+2.1 %)"]);
    }

    #[test]
    fn mean_is_of_ratios_and_of_what_both_have() {
        let base = counts(&[("a", 1000), ("b", 10), ("c", 7)]);
        let mean = geometric_mean(&base, &counts(&[("a", 2000), ("b", 20), ("d", 9)]));
        assert!((mean - 2.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn counts_that_vary_are_not_recorded() {
        let spreads = |most| Spreads::from([(("udp".to_owned(), "a".to_owned()), (1000, most))]);
        assert!(ensure_repeatable(&spreads(1010)).is_ok());
        assert!(ensure_repeatable(&spreads(1011)).is_err());
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let records = BTreeMap::from([
            ("rustc 1".to_owned(), counts(&[("a", 1), ("b", 2)])),
            ("rustc 2".to_owned(), counts(&[("a", 3)])),
        ]);
        assert_eq!(parse(&written(&records)).expect("own format"), records);
        assert!(parse("rustc 1\tlocal\ta\n").is_err() && parse("rustc 1\tlocal\ta\t0\n").is_err());
    }
}
