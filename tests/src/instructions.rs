//! What an operation costs in instructions, counted by valgrind, beside what is recorded in `instructions.tsv`.
//!
//! Other than time, counts are the same on a busy machine: more than [`ALLOWED`] above the record fails. They depend on
//! the compiler, the C library and valgrind, though, so each record is of one toolchain; with another, counts are printed
//! and not judged, which is told. `make instructions` records anew.

use crate::compile;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::not_checked;
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

/// Runs of a path, where one is not enough.
const RUNS: usize = 12;

/// The environment variable that, set to `record`, has the counts written instead of compared.
const VARIABLE: &str = "PAGEWIRE_INSTRUCTIONS";

const HEAD: &str = "# Instructions of one operation, both sides together (make instructions).\n\
                    # toolchain\tpath\toperation\tinstructions\n";

/// Path and operation.
type Operation = (String, String);

/// Instructions of each operation.
type Counts = BTreeMap<Operation, u64>;

/// The hot paths cost no more instructions than is recorded.
///
/// # Errors
/// If one does, by more than [`ALLOWED`], or cannot be counted.
pub fn hot_paths(ground: &Ground) -> Result<()> {
    let program = program(ground)?;
    let toolchain = toolchain(ground)?;
    let recorded = std::fs::read_to_string(file()).with_context(|| file().display().to_string())?;
    let mut records = read(&recorded)?;
    let record = std::env::var(VARIABLE).is_ok_and(|value| value == "record");
    let known = records.get(&toolchain).filter(|_| !record);
    let mut counts = Counts::new();
    for setting in [Setting::Local, Setting::Udp] {
        let mut found: BTreeMap<Operation, Vec<u64>> = BTreeMap::new();
        // Recorded is what is usual, compared the least: what happens to come in between only ever adds.
        let judged = |found: &BTreeMap<Operation, Vec<u64>>| -> Counts {
            let judge = |counts: &Vec<u64>| {
                let mut sorted = counts.clone();
                sorted.sort_unstable();
                sorted[if record { sorted.len() / 2 } else { 0 }]
            };
            found.iter().map(|(operation, counts)| (operation.clone(), judge(counts))).collect()
        };
        for _ in 0..RUNS {
            for (operation, count) in count(ground, &program, setting)? {
                found.entry(operation).or_default().push(count);
            }
            if !record && known.is_none_or(|known| dearer(known, &judged(&found)).is_empty()) {
                break;
            }
        }
        counts.extend(judged(&found));
    }
    let empty = Counts::new();
    print!("{}", table(known.unwrap_or(&empty), &counts));
    if record {
        records.insert(toolchain, counts);
        return Ok(std::fs::write(file(), written(&records))?);
    }
    let Some(known) = known else {
        not_checked::tell(format_args!("nothing is recorded for {toolchain} (make instructions)"));
        return Ok(());
    };
    ensure!(
        known.keys().eq(counts.keys()),
        "recorded are other operations than were counted (make instructions)"
    );
    let dearer = dearer(known, &counts);
    ensure!(dearer.is_empty(), "dearer than recorded for {toolchain}:\n{}", dearer.join("\n"));
    Ok(())
}

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.tsv")
}

/// The operations whose count exceeds the known one by more than is allowed.
fn dearer(known: &Counts, counts: &Counts) -> Vec<String> {
    counts
        .iter()
        .filter_map(|(operation, &count)| {
            let &known = known.get(operation)?;
            let (path, name) = operation;
            let change = (count as f64 / known as f64 - 1.0) * 100.0;
            (count * 100 > known * (100 + ALLOWED))
                .then(|| format!("{path} {name}: {known} -> {count} ({change:+.1} %)"))
        })
        .collect()
}

fn table(known: &Counts, counts: &Counts) -> String {
    let mut text = String::new();
    for (operation, &count) in counts {
        let change = known.get(operation).map_or_else(
            || "-".to_owned(),
            |&known| format!("{:+.1} %", (count as f64 / known as f64 - 1.0) * 100.0),
        );
        // A string takes everything.
        let _ = writeln!(text, "{:6} {:12} {count:>8}  {change:>8}", operation.0, operation.1);
    }
    text
}

/// The records of each toolchain.
fn read(text: &str) -> Result<BTreeMap<String, Counts>> {
    let mut records: BTreeMap<String, Counts> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.split('\t').collect();
        let [toolchain, path, name, count] = fields[..] else { bail!("{}: {line}", file().display()) };
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

fn program(ground: &Ground) -> Result<PathBuf> {
    let program = ground.stage.file("instructions");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/instructions.c");
    let options = ["-O1".into(), library(ground)?.into_os_string(), "-Wl,--allow-shlib-undefined".into()];
    compile::c([source], &program, &options)?;
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
    command.args(["--tool=callgrind", "--collect-atstart=no", "--vgdb=no"]);
    command.arg(format!("--callgrind-out-file={}/%p", directory.display())).arg(program);
    command.env("LD_LIBRARY_PATH", ground.stage.library()?).env("PAGEWIRE_PATH", path);
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
    fn records_are_read_as_they_are_written() {
        let records = BTreeMap::from([
            ("rustc 1".to_owned(), counts(&[("a", 1), ("b", 2)])),
            ("rustc 2".to_owned(), counts(&[("a", 3)])),
        ]);
        assert_eq!(read(&written(&records)).expect("own format"), records);
        assert!(read("rustc 1\tlocal\ta\n").is_err() && read("rustc 1\tlocal\ta\t0\n").is_err());
    }
}
