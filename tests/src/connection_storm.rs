//! Storms and strangers: many processes that connect at once and are killed (`tests/rdmacm/storm.c`), and messages from a stranger to queue
//! pair 1 while others go on (`tests/rdmacm/stranger.c`).

use crate::connection_manager::await_port;
use crate::connection_manager_calls::compiled;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::not_checked;
use anyhow::{Context, Result, ensure};
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use std::time::Instant;

/// Processes of a small crowd, and of a whole one.
const FEW: usize = 32;
const MANY: usize = 256;
/// Connections between two processes.
const CONNECTIONS: usize = 10_000;
/// Of those with queue pairs each.
const WITH_QUEUE_PAIRS: usize = 1_000;
/// What a process usually may open: it suffices for so many connections.
const DESCRIPTORS: usize = 1024;
/// Messages of a stranger.
const STRANGE_MESSAGES: u64 = 100_000;
/// Where the innocent server listens: rping ends at a request that is taken back, so none is sent there.
const PORT: u16 = 18_770;
/// Where the stranger's requests are answered.
const VICTIMS_PORT: u16 = 18_772;

/// Processes connect to one listener and to each other, and half of them are killed meanwhile. Every connection of the others is
/// established, and every other one ends. When all are killed nothing is left. `all`: a whole crowd.
///
/// # Errors
/// With what the program says, and the seed; with what is left.
pub fn crowds_connect(ground: &Ground, setting: Setting, seed: u64, all: bool) -> Result<()> {
    let count = if all { MANY } else { FEW };
    run(ground, setting, &["crowd", &count.to_string(), &seed.to_string()])
        .with_context(|| format!("seed {seed}"))
}

/// Two processes have thousands of connections, and one hears of the other's death by each.
///
/// # Errors
/// With what the program says; with what is left.
pub fn thousands_live(ground: &Ground, setting: Setting) -> Result<()> {
    run(ground, setting, &["many", &CONNECTIONS.to_string()])?;
    run(ground, setting, &["many", &WITH_QUEUE_PAIRS.to_string(), "qp"])
}

fn run(ground: &Ground, setting: Setting, words: &[&str]) -> Result<()> {
    let program = compiled(ground, "storm")?;
    let host = &ground.hosts.first;
    let mut command = host.command("sh");
    command.args(["-c", &format!("ulimit -n {DESCRIPTORS} && exec \"$@\""), "sh"]);
    command.arg(&ground.stage.command).args(["run", "--path", setting.path().name(), "--"]);
    command.arg(&program).arg(host.address.to_string()).args(words);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{words:?}: {}\n{}", finished.verdict(), finished.output);
    print!("{}", finished.output);
    nothing_is_left(ground)
}

/// No name of Pagewire is left on the first host. Memory files have no names, and end with their processes.
fn nothing_is_left(ground: &Ground) -> Result<()> {
    let mut command = ground.hosts.first.command("cat");
    command.arg("/proc/net/unix");
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "{}", finished.output);
    let names: Vec<&str> = finished.output.lines().filter(|line| line.contains("@pagewire-")).collect();
    ensure!(names.is_empty(), "names are left:\n{}", names.join("\n"));
    Ok(())
}

/// rping checks its data while a stranger sends messages to queue pair 1, right and wrong ones. `PAGEWIRE_CM_MESSAGES` says how many.
///
/// # Errors
/// If rping fails or stops, or its processes grow.
pub fn strangers_do_no_harm(ground: &Ground, setting: Setting, seed: u64) -> Result<()> {
    if find_program("rping").is_none() {
        not_checked::tell("connection_storm::strangers_do_no_harm: rping is not installed");
        return Ok(());
    }
    let count: u64 = match std::env::var("PAGEWIRE_CM_MESSAGES") {
        Ok(count) => count.parse().context("PAGEWIRE_CM_MESSAGES")?,
        Err(_) => STRANGE_MESSAGES,
    };
    let program = compiled(ground, "stranger")?;
    let host = &ground.hosts.first;
    let (address, port) = (host.address.to_string(), PORT.to_string());
    let rping = |words: &[&str]| {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", setting.path().name(), "--", "rping", "-a", &address, "-p", &port]);
        command.args(words);
        Running::start(command)
    };
    // They end when they are killed.
    let mut server = rping(&["-s", "-V", "-P"])?;
    await_port(&server, PORT)?;
    let mut client = rping(&["-c", "-V", "-C", "1000000000"])?;
    let mut victim = host.command(&ground.stage.command);
    victim.args(["run", "--path", setting.path().name(), "--"]).arg(&program);
    victim.args([&*address, "victim", &VICTIMS_PORT.to_string()]);
    let mut victim = Running::start(victim)?;
    await_port(&victim, VICTIMS_PORT)?;
    let mut stranger = host.command(&program);
    stranger.args([&*address, &seed.to_string(), &count.to_string(), &port]);
    stranger.args([&server, &client, &victim].map(|process| process.pid().to_string()));
    let limit = RUN * u32::try_from(1 + count / STRANGE_MESSAGES / 10)?;
    let attacked = Running::start(stranger)?.wait_until(Instant::now() + limit);
    let goes_on = ![&server, &client, &victim].iter().any(|process| process.has_ended());
    // And a new client is served.
    let asked = rping(&["-c", "-V", "-C", "5"])?.wait_until(Instant::now() + RUN);
    for process in [&mut client, &mut server, &mut victim] {
        process.kill();
    }
    ensure!(attacked.success(), "seed {seed}: {}\n{}", attacked.verdict(), attacked.output);
    ensure!(goes_on, "seed {seed}: a program has ended");
    ensure!(asked.success(), "seed {seed}: a new client: {}\n{}", asked.verdict(), asked.output);
    Ok(())
}
