//! Pages that are absent when they are needed: `faults/*.c`, two processes on the first host.
//!
//! * `matrix.c`: each kind of memory at the source and at the destination of each operation: right data.
//! * `held.c`: pages that do not come; everybody else goes on, and everything ends.
//! * `revoked.c`: memory that is taken away while a request waits for its page.
//! * `ended.c`: a region that ends while a request waits for its page; what is mapped there next is left alone.
//! * `crowd.c`: more requests for pages that never come than one asker has threads, and others beside them.
//! * `beside.c`: pages that come at once beside others that never do.
//! * `pressure.c`: much more memory than may be resident.
//!
//! Programs run as an unprivileged user, where that is enough; some need root for what they do to themselves: swap, pagers that
//! hold up the kernel's own accesses, memory limits. What this machine cannot do is told.

use crate::ground::{Ground, Setting};
use crate::limits::{FAULTS, PRESSURE};
use crate::memory_group::MemoryGroup;
use crate::{compile, not_checked};
use anyhow::{Context, Result, anyhow, bail, ensure};
use pagewire_cli::pair::Running;
use pagewire_cli::report::{self, ProcessReport};
use pagewire_cli::swap::{self, Swap};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// The status by which a program says that this machine does not let it do something.
pub const NOT_HERE: i32 = 77;

/// One run of a program.
#[derive(Clone, Debug)]
pub struct Run {
    /// The path.
    pub setting: Setting,
    program: &'static str,
    words: Vec<String>,
    rights: Rights,
    /// PAGEWIRE_PAGE_FAULTS.
    handling: Option<&'static str>,
    /// PAGEWIRE_FAIL: what becomes of packets that leave.
    failures: Option<&'static str>,
    needs: Needs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rights {
    /// None: as users' programs run.
    User,
    /// All that the tests have themselves.
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// Bytes of swap.
    Swap(u64),
    /// Hugetlb pages.
    HugePages(u64),
    /// Memory groups of so many bytes for each side, and bytes of swap.
    Limits(u64, u64),
}

/// Kinds of memory, as `place.h` calls them, that any user can have.
const USUAL: [&str; 6] = ["resident", "zero-fill", "shared", "file", "pager-user", "huge"];
/// Those of which one needs swap, another a right.
const PRIVILEGED: [&str; 4] = ["resident", "zero-fill", "swapped", "pager"];

/// Those that only their owner can read: a user's, and one that takes locked memory.
const OWN: [&str; 2] = ["write-only", "secret"];

/// What becomes of packets that find a page absent (PAGEWIRE_PAGE_FAULTS), other than what is tried everywhere.
const HANDLINGS: [&str; 4] = ["err", "err,nto", "rnr", "timeout"];

/// Every second RESUME is lost.
const LOST_RESUMES: &str = "on=packet opcode=0xc3 every=2 action=lose";

fn matrix(setting: Setting, sizes: &str, kinds: &[&str]) -> Run {
    let mut words = vec![sizes.to_owned()];
    words.extend(kinds.iter().map(|&kind| kind.to_owned()));
    Run {
        setting,
        program: "matrix",
        words,
        rights: Rights::User,
        handling: None,
        failures: None,
        needs: Needs::Nothing,
    }
}

/// All runs.
pub fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for setting in Setting::PATHS {
        let swap = Needs::Swap(256 << 20);
        runs.push(matrix(setting, "all", &USUAL));
        runs.push(Run { rights: Rights::All, needs: swap, ..matrix(setting, "all", &PRIVILEGED) });
        for own in OWN {
            runs.push(Run { rights: Rights::All, ..matrix(setting, "all", &["resident", "zero-fill", own]) });
        }
        let huge = matrix(setting, "all", &["resident", "hugetlb"]);
        runs.push(Run { needs: Needs::HugePages(16), ..huge });
        for (owner, ends) in
            [("target", &["release", "destroy", "exit"] as &[_]), ("poster", &["release", "destroy"])]
        {
            for end in ends {
                // One; more than there are threads for faults; one that is long.
                for (count, pages) in [(1, 1), (300, 1), (2, 256)] {
                    let words = [owner, &count.to_string(), &pages.to_string(), end].map(str::to_owned);
                    runs.extend(with_pagers(setting, "held", &words));
                }
            }
            runs.extend(with_pagers(setting, "beside", &[owner.to_owned()]));
            runs.extend(with_pagers(setting, "crowd", &[owner.to_owned()]));
            for how in ["munmap", "mremap", "protect", "truncate", "remap"] {
                runs.extend(with_pagers(setting, "revoked", &[owner, how].map(str::to_owned)));
            }
            for how in ["deregister", "flush", "destroy"] {
                runs.extend(with_pagers(setting, "ended", &[owner, how].map(str::to_owned)));
            }
        }
        for (mebibytes, limit, swap) in [(256, 64 << 20, 1 << 30), (4096, 256 << 20, 10 << 30)] {
            runs.push(Run {
                program: "pressure",
                words: vec![mebibytes.to_string()],
                rights: Rights::All,
                needs: Needs::Limits(limit, swap),
                ..matrix(setting, "", &[])
            });
        }
    }
    // Packets only: on the local path there are none.
    for (handling, lossy) in HANDLINGS.into_iter().zip([true, true, false, false]) {
        let swap = Needs::Swap(256 << 20);
        let run = Run { handling: Some(handling), ..matrix(Setting::Udp, "few", &USUAL) };
        let privileged = Run { rights: Rights::All, needs: swap, ..matrix(Setting::Udp, "few", &PRIVILEGED) };
        runs.push(Run { handling: Some(handling), ..privileged });
        if lossy {
            runs.push(Run { failures: Some(LOST_RESUMES), ..run.clone() });
        }
        runs.push(run);
    }
    runs
}

/// A run with pagers that hold up the kernel's accesses too, and one with others.
fn with_pagers(setting: Setting, program: &'static str, words: &[String]) -> [Run; 2] {
    [("all", Rights::All), ("user", Rights::User)].map(|(pager, rights)| {
        let mut words = words.to_vec();
        words.insert(1, pager.to_owned());
        Run { program, words, rights, ..matrix(setting, "", &[]) }
    })
}

/// Whether a run belongs to the part that takes little time.
pub fn is_quick(run: &Run) -> bool {
    let part = !run.setting.is_tcp() || ["matrix", "revoked"].contains(&run.program);
    part && (run.program != "pressure" || run.words != ["4096"])
}

/// What to call a run.
pub fn title(run: &Run) -> String {
    let mut title = format!("faults::{}::{}", run.program, run.setting.name());
    let failures = run.failures.map(|_| "resumes lost");
    for word in run.handling.iter().chain(&failures) {
        title.push_str("::");
        title.push_str(word);
    }
    format!("{title} {}", run.words.join(" "))
}

/// Of swap and huge pages the machine has one account: one test at a time adds to it.
static ONE: Mutex<()> = Mutex::new(());

/// One run of a program, which says itself what is wrong.
///
/// # Errors
/// With what the program said, and how to run it again.
pub fn check(ground: &Ground, run: &Run) -> Result<()> {
    let program = program(ground, run.program)?;
    let _one = (run.needs != Needs::Nothing).then(|| ONE.lock().unwrap_or_else(PoisonError::into_inner));
    let mut swap = None;
    let mut groups = Vec::new();
    let mut huge_pages = None;
    let had = match run.needs {
        Needs::Nothing => Ok(()),
        Needs::Swap(bytes) => a_swap_file(bytes).map(|made| swap = Some(made)),
        Needs::HugePages(pages) => HugePages::reserve(pages).map(|made| huge_pages = Some(made)),
        Needs::Limits(bytes, swapped) => a_swap_file(swapped).and_then(|made| {
            swap = Some(made);
            groups = vec![MemoryGroup::make("a", bytes)?, MemoryGroup::make("b", bytes)?];
            Ok(())
        }),
    };
    if let Err(error) = had {
        not_checked::tell(format_args!("{}: {error:#}", title(run)));
        return Ok(());
    }

    let host = &ground.hosts.first;
    let mut command = match run.rights {
        Rights::User => host.command(&ground.stage.command),
        Rights::All => host.privileged(&ground.stage.command),
    };
    command.args(["run", "--path", run.setting.path().name(), "--"]).arg(program);
    let seed = seed()?.to_string();
    if run.program == "matrix" {
        command.arg(&seed);
    }
    command.args(&run.words).args(groups.iter().map(MemoryGroup::processes));
    command.env("TMPDIR", swap::disk()?);
    command.envs(run.handling.map(|handling| ("PAGEWIRE_PAGE_FAULTS", handling)));
    command.envs(run.failures.map(|rules| ("PAGEWIRE_FAIL", rules)));
    let statistics = ground.stage.writable_file(&format!("{}.jsonl", title(run).replace(['/', ' '], "-")))?;
    command.env("PAGEWIRE_STATS", &statistics);
    let outcome = judge(run, &seed, command)
        .and_then(|ran| if ran { is_handled(run, &report::read_file(&statistics)?) } else { Ok(()) });
    // The swap last: what lies there belongs to processes of the groups.
    drop((groups, huge_pages, swap));
    outcome
}

/// Runs it; false: this machine cannot do that.
fn judge(run: &Run, seed: &str, command: Command) -> Result<bool> {
    let limit = if run.program == "pressure" { PRESSURE } else { FAULTS };
    let finished = Running::start(command)?.wait_until(Instant::now() + limit);
    match finished.status.and_then(|status| status.code()) {
        Some(0) => Ok(true),
        Some(NOT_HERE) => {
            not_checked::tell(format_args!("{}: {}", title(run), finished.output));
            Ok(false)
        }
        _ => bail!("PAGEWIRE_MATRIX_SEED={seed}: {}\n{}", finished.verdict(), finished.output),
    }
}

/// Whether packets that found a page absent were treated as was asked for: the counters of both processes say so.
fn is_handled(run: &Run, reports: &[ProcessReport]) -> Result<()> {
    let count = |name: &str| -> u64 {
        let connections = reports.iter().flat_map(|report| &report.connections);
        let protocols = connections.filter_map(|connection| connection.get("protocol"));
        protocols.filter_map(|protocol| protocol.get(name)?.as_u64()).sum()
    };
    let [dropped, sent, received, holds, naks] =
        ["faults_dropped", "resumes_sent", "resumes_received", "holds_sent", "rnr_naks_sent"].map(count);
    let well = match run.handling {
        None => dropped == 0,
        Some("rnr") => dropped > 0 && naks > 0,
        Some("timeout") => dropped > 0 && (sent, holds) == (0, 0),
        Some(_) => dropped > 0 && sent > 0 && received > 0,
    };
    let numbers = format!(
        "{dropped} dropped, {sent} RESUMEs sent, {received} received, {holds} HOLDs, {naks} RNR NAKs"
    );
    ensure!(well, "not as {:?} says: {numbers}", run.handling);
    ensure!(run.failures.is_none() || received < sent, "no RESUME was lost: {numbers}");
    Ok(())
}

/// Compiles a program of `faults/`, once for each ground.
///
/// # Errors
/// With what the compiler says.
pub fn program(ground: &Ground, name: &str) -> Result<PathBuf> {
    let program = ground.stage.file(&format!("faults-{name}"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("faults").join(name).with_extension("c");
    compile::once(&program, || compile::c([source], &program, &["-libverbs"]))?;
    Ok(program)
}

fn seed() -> Result<u64> {
    match std::env::var("PAGEWIRE_MATRIX_SEED") {
        Ok(seed) => seed.parse().context("PAGEWIRE_MATRIX_SEED is no number"),
        Err(_) => Ok(u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos())),
    }
}

fn a_swap_file(bytes: u64) -> Result<Swap> {
    Swap::file(&swap::disk()?, bytes)
}

/// Hugetlb pages beside those that the machine has; given back when dropped.
#[derive(Debug)]
struct HugePages {
    before: u64,
}

impl HugePages {
    const SETTING: &str = "/proc/sys/vm/nr_hugepages";

    fn reserve(more: u64) -> Result<HugePages> {
        let count = || -> Result<u64> { Ok(fs::read_to_string(HugePages::SETTING)?.trim().parse()?) };
        let before = count()?;
        fs::write(HugePages::SETTING, (before + more).to_string()).context(HugePages::SETTING)?;
        let reserved = HugePages { before };
        if count()? < before + more {
            return Err(anyhow!("no memory is free for {more} huge pages"));
        }
        Ok(reserved)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Err(error) = fs::write(HugePages::SETTING, self.before.to_string()) {
            eprintln!("{}: {error}", HugePages::SETTING);
        }
    }
}
