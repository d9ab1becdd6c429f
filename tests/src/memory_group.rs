//! A memory cgroup of our own: the processes in it may not have more than so much in memory. It needs root.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

const MOUNT: &str = "/sys/fs/cgroup";

/// The group; dropping it removes it, when its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup {
    directory: PathBuf,
}

impl MemoryGroup {
    /// A group that may have `bytes` in memory, and any amount swapped out. `name` tells it from others of this process.
    ///
    /// # Errors
    /// Without the right to do this, or where the machine has no memory controller.
    pub fn make(name: &str, bytes: u64) -> Result<MemoryGroup> {
        let own = format!("pagewire-{}-{name}", std::process::id());
        let first = Path::new(MOUNT).join("memory");
        // cgroup(7): version 1 has a hierarchy for each controller, version 2 one for all.
        let (parent, limit) = if first.join("memory.limit_in_bytes").exists() {
            (first, "memory.limit_in_bytes")
        } else {
            let controllers = fs::read_to_string(Path::new(MOUNT).join("cgroup.controllers"))
                .context("no memory cgroup controller")?;
            if !controllers.split_whitespace().any(|controller| controller == "memory") {
                bail!("no memory cgroup controller");
            }
            fs::write(Path::new(MOUNT).join("cgroup.subtree_control"), "+memory")
                .context("memory cgroups of our own")?;
            (PathBuf::from(MOUNT), "memory.max")
        };
        let directory = parent.join(own);
        fs::create_dir(&directory).with_context(|| directory.display().to_string())?;
        let group = MemoryGroup { directory };
        fs::write(group.directory.join(limit), bytes.to_string()).context("the limit of a memory cgroup")?;
        Ok(group)
    }

    /// The file by which a process enters it.
    pub fn processes(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir(&self.directory) {
            eprintln!("{} is left behind: {error}", self.directory.display());
        }
    }
}
