//! Jobs by PMIx: Open MPI's mpirun and Slurm's srun start this program again, as the processes of a job.
//!
//! Slurm runs on one node, from a configuration in a temporary directory: munged, slurmctld and slurmd are started and ended here.

mod bootstrap_support;

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use bootstrap_support::exercise;
use pagewire::bootstrap::{Job, JobError};
use pagewire::{Node, Rights};
use rustix::process::{Pid, Signal, kill_process};

const SIZE: usize = 4;
/// For how long processes wait for each other's memory.
const PATIENCE: Duration = Duration::from_secs(60);
const SCENARIO: &str = "PAGEWIRE_TEST_SCENARIO";

/// Says that something was not looked at, and why, past the capture of output (as tests/src/not_checked.rs does).
fn not_checked(why: &str) {
    let line = format!("not checked: {}\n", why.trim().replace('\n', "; "));
    std::io::stderr().write_all(line.as_bytes()).expect("the standard error output");
}

/// A process of a job, which a launcher starts.
#[test]
#[ignore = "a process of another test"]
fn member() {
    if std::env::var(SCENARIO).as_deref() == Ok("ring") {
        ring();
        say("[done]");
        return;
    }
    if std::env::var(SCENARIO).as_deref() == Ok("killed") {
        return killed();
    }
    let job = Job::from_env().expect("join");
    assert_eq!(job.size(), SIZE);
    match std::env::var(SCENARIO).as_deref() {
        Ok("everything") => {
            exercise(&job);
            // Barriers with and without marks.
            (0..110).for_each(|_| job.barrier().expect("barrier"));
            exercise(&job);
            assert_eq!(Job::from_env().err(), Some(JobError::AlreadyJoined));
            drop(job);
            assert_eq!(Job::from_env().err(), Some(JobError::AlreadyJoined));
        }
        Ok("absent") => {
            job.barrier().expect("barrier");
            if job.rank() == 2 {
                thread::sleep(Duration::from_secs(8));
                return;
            }
            let error = job.all_gather(b"x").expect_err("rank 2 does not call");
            say(&format!("[rank {}: {error}]", job.rank()));
            return;
        }
        Ok("mismatch") => {
            let result =
                if job.rank() == 3 { job.broadcast(0, b"x").err() } else { job.all_gather(b"x").err() };
            assert!(
                job.rank() == 3 || matches!(result, Some(JobError::Mismatch { rank: 3, .. })),
                "{result:?}"
            );
            say(&format!("[mismatch at {}]", job.rank()));
            return;
        }
        other => panic!("{SCENARIO} is {other:?}"),
    }
    say("[done]");
}

/// Each process puts its rank to all others, with a signal, and adds to a counter of the first one.
fn ring() {
    let node = Node::from_env().expect("join");
    assert_eq!(node.size(), SIZE);
    let table = node.zeroed::<u64>(SIZE + 2).expect("a region");
    let tokens = node.all_gather(&table.export(Rights::all()).expect("an export")).expect("all tokens");
    let remotes: Vec<_> = tokens.iter().map(|token| node.open(token).expect("open")).collect();
    let own = node.rank() as u64;
    for remote in &remotes {
        let put = remote.put_signal(8 * own, vec![own + 100], remote.signal(8 * SIZE as u64).add(1));
        put.wait().expect("put");
    }
    remotes[0].fetch_add(8 * (SIZE as u64 + 1), own).wait().expect("fetch-add");
    table.signal(8 * SIZE as u64).expect("a signal").wait_until(|count| count == SIZE as u64).unwrap();
    for rank in 0..SIZE {
        assert_eq!(table.get(rank).expect("an element"), rank as u64 + 100);
    }
    let next = node.peer((node.rank() + 1) % SIZE).expect("the next rank");
    let held = node.conditional_write(next, 1, vec![own + 7]).expect("a held write");
    let opened = node.next_conditional_request(PATIENCE).expect("that of the rank before");
    let inbox = node.zeroed::<u64>(1).expect("a region");
    let released = opened.accept(&inbox.export(Rights::WRITE).expect("an export")).expect("a release");
    assert_eq!(released.wait().expect("written"), 8);
    held.wait().into_result().expect("written");
    assert_eq!(inbox.get(0).expect("an element"), (own + SIZE as u64 - 1) % SIZE as u64 + 7);
    node.barrier().expect("barrier");
    if own == 0 {
        assert_eq!(table.get(SIZE + 1).expect("an element"), (0..SIZE as u64).sum());
    }
    // Nobody leaves before all have seen it.
    node.barrier().expect("barrier");
}

/// One process is killed. The others get an error for it, and go on with each other.
fn killed() {
    const KILLED: usize = 2;
    let node = Node::from_env().expect("join");
    // A word that is put to, and two that survivors add to.
    let table = node.zeroed::<u64>(3).expect("a region");
    let tokens = node.all_gather(&table.export(Rights::all()).expect("an export")).expect("all tokens");
    let remotes: Vec<_> = tokens.iter().map(|token| node.open(token).expect("open")).collect();
    let own = node.rank();
    node.barrier().expect("barrier");
    if own == KILLED {
        kill_process(rustix::process::getpid(), Signal::KILL).expect("kill");
    }
    let start = Instant::now();
    let lost = loop {
        match remotes[KILLED].put(0, vec![1u64]).wait() {
            Ok(_) => assert!(start.elapsed() < PATIENCE, "the process is not dead"),
            Err(error) => break error.failure,
        }
    };
    assert!(matches!(lost, pagewire::Failure::PeerLost { .. }), "{lost}");
    for remote in remotes.iter().enumerate().filter(|(rank, _)| *rank != KILLED).map(|(_, remote)| remote) {
        remote.fetch_add(8, 1).wait().expect("the others are there");
    }
    let survivors = SIZE as u64 - 1;
    table.signal(8).expect("a signal").wait_until(|count| count == survivors).unwrap();
    say(&format!("[survived {own}]"));
    // Until all have seen it; a barrier would wait for the dead one. Who has all counts has gone already, and needs none.
    for remote in remotes.iter().enumerate().filter(|(rank, _)| *rank != KILLED).map(|(_, remote)| remote) {
        let _gone = remote.fetch_add(16, 1).wait();
    }
    table.signal(16).expect("a signal").wait_until(|count| count == survivors).unwrap();
}

/// Prints a line in one piece: launchers mix the output of their processes.
fn say(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("the standard output");
}

/// Ends a launcher that hangs.
fn output_within(mut command: Command, time: Duration) -> Output {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a launcher");
    let pid = Pid::from_child(&child);
    let (done, is_done) = channel::<()>();
    let guard = thread::spawn(move || {
        // The launcher ends its processes when it is asked to end. One that hangs itself is killed.
        for (time, signal) in [(time, Signal::TERM), (Duration::from_secs(10), Signal::KILL)] {
            if is_done.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(pid, signal);
            }
        }
    });
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let read = |mut from: Box<dyn std::io::Read + Send>| {
        thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).expect("the output");
            bytes
        })
    };
    let (stdout, stderr) = (read(Box::new(stdout.expect("piped"))), read(Box::new(stderr.expect("piped"))));
    let status = child.wait().expect("its end");
    drop(done);
    guard.join().expect("the guard");
    Output { status, stdout: stdout.join().expect("output"), stderr: stderr.join().expect("output") }
}

/// Runs a scenario, and returns what its processes printed.
fn run(launcher: Command, scenario: &str, timeout: u64) -> String {
    let output = start(launcher, scenario, timeout);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}: {}\n{text}\n{errors}", output.status);
    text
}

/// `launcher`: one that lets the others go on when a process is killed.
fn check_that_others_go_on(launcher: Command) {
    let output = start(launcher, "killed", 240);
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    for rank in [0, 1, 3] {
        assert!(text.contains(&format!("[survived {rank}]")), "{}\n{text}\n{errors}", output.status);
    }
}

fn start(mut launcher: Command, scenario: &str, timeout: u64) -> Output {
    launcher.arg(std::env::current_exe().expect("this program"));
    launcher.args(["--ignored", "--exact", "member", "--nocapture", "--test-threads=1"]);
    launcher.env(SCENARIO, scenario).env("PAGEWIRE_JOB_TIMEOUT", timeout.to_string());
    output_within(launcher, Duration::from_secs(300))
}

fn check(launcher: impl Fn() -> Command) {
    let text = run(launcher(), "everything", 240);
    assert_eq!(text.matches("[done]").count(), SIZE, "{text}");
    let text = run(launcher(), "ring", 240);
    assert_eq!(text.matches("[done]").count(), SIZE, "{text}");
    let text = run(launcher(), "mismatch", 240);
    assert_eq!(text.matches("[mismatch at").count(), SIZE, "{text}");
    // Those that fail leave the job as they should, so the launcher is content.
    let text = run(launcher(), "absent", 2);
    for rank in [0, 1, 3] {
        let expected = format!(
            "[rank {rank}: all_gather (operation 2): rank 2 did not answer at the launcher's PMIx server"
        );
        assert!(text.contains(&expected), "{text}");
    }
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian keeps daemons in /usr/sbin.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn has_pmix() -> bool {
    let listed = Command::new(find("ldconfig").unwrap_or("ldconfig".into())).arg("-p").output();
    listed.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("libpmix.so.2"))
}

#[test]
fn mpirun_starts_a_job() {
    let Some(mpirun) = find("mpirun") else { return not_checked("jobs by mpirun: openmpi-bin is missing") };
    if !has_pmix() {
        return not_checked("jobs by mpirun: libpmix2 is missing");
    }
    let sessions = tempfile::tempdir().expect("a directory");
    let launcher = || {
        let mut command = Command::new(&mpirun);
        command.env("TMPDIR", sessions.path());
        command.args(["--oversubscribe", "-n", "4"]);
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command
    };
    check(launcher);
    let mut command = launcher();
    command.arg("--enable-recovery");
    check_that_others_go_on(command);
}

/// Hosts of a job: network namespaces with a bridge between them.
struct Hosts {
    names: [String; 3],
    folder: tempfile::TempDir,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).stderr(Stdio::null()).status();
        }
    }
}

impl Hosts {
    /// A host of the launcher and two of the job, or what is missing for them.
    fn new() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() || find("ip").is_none() || find("unshare").is_none() {
            return Err("network namespaces need root, ip (iproute2) and unshare (util-linux)".into());
        }
        let id = std::process::id();
        let names = ["0", "1", "2"].map(|number| format!("pwjob{id}-{number}"));
        let hosts = Hosts { names, folder: tempfile::tempdir().expect("a directory") };
        for name in &hosts.names {
            run_ip(&["netns", "add", name])?;
            run_ip(&["-n", name, "link", "set", "lo", "up"])?;
        }
        let [launcher, members @ ..] = &hosts.names;
        run_ip(&["-n", launcher, "link", "add", "bridge0", "type", "bridge"])?;
        run_ip(&["-n", launcher, "addr", "add", "10.77.0.10/24", "dev", "bridge0"])?;
        run_ip(&["-n", launcher, "link", "set", "bridge0", "up"])?;
        let mut table = String::from("127.0.0.1 localhost\n");
        for (name, number) in members.iter().zip(1..) {
            let port = format!("port{number}");
            run_ip(&[
                "-n", launcher, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", name,
            ])?;
            run_ip(&["-n", launcher, "link", "set", &port, "master", "bridge0", "up"])?;
            run_ip(&["-n", name, "addr", "add", &format!("10.77.0.{number}/24"), "dev", "eth0"])?;
            run_ip(&["-n", name, "link", "set", "eth0", "up"])?;
            table += &format!("10.77.0.{number} {name}\n");
        }
        table += &format!("10.77.0.10 {launcher}\n");
        fs::write(hosts.path("hosts"), table).expect("a table of hosts");
        // Enters the namespace of a host and has its name there, as a remote shell would.
        let agent = "#!/bin/sh\nhost=$1\nshift\nexec ip netns exec \"$host\" unshare --uts sh -c \"hostname $host; $*\"\n";
        fs::write(hosts.path("agent"), agent).expect("an agent");
        fs::set_permissions(hosts.path("agent"), fs::Permissions::from_mode(0o755)).expect("a mode");
        Ok(hosts)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// mpirun at the launcher's host, of two processes at each of the others.
    fn mpirun(&self, mpirun: &Path) -> Command {
        let [launcher, one, other] = &self.names;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", launcher, "unshare", "--uts", "--mount", "sh", "-c"]);
        command.arg("mount --bind \"$1\" /etc/hosts && hostname \"$2\" && shift 2 && exec \"$@\"").arg("sh");
        command.arg(self.path("hosts")).arg(launcher).arg(mpirun);
        command.args(["--mca", "plm", "rsh", "--mca", "plm_rsh_agent"]).arg(self.path("agent"));
        command.args([
            "--mca",
            "oob_tcp_if_include",
            "10.77.0.0/24",
            "-n",
            "4",
            "-H",
            &format!("{one}:2,{other}:2"),
        ]);
        command.args(["-x", SCENARIO, "-x", "PAGEWIRE_JOB_TIMEOUT"]);
        command.env("TMPDIR", self.folder.path());
        command.envs([("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")]);
        command
    }
}

fn run_ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))),
    }
}

#[test]
fn mpirun_starts_a_job_on_two_hosts() {
    let Some(mpirun) = find("mpirun") else { return not_checked("jobs by mpirun: openmpi-bin is missing") };
    if !has_pmix() {
        return not_checked("jobs by mpirun: libpmix2 is missing");
    }
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => return not_checked(&format!("jobs on two hosts: {why}")),
    };
    let text = run(hosts.mpirun(&mpirun), "ring", 240);
    assert_eq!(text.matches("[done]").count(), SIZE, "{text}");
}

#[test]
fn pmix_variables_without_a_server_are_an_error() {
    let variables = [("PMIX_NAMESPACE", "nobody"), ("PMIX_RANK", "0"), ("PAGEWIRE_JOB_TIMEOUT", "20")];
    let lookup =
        |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
    let error = Job::from_variables(&lookup).expect_err("no server").to_string();
    if has_pmix() {
        assert!(error.contains("PMIx_Init") || error.contains("PMIX_RANK"), "{error}");
    } else {
        assert!(error.contains("install libpmix2"), "{error}");
    }
}

/// Daemons that end with the test, and what they leave behind with the directory.
struct Slurm {
    root: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // In the order of their start reversed: slurmd waits for munged otherwise.
        for daemon in self.daemons.iter_mut().rev() {
            let _ = kill_process(Pid::from_child(daemon), Signal::TERM);
            let start = Instant::now();
            while matches!(daemon.try_wait(), Ok(None)) && start.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(20));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Slurm {
    /// Starts a cluster of this node, or says what is missing for it.
    fn start() -> Result<Self, String> {
        let program = |name: &str, package: &str| find(name).ok_or(format!("{package} is missing"));
        let (munged, slurmctld) = (program("munged", "munge")?, program("slurmctld", "slurmctld")?);
        let (slurmd, _) = (program("slurmd", "slurmd")?, program("srun", "slurm-client")?);
        if !rustix::process::geteuid().is_root() {
            return Err("slurmd needs root".to_string());
        }
        if !has_pmix() {
            return Err("libpmix2 is missing".to_string());
        }
        let mut slurm = Self { root: tempfile::tempdir().expect("a directory"), daemons: Vec::new() };
        slurm.configure();
        let at = |name: &str| slurm.path(name).display().to_string();
        let mut command = Command::new(munged);
        command.args(["--foreground", "--force", &format!("--key-file={}", at("munge.key"))]);
        command
            .args([format!("--socket={}", at("munge.socket")), format!("--pid-file={}", at("munged.pid"))]);
        command
            .args([format!("--log-file={}", at("munged.log")), format!("--seed-file={}", at("munged.seed"))]);
        let mut commands = vec![(command, "munged")];
        for (program, arguments, name) in
            [(slurmctld, vec!["-D", "-f"], "slurmctld"), (slurmd, vec!["-D", "-f"], "slurmd")]
        {
            let mut command = Command::new(program);
            command.args(arguments).arg(slurm.path("slurm.conf")).env("SLURM_CONF", slurm.path("slurm.conf"));
            commands.push((command, name));
        }
        for (mut command, name) in commands {
            let log = fs::File::create(slurm.path(&format!("{name}.out"))).expect("a log");
            command.stdin(Stdio::null()).stdout(log.try_clone().expect("a log")).stderr(log);
            slurm.daemons.push(command.spawn().expect("a daemon"));
            slurm.wait_until_up(name)?;
        }
        let probe = slurm.client("srun").args(["--mpi=pmix", "-n", "1", "true"]).output().expect("srun");
        let errors = String::from_utf8_lossy(&probe.stderr);
        if errors.contains("Unable to load any plugin") {
            // Debian's plugin opens libpmix.so, which only the development package has.
            return Err(format!("Slurm cannot load its PMIx plugin (Debian: libpmix-dev): {errors}"));
        }
        Ok(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn configure(&self) {
        // slurmd reads its files as root, and refuses what others may write to.
        fs::set_permissions(self.root.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
        for name in ["state", "spool"] {
            fs::create_dir(self.path(name)).expect("a directory");
        }
        let key: Vec<u8> = (0..128u32).map(|index| (index * 37 + std::process::id()) as u8).collect();
        fs::write(self.path("munge.key"), key).expect("a key");
        fs::set_permissions(self.path("munge.key"), fs::Permissions::from_mode(0o600)).expect("a mode");
        let sockets: Vec<_> = (0..2).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let ports: Vec<_> =
            sockets.iter().map(|socket| socket.local_addr().expect("a port").port()).collect();
        let text = slurm_conf(self.root.path(), ports[0], ports[1]);
        fs::write(self.path("slurm.conf"), text).expect("a configuration");
        // No cgroup is made: the processes of a step are found by /proc.
        fs::write(self.path("cgroup.conf"), "CgroupAutomount=no\n").expect("a configuration");
    }

    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.path("slurm.conf")).stdin(Stdio::null());
        command
    }

    /// Waits until a daemon does its work, and tells the end of its log otherwise.
    fn wait_until_up(&mut self, name: &str) -> Result<(), String> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(30) {
            let is_up = match name {
                "munged" => self.path("munge.socket").exists(),
                "slurmctld" => {
                    self.client("scontrol").arg("ping").output().is_ok_and(|ping| ping.status.success())
                }
                _ => {
                    let nodes = self.client("sinfo").args(["-h", "-o", "%T"]).output();
                    nodes.is_ok_and(|nodes| String::from_utf8_lossy(&nodes.stdout).trim() == "idle")
                }
            };
            if is_up {
                return Ok(());
            }
            if let Ok(Some(status)) = self.daemons.last_mut().expect("just started").try_wait() {
                return Err(format!("{name} ends with {status}: {}", self.log(name)));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(format!("{name} does not come up within 30 s: {}", self.log(name)))
    }

    fn log(&self, name: &str) -> String {
        let text = ["out", "log"]
            .map(|end| fs::read_to_string(self.path(&format!("{name}.{end}"))).unwrap_or_default());
        let lines: Vec<_> = text.iter().flat_map(|text| text.lines()).collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

fn slurm_conf(root: &Path, controller: u16, daemon: u16) -> String {
    let root = root.display();
    let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("the name of the host");
    let node = name.trim().split('.').next().expect("the short name");
    format!(
        "ClusterName=pagewire
SlurmctldHost={node}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={daemon}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
MailProg=/bin/true
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.socket
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
SlurmctldLogFile={root}/slurmctld.log
SlurmdLogFile={root}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={node} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN
PartitionName=all Nodes={node} Default=YES MaxTime=INFINITE State=UP
"
    )
}

#[test]
fn srun_starts_a_job() {
    let slurm = match Slurm::start() {
        Ok(slurm) => slurm,
        Err(why) => return not_checked(&format!("jobs by srun: {why}")),
    };
    check(|| {
        let mut command = slurm.client("srun");
        command.args(["--mpi=pmix", "-n", "4"]);
        command
    });
    let mut command = slurm.client("srun");
    command.args(["--mpi=pmix", "-n", "4", "--kill-on-bad-exit=0", "--no-kill"]);
    check_that_others_go_on(command);
}
