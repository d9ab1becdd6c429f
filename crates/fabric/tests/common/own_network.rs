//! A network namespace for each test: what else runs on this machine, and shares the port, cannot disturb it.
//!
//! The test binary runs itself once more, with one test, below unshare(1): as root, or as root of a user namespace. The
//! namespace has no name and ends with the test's processes. It has a loopback device and a network device with an address.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Set in the process that runs in a namespace of its own.
const INSIDE: &str = "PAGEWIRE_TEST_OWN_NETWORK";
/// What makes the devices, then becomes the program that it is given.
const PREPARE: &str = "ip link set lo up \
    && ip link add pw0 type veth peer name pw1 && ip address add 10.80.0.1/24 dev pw0 \
    && ip link set pw0 up && ip link set pw1 up && exec \"$0\" \"$@\"";

/// A command that runs a program in a new namespace: as root, who stays root, or as anybody, who becomes root of a user namespace
/// where the kernel allows it (user_namespaces(7)).
fn command(program: &Path) -> Command {
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let user: &[&str] = if root { &[] } else { &["--user", "--map-root-user"] };
    let mut command = Command::new("unshare");
    command.args(user).args(["--net", "sh", "-c", PREPARE]).arg(program).stdin(Stdio::null());
    command
}

/// Whether the calling test is to go on: it is in a namespace of its own, or there is no way to have one. Otherwise it has been
/// run in one, and has passed.
pub fn is_here() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let refusal = match command("true".as_ref()).output() {
        Ok(tried) if tried.status.success() => None,
        Ok(tried) => Some(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    };
    if let Some(refusal) = refusal {
        eprintln!("no network of its own, others may disturb this test: {refusal}");
        return true;
    }
    let thread = std::thread::current();
    let test = thread.name().expect("the test harness names a test's thread after it");
    let ran = command(&std::env::current_exe().expect("a path"))
        .args(["--exact", test, "--nocapture", "--include-ignored"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare was there before");
    let (said, complained) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(
        ran.status.success() && said.contains(" 1 passed"),
        "in a network of its own ({}):\n{said}\n{complained}",
        ran.status
    );
    print!("{said}");
    // Past the capture of output, as it is meant: what could not be checked is told there.
    std::io::stderr().write_all(&ran.stderr).expect("the standard error output");
    false
}
