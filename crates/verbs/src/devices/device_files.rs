//! The files by which programs look for RDMA devices: `/sys/class/infiniband`, `/sys/class/infiniband_verbs`,
//! `/dev/infiniband`, and what their links lead to.
//!
//! No kernel device is there, so that the C library's functions that take paths, descriptors of directories or directory
//! streams are wrapped (`c/`), and find these files beside the kernel's. The wrappers look at one word in a path before
//! anything else: whatever cannot be meant goes to the C library at once.
//!
//! The pure part: [`tree`] (what is where), [`resolve`] (paths), [`attributes`] (texts). [`layout`] builds the tree of this
//! process's devices. [`descriptors`], [`status`] and [`streams`] turn nodes into what the C library's functions give, and
//! [`calls`] is what the wrappers call. None of them changes any file, and none leaves anything behind: a file that is
//! opened is a sealed anonymous one.

pub mod attributes;
mod calls;
mod descriptors;
pub mod kernel;
pub mod layout;
pub mod resolve;
mod status;
mod streams;
pub mod tree;

use crate::boundary::{Errno, Result};
use crate::devices::device_list::devices;
use crate::limits::TREE_MILLISECONDS;
use layout::DeviceTree;
use libc::ENOENT;
use pagewire_memory::fork::PerProcess;
use pagewire_nic::device::Device;
use resolve::{Base, Kernel, KernelNode, Lazy, Resolution, resolve};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tree::NodeKind;

/// The tree as it was last built.
static KNOWN: PerProcess<Option<(Instant, Arc<DeviceTree>)>> = PerProcess::new();

thread_local! {
    /// Whether this thread builds or reads the tree: what it opens meanwhile is the kernel's.
    static BUSY: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread while it lives.
struct Busy;

impl Busy {
    /// None: this thread builds or reads the tree already, and is now in a signal handler or in the engine.
    fn begin() -> Option<Self> {
        (!BUSY.replace(true)).then_some(Busy)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.set(false);
    }
}

/// Whether the files are shown: `PAGEWIRE_DEVICE_FILES`.
fn are_shown() -> bool {
    // No lock: a forked child may find it taken by a thread that it does not have.
    static SHOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 2;
    match SHOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            // What is neither yes nor no is an error where the program looks for devices by a verb.
            let shown = crate::runtime::settings::device_files().unwrap_or(true);
            SHOWN.store(u8::from(shown), Ordering::Relaxed);
            shown
        }
        shown => shown != 0,
    }
}

/// The tree of the devices that there are now, or were a moment ago.
fn tree() -> Arc<DeviceTree> {
    let Some(mut known) = KNOWN.try_lock() else { return build() };
    let age = Duration::from_millis(TREE_MILLISECONDS);
    if let Some((_, tree)) = known.as_ref().filter(|(built, _)| built.elapsed() < age) {
        return tree.clone();
    }
    let tree = build();
    *known = Some((Instant::now(), tree.clone()));
    tree
}

/// What a file says that a device has at a path of sysfs: of that very device, also if it is gone.
///
/// # Errors
/// ENOENT for what is no file, and as path_resolution(7).
pub fn content_of(device: &Device, path: &[u8]) -> Result<String> {
    let lazy = Lazy::new(layout::ROOTS, || Arc::new(layout::tree(vec![device.clone()])));
    let base = Base { path: b"/", is_ours: false };
    match resolve(&lazy, &NoFiles, base, path, true)? {
        Resolution::Node(node) => match &lazy.get().node(node).kind {
            NodeKind::File(content) => Ok(content.text()),
            _ => Err(Errno(ENOENT)),
        },
        _ => Err(Errno(ENOENT)),
    }
}

/// A kernel without files.
struct NoFiles;

impl Kernel for NoFiles {
    fn look(&self, _path: &[u8]) -> KernelNode {
        KernelNode::Other
    }
}

fn build() -> Arc<DeviceTree> {
    let devices = devices().unwrap_or_else(|error| {
        log::warn!("no files of devices are shown: the network devices are not known: {error}");
        Vec::new()
    });
    Arc::new(layout::tree(devices))
}
