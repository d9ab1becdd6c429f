//! Files that are served, got and put: inside a host and between hosts, unprivileged, without locked memory.

use crate::ground::{Ground, Setting};
use crate::limits::{RUN, SURVIVOR};
use crate::{compile, not_checked};
use anyhow::{Context, Result, ensure};
use pagewire_cli::pair::{Finished, Running};
use serde_json::Value;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Pieces, pages, and a part of one.
const LENGTH: usize = (9 << 20) + 4096 + 3;

/// Bytes of a file that takes a while.
const LONG: u64 = 1 << 30;

/// A directory that programs on the hosts can write to.
fn open_directory(path: &Path) -> Result<()> {
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, Permissions::from_mode(0o777))?)
}

fn contents(seed: u32) -> Vec<u8> {
    (0..LENGTH as u32).map(|at| ((at ^ seed).wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

/// Both ends of a transfer.
struct Ends<'a> {
    ground: &'a Ground,
    setting: Setting,
    port: u16,
}

impl Ends<'_> {
    fn command(&self, is_server: bool) -> Command {
        let (server, client) = self.ground.ends(self.setting);
        let host = if is_server { server } else { client };
        let mut command = host.command(&self.ground.stage.command);
        command.env("PAGEWIRE_PATH", self.setting.path().name()).env_remove("PAGEWIRE_ADDRESS");
        command
    }

    fn serve(&self, words: &[&str], file: &Path) -> Result<Running> {
        let (server, _) = self.ground.ends(self.setting);
        let mut command = self.command(true);
        command.args(["serve", "--address", &server.address.to_string(), "--port", &self.port.to_string()]);
        let mut running = Running::start({
            command.args(words).arg(file);
            command
        })?;
        if !running.wait_listening(self.port) {
            let ended = running.wait_until(Instant::now());
            anyhow::bail!("the server does not listen: {}\n{}", ended.verdict(), ended.output);
        }
        Ok(running)
    }

    fn place(&self, name: &str) -> String {
        let (server, _) = self.ground.ends(self.setting);
        format!("{}:{}:{name}", server.address, self.port)
    }

    /// Runs a client that must succeed, over the path that is asked for.
    fn transfer(&self, command: Command) -> Result<Value> {
        let ended = Running::start(command)?.wait_until(Instant::now() + RUN);
        ensure!(ended.success(), "{}\n{}", ended.verdict(), ended.output);
        let told: Value = serde_json::from_str(ended.output.trim()).context(ended.output.clone())?;
        let path = told["path"].as_str().unwrap_or_default();
        ensure!(path.starts_with(self.setting.path().name()), "the path is {path}");
        Ok(told)
    }
}

/// A file comes whole, another one is put, and a transfer whose server is killed goes on.
///
/// # Errors
/// If not.
pub fn files_travel(ground: &Ground, setting: Setting) -> Result<()> {
    let ends = Ends { ground, setting, port: 4792 };
    let directory = ground.stage.file(&format!("serve-{}", setting.name()));
    open_directory(&directory)?;
    let (source, copy) = (directory.join("a.bin"), directory.join("copy.bin"));
    fs::write(&source, contents(1))?;
    let server = ends.serve(&[], &source)?;
    let mut get = ends.command(false);
    get.args(["get", "--json", &ends.place("a.bin"), "--output"]).arg(&copy);
    ends.transfer(get)?;
    ensure!(fs::read(&copy)? == contents(1), "other bytes came");
    clocks_take_no_system_call(&ends, &copy)?;
    drop(server);

    let target = directory.join("target.bin");
    let server = ends.serve(&["--writable", "--size", "10M"], &target)?;
    let mut put = ends.command(false);
    put.args(["put", "--json"]).arg(&copy).arg(ends.place("target.bin"));
    ends.transfer(put)?;
    ensure!(fs::read(&target)?[..LENGTH] == contents(1), "other bytes are there");
    drop(server);
    a_lost_transfer_goes_on(&ends, &directory)?;
    Ok(fs::remove_dir_all(&directory)?)
}

/// Each operation looks at a clock. A system call in place of the vDSO costs as much as the operation.
fn clocks_take_no_system_call(ends: &Ends, copy: &Path) -> Result<()> {
    /// Exit status of the filter on a machine where nothing can be told.
    const NO_VDSO: i32 = 77;
    let filter = ends.ground.stage.file("without-clock-calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("clock/main.c");
    compile::once(&filter, || compile::c([source], &filter, &[""; 0]))?;
    let (_, client) = ends.ground.ends(ends.setting);
    let mut get = client.command(&filter);
    get.env("PAGEWIRE_PATH", ends.setting.path().name()).env_remove("PAGEWIRE_ADDRESS");
    get.arg(&ends.ground.stage.command).args(["get", "--json", "--force", &ends.place("a.bin"), "--output"]);
    get.arg(copy);
    let ended = Running::start(get)?.wait_until(Instant::now() + RUN);
    if ended.status.and_then(|status| status.code()) == Some(NO_VDSO) {
        not_checked::tell(&ended.output);
        return Ok(());
    }
    ensure!(ended.success(), "{}\n{}", ended.verdict(), ended.output);
    Ok(())
}

fn a_lost_transfer_goes_on(ends: &Ends, directory: &Path) -> Result<()> {
    let (source, copy) = (directory.join("long.bin"), directory.join("long.copy"));
    File::create(&source)?.set_len(LONG)?;
    let had = || -> u64 {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let parts = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "part"));
        parts.filter_map(|part| Some(part.metadata().ok()?.len())).max().unwrap_or(0)
    };
    let get = || {
        let mut get = ends.command(false);
        get.args(["get", "--json", &ends.place("long.bin"), "--output"]).arg(&copy);
        get
    };
    let mut server = ends.serve(&[], &source)?;
    let client = Running::start(get())?;
    let patience = Instant::now() + RUN;
    while had() == 0 {
        ensure!(!client.has_ended() && Instant::now() < patience, "nothing comes");
        std::thread::sleep(Duration::from_millis(1));
    }
    server.kill();
    let Finished { status, output, .. } = client.wait_until(Instant::now() + SURVIVOR);
    let code = status.with_context(|| format!("the client hangs:\n{output}"))?.code();
    ensure!(code == Some(1) && output.contains("run the same command again"), "{code:?}: {output}");
    let before = had();
    ensure!(before > 0 && before < LONG, "{before} bytes were kept");
    let _server = ends.serve(&[], &source)?;
    let told = ends.transfer(get())?;
    ensure!(told["resumed"].as_u64() >= Some(before), "{told}");
    ensure!(fs::metadata(&copy)?.len() == LONG, "a part of the file came");
    Ok(())
}
