//! Whether the memory cgroup of this process has a limit, on a machine that swaps: others' system calls must leave such memory alone.
//!
//! What get_user_pages comes by (process_vm_readv(2), process_vm_writev(2) and MADV_POPULATE_WRITE use it) Linux marks as accessed once
//! more than what a program touches, so that the first look for pages to swap out moves it among the active ones instead. Whether
//! some of these are to come back it decides by figures of the cgroup that may be two seconds old: where all pages of a cgroup have gone
//! that way it finds none to swap out, and the OOM killer ends a process (seen with 6.18 and cgroups of version 1;
//! docs/experiments/memory-cgroups.md).

use crate::Uncancelled;
use rustix::process::getpid;
use std::fs::{File, read_to_string};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Where cgroups are mounted (cgroups(7)).
const MOUNT: &str = "/sys/fs/cgroup";

/// Version 1 says so that there is no limit: the greatest number of bytes, in whole pages.
const NO_LIMIT: u64 = 1 << 60;

/// Whether this process is in a memory cgroup with a limit, and there is swap now. Where that cannot be found out: no.
pub fn swaps_at_a_limit() -> bool {
    swap_is_used().unwrap_or(false) && has_limit(getpid().as_raw_nonzero().get())
}

/// Whether a process is in a memory cgroup with a limit. Where that cannot be found out: no.
pub fn has_limit(pid: i32) -> bool {
    let _uncancelled = Uncancelled::begin();
    read_to_string(format!("/proc/{pid}/cgroup"))
        .is_ok_and(|groups| is_limited(&groups, |file| read_to_string(file).ok()))
}

/// Whether swap is in use on this machine.
///
/// # Errors
/// Where the kernel does not tell.
pub fn swap_is_used() -> io::Result<bool> {
    let _uncancelled = Uncancelled::begin();
    // The first line is a title (proc_swaps(5)).
    File::open("/proc/swaps").map(|list| BufReader::new(list).lines().count() > 1)
}

/// Whether one of the groups of `/proc/PID/cgroup`, or one above it, has a limit by what `read` finds in the files of the mount.
/// Those that a container does not see have none.
fn is_limited(groups: &str, read: impl Fn(&Path) -> Option<String>) -> bool {
    groups.lines().any(|line| {
        let mut words = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(group)) = (words.next(), words.next()) else { return false };
        let (mount, file) = match controllers {
            "" => (PathBuf::from(MOUNT), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (Path::new(MOUNT).join("memory"), "memory.limit_in_bytes")
            }
            _ => return false,
        };
        let group = mount.join(group.trim_start_matches('/'));
        let limits = |directory: &Path| {
            let limit = read(&directory.join(file)).and_then(|limit| limit.trim().parse::<u64>().ok());
            limit.is_some_and(|limit| limit < NO_LIMIT)
        };
        group.ancestors().take_while(|directory| directory.starts_with(&mount)).any(limits)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(groups: &str, files: &[(&str, &str)]) -> bool {
        is_limited(groups, |file| {
            let found = files.iter().find(|(name, _)| Path::new(name) == file);
            found.map(|(_, content)| format!("{content}\n"))
        })
    }

    #[test]
    fn a_limit_of_version_1_counts_in_its_group_and_above() {
        let groups = "5:cpu:/other\n4:memory,hugetlb:/a/b\n0::/\n";
        let (own, above) = (
            "/sys/fs/cgroup/memory/a/b/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        );
        assert!(limited(groups, &[(own, "67108864")]));
        assert!(limited(groups, &[(own, "9223372036854771712"), (above, "67108864")]));
        assert!(!limited(groups, &[(own, "9223372036854771712"), (above, "9223372036854771712")]));
        assert!(!limited("5:cpu:/a/b\n", &[(own, "67108864")]), "of another controller");
    }

    #[test]
    fn a_limit_of_version_2_counts_likewise() {
        let (own, above) = ("/sys/fs/cgroup/a:b/c/memory.max", "/sys/fs/cgroup/a:b/memory.max");
        assert!(limited("0::/a:b/c\n", &[(own, "4096")]));
        assert!(limited("0::/a:b/c\n", &[(own, "max"), (above, "4096")]));
        assert!(!limited("0::/a:b/c\n", &[(own, "max"), (above, "max")]));
        assert!(!limited("0::/elsewhere\n", &[(own, "4096")]));
    }

    #[test]
    fn what_cannot_be_read_is_no_limit() {
        for groups in ["", "\n", "0::", "memory", "4:memory", "0::/../..\n"] {
            assert!(!limited(groups, &[]), "{groups:?}");
        }
        // A process sees its own lists.
        assert!(swap_is_used().is_ok());
        assert!(swap_is_used().is_ok_and(|used| used) || !swaps_at_a_limit(), "without swap nobody swaps");
    }
}
