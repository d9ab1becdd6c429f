//! The wire, by judges that share no code with Pagewire: tshark must find no malformed packet, scapy must find every
//! ICRC right, in the engine's own capture and in one taken by the kernel (AF_PACKET).

use crate::ground::{Ground, Setting};
use crate::limits::{FAULTS, RUN};
use crate::{faults, not_checked};
use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pagewire_cli::hosts::INTERFACE;
use pagewire_cli::install::find_program;
use pagewire_cli::pair::Running;
use pagewire_cli::workload::Workload;
use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Opcodes of Pagewire's own.
const HOLD: u8 = 0xc2;
const RESUME: u8 = 0xc3;

/// The programs whose packets are judged: all opcodes of RC, UC and UD that they can be made to send.
const TRAFFIC: &[(&str, &[&str])] = &[
    ("ibv_rc_pingpong", &["-g", "0", "-n", "20", "-s", "10000", "-c"]),
    ("ibv_uc_pingpong", &["-g", "0", "-n", "20", "-s", "10000", "-c"]),
    ("ibv_ud_pingpong", &["-g", "0", "-n", "20", "-s", "1001", "-c"]),
    ("ib_write_bw", &["-F", "-n", "20", "-s", "20001"]),
    ("ib_read_bw", &["-F", "-n", "20", "-s", "20001"]),
    ("ib_atomic_lat", &["-F", "-n", "20"]),
    // As many packets as make it worth a socket connected to the peer.
    ("ib_send_lat", &["-F", "-n", "300"]),
];

/// Runs the traffic, captures it both ways, has both captures judged.
///
/// # Errors
/// If a program of the judges is missing, or a judge finds fault.
pub fn packets_are_right(ground: &Ground) -> Result<()> {
    for program in ["tshark", "dumpcap"] {
        ensure!(find_program(program).is_some(), "{program} is missing (Debian package tshark)");
    }
    let directory = tempfile::Builder::new().prefix("pagewire-wire-").tempdir()?;
    // The programs run as another user.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;

    // What leaves in one piece would be captured in one piece: the kernel is to cut before its tap.
    for host in [&ground.hosts.first, &ground.hosts.second] {
        host.ip(&["link", "set", INTERFACE, "gso_max_segs", "1"])?;
    }
    let judged = judge_traffic(ground, directory.path());
    for host in [&ground.hosts.first, &ground.hosts.second] {
        host.ip(&["link", "set", INTERFACE, "gso_max_segs", "65535"])?;
    }
    judged
}

fn judge_traffic(ground: &Ground, directory: &Path) -> Result<()> {
    let kernel = directory.join("kernel.pcapng");
    let mut command = ground.hosts.first.privileged("dumpcap");
    command.args(["-q", "-i", INTERFACE, "-f", "udp port 4791", "-w"]).arg(&kernel);
    let mut capture = Running::start(command)?;
    wait_for(&kernel, &mut capture)?;

    let own = directory.join("own.pcap");
    let own_text = own.to_str().context("a temporary directory that is not UTF-8")?;
    let (server, client) = ground.ends(Setting::Hosts);
    for &(program, arguments) in TRAFFIC {
        let workload = Workload {
            program,
            arguments,
            server,
            client,
            path: Setting::Hosts.path(),
            options: &[],
            environment: &[("PAGEWIRE_PCAP", own_text)],
            limit: RUN,
        };
        let outcome = workload.run(&ground.stage)?;
        ensure!(outcome.pair.success(), "{program}\n  {}", outcome.pair.complaint());
    }
    // dumpcap writes what it has when it is asked to end; then the file is complete.
    interrupt(&capture)?;
    let finished = capture.wait_until(Instant::now() + RUN);
    ensure!(finished.status.is_some(), "dumpcap did not end:\n{}", finished.output);

    let captures = files(directory)?;
    // Two processes for each program, and the kernel's.
    ensure!(captures.len() == 2 * TRAFFIC.len() + 1, "captures: {captures:?}");
    for file in captures {
        judge(&file).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// Packets that found a page absent, in the engine's own capture: HOLD says that one was dropped, RESUME asks for it when its page
/// is there, and then it comes again.
///
/// # Errors
/// If that is not what the capture shows, or a judge finds fault with it.
pub fn resumes_are_captured(ground: &Ground) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("pagewire-wire-").tempdir()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
    let program = faults::program(ground, "matrix")?;
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.args(["run", "--path", "udp", "--page-faults", "err", "--pcap"]);
    command.arg(directory.path().join("own.pcap")).arg("--").arg(program);
    command.args(["1", "few", "resident", "pager-user"]);
    let finished = Running::start(command)?.wait_until(Instant::now() + FAULTS);
    if finished.status.and_then(|status| status.code()) == Some(faults::NOT_HERE) {
        not_checked::tell(format_args!("wire::resumes_are_captured: {}", finished.output));
        return Ok(());
    }
    ensure!(finished.success(), "{}\n{}", finished.verdict(), finished.output);
    let captures = files(directory.path())?;
    ensure!(captures.len() == 2, "captures: {captures:?}");
    for file in captures {
        judge(&file).and_then(|()| resumes_make_sense(&file)).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

fn resumes_make_sense(file: &Path) -> Result<()> {
    const FIELDS: [&str; 3] = ["infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn"];
    let mut arguments = vec!["-T", "fields", "-e", "infiniband.vendor"];
    FIELDS.iter().for_each(|field| arguments.extend(["-e", field]));
    let lines = tshark(file, &arguments)?;
    let packets = lines.iter().map(|line| Captured::parse(line)).collect::<Result<Vec<_>>>()?;
    // Two threads that receive write their packets down one after the other: HOLD may stand behind its RESUME.
    let mut dropped = HashSet::new();
    for packet in packets.iter().filter(|packet| packet.opcode == HOLD) {
        ensure!(packet.number(10..16)? == packet.psn, "a HOLD of two PSNs: {packet:?}");
        dropped.insert((packet.destination, packet.psn));
    }
    let (mut asked, mut came) = (HashSet::new(), 0);
    for packet in &packets {
        let Captured { opcode, destination, psn, .. } = *packet;
        match opcode {
            HOLD => {}
            RESUME => {
                ensure!(packet.body.len() == 2 * (12 + 4), "a RESUME of another length: {packet:?}");
                let said = (packet.number(0..2)?, packet.number(10..16)?);
                ensure!(said == (1, psn), "another version or PSN: {packet:?}");
                ensure!(dropped.contains(&(destination, psn)), "nothing was dropped: {packet:?}");
                asked.insert((destination, psn));
            }
            // From here on responses and what is no request of RC.
            13.. if !(19..=23).contains(&opcode) => {}
            _ => came += usize::from(asked.iter().any(|(to, which)| *which == psn && *to != destination)),
        }
    }
    ensure!(!asked.is_empty(), "no RESUME was captured");
    ensure!(came >= asked.len() / 2, "{} packets were asked for, {came} came again", asked.len());
    Ok(())
}

/// A packet as tshark shows it.
#[derive(Debug)]
struct Captured<'a> {
    opcode: u8,
    destination: &'a str,
    psn: u32,
    /// The hexadecimal digits behind the BTH, with the ICRC.
    body: &'a str,
}

impl<'a> Captured<'a> {
    fn parse(line: &'a str) -> Result<Self> {
        let columns: Vec<&str> = line.split('\t').collect();
        let [vendor, opcode, destination, psn] = columns[..] else { bail!("tshark says {line}") };
        let body = vendor.rsplit(',').next().unwrap_or_default();
        Ok(Captured { opcode: opcode.parse()?, destination, psn: psn.parse()?, body })
    }

    /// The number of some digits of the body.
    fn number(&self, digits: Range<usize>) -> Result<u32> {
        Ok(u32::from_str_radix(self.body.get(digits).context("a short body")?, 16)?)
    }
}

/// Waits until dumpcap has opened its device: it makes the file then.
fn wait_for(file: &Path, capture: &mut Running) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !file.metadata().is_ok_and(|metadata| metadata.len() > 0) {
        ensure!(!capture.has_ended(), "dumpcap ended at once");
        ensure!(Instant::now() < deadline, "dumpcap did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn interrupt(capture: &Running) -> Result<()> {
    let pid = i32::try_from(capture.pid()).context("a PID that is not one")?;
    kill(Pid::from_raw(pid), Signal::SIGINT).context("dumpcap could not be asked to end")
}

fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    files.sort();
    Ok(files)
}

/// Nothing in a capture is malformed, and every ICRC is right.
///
/// # Errors
/// With what the judges say.
pub(crate) fn judge(file: &Path) -> Result<()> {
    // A packet that tshark takes for something else would never be called malformed.
    let protocols = tshark(file, &["-T", "fields", "-e", "frame.protocols"])?;
    ensure!(!protocols.is_empty(), "no packet was captured");
    if let Some(other) = protocols.iter().find(|line| !line.contains("infiniband")) {
        bail!("tshark takes a packet for {other}");
    }
    let faults = tshark(file, &["-Y", "_ws.malformed || _ws.expert.severity == \"Error\""])?;
    if !faults.is_empty() {
        bail!(
            "tshark finds fault with {} packets:\n{}",
            faults.len(),
            faults[..faults.len().min(10)].join("\n")
        );
    }
    let mut command = Command::new("/usr/bin/python3");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/check-icrc")).arg(file);
    let finished = Running::start(command)?.wait_until(Instant::now() + 5 * RUN);
    ensure!(finished.success(), "scapy: {}\n{}", finished.verdict(), finished.output);
    Ok(())
}

/// Protocols above RDMA that tshark guesses from any payload: the bytes of a pingpong are none of them, and would be
/// called malformed.
const GUESSED: [&str; 9] = [
    "smc",
    "smb_direct",
    "rpcordma",
    "nvme-rdma",
    "lnet",
    "iser",
    "infiniband.eoib",
    "infiniband_sdp",
    "fcoib",
];

/// What tshark prints about the packets of `file`, without its remark on running as root.
///
/// # Errors
/// If it fails.
pub(crate) fn tshark(file: &Path, arguments: &[&str]) -> Result<Vec<String>> {
    let mut command = Command::new("tshark");
    for protocol in GUESSED {
        command.args(["--disable-protocol", protocol]);
    }
    command.args(["--disable-heuristic", "eth_over_ib", "-r"]).arg(file).args(arguments);
    let finished = Running::start(command)?.wait_until(Instant::now() + RUN);
    ensure!(finished.success(), "tshark: {}\n{}", finished.verdict(), finished.output);
    let lines =
        finished.output.lines().filter(|line| !line.is_empty() && !line.starts_with("Running as user"));
    Ok(lines.map(str::to_owned).collect())
}
