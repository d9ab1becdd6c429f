//! Memory in motion: system calls that change registered memory under traffic (`tests/motion/`, C programs).
//!
//! A run draws a seed and prints it first, so that a failure's output says how to see it again. PAGEWIRE_MOTION_SEED sets it,
//! PAGEWIRE_MOTION_ROUNDS the number of moves.

use crate::ground::{Ground, Setting};
use crate::limits::MOTION;
use crate::{compile, not_checked};
use anyhow::{Context, Result, anyhow, bail};
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What the moving end does to its memory, as `moves.c` calls it.
pub const MOVES: [&str; 19] = [
    "nothing",
    "munmap",
    "mremap",
    "ftruncate-memfd",
    "ftruncate-file",
    "mprotect",
    "dontneed",
    "free",
    "pageout",
    "pageout-file",
    "punch",
    "hugepages",
    "fork",
    "userfaultfd",
    "map-fixed",
    "brk",
    "shm",
    "dereg",
    "any",
];

/// What the program does about SIGSEGV and SIGBUS itself, as `handlers.c` calls it.
pub const HANDLERS: [&str; 14] = [
    "before",
    "before-signal",
    "before-jump",
    "before-nodefer",
    "before-reset",
    "before-ignored",
    "after",
    "after-signal",
    "after-jump",
    "after-ignored",
    "blocked",
    "masked",
    "replaced",
    "replaced-masked",
];

/// Programs of languages whose runtimes handle these signals themselves, the program's peer being a C program or in the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// `main.c` alone.
    C,
    /// `go/main.go`: dereferences of nil, signals that interrupt threads, stacks that move.
    Go,
    /// `java/Motion.java`: null checks, safepoints, ends of stacks, files that became shorter.
    Java,
}

/// The moves that programs of other languages make.
pub const FOREIGN_MOVES: [&str; 4] = ["any", "munmap", "ftruncate-memfd", "dereg"];

/// Where the two ends are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// In two processes.
    Apart,
    /// In one.
    Together,
}

/// The status by which the program says that this kernel cannot do a move at all.
const NOT_HERE: i32 = 77;

/// The sources beside `main.c`.
const SOURCES: [&str; 5] = ["motion.c", "traffic.c", "moves.c", "renewal.c", "handlers.c"];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("motion")
}

/// How to start the program of a language; compiles it once.
fn program(ground: &Ground, language: Language) -> Result<Vec<OsString>> {
    type Made = OnceLock<Result<Vec<OsString>, String>>;
    static PROGRAMS: [Made; 3] = [const { OnceLock::new() }; 3];
    let made = PROGRAMS[language as usize].get_or_init(|| {
        let made = match language {
            Language::C => c_program(ground),
            Language::Go => go_program(ground),
            Language::Java => java_program(ground),
        };
        made.map_err(|error| format!("{error:#}"))
    });
    made.clone().map_err(|error| anyhow!("{error}"))
}

fn c_program(ground: &Ground) -> Result<Vec<OsString>> {
    let program = ground.stage.file("motion");
    let mut sources = vec!["main.c"];
    sources.extend(SOURCES);
    compile(&sources, &program, &[])?;
    Ok(vec![program.into()])
}

/// Compiles sources of `tests/motion`.
fn compile(sources: &[&str], into: &Path, options: &[OsString]) -> Result<()> {
    let sources = sources.iter().map(|source| folder().join(source));
    compile::c(sources, into, &[options, &["-libverbs".into()]].concat())
}

/// A compiler that continuous integration must have: without it this is no test.
fn compiler(name: &str, package: &str) -> Result<PathBuf> {
    let usual = Path::new("/usr/local/go/bin").join(name);
    find_program(name)
        .or_else(|| usual.is_file().then_some(usual))
        .with_context(|| format!("the program {name} is missing (Debian package {package})"))
}

/// cgo compiles the C files that lie beside the Go file.
fn go_program(ground: &Ground) -> Result<Vec<OsString>> {
    let go = compiler("go", "golang-go")?;
    let place = ground.stage.file("motion-go");
    fs::create_dir(&place)?;
    let mut files: Vec<PathBuf> = SOURCES.iter().map(|name| folder().join(name)).collect();
    files.extend(["motion.h", "pattern.h", "go/main.go", "go/go.mod"].map(|name| folder().join(name)));
    files.extend(["check.h", "connect.h", "random.h"].map(|name| compile::headers().join(name)));
    for file in files {
        fs::copy(&file, place.join(file.file_name().context("a file without a name")?))?;
    }
    let program = place.join("motion");
    let mut command = Command::new(go);
    // What is there must do: nothing is fetched.
    command.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod").env("GOPROXY", "off");
    command.env("CGO_ENABLED", "1").env("GOCACHE", place.join("cache"));
    command.arg("build").arg("-o").arg(&program).arg(".").current_dir(&place);
    compile::build(command)?;
    fs::remove_dir_all(place.join("cache"))?;
    fs::set_permissions(&place, Permissions::from_mode(0o755))?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    Ok(vec![program.into()])
}

fn java_program(ground: &Ground) -> Result<Vec<OsString>> {
    let package = "default-jdk-headless";
    let (javac, java) = (compiler("javac", package)?, compiler("java", package)?);
    let place = ground.stage.file("motion-java");
    fs::create_dir(&place)?;
    let mut command = Command::new(&javac);
    command.arg("-d").arg(&place).arg(folder().join("java/Motion.java"));
    compile::build(command)?;
    let home = javac.canonicalize()?;
    let include = home.parent().and_then(Path::parent).context("javac lies nowhere")?.join("include");
    let library = place.join("libmotion.so");
    let mut sources = vec!["java/native.c"];
    sources.extend(SOURCES);
    let options = ["-shared".into(), "-fPIC".into(), "-I".into(), include.clone().into_os_string()];
    let linux = ["-I".into(), include.join("linux").into_os_string()];
    compile(&sources, &library, &[options.as_slice(), &linux].concat())?;
    for entry in fs::read_dir(&place)? {
        fs::set_permissions(entry?.path(), Permissions::from_mode(0o755))?;
    }
    fs::set_permissions(&place, Permissions::from_mode(0o755))?;
    let mut load = OsString::from("-Dmotion.library=");
    load.push(&library);
    let mut words = vec![java.into_os_string()];
    words.extend(["-Xmx256m", "-XX:-UsePerfData", "-XX:+ErrorFileToStderr"].map(OsString::from));
    words.extend([load, "-cp".into(), place.into_os_string(), "Motion".into()]);
    Ok(words)
}

fn seed() -> Result<u64> {
    match std::env::var("PAGEWIRE_MOTION_SEED") {
        Ok(seed) => seed.parse().context("PAGEWIRE_MOTION_SEED is no number"),
        Err(_) => Ok(u64::from(SystemTime::now().duration_since(UNIX_EPOCH)?.subsec_nanos())),
    }
}

/// One run.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The path.
    pub setting: Setting,
    /// Where the ends are.
    pub ends: Ends,
    /// One of [`MOVES`].
    pub name: &'static str,
    /// One of [`HANDLERS`], `none`, or `foreign`: the language's runtime sees to them.
    pub handlers: &'static str,
    /// What the moving end is written in.
    pub language: Language,
}

/// Every move, every manner of handling signals and every language on both paths of one host, between processes and inside one.
pub fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for setting in Setting::PATHS {
        for ends in [Ends::Apart, Ends::Together] {
            let run = |name, handlers, language| Run { setting, ends, name, handlers, language };
            runs.extend(MOVES.map(|name| run(name, "none", Language::C)));
            runs.extend(HANDLERS.map(|handlers| run("any", handlers, Language::C)));
            for language in [Language::Go, Language::Java] {
                runs.extend(FOREIGN_MOVES.map(|name| run(name, "foreign", language)));
            }
        }
    }
    runs
}

/// Whether a run belongs to the part that takes little time.
pub fn is_quick(run: &Run) -> bool {
    match (run.language, run.setting, run.ends) {
        (language, Setting::Tcp, ends) => {
            language == Language::C && ends == Ends::Apart && run.name == "any" && run.handlers == "none"
        }
        (Language::C, Setting::Local, _) | (Language::C, _, Ends::Apart) => true,
        (_, Setting::Local, Ends::Apart) => run.name != "dereg",
        _ => run.name == "any" && ["none", "foreign"].contains(&run.handlers),
    }
}

/// What to call a run.
pub fn title(run: &Run) -> String {
    let what = match (run.language, run.handlers) {
        (Language::C, "none") => run.name.to_owned(),
        (Language::C, handlers) => format!("handlers::{handlers}"),
        (language, _) => format!("{language:?}::{}", run.name).to_lowercase(),
    };
    let together = if run.ends == Ends::Together { "::together" } else { "" };
    format!("motion::{}::{what}{together}", run.setting.name())
}

/// Both ends with a move: no crash, no hang, no wrong byte.
///
/// # Errors
/// With what the program said, and how to run it again.
pub fn check(ground: &Ground, run: &Run) -> Result<()> {
    let rounds = std::env::var("PAGEWIRE_MOTION_ROUNDS").unwrap_or_else(|_| "100".to_owned());
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--path", run.setting.path().name(), "--"]).args(program(ground, run.language)?);
    command.args(["--move", run.name, "--handlers", run.handlers]);
    command.args(["--seed", &seed()?.to_string(), "--rounds", &rounds]);
    if run.ends == Ends::Together {
        command.arg("--together");
    }
    // The other end of a program that is not C.
    command.envs(program(ground, Language::C)?.first().map(|peer| ("MOTION_PEER", peer)));
    let finished = Running::start(command)?.wait_until(Instant::now() + MOTION);
    match finished.status.and_then(|status| status.code()) {
        Some(0) => Ok(()),
        Some(NOT_HERE) => {
            not_checked::tell(format_args!("{}: {}", title(run), finished.output));
            Ok(())
        }
        _ => bail!("{}\n{}", finished.verdict(), finished.output),
    }
}
