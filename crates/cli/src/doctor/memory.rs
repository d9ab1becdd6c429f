//! Memory: page faults, huge pages, swap, the locked-memory limit.

use super::kernel::kernel_version;
use super::{Finding, setting};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use pagewire_active::LocalWrites;

pub(super) fn findings() -> Vec<Finding> {
    vec![
        locked_memory(),
        address_space(),
        file_size(),
        userfaultfd(),
        checkpoints(),
        transparent_huge_pages(),
        huge_pages(),
        swap(),
    ]
}

fn locked_memory() -> Finding {
    let found = match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => "unlimited".to_owned(),
        Ok((soft, _)) => format!("{} KB", soft / 1024),
        Err(error) => format!("unknown: {error}"),
    };
    Finding::ok("locked memory", found, "of no importance, 0 will do: nothing is pinned")
}

fn address_space() -> Finding {
    const CHECK: &str = "address space";
    // The arenas, threads, and some dozens of peers: a channel of 8 MB and tables of 72 MB each.
    const ENOUGH: u64 = 4 << 30;
    // The engine's arenas and tables.
    const LEAST: u64 = 320 << 20;
    match getrlimit(Resource::RLIMIT_AS) {
        Ok((RLIM_INFINITY, _)) => {
            Finding::ok(CHECK, "unlimited", "regions of any size, channels to any number of peers")
        }
        Ok((soft, _)) if soft >= ENOUGH => {
            Finding::ok(CHECK, format!("limit {} MB", soft >> 20), "room for channels to many peers")
        }
        Ok((soft, _)) if soft < LEAST => Finding::forbids(
            CHECK,
            format!("limit {} MB", soft >> 20),
            "the engine takes more than 320 MB of addresses (not of memory): it does not start",
            "raise that (ulimit -v unlimited)",
        ),
        Ok((soft, _)) => Finding::costs(
            CHECK,
            format!("limit {} MB", soft >> 20),
            "each local peer process takes 80 MB of addresses (not of memory): the local path may be refused",
            "raise that (ulimit -v unlimited)",
        ),
        Err(error) => Finding::costs(
            CHECK,
            format!("unknown: {error}"),
            "the limit could not be read",
            "raise that (ulimit -v unlimited)",
        ),
    }
}

fn file_size() -> Finding {
    const CHECK: &str = "file size";
    // The largest of the files in memory that processes share are the tables, of somewhat less.
    const ENOUGH: u64 = 72 << 20;
    match getrlimit(Resource::RLIMIT_FSIZE) {
        Ok((RLIM_INFINITY, _)) => {
            Finding::ok(CHECK, "unlimited", "room for the files in memory that processes share")
        }
        Ok((soft, _)) if soft >= ENOUGH => Finding::ok(
            CHECK,
            format!("limit {} MB", soft >> 20),
            "room for the files in memory that processes share",
        ),
        Ok((soft, _)) => Finding::forbids(
            CHECK,
            format!("limit {} KB", soft >> 10),
            "the limit holds for the files in memory too that processes share: the engine does not start",
            "raise that (ulimit -f unlimited)",
        ),
        Err(error) => Finding::costs(
            CHECK,
            format!("unknown: {error}"),
            "the limit could not be read",
            "raise that (ulimit -f unlimited)",
        ),
    }
}

fn userfaultfd() -> Finding {
    const CHECK: &str = "userfaultfd";
    const MEANS: &str =
        "whether a program's own pager gives a page is asked at each access that finds it absent";
    // The file is there if and only if the kernel was built with it.
    let unprivileged = setting("/proc/sys/vm/unprivileged_userfaultfd");
    match (unprivileged.as_deref(), kernel_version()) {
        (None, _) => Finding::ok(CHECK, "not in this kernel", "no program has a pager of its own"),
        (Some("1"), _) => Finding::ok(CHECK, "for all faults (by setting, not tried)", MEANS),
        (_, Some(version)) if version >= (5, 11) => {
            Finding::ok(CHECK, "for faults of user mode (by setting and version, not tried)", MEANS)
        }
        _ => Finding::costs(
            CHECK,
            "for root only (by setting, not tried)",
            "a page that a program's own pager gives may be waited for by a thread that should not",
            "sysctl vm.unprivileged_userfaultfd=1",
        ),
    }
}

fn checkpoints() -> Finding {
    const CHECK: &str = "checkpoints";
    const MEANS: &str = "a checkpoint of regions saves what has changed";
    match LocalWrites::best() {
        LocalWrites::WriteProtect => {
            Finding::ok(CHECK, "asynchronous write protection with PAGEMAP_SCAN (tried)", MEANS)
        }
        LocalWrites::SoftDirty => Finding::ok(CHECK, "soft-dirty bits (tried)", MEANS),
        LocalWrites::None => Finding::costs(
            CHECK,
            "neither asynchronous write protection nor soft-dirty bits (tried)",
            "each checkpoint of regions is a full copy",
            "Linux 6.7 or newer",
        ),
    }
}

fn transparent_huge_pages() -> Finding {
    const CHECK: &str = "transparent huge pages";
    let Some(choice) = setting("/sys/kernel/mm/transparent_hugepage/enabled") else {
        return Finding::costs(
            CHECK,
            "not in this kernel",
            "large copies between processes pay for each page of 4 KB",
            "a kernel with CONFIG_TRANSPARENT_HUGEPAGE",
        );
    };
    let chosen = choice.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    match chosen.as_str() {
        "always" => Finding::ok(CHECK, chosen, "large copies between processes are cheaper on huge pages"),
        "madvise" => Finding::ok(
            CHECK,
            chosen,
            "large copies are cheaper in memory for which the program asks for them (MADV_HUGEPAGE)",
        ),
        _ => Finding::costs(
            CHECK,
            chosen,
            "large copies between processes pay for each page of 4 KB",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

fn huge_pages() -> Finding {
    let count = setting("/proc/sys/vm/nr_hugepages").unwrap_or_else(|| "unknown".to_owned());
    Finding::ok(
        "huge pages",
        format!("{count} reserved"),
        "only for programs that ask for them (MAP_HUGETLB, perftest --use_hugepages); Pagewire needs none",
    )
}

fn swap() -> Finding {
    swap_in(&setting("/proc/swaps").unwrap_or_default())
}

/// A line of /proc/swaps: `file type size used priority`, in KB.
fn swap_in(table: &str) -> Finding {
    const CHECK: &str = "swap";
    let devices: Vec<(&str, u64)> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let mut fields = line.split_whitespace();
            Some((fields.next()?, fields.nth(2)?.parse().ok()?))
        })
        .collect();
    if devices.is_empty() {
        return Finding::ok(CHECK, "none", "anonymous memory stays present once it is touched");
    }
    let used: u64 = devices.iter().map(|(_, used)| used).sum();
    let names: Vec<&str> = devices.iter().map(|(name, _)| *name).collect();
    let found = format!("{}, {} MB used", names.join(", "), used >> 10);
    if names.iter().all(|name| name.contains("zram")) {
        Finding::ok(
            CHECK,
            found,
            "registered memory that is out comes back from compressed memory in microseconds",
        )
    } else if used == 0 {
        Finding::ok(CHECK, found, "registered memory may go to the disk when memory is short")
    } else {
        Finding::costs(
            CHECK,
            found,
            "registered memory that is out comes back at the speed of the disk; only accesses to it wait",
            "swap to compressed memory (zram), or give the programs that matter a memory.swap.max of 0 (cgroup)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn swap_costs_while_it_is_used_and_is_a_disk() {
        let head = "Filename Type Size Used Priority\n";
        let verdict = |lines: &str| swap_in(&format!("{head}{lines}")).verdict;
        assert_eq!(verdict(""), Verdict::Ok);
        assert_eq!(verdict("/dev/sda2 partition 8388604 0 -2\n"), Verdict::Ok);
        assert_eq!(verdict("/dev/sda2 partition 8388604 1024 -2\n"), Verdict::Costs);
        assert_eq!(verdict("/dev/zram0 partition 8388604 1024 100\n"), Verdict::Ok);
        assert_eq!(verdict("/dev/zram0 partition 8 1 100\n/dev/sda2 partition 8 1 -2\n"), Verdict::Costs);
    }
}
