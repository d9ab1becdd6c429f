//! Memory: page faults, huge pages, swap, the locked-memory limit.

use super::kernel::kernel_version;
use super::{Finding, setting};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

pub(super) fn findings() -> Vec<Finding> {
    vec![locked_memory(), userfaultfd(), pagemap_scan(), transparent_huge_pages(), huge_pages(), swap()]
}

fn locked_memory() -> Finding {
    let found = match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((RLIM_INFINITY, _)) => "unlimited".to_owned(),
        Ok((soft, _)) => format!("{} KB", soft / 1024),
        Err(error) => format!("unknown: {error}"),
    };
    Finding::ok("locked memory", found, "of no importance, 0 will do: nothing is pinned")
}

fn userfaultfd() -> Finding {
    const CHECK: &str = "userfaultfd";
    // The file is there if and only if the kernel was built with it.
    let Some(unprivileged) = setting("/proc/sys/vm/unprivileged_userfaultfd") else {
        return Finding::ok(CHECK, "not in this kernel", "not used yet; nothing depends on it");
    };
    let found = match (unprivileged.as_str(), kernel_version()) {
        ("1", _) => "for all faults (by setting, not tried)",
        (_, Some(version)) if version >= (5, 11) => {
            "for faults of user mode (by setting and version, not tried)"
        }
        _ => "for root only (by setting, not tried)",
    };
    Finding::ok(
        CHECK,
        found,
        "programs may use it on registered memory; Pagewire itself does not need it yet",
    )
}

fn pagemap_scan() -> Finding {
    let found = if kernel_version().is_some_and(|version| version >= (6, 7)) {
        "in this kernel (by version, not tried)"
    } else {
        "not in this kernel (by version): mincore and pagemap take its place"
    };
    Finding::ok("PAGEMAP_SCAN", found, "which pages are present is asked for whole blocks at once")
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
        "always" | "madvise" => {
            Finding::ok(CHECK, chosen, "large copies between processes are cheaper on huge pages")
        }
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
    Finding::ok("huge pages", format!("{count} reserved"), "only for programs that ask for them themselves")
}

fn swap() -> Finding {
    const CHECK: &str = "swap";
    let table = setting("/proc/swaps").unwrap_or_default();
    let devices: Vec<&str> =
        table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).collect();
    if devices.is_empty() {
        return Finding::ok(CHECK, "none", "anonymous memory stays present once it is touched");
    }
    let compressed = devices.iter().all(|device| device.contains("zram"));
    let found = devices.join(", ");
    if compressed {
        Finding::ok(CHECK, found, "memory that is out comes back from compressed memory in microseconds")
    } else {
        Finding::ok(
            CHECK,
            found,
            "memory that is out comes back at the speed of the disk; other accesses do not wait for it",
        )
    }
}
