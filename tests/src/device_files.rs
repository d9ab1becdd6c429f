//! The files of the devices, as other people's programs find them under `pagewire run`.

use crate::ground::Ground;
use crate::limits::RUN;
use crate::not_checked;
use anyhow::{Result, ensure};
use pagewire_cli::pair::{Finished, Running};
use std::time::Instant;

fn run(ground: &Ground, words: &[&str]) -> Result<Finished> {
    let mut command = ground.hosts.first.command(&ground.stage.command);
    command.arg("run").args(words);
    Ok(Running::start(command)?.wait_until(Instant::now() + RUN))
}

const LISTED: &str = "/sys/class/infiniband:
pagewire0

/sys/class/infiniband_verbs:
abi_version
uverbs0
";

/// A Python program that looks for a device as libraries do: by patterns, links and names in directories.
const DISCOVERY: &str = r#"
import glob, os, subprocess
[ports] = glob.glob("/sys/class/infiniband/*/ports/*")
[interface] = os.listdir("/sys/class/infiniband/pagewire0/device/net")
parent = os.path.realpath("/sys/class/infiniband/pagewire0/../..")
assert parent == os.path.realpath("/sys/class/infiniband/pagewire0/device"), parent
assert open(ports + "/gid_attrs/ndevs/0").read().strip() == interface
assert os.path.exists("/dev/infiniband/uverbs0") and os.access("/dev/infiniband/uverbs0", os.R_OK | os.W_OK)
os.chdir("/sys/class")
assert "infiniband" in os.listdir(".") and os.path.isdir("infiniband/pagewire0")
print(subprocess.check_output(["cat", "/sys/class/infiniband/pagewire0/node_type"], text=True), end="")
"#;

/// What programs of the system print of the files: coreutils, findutils, a shell and Python, and their children.
///
/// # Errors
/// If one prints something else.
pub fn programs_find_them(ground: &Ground) -> Result<()> {
    let address = ground.hosts.first.address.octets().map(|byte| format!("{byte:02x}"));
    let gid =
        format!("0000:0000:0000:0000:0000:ffff:{}{}:{}{}\n", address[0], address[1], address[2], address[3]);
    let device = "/sys/class/infiniband/pagewire0";
    let copy = format!("copy=$(mktemp) && cp {device}/node_type $copy && wc -c <$copy && rm -f $copy");
    let cases: [(&[&str], &str); 10] = [
        (&["ls", "/sys/class/infiniband", "/sys/class/infiniband_verbs"], LISTED),
        (&["cat", &format!("{device}/ports/1/gids/0")], &gid),
        (&["cat", &format!("{device}/ports/1/state")], "4: ACTIVE\n"),
        (&["sh", "-c", &format!("cat {device}/ports/1/l[i]nk_lay*")], "Ethernet\n"),
        (&["realpath", &format!("{device}/../..")], "/sys/devices/platform/pagewire_infiniband.0.auto\n"),
        (&["readlink", device], "../../devices/platform/pagewire_infiniband.0.auto/infiniband/pagewire0\n"),
        (
            &["find", &format!("{device}/"), "-name", "node_guid", "-type", "f"],
            &format!("{device}/node_guid\n"),
        ),
        (&["stat", "--format", "%F %t:%T", "/dev/infiniband/uverbs0"], "character special file e7:c0\n"),
        (&["sh", "-c", &copy], "6\n"),
        (&["python3", "-c", DISCOVERY], "1: CA\n"),
    ];
    for (words, wanted) in cases {
        let finished = run(ground, &[&["--"], words].concat())?;
        ensure!(
            finished.success() && finished.output == wanted,
            "{words:?}: {}\n{}",
            finished.verdict(),
            finished.output
        );
    }
    Ok(())
}

/// A port says in sysfs and by `ibv_query_port` what its best path carries, or what the user says.
///
/// # Errors
/// If it says something else.
pub fn rates_are_those_of_the_best_path(ground: &Ground) -> Result<()> {
    let rate = "/sys/class/infiniband/pagewire0/ports/1/rate";
    let cases: [(&[&str], &str, &str); 3] = [
        (&[], "100 Gb/sec (4X EDR)\n", "25.0 Gbps (32)"),
        (&["--path", "udp"], "10 Gb/sec (1X FDR10)\n", "10.0 Gbps (8)"),
        (&["--rate", "25"], "25 Gb/sec (1X EDR)\n", "25.0 Gbps (32)"),
    ];
    for (options, in_file, by_verb) in cases {
        let file = run(ground, &[options, &["--", "cat", rate]].concat())?;
        ensure!(file.success() && file.output == in_file, "{options:?}: {}", file.output);
        let verb = run(ground, &[options, &["--", "ibv_devinfo", "-v"]].concat())?;
        ensure!(verb.output.contains(by_verb), "{options:?}: {by_verb} is missing in:\n{}", verb.output);
    }
    Ok(())
}

/// With `--no-device-files` a program sees what the kernel has, which is nothing where there is no adapter.
///
/// # Errors
/// If it sees the device.
pub fn they_can_be_left_out(ground: &Ground) -> Result<()> {
    let finished = run(ground, &["--no-device-files", "--", "ls", "/sys/class/infiniband/pagewire0"])?;
    ensure!(!finished.success() && finished.output.contains("No such file"), "{}", finished.output);
    Ok(())
}

/// Debian's UCX takes a device only if it finds its file in `/dev/infiniband`.
///
/// # Errors
/// If it does not list its transports over verbs.
pub fn ucx_finds_the_device(ground: &Ground) -> Result<()> {
    if std::process::Command::new("ucx_info").arg("-v").output().is_err() {
        not_checked::tell("whether UCX finds the device: ucx_info is missing (ucx-utils)");
        return Ok(());
    }
    let finished = run(ground, &["--", "ucx_info", "-d"])?;
    for transport in ["Transport: rc_verbs", "Transport: ud_verbs", "Device: pagewire0:1"] {
        ensure!(finished.output.contains(transport), "{transport} is missing in:\n{}", finished.output);
    }
    Ok(())
}
