//! Programs of other people whose memory is saved (`pagewire run --checkpoint`), and whose counts outlive them.

use crate::ground::{Ground, Setting};
use crate::limits::RUN;
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::{Finished, Running};
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// For which a program that is asked runs: long enough to be asked on a machine with other work.
const SECONDS: &str = "8";

fn finish(mut command: Command, words: &[&str]) -> Result<Finished> {
    command.args(words);
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

/// A pair of `ib_write_bw` that runs for some seconds: the server with these options of `pagewire run`.
fn pair(
    ground: &Ground,
    setting: Setting,
    options: &[&str],
    (port, seconds): (u16, &str),
) -> Result<(Running, Running)> {
    let (server_host, client_host) = ground.ends(setting);
    let path = ["run", "--path", setting.path().name()];
    let number = port.to_string();
    let program = ["--", "ib_write_bw", "-F", "-s", "16384", "-D", seconds, "-p", &number];
    let mut server = server_host.command(&ground.stage.command);
    server.args(path).args(options).args(program);
    let mut server = Running::start(server)?;
    if !server.wait_listening(port) {
        anyhow::bail!("the server did not listen: {}", server.wait_until(Instant::now()).output);
    }
    let mut client = client_host.command(&ground.stage.command);
    client.args(path).args(program).arg(server_host.address.to_string());
    Ok((server, Running::start(client)?))
}

/// The files of the one process that saves to a folder, once there are any.
fn files(folder: &Path) -> Result<(PathBuf, Vec<PathBuf>)> {
    let patience = Instant::now() + RUN;
    loop {
        let process = std::fs::read_dir(folder).ok().and_then(|mut found| found.next()).transpose()?;
        if let Some(process) = process {
            let files: Vec<PathBuf> =
                std::fs::read_dir(process.path())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
            if !files.is_empty() {
                return Ok((process.path(), files));
            }
        }
        ensure!(Instant::now() < patience, "nothing is saved to {}", folder.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A program is saved while its peer writes: from time to time, and when somebody asks. Each file can be verified and extracted.
///
/// # Errors
/// If not.
pub fn a_program_is_saved(ground: &Ground, setting: Setting) -> Result<()> {
    let folder = tempfile::tempdir()?;
    // The programs run as another user.
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let saved = folder.path().join("saved");
    let option = format!("{},every=0.1", saved.display());
    let port = 18620 + setting as u16;
    let (server, client) = pair(ground, setting, &["--checkpoint", &option], (port, SECONDS))?;
    let (process, _) = files(&saved)?;
    let host = ground.ends(setting).0;
    let pid = process.extension().and_then(|pid| pid.to_str()).context("no PID in the name of the folder")?;
    let now = finish(host.command(&ground.stage.command), &["checkpoint", "--now", pid, "--json"])?;
    ensure!(now.success(), "{}", now.output);
    let round: Value = serde_json::from_str(now.output.trim())?;
    let regions = round["regions"].as_array().context("no regions")?;
    ensure!(!regions.is_empty() && regions.iter().all(|region| region["checkpoint"].is_u64()), "{round}");
    for end in [client, server] {
        let end = end.wait_until(Instant::now() + RUN);
        ensure!(end.success(), "{}", end.output);
    }
    for file in files(&saved)?.1 {
        let name = file.to_str().context("a name")?;
        let listed =
            finish(host.command(&ground.stage.command), &["checkpoint", "--verify", "--json", name])?;
        ensure!(listed.success(), "{}", listed.output);
        let object: Value = serde_json::from_str(listed.output.trim())?;
        let checkpoints = object["checkpoints"].as_array().context("no checkpoints")?;
        let is_whole = |checkpoint: &Value| checkpoint["whole"] == true;
        ensure!(checkpoints.len() > 1 && checkpoints.iter().all(is_whole), "{object}");
        ensure!(object["region"]["program"] == "ib_write_bw", "{object}");
        let length = object["regions"][0].as_u64().context("no length")?;
        let out = folder.path().join("bytes");
        let to = ["checkpoint", "--extract", out.to_str().context("a name")?, name];
        let extracted = finish(host.command(&ground.stage.command), &to)?;
        ensure!(extracted.success(), "{}", extracted.output);
        ensure!(
            out.metadata()?.len() == length,
            "{} bytes were extracted of {object}",
            out.metadata()?.len()
        );
        std::fs::remove_file(out)?;
    }
    Ok(())
}

/// A program that registers nothing with verbs is told that nothing was saved, and who has a peer that registers is not.
///
/// # Errors
/// If not.
pub fn a_program_without_verbs_is_told(ground: &Ground) -> Result<()> {
    let host = ground.ends(Setting::Local).0;
    let folder = tempfile::tempdir()?;
    std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777))?;
    let saved = folder.path().join("saved");
    let option = saved.to_str().context("a name")?;
    let ended = finish(host.command(&ground.stage.command), &["run", "--checkpoint", option, "--", "true"])?;
    ensure!(ended.success() && ended.output.contains("no region was saved to"), "{}", ended.output);
    // A folder that another process has made meanwhile speaks for itself.
    let makes = format!("import os; os.mkdir('{option}/program.1')");
    let quiet = finish(
        host.command(&ground.stage.command),
        &["run", "--checkpoint", option, "--", "python3", "-c", &makes],
    )?;
    ensure!(quiet.success() && !quiet.output.contains("no region was saved"), "{}", quiet.output);
    Ok(())
}

/// The counts of a program that SIGKILL has ended are printed.
///
/// # Errors
/// If they are not.
pub fn counts_outlive_a_signal(ground: &Ground) -> Result<()> {
    let options = ["--watch", "writes=count", "--json"];
    let (server, client) = pair(ground, Setting::Local, &options, (18622, "30"))?;
    let host = &ground.hosts.first;
    let patience = Instant::now() + RUN;
    let pid = loop {
        let told = finish(host.command(&ground.stage.command), &["explain", "--json"])?;
        let lines = told.output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let counted = lines
            .filter(|line| line["watch"]["accesses"]["writes"].as_u64().is_some_and(|writes| writes > 0))
            .find_map(|line| line["pid"].as_u64());
        if let Some(pid) = counted {
            break pid;
        }
        ensure!(Instant::now() < patience, "nothing is counted:\n{}", told.output);
        std::thread::sleep(Duration::from_millis(50));
    };
    // The time between two files of counts.
    std::thread::sleep(Duration::from_millis(500));
    let kill = Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
    ensure!(kill.success(), "PID {pid} cannot be killed");
    drop(client);
    let server = server.wait_until(Instant::now() + RUN);
    ensure!(server.status.and_then(|status| status.code()) == Some(128 + 9), "{}", server.output);
    let line = server.output.lines().find(|line| line.starts_with("{\"pid\""));
    let line = line.with_context(|| format!("no counts in:\n{}", server.output))?;
    let counts: Value = serde_json::from_str(line)?;
    let writes = counts["watch"]["accesses"]["writes"].as_u64();
    ensure!(counts["pid"] == pid && writes.is_some_and(|writes| writes > 0), "{line}");
    Ok(())
}
