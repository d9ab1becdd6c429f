//! SIGKILL of one side: the other sees it in bounded time and ends.

use crate::ground::{Ground, Setting};
use crate::limits::SURVIVOR;
use anyhow::{Result, ensure};
use pagewire_cli::hosts::Host;
use pagewire_cli::pair::Running;
use std::process::Command;
use std::time::{Duration, Instant};

/// Kills the server of a running ib_write_bw; the client must end by itself, with an error.
///
/// # Errors
/// If it hangs or claims success.
pub fn survivor_ends(ground: &Ground, setting: Setting) -> Result<()> {
    let (server_host, client_host) = ground.ends(setting);
    let port: u16 = 18_512 + setting as u16;
    let end = |host: &Host| -> Command {
        let mut command = host.command(&ground.stage.command);
        command.args(["run", "--path", setting.path().name(), "--", "ib_write_bw", "-F", "-D", "60"]);
        command.args(["-p", &port.to_string()]);
        command
    };
    let mut server = Running::start(end(server_host))?;
    ensure!(server.wait_listening(port), "the server did not listen");
    let mut client = end(client_host);
    client.arg(server_host.address.to_string());
    let client = Running::start(client)?;
    // Any moment will do; most often this one lies in the middle of the traffic.
    std::thread::sleep(Duration::from_secs(3));
    ensure!(!client.has_ended() && !server.has_ended(), "one side ended before the kill");
    server.kill();
    let finished = client.wait_until(Instant::now() + SURVIVOR);
    ensure!(finished.status.is_some(), "the survivor hangs:\n{}", finished.output);
    ensure!(!finished.success(), "the survivor noticed nothing:\n{}", finished.output);
    Ok(())
}
