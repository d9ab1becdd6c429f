//! Swap of our own for as long as something is tried or measured with it. It needs root.

use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{FallocateFlags, fallocate};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The kernel's way to more compressed memory devices.
const ZRAM: &str = "/sys/class/zram-control";

/// The priority, above what the machine may have itself: what is paged out goes here.
const PRIORITY: &str = "32000";

/// Swap that is used; dropping it takes it away.
#[derive(Debug)]
pub struct Swap {
    device: PathBuf,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    File,
    /// The number of the device.
    Zram(String),
}

impl Swap {
    /// A file of `bytes` in `directory`, which must be on a disk.
    ///
    /// # Errors
    /// Without the right to do this, without room, or on a file system that cannot do it.
    pub fn file(directory: &Path, bytes: u64) -> Result<Swap> {
        let device = directory.join(format!("swap-{}", std::process::id()));
        let file = File::create_new(&device).with_context(|| device.display().to_string())?;
        let swap = Swap { device, kind: Kind::File };
        file.set_permissions(Permissions::from_mode(0o600))?;
        let bytes = i64::try_from(bytes).context("a swap file of that size")?;
        fallocate(&file, FallocateFlags::empty(), 0, bytes).context("room for a swap file")?;
        swap.use_it()
    }

    /// Compressed memory that holds `bytes`.
    ///
    /// # Errors
    /// Without the right to do this, or on a kernel without zram.
    pub fn zram(bytes: u64) -> Result<Swap> {
        // Reading it makes a device.
        let number =
            fs::read_to_string(format!("{ZRAM}/hot_add")).context("a zram device")?.trim().to_owned();
        let device = PathBuf::from(format!("/dev/zram{number}"));
        let swap = Swap { device, kind: Kind::Zram(number.clone()) };
        fs::write(format!("/sys/block/zram{number}/disksize"), bytes.to_string()).context("a zram device")?;
        swap.use_it()
    }

    fn use_it(self) -> Result<Swap> {
        run("mkswap", &[self.device.as_os_str()])?;
        run("swapon", &["-p".as_ref(), PRIORITY.as_ref(), self.device.as_os_str()])?;
        Ok(self)
    }

    fn take_away(&self) -> Result<()> {
        let used = fs::read_to_string("/proc/swaps").context("/proc/swaps")?;
        let device = self.device.to_string_lossy();
        if used.lines().any(|line| line.split_whitespace().next() == Some(&*device)) {
            run("swapoff", &[self.device.as_os_str()])?;
        }
        match &self.kind {
            Kind::File => fs::remove_file(&self.device).context(device.into_owned()),
            Kind::Zram(number) => {
                fs::write(format!("{ZRAM}/hot_remove"), number).context("removing a zram device")
            }
        }
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        if let Err(error) = self.take_away() {
            crate::tell!("pagewire: {} is left behind: {error:#}", self.device.display());
        }
    }
}

fn run(program: &str, arguments: &[&OsStr]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Where swap is to lie if a file is used: not where files lie in memory.
///
/// # Errors
/// If there is no such place that can be written to.
pub fn disk() -> Result<PathBuf> {
    const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];
    for directory in [std::env::temp_dir(), PathBuf::from("/var/tmp")] {
        let system = rustix::fs::statfs(&directory).with_context(|| directory.display().to_string())?;
        if !IN_MEMORY.contains(&system.f_type) {
            return Ok(directory);
        }
    }
    bail!("no directory for temporary files is on a disk")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_used(directory: &Path) -> bool {
        let used = fs::read_to_string("/proc/swaps").expect("readable");
        used.contains(&*directory.to_string_lossy())
    }

    /// Where it is not permitted nothing may be left behind either.
    #[test]
    fn nothing_is_left_behind() {
        let directory = tempfile::tempdir_in(disk().expect("a disk")).expect("a directory");
        match Swap::file(directory.path(), 1 << 20) {
            Ok(_swap) => assert!(is_used(directory.path())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(!is_used(directory.path()));
        assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
    }
}
