//! Two hosts on one machine: network namespaces joined by a veth pair, made without root where the kernel allows it.
//!
//! Each namespace is held by a `cat` that waits for the end of its standard input: when this process ends, however it
//! ends, the holders end, and the namespaces, which have no name, go with them. Nothing is left behind.
//!
//! As root the namespaces are made directly, and programs run in them as nobody. As another user a user namespace is
//! put around both (one around both, so that they share it: two would refuse each other cross-memory attach), and
//! programs run there without capabilities. Either way their locked-memory limit is 0.

use crate::limits::HOSTS_PATIENCE;
use crate::running::install::find_program;
use crate::running::pair::Running;
use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::Instant;

/// Has a program lock no memory.
const NO_LOCKS: [&str; 2] = ["prlimit", "--memlock=0:0"];

/// The name of each host's end of the veth pair.
pub const INTERFACE: &str = "pw0";

/// Mounts /sys for a network namespace, waits until a device (`$0`) is up, and runs a program. The kernel looks at new devices once a second, so
/// until then UCX would take none but the loopback device. After 500 tries the program starts anyway.
const DEVICE_SCRIPT: &str = r#"mount -t sysfs sysfs /sys || exit 1
tries=0
until [ "$(cat "/sys/class/net/$0/operstate")" = up ] || [ $tries -eq 500 ]; do
    sleep 0.01
    tries=$((tries + 1))
done
exec "$@""#;

/// The user and group that programs run as where this process is root.
pub const NOBODY: u32 = 65534;

/// A host: the machine itself, or a network namespace.
#[derive(Debug)]
pub struct Host {
    /// What to call it.
    pub name: &'static str,
    /// Its address.
    pub address: Ipv4Addr,
    enter: Vec<OsString>,
    privileges: Privileges,
    holder: Option<Holder>,
    processor: Option<usize>,
}

/// Two hosts that reach each other.
#[derive(Debug)]
pub struct Hosts {
    /// 10.79.0.1.
    pub first: Host,
    /// 10.79.0.2.
    pub second: Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Privileges {
    /// An ordinary user's process: nothing to drop.
    None,
    /// Root: becomes nobody.
    Root,
    /// Root inside a user namespace of our own only: drops what it can do there.
    Namespace,
}

impl Privileges {
    /// What this process has to drop. Root of a user namespace often cannot become nobody, who may have no number there.
    fn of_this_process() -> Privileges {
        static FOUND: OnceLock<Privileges> = OnceLock::new();
        *FOUND.get_or_init(|| {
            if !nix::unistd::geteuid().is_root() {
                return Privileges::None;
            }
            let mut tried = command_of(Privileges::Root.drop().iter().map(OsString::from).collect());
            tried.arg("true").stdout(Stdio::null()).stderr(Stdio::null());
            match tried.status() {
                Ok(status) if status.success() => Privileges::Root,
                Ok(_) | Err(_) => Privileges::Namespace,
            }
        })
    }

    /// The words in front of a program that drop it, and have the program end with this process, if that is killed.
    const fn drop(self) -> &'static [&'static str] {
        match self {
            Privileges::None => &["setpriv", "--pdeathsig=KILL", "--"],
            Privileges::Root => &[
                "setpriv",
                "--reuid=65534",
                "--regid=65534",
                "--clear-groups",
                "--inh-caps=-all",
                "--pdeathsig=KILL",
                "--",
            ],
            Privileges::Namespace => {
                &["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--pdeathsig=KILL", "--"]
            }
        }
    }
}

/// Whether programs on [`Host::here`] run as [`NOBODY`], and not as who runs this process.
pub fn programs_become_nobody() -> bool {
    Privileges::of_this_process() == Privileges::Root
}

/// The first two processors that this process may use, if there are two.
///
/// # Errors
/// The kernel's.
pub fn processors() -> Result<Option<[usize; 2]>> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut found = (0..CpuSet::count()).filter(|&processor| allowed.is_set(processor).unwrap_or(false));
    Ok(found.next().zip(found.next()).map(|(first, second)| [first, second]))
}

impl Host {
    /// The machine itself, by its loopback address.
    pub fn here() -> Host {
        Host {
            name: "this host",
            address: Ipv4Addr::LOCALHOST,
            enter: Vec::new(),
            privileges: Privileges::of_this_process(),
            holder: None,
            processor: None,
        }
    }

    /// Keeps the programs of the host on one processor, or (`None`) lets them use all.
    pub fn on_processor(self, processor: Option<usize>) -> Host {
        Host { processor, ..self }
    }

    /// This host for programs that are kept on one processor. It holds nothing: the host itself must outlive it.
    pub fn pinned(&self, processor: Option<usize>) -> Host {
        Host {
            name: self.name,
            address: self.address,
            enter: self.enter.clone(),
            privileges: self.privileges,
            holder: None,
            processor,
        }
    }

    /// A command that runs `program` on this host as an unprivileged user with a locked-memory limit of 0.
    ///
    /// The process started is the program itself (each step replaces the one before), so its PID is the child's.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        self.unprivileged(self.enter.clone(), Some(NO_LOCKS), program.as_ref())
    }

    /// As [`Host::command`], for a program that locks memory: the limit stays that of this process.
    pub fn command_with_locks(&self, program: impl AsRef<OsStr>) -> Command {
        self.unprivileged(self.enter.clone(), None, program.as_ref())
    }

    /// As [`Host::command`], for a program that looks for this host's network devices in /sys: it gets a /sys of its own, and starts when
    /// the device of a namespace is up there.
    pub fn command_with_devices(&self, program: impl AsRef<OsStr>) -> Command {
        let mut words = self.enter.clone();
        if self.holder.is_some() {
            words.extend(["unshare", "--mount", "sh", "-c", DEVICE_SCRIPT, INTERFACE].map(OsString::from));
        }
        self.unprivileged(words, Some(NO_LOCKS), program.as_ref())
    }

    fn unprivileged(&self, mut words: Vec<OsString>, limit: Option<[&str; 2]>, program: &OsStr) -> Command {
        if let Some(processor) = self.processor {
            words.extend(["taskset", "--cpu-list"].map(OsString::from));
            words.push(processor.to_string().into());
        }
        words.extend(limit.into_iter().flatten().map(OsString::from));
        words.extend(self.privileges.drop().iter().map(OsString::from));
        words.push(program.to_os_string());
        command_of(words)
    }

    /// A command that runs `program` on this host with what rights this process has there, to administer it.
    pub fn privileged(&self, program: impl AsRef<OsStr>) -> Command {
        let mut words = self.enter.clone();
        words.push(program.as_ref().to_os_string());
        command_of(words)
    }
}

fn command_of(words: Vec<OsString>) -> Command {
    let mut words = words.into_iter();
    // Never empty: a program's name was pushed last.
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).stdin(Stdio::null());
    command
}

impl Hosts {
    /// Makes two hosts, joined by a veth pair of MTU `mtu`.
    ///
    /// # Errors
    /// Where the kernel refuses, or a program that is needed (ip, unshare, nsenter, setpriv, prlimit) is missing; the
    /// error says which, and how to mend it.
    pub fn make(mtu: u32) -> Result<Hosts> {
        for program in ["ip", "unshare", "nsenter", "setpriv", "prlimit"] {
            if find_program(program).is_none() {
                let package = if program == "ip" { "iproute2" } else { "util-linux" };
                bail!("the program {program} is missing (Debian package {package})");
            }
        }
        let root = nix::unistd::geteuid().is_root();
        let made = Hosts::with(root, mtu);
        match made {
            // Root in a container often lacks CAP_SYS_ADMIN, but may have user namespaces.
            Err(as_root) if root => Hosts::with(false, mtu).map_err(|error| {
                let (first, second) = (format!("{as_root:#}"), format!("{error:#}"));
                if first == second { error } else { anyhow!("{first}; and in a user namespace: {second}") }
            }),
            made => made,
        }
    }

    fn with(as_root: bool, mtu: u32) -> Result<Hosts> {
        let (unshare, privileges): (&[&str], _) = if as_root {
            (&["unshare", "--net"], Privileges::of_this_process())
        } else {
            (&["unshare", "--user", "--map-root-user", "--net"], Privileges::Namespace)
        };
        let first = Holder::start(command_of(unshare.iter().map(OsString::from).collect()))
            .context("the kernel refuses namespaces to this user (pagewire doctor says how to mend it)")?;
        let user: &[&str] = if as_root { &[] } else { &["--user", "--preserve-credentials"] };
        let enter = |holder: &Holder| -> Vec<OsString> {
            let mut words: Vec<OsString> =
                vec!["nsenter".into(), format!("--target={}", holder.pid()).into()];
            words.extend(user.iter().map(OsString::from));
            words.push("--net".into());
            words
        };
        let mut words = enter(&first);
        words.extend(["unshare", "--net"].map(OsString::from));
        let second = Holder::start(command_of(words)).context("a second network namespace")?;

        let host = |name, address, holder: Holder| Host {
            name,
            address,
            enter: enter(&holder),
            privileges,
            holder: Some(holder),
            processor: None,
        };
        let peer = second.pid().to_string();
        let hosts = Hosts {
            first: host("host 1", Ipv4Addr::new(10, 79, 0, 1), first),
            second: host("host 2", Ipv4Addr::new(10, 79, 0, 2), second),
        };
        let mtu = mtu.to_string();
        let veth = [
            "link", "add", INTERFACE, "mtu", &mtu, "type", "veth", "peer", "name", INTERFACE, "mtu", &mtu,
            "netns", &peer,
        ];
        hosts.first.ip(&veth)?;
        for host in [&hosts.first, &hosts.second] {
            host.ip(&["link", "set", "lo", "up"])?;
            host.ip(&["address", "add", &format!("{}/24", host.address), "dev", INTERFACE])?;
            host.ip(&["link", "set", INTERFACE, "up"])?;
        }
        Ok(hosts)
    }
}

impl Host {
    /// Runs `ip` with `arguments` on this host.
    ///
    /// # Errors
    /// With what `ip` says, if it fails.
    pub fn ip(&self, arguments: &[&str]) -> Result<()> {
        let ip = find_program("ip").context("the program ip is missing (Debian package iproute2)")?;
        let mut command = self.privileged(ip);
        command.args(arguments);
        let finished = Running::start(command)?.wait_until(Instant::now() + HOSTS_PATIENCE);
        if !finished.success() {
            bail!("ip {}: {}", arguments.join(" "), finished.output.trim());
        }
        Ok(())
    }

    /// The process that keeps this host alive, if it is a namespace.
    pub fn holder(&self) -> Option<u32> {
        self.holder.as_ref().map(Holder::pid)
    }
}

/// A process that keeps a namespace alive for as long as it lives itself.
#[derive(Debug)]
struct Holder {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Holder {
    /// Starts `command` (which ends in words that make a namespace) as a holder; returns when the namespace is there.
    fn start(mut command: Command) -> Result<Holder> {
        let mut child = command
            .args(["sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let holder = Holder { child, stdin };
        let mut line = String::new();
        if let Some(stdout) = stdout {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line != "ready\n" {
            let mut why = String::new();
            if let Some(stderr) = stderr {
                stderr.take(4096).read_to_string(&mut why)?;
            }
            bail!("{}", explained(why.trim()));
        }
        Ok(holder)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// What unshare(1) says, with what its most puzzling answer means (ENOSPC, user_namespaces(7)).
fn explained(said: &str) -> String {
    let meaning = if said.contains("No space left on device") {
        " (user.max_user_namespaces or user.max_net_namespaces is 0 or used up)"
    } else {
        ""
    };
    format!("{said}{meaning}")
}

impl Drop for Holder {
    fn drop(&mut self) {
        // End of input ends the cat; the kill is for one that is stopped. Both may find it gone, which is the aim.
        drop(self.stdin.take());
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
