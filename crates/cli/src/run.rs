//! `pagewire run`: starts a program with the engine in place of libibverbs.

use crate::arguments::{RunArguments, path_of_variable};
use crate::failures;
use crate::output::{findings, json_lines, report, watched};
use crate::running::install::{Installation, in_path, is_executable};
use crate::running::launch::{Launch, PATH_VARIABLE};
use crate::running::loader::{self, Preload};
use crate::running::preload;
use anyhow::{Context, Error, Result, bail};
use nix::sys::signal::Signal;
use nix::unistd::{Gid, Pid, Uid, getegid, geteuid, getuid};
use pagewire_fabric::{Tls, shortage};
use pagewire_nic::PathChoice;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::channel;
use std::thread::Builder;

/// Exit status if Pagewire itself failed.
pub const FAILURE: u8 = 125;

/// Runs the program; gives its exit status, or 126 or 127 as a shell does.
///
/// Without `--stats`, `--watch` and `--check` the program replaces this process, so that its PID, its signals and its exit status are its
/// own; with them, this process waits.
///
/// # Errors
/// If the engine is not found, `PAGEWIRE_PATH` or the file of the capture is of no use, or the counters cannot be read.
pub fn run(arguments: &RunArguments) -> Result<u8> {
    let installation = Installation::find()?;
    let mut launch = Launch::new(&installation, path(arguments)?);
    launch.connect_to = (!arguments.connect_to.is_empty()).then(|| arguments.connect_to.join(","));
    if let Some(tls) = &arguments.tls {
        if launch.path == PathChoice::Udp {
            bail!("--tls: datagrams are not encrypted; leave --path udp out, or PAGEWIRE_PATH");
        }
        Tls::load(tls).with_context(|| format!("--tls {tls}"))?;
        launch.tls = Some(tls.with_absolute_files().with_context(|| format!("--tls {tls}"))?);
    }
    if !arguments.page_faults.is_empty() {
        launch.page_faults = Some(arguments.page_faults.join(";"));
    }
    launch.page_in = arguments.page_in;
    launch.rate.clone_from(&arguments.rate);
    launch.device_name.clone_from(&arguments.device_name);
    launch.device_files = arguments.no_device_files.then_some(false);
    launch.heap = arguments.heap;
    launch.watch = (!arguments.watch.is_empty()).then(|| arguments.watch.join(","));
    if let Some(checkpoint) = &arguments.checkpoint {
        try_checkpoint(&checkpoint.folder)
            .with_context(|| format!("--checkpoint {}", checkpoint.folder.display()))?;
        launch.checkpoint = Some(checkpoint.clone());
    }
    if !arguments.fail.is_empty() {
        let words = arguments
            .fail
            .iter()
            .map(|rules| failures::words_of(rules).with_context(|| format!("--fail {rules}")));
        launch.fail = Some(words.collect::<Result<Vec<String>>>()?.join("\n"));
    }
    // A program may change its directory before the engine opens the file.
    launch.fail_log = arguments.fail_log.as_ref().map(std::path::absolute).transpose()?;
    launch.role.clone_from(&arguments.role);
    if let Some(file) = &arguments.pcap {
        // A program may change its directory before the engine opens the file.
        let file = std::path::absolute(file)?;
        try_capture(&file).with_context(|| format!("--pcap {}", file.display()))?;
        launch.pcap = Some(file);
    }

    let (program, operands) = arguments.program.split_first().context("no program is named")?;
    if let Some(file) = file_of(program) {
        look_at_program(&file, &mut launch)?;
    }
    let mut command = Command::new(program);
    command.args(operands);
    let counts = arguments.stats || launch.watch.is_some();
    if !counts && arguments.check.is_none() {
        launch.apply(&mut command);
        return Ok(refusal(program, &command.exec()));
    }

    let directory = tempfile::Builder::new().prefix("pagewire-stats-").tempdir().context(
        "--stats, --watch and --check need a directory for what they print, where TMPDIR says or in /tmp",
    )?;
    let (counters, findings) =
        (directory.path().join("stats.jsonl"), directory.path().join("findings.jsonl"));
    launch.stats = counts.then(|| counters.clone());
    launch.check = arguments.check.is_some().then(|| findings.clone());
    launch.check_buffers = arguments.check.as_deref() == Some("buffers");
    launch.apply(&mut command);
    let status = match wait_forwarding_signals(&mut command)? {
        Ok(status) => status,
        Err(error) => return Ok(refusal(program, &error)),
    };
    if counts {
        print_counters(&counters, status, arguments)?;
    }
    let has_findings = arguments.check.is_some() && print_findings(&findings, status, arguments.json)?;
    match code(status) {
        0 if has_findings => Ok(arguments.check_exit),
        code => Ok(code),
    }
}

/// Prints what the check of the processes of the program has found; whether that is something.
fn print_findings(file: &Path, status: ExitStatus, as_json: bool) -> Result<bool> {
    let reports = json_lines::read(file)?;
    match (reports.is_empty(), status.signal()) {
        (true, Some(signal)) => {
            crate::tell!(
                "pagewire: no report of the check: signal {signal} ended the program before it wrote one"
            );
        }
        (true, None) => crate::tell!(
            "pagewire: no report of the check: no process of the program opened a device and ended by exit(3)"
        ),
        (false, _) => findings::print(&reports, as_json)?,
    }
    Ok(findings::count(&reports) > 0)
}

/// Notes what the program names, and says why it does not run on Pagewire, if that can be seen.
fn look_at_program(file: &Path, launch: &mut Launch) -> Result<()> {
    launch.needed = preload::needed(file);
    if let Some(runtime) = launch.needed.iter().find(|name| preload::is_sanitizer(name.as_bytes())) {
        if launch.heap {
            bail!("--heap: {} has {runtime}, whose malloc(3) it needs: leave --heap out", file.display());
        }
    }
    if let Some(privilege) = privilege(file, Caller::this()) {
        crate::tell!(
            "pagewire: {} {privilege}: the loader gives it no engine, so it does not run on Pagewire itself (pagewire \
             run may be put behind it)",
            file.display()
        );
        return Ok(());
    }
    match loader::preload_of(file) {
        Preload::Possible => {}
        Preload::NoLoader => crate::tell!(
            "pagewire: {} is linked statically: nothing can be loaded into it, so it does not run on Pagewire itself \
             (link it with -libverbs dynamically; programs that it starts do run on Pagewire)",
            file.display()
        ),
        Preload::Refused(why) => bail!(
            "{}: {why}, and Pagewire's library needs glibc 2.28 or later: run it on such a system, or in a container of one",
            file.display()
        ),
    }
    Ok(())
}

/// Prints what the processes of the program have written of their counters.
fn print_counters(file: &Path, status: ExitStatus, arguments: &RunArguments) -> Result<()> {
    let reports = report::read_file(file)?;
    let unfinished =
        if !arguments.watch.is_empty() { watched::left_behind(file, &reports)? } else { Vec::new() };
    match (reports.is_empty(), status.signal()) {
        (true, _) if !unfinished.is_empty() && !arguments.stats => {}
        (true, Some(signal)) => {
            crate::tell!("pagewire: no counters: signal {signal} ended the program before it wrote them");
        }
        (true, None) => crate::tell!(
            "pagewire: no counters: no process of the program opened a device, ended by exit(3) and could write them"
        ),
        (false, _) => {
            if arguments.stats {
                report::print_summary(&reports)?;
            }
            // What the counters have of them is for people.
            if !arguments.stats || arguments.json {
                watched::print(&reports, arguments.json)?;
            }
        }
    }
    if !unfinished.is_empty() {
        crate::tell!(
            "pagewire: a process has not written its last counts: it runs on, or has ended before. These are of an earlier moment"
        );
        watched::print(&unfinished, arguments.json)?;
    }
    Ok(())
}

/// The file that `program` names.
fn file_of(program: &OsStr) -> Option<PathBuf> {
    let name = program.to_string_lossy();
    let file = if name.contains('/') { PathBuf::from(program) } else { in_path(&name)? };
    file.is_file().then_some(file)
}

/// Who starts a program.
#[derive(Clone, Copy)]
struct Caller {
    real_user: Uid,
    user: Uid,
    group: Gid,
    /// Programs that this process starts get no privileges (PR_SET_NO_NEW_PRIVS(2const)): nothing in a file gives any.
    gets_none: bool,
}

impl Caller {
    fn this() -> Caller {
        Caller {
            real_user: getuid(),
            user: geteuid(),
            group: getegid(),
            gets_none: nix::sys::prctl::get_no_new_privs().unwrap_or(false),
        }
    }
}

/// What a program gets by being started, if that has the loader ignore LD_PRELOAD (ld.so(8), secure-execution mode).
fn privilege(file: &Path, caller: Caller) -> Option<&'static str> {
    let about = file.metadata().ok()?;
    if caller.gets_none || is_on_nosuid(file) {
        return None;
    }
    let changes_user = about.mode() & 0o4000 != 0 && about.uid() != caller.user.as_raw();
    let changes_group = about.mode() & 0o2000 != 0 && about.gid() != caller.group.as_raw();
    if changes_user || changes_group {
        return Some("is set-user-ID or set-group-ID");
    }
    // Root has them anyway.
    let mut attribute = [0; 64];
    let length = rustix::fs::getxattr(file, "security.capability", &mut attribute).ok()?;
    let has_capabilities = !caller.real_user.is_root() && gives_capabilities(&attribute[..length]);
    has_capabilities.then_some("has file capabilities")
}

/// Whether files of this file system give nobody privileges (mount(8), nosuid).
fn is_on_nosuid(file: &Path) -> bool {
    rustix::fs::statvfs(file)
        .is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID))
}

/// Whether a program whose attribute security.capability is this gets capabilities from it (capabilities(7): words in little
/// endian; the first has the effective bit, every other one of the rest is of permitted capabilities).
fn gives_capabilities(attribute: &[u8]) -> bool {
    let mut words = attribute.chunks_exact(4).map(|word| word.iter().any(|byte| *byte != 0));
    let effective = attribute.first().is_some_and(|flags| flags & 1 != 0);
    let permitted = [words.nth(1), words.nth(1)];
    effective || permitted.contains(&Some(true))
}

/// The path asked for: by the option, else by the environment.
fn path(arguments: &RunArguments) -> Result<PathChoice> {
    if let Some(path) = arguments.path {
        return Ok(path);
    }
    let variable = std::env::var_os(PATH_VARIABLE).unwrap_or_default();
    Ok(path_of_variable(&variable).map_err(Error::msg)?.unwrap_or_default())
}

/// Makes sure that the engine will be able to make its capture beside `file`, before the program starts: in the
/// program it could only say so where the program finds no device.
fn try_capture(file: &Path) -> Result<()> {
    let name = file.file_name().filter(|_| !file.is_dir()).context("this is a directory, not a file")?;
    let directory = file.parent().unwrap_or(Path::new("/"));
    // A name of its own, as the engine's has the PID of each process in it.
    let mut own = name.to_os_string();
    own.push(format!(".{}.try", std::process::id()));
    let tried = directory.join(own);
    File::create_new(&tried)
        .and_then(|_| std::fs::remove_file(&tried))
        .with_context(|| format!("no file can be made in {}", directory.display()))
}

/// Makes the folder of checkpoints if it is absent, and sees whether the engine will be able to make folders in it.
fn try_checkpoint(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).context("the folder cannot be made")?;
    tempfile::Builder::new()
        .prefix(".pagewire-")
        .tempdir_in(folder)
        .context("no folder can be made in it")?;
    Ok(())
}

/// Says why `program` could not be started; gives the exit status that a shell would.
fn refusal(program: &OsStr, error: &io::Error) -> u8 {
    let name = program.to_string_lossy();
    let file = Path::new(program);
    let (code, why) = if !name.contains('/') {
        // Without a slash only PATH is searched, as in a shell. A directory in it that is closed to this user makes
        // the kernel's answer "permission denied", though nothing was found.
        match in_path(&name) {
            None if is_executable(file) => (127, format!("not found in PATH; did you mean ./{name}?")),
            None => (127, "not found in PATH".to_owned()),
            Some(found) => (126, format!("{}: {error}", found.display())),
        }
    } else if file.is_dir() {
        (126, "this is a directory, not a program".to_owned())
    } else if file.is_file() && !is_executable(file) {
        (126, format!("not executable (chmod +x {name})"))
    } else if file.is_file() && error.kind() == io::ErrorKind::NotFound {
        (126, "the interpreter or loader that it names does not exist".to_owned())
    } else if error.kind() == io::ErrorKind::NotFound {
        (127, "no such file".to_owned())
    } else {
        (126, error.to_string())
    };
    match shortage(error) {
        Some(limit) => crate::tell!("pagewire: {name}: {why}: {limit}"),
        None => crate::tell!("pagewire: {name}: {why}"),
    }
    code
}

/// Starts `command` and waits for it; the inner error says that it could not be started.
fn wait_forwarding_signals(command: &mut Command) -> Result<io::Result<ExitStatus>> {
    // Registered before the start: a signal between the two must not end this process and orphan the program.
    let mut signals = SignalsInfo::<WithOrigin>::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2])?;
    let handle = signals.handle();
    // The thread is there before the program: one that no signal reaches would have to be killed again.
    let (tell, told) = channel();
    let forwarder = Builder::new().name("pagewire-signals".to_owned()).spawn(move || {
        // None comes where the program could not be started.
        let Ok(pid) = told.recv() else { return };
        for origin in signals.forever() {
            // The terminal (the kernel, that is) sends its signals to the whole foreground group, the program included.
            if origin.cause == Cause::Kernel {
                continue;
            }
            if let Ok(signal) = Signal::try_from(origin.signal) {
                // The program may have ended just now; then there is nobody left to tell.
                let _ended = nix::sys::signal::kill(pid, signal);
            }
        }
    });
    let forwarder = forwarder.context("--stats, --watch and --check need a thread that forwards signals")?;
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return Ok(Err(error)),
    };
    tell.send(Pid::from_raw(i32::try_from(child.id())?)).ok();
    let status = child.wait()?;
    handle.close();
    forwarder.join().ok();
    Ok(Ok(status))
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn only_a_file_that_gives_privileges_runs_without_the_engine() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("program");
        std::fs::write(&file, "").expect("room");
        let with = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("our file");
            privilege(&file, Caller::this())
        };
        assert_eq!(with(0o755), None);
        // Its owner is who runs it: nothing changes.
        assert_eq!(with(0o4755), None);
        assert_eq!(file_of(OsStr::new("no-program-has-this-name")), None);
        assert_eq!(file_of(file.as_os_str()), Some(file.clone()));
        if geteuid().is_root() && !is_on_nosuid(&file) {
            std::os::unix::fs::chown(&file, Some(12_345), None).expect("root");
            assert_eq!(with(0o4755), Some("is set-user-ID or set-group-ID"));
            assert_eq!(privilege(&file, Caller { gets_none: true, ..Caller::this() }), None, "no_new_privs");
        }
    }

    #[test]
    fn file_capabilities_are_privileges_to_all_but_root() {
        // cap_net_raw: effective and permitted, permitted alone, inheritable alone, and what setcap(8) leaves of none at all.
        let attribute = |flags, permitted, inheritable| {
            let mut words = [[flags, 0, 0, 2], [0; 4], [0; 4], [0; 4], [0; 4]];
            (words[1][1], words[2][1]) = (permitted, inheritable);
            words.concat()
        };
        assert!(gives_capabilities(&attribute(1, 0x20, 0)));
        assert!(gives_capabilities(&attribute(0, 0x20, 0)));
        assert!(!gives_capabilities(&attribute(0, 0, 0x20)));
        assert!(!gives_capabilities(&attribute(0, 0, 0)));
        assert!(!gives_capabilities(&[]));
        let mut high = attribute(0, 0, 0);
        high[12] = 1;
        assert!(gives_capabilities(&high), "capability 32");

        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("program");
        std::fs::write(&file, "").expect("room");
        let nobody = Caller { real_user: Uid::from_raw(65_534), ..Caller::this() };
        assert_eq!(privilege(&file, nobody), None);
        let set = rustix::fs::setxattr(
            &file,
            "security.capability",
            &attribute(1, 0x20, 0),
            rustix::fs::XattrFlags::empty(),
        );
        match set {
            Ok(()) => {
                assert_eq!(privilege(&file, nobody), Some("has file capabilities"));
                assert_eq!(privilege(&file, Caller { real_user: Uid::from_raw(0), ..nobody }), None);
            }
            // Who is not root may not set them (CAP_SETFCAP).
            Err(error) => assert!(!geteuid().is_root(), "{error}"),
        }
    }
}
