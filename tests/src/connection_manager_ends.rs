//! Who may connect, and what is heard of the death of a peer: by `tests/rdmacm/idler.c`, which sends nothing, so that only the connection
//! manager can tell.

use crate::connection_manager::await_port;
use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use crate::{compile, not_checked};
use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagewire_cli::hosts::{Host, programs_become_nobody};
use pagewire_cli::pair::Running;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Another user than nobody.
const OTHER_USER: &str = "--reuid=65533";

/// How a process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Killed,
    /// By exit(3), with its IDs as they are.
    Exits,
}

fn idler(ground: &Ground) -> Result<PathBuf> {
    let program = ground.stage.file("rdmacm-idler");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("rdmacm/idler.c");
    compile::once(&program, || compile::c([&source], &program, &["-lrdmacm", "-libverbs"]))?;
    Ok(program)
}

/// An end of a connection: `word` is listen or connect, the address the listener's.
fn end(
    ground: &Ground,
    host: &Host,
    setting: Setting,
    word: &str,
    (address, port): (&Host, u16),
) -> Result<Command> {
    let mut command = host.command(&ground.stage.command);
    command.args(["run", "--path", setting.path().name(), "--"]).arg(idler(ground)?);
    command
        .args([word, &address.address.to_string(), &port.to_string()])
        .arg(ground.stage.writable_file(&marker(word, port))?);
    Ok(command)
}

/// The name of the file that an end writes to when it is connected.
fn marker(word: &str, port: u16) -> String {
    format!("rdmacm-ends-{word}-{port}")
}

/// Waits until both ends are connected.
fn await_connection(ground: &Ground, port: u16) -> Result<()> {
    let deadline = Instant::now() + RUN;
    for word in ["listen", "connect"] {
        let marker = ground.stage.file(&marker(word, port));
        while std::fs::metadata(&marker)?.len() == 0 {
            ensure!(Instant::now() < deadline, "no connection at port {port}: {word} waits");
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// The peer of a process that is killed hears DISCONNECTED: on one host from anybody, between hosts from another process of the dead one's.
///
/// # Errors
/// If it does not.
pub fn death_is_told(ground: &Ground) -> Result<()> {
    let mut port = 18_760;
    for setting in [Setting::Local, Setting::Udp, Setting::Hosts] {
        for kills_server in [true, false] {
            for how in [End::Killed, End::Exits] {
                port += 2;
                hears_of_death(ground, setting, port, (kills_server, how))?;
            }
        }
    }
    Ok(())
}

fn hears_of_death(
    ground: &Ground,
    setting: Setting,
    port: u16,
    (kills_server, how): (bool, End),
) -> Result<()> {
    let (server_host, client_host) = ground.ends(setting);
    let mut server = Running::start(end(ground, server_host, setting, "listen", (server_host, port))?)?;
    await_port(&server, port)?;
    // The heir.
    let dying_host = if kills_server { server_host } else { client_host };
    let mut sibling = Running::start(end(ground, dying_host, setting, "listen", (dying_host, port + 1))?)?;
    await_port(&sibling, port + 1)?;
    let mut client = Running::start(end(ground, client_host, setting, "connect", (server_host, port))?)?;
    await_connection(ground, port)?;
    let (dying, survivor) = if kills_server { (&mut server, client) } else { (&mut client, server) };
    match how {
        End::Killed => {
            dying.kill();
        }
        End::Exits => kill(Pid::from_raw(dying.pid() as i32), Signal::SIGTERM)?,
    }
    let heard = survivor.wait_until(Instant::now() + RUN);
    sibling.kill();
    ensure!(
        heard.success() && heard.output.contains("RDMA_CM_EVENT_DISCONNECTED 0"),
        "{setting:?}, the {} is {how:?}: {}\n{}",
        if kills_server { "server" } else { "client" },
        heard.verdict(),
        heard.output
    );
    Ok(())
}

/// Programs of different users of a host connect.
///
/// # Errors
/// If they do not.
pub fn users_connect(ground: &Ground) -> Result<()> {
    if !programs_become_nobody() {
        not_checked::tell("connection_manager_ends::users_connect needs root");
        return Ok(());
    }
    let host = &ground.hosts.first;
    for (port, others) in [(18_790, "listen"), (18_791, "connect")] {
        let of_user = |word: &str| -> Result<Running> {
            let command = end(ground, host, Setting::Udp, word, (host, port))?;
            Running::start(if word == others { as_other_user(&command) } else { command })
        };
        let mut server = of_user("listen")?;
        await_port(&server, port)?;
        let mut client = of_user("connect")?;
        let connected = await_connection(ground, port);
        server.kill();
        client.kill();
        connected.with_context(|| format!("the other user's {others}"))?;
    }
    Ok(())
}

/// A command, run by another user than nobody.
pub(crate) fn as_other_user(command: &Command) -> Command {
    let mut other = Command::new(command.get_program());
    other.args(
        command.get_args().map(|word| if word == "--reuid=65534" { OTHER_USER.as_ref() } else { word }),
    );
    other
}
