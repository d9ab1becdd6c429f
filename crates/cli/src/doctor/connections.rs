//! Connections by librdmacm (rdma_cm): the library, the device file, a real connection, and who owns ports.

use super::Finding;
use crate::running::connection_probe::DEVICE_FILE;
use crate::running::install::Installation;
use crate::running::loader::is_static;
use crate::running::probe;
use std::path::{Path, PathBuf};

/// The library's name as programs ask for it.
const LIBRARY: &str = "librdmacm.so.1";

/// Where the loader finds libraries of the system (ld.so(8)), on Debian and elsewhere.
const FOLDERS: [&str; 6] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/lib",
];

/// Ports that a finding names.
const SHOWN_PORTS: usize = 16;

pub(super) fn findings() -> Vec<Finding> {
    // Where the installation is not complete, its own finding says so.
    let connection = Installation::find().ok().map(|installation| connection(&installation));
    [Some(library()), connection, Some(kernel_device()), Some(ports())].into_iter().flatten().collect()
}

fn library() -> Finding {
    const CHECK: &str = "librdmacm";
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from));
    match folders.map(|folder| folder.join(LIBRARY)).find(|file| file.is_file()) {
        Some(file) => {
            Finding::ok(CHECK, described(&file), "programs that connect by rdma_cm use it unmodified")
        }
        None => Finding::costs(
            CHECK,
            format!("no {LIBRARY}"),
            "programs that connect by rdma_cm bring it along, or do not start",
            "install librdmacm1 (Debian, Ubuntu) or librdmacm",
        ),
    }
}

/// A library with its version: that stands in the name of the file that the link leads to.
fn described(file: &Path) -> String {
    let real = file.canonicalize().unwrap_or_else(|_| file.to_path_buf());
    let name = real.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // librdmacm.so.1.3.44.0: its own version, then that of rdma-core.
    let release = name.strip_prefix("librdmacm.so.1.").and_then(|version| version.split_once('.'));
    match release {
        Some((_, release)) => format!("{} of rdma-core {release}", real.display()),
        None => real.display().to_string(),
    }
}

fn connection(installation: &Installation) -> Finding {
    const CHECK: &str = "connection manager";
    const MEANS: &str = "programs that connect by rdma_cm do not run";
    if std::env::current_exe().is_ok_and(|command| is_static(&command)) {
        let found = "not tried: this command has the C library inside, and takes no library before it";
        return Finding::ok(CHECK, found, "`pagewire run -- rping -s` and `rping -c` try it");
    }
    match probe::connection(installation) {
        Ok(()) => Finding::ok(
            CHECK,
            format!("a program opens {DEVICE_FILE} and connects to itself"),
            "programs connect by rdma_cm",
        ),
        Err(error) => Finding::costs(
            CHECK,
            format!("a program cannot connect to itself: {error:#}"),
            MEANS,
            "see the other findings; PAGEWIRE_LOG=debug shows which call is refused",
        ),
    }
}

fn kernel_device() -> Finding {
    const CHECK: &str = "kernel's rdma_cm";
    if Path::new(DEVICE_FILE).exists() {
        Finding::costs(
            CHECK,
            format!("the kernel has {DEVICE_FILE}"),
            "programs on Pagewire open that one: they connect by the kernel's devices, or not at all",
            "modprobe -r rdma_ucm (as root), or run them in a container without that file",
        )
    } else {
        Finding::ok(CHECK, format!("no {DEVICE_FILE}"), "programs on Pagewire open Pagewire's")
    }
}

fn ports() -> Finding {
    const CHECK: &str = "rdma_cm ports";
    const MEANS: &str = "each belongs to one program of this network namespace";
    // Names may be of any bytes.
    let sockets = match std::fs::read("/proc/net/unix") {
        Ok(sockets) => sockets,
        Err(error) => {
            return Finding::costs(
                CHECK,
                format!("/proc/net/unix: {error}"),
                "the commands find no process to ask",
                "mount -t proc proc /proc",
            );
        }
    };
    let ports = owned_ports(&String::from_utf8_lossy(&sockets));
    let left_out = ports.len().saturating_sub(SHOWN_PORTS);
    let mut found = ports.into_iter().take(SHOWN_PORTS).collect::<Vec<_>>().join(", ");
    if left_out > 0 {
        found += &format!(" and {left_out} more");
    }
    Finding::ok(
        CHECK,
        if found.is_empty() { "none is owned".to_owned() } else { format!("owned: {found}") },
        MEANS,
    )
}

/// The ports whose names somebody holds (`pagewire-cm-SPACE-PORT`).
fn owned_ports(sockets: &str) -> Vec<String> {
    let port = |line: &str| {
        let (space, port) = line.rsplit(' ').next()?.strip_prefix("@pagewire-cm-")?.split_once('-')?;
        let space = match u16::from_str_radix(space, 16).ok()? {
            0x0106 => "TCP",
            0x0111 => "UDP",
            0x013F => "IB",
            0x0002 => "IPoIB",
            _ => return None,
        };
        Some(format!("{space} {}", port.parse::<u16>().ok()?))
    };
    sockets.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_from_names() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000: 00000002 00000000 00000000 0002 01 123 @pagewire-cm-0106-7174\n\
            0000: 00000002 00000000 00000000 0002 01 124 @pagewire-cm-0111-20000\n\
            0000: 00000002 00000000 00000000 0002 01 125 @pagewire-cm-0106-70000\n\
            0000: 00000002 00000000 00000000 0002 01 126 @pagewire-comm-7\n\
            0000: 00000002 00000000 00000000 0002 01 127 /run/pagewire-cm-0106-1\n";
        assert_eq!(owned_ports(table), ["TCP 7174", "UDP 20000"]);
    }

    #[test]
    fn version_stands_in_the_name_of_the_file() {
        let folder = tempfile::tempdir().expect("a directory");
        let file = folder.path().join("librdmacm.so.1.3.44.0");
        std::fs::write(&file, "").expect("written");
        let link = folder.path().join(LIBRARY);
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        assert!(
            described(&link).ends_with("librdmacm.so.1.3.44.0 of rdma-core 44.0"),
            "{}",
            described(&link)
        );
        let other = folder.path().join("other.so");
        std::fs::write(&other, "").expect("written");
        assert!(described(&other).ends_with("other.so"));
    }
}
