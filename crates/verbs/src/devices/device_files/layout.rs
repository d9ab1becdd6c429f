//! Which files a device has, and where: as a RoCE device has them that sits on a platform device.
//!
//! Every path has `infiniband` in it (the names above the first shared directories apart), so that one search in a path tells
//! whether the tree has to be asked for it ([`super::calls`]).

use super::attributes::{gid, guid, port};
use super::kernel::{self, VERBS, uverbs_number};
use super::tree::{NodeKind, Tree};
use crate::connection_manager::DEVICE_FILE;
use crate::devices::device_attributes::DEFAULT_PKEY;
use crate::devices::port_counters;
use crate::limits::FIXED_UVERBS;
use pagewire_fabric::network_devices;
use pagewire_nic::device::Device;
use std::sync::Arc;

/// What a file holds.
#[derive(Debug, Clone)]
pub enum FileContent {
    Text(String),
    /// What is looked up anew whenever the file is opened.
    Now(Arc<Device>, fn(&Device) -> String),
    /// A count of a port, by its path below `ports/1`, which grows.
    Counter(Arc<Device>, &'static str),
}

impl FileContent {
    /// The bytes of the file.
    pub fn text(&self) -> String {
        match self {
            FileContent::Text(text) => text.clone(),
            FileContent::Now(device, text) => text(device),
            FileContent::Counter(device, path) => port_counters::text(device, path),
        }
    }
}

/// The tree of this process's devices.
pub type DeviceTree = Tree<FileContent>;

/// The names in the root that the tree has.
pub const ROOTS: &[&str] = &["dev", "sys"];

/// The major number of uverbs devices, and the first minor one (the kernel's `IB_UVERBS_MAJOR` and `IB_UVERBS_BASE_MINOR`).
const UVERBS_MAJOR: u32 = 231;
const UVERBS_BASE_MINOR: u32 = 192;

/// The numbers of the connection manager's device: that of miscellaneous devices, and one that the kernel gives to those that have asked
/// for none.
const MISC_MAJOR: u32 = 10;
const MANAGER_MINOR: u32 = 122;

/// The version of the kernel's interface that `/sys/class/infiniband_verbs` tells.
const ABI_VERSION: &str = "6\n";

const INFINIBAND: &str = "/sys/class/infiniband";
const PLATFORM: &str = "/sys/devices/platform";
const NODES: &str = "/dev/infiniband";

/// The tree of some devices; without any, an empty one.
pub fn tree(devices: Vec<Device>) -> DeviceTree {
    let mut tree = Tree::new();
    if devices.is_empty() {
        return tree;
    }
    for shared in [INFINIBAND, VERBS, PLATFORM, NODES] {
        tree.add_shared(shared);
    }
    if !kernel::exists(&format!("{VERBS}/abi_version")) {
        tree.add(&format!("{VERBS}/abi_version"), NodeKind::File(FileContent::Text(ABI_VERSION.into())));
    }
    // A kernel's own connection manager stays what programs reach.
    if !kernel::exists(DEVICE_FILE) {
        tree.add(DEVICE_FILE, NodeKind::CharacterDevice { major: MISC_MAJOR, minor: MANAGER_MINOR });
    }
    for device in devices {
        add_device(&mut tree, Arc::new(device));
    }
    tree
}

/// Adds files to a directory.
struct DirectoryBuilder<'a> {
    tree: &'a mut DeviceTree,
    path: String,
}

impl DirectoryBuilder<'_> {
    fn text(&mut self, name: &str, text: impl Into<String>) {
        self.tree.add(&format!("{}/{name}", self.path), NodeKind::File(FileContent::Text(text.into())));
    }

    fn now(&mut self, name: &str, device: &Arc<Device>, text: fn(&Device) -> String) {
        self.tree
            .add(&format!("{}/{name}", self.path), NodeKind::File(FileContent::Now(device.clone(), text)));
    }

    fn link(&mut self, name: &str, target: impl Into<String>) {
        self.tree.add(&format!("{}/{name}", self.path), NodeKind::Link(target.into()));
    }
}

fn add_device(tree: &mut DeviceTree, device: Arc<Device>) {
    let number = uverbs_number(&device);
    let parent = format!("pagewire_infiniband.{}.auto", device.index);
    let name = &device.name;
    let classes =
        [(INFINIBAND, "infiniband", name.clone()), (VERBS, "infiniband_verbs", format!("uverbs{number}"))];
    for (class, folder, name) in classes {
        let target = format!("../../devices/platform/{parent}/{folder}/{name}");
        tree.add(&format!("{class}/{name}"), NodeKind::Link(target));
    }
    let minor = UVERBS_BASE_MINOR + number % FIXED_UVERBS;
    let node = NodeKind::CharacterDevice { major: UVERBS_MAJOR, minor };
    tree.add(&format!("{NODES}/uverbs{number}"), node);

    let path = format!("{PLATFORM}/{parent}");
    add_parent(&mut DirectoryBuilder { tree, path: path.clone() }, &device);
    let below = |folder: &str, name: &str| format!("{path}/{folder}/{name}");
    let links = |directory: &mut DirectoryBuilder<'_>, class: &str| {
        directory.link("device", format!("../../../{parent}"));
        directory.link("subsystem", format!("../../../../../class/{class}"));
    };
    let mut infiniband = DirectoryBuilder { tree, path: below("infiniband", name) };
    links(&mut infiniband, "infiniband");
    add_infiniband(&mut infiniband, &device);
    let mut verbs = DirectoryBuilder { tree, path: below("infiniband_verbs", &format!("uverbs{number}")) };
    links(&mut verbs, "infiniband_verbs");
    add_verbs(&mut verbs, &device, number, minor);
    let mut net = DirectoryBuilder { tree, path: below("net", &device.interface) };
    links(&mut net, "net");
    add_net(&mut net, &device);
}

/// What the device sits on.
fn add_parent(directory: &mut DirectoryBuilder<'_>, device: &Arc<Device>) {
    directory.link("subsystem", "../../../bus/platform");
    directory.text("modalias", "platform:pagewire_infiniband\n");
    directory.text("uevent", "MODALIAS=platform:pagewire_infiniband\n");
    directory.now("numa_node", device, kernel::numa_node);
    directory.now("local_cpulist", device, |device| kernel::local_cpus(device).0);
    directory.now("local_cpus", device, |device| kernel::local_cpus(device).1);
}

fn add_infiniband(directory: &mut DirectoryBuilder<'_>, device: &Arc<Device>) {
    directory.text("uevent", format!("NAME={}\n", device.name));
    directory.text("fw_ver", concat!(env!("CARGO_PKG_VERSION"), "\n"));
    directory.text("hw_rev", "0x0\n");
    directory.text("hca_type", "Pagewire\n");
    directory.text("board_id", "Pagewire\n");
    directory.text("node_type", "1: CA\n");
    directory.text("node_desc", format!("{}\n", device.name));
    directory.text("node_guid", guid(device));
    directory.text("sys_image_guid", guid(device));
    // As soft-RoCE says which network device it is on.
    directory.text("parent", format!("{}\n", device.interface));
    for (name, text) in port(device) {
        directory.text(&format!("ports/1/{name}"), text);
    }
    for path in port_counters::files() {
        let counter = NodeKind::File(FileContent::Counter(device.clone(), path));
        directory.tree.add(&format!("{}/ports/1/{path}", directory.path), counter);
    }
    directory.text("ports/1/pkeys/0", format!("{:#06x}\n", DEFAULT_PKEY));
    for (index, entry) in device.gids.iter().enumerate() {
        directory.text(&format!("ports/1/gids/{index}"), gid(&entry.raw()));
        directory.text(&format!("ports/1/gid_attrs/types/{index}"), "RoCE v2\n");
        directory.text(&format!("ports/1/gid_attrs/ndevs/{index}"), format!("{}\n", device.interface));
    }
}

fn add_verbs(directory: &mut DirectoryBuilder<'_>, device: &Device, number: u32, minor: u32) {
    directory.text("abi_version", "1\n");
    directory.text("dev", format!("{UVERBS_MAJOR}:{minor}\n"));
    directory.text("ibdev", format!("{}\n", device.name));
    directory.text(
        "uevent",
        format!("MAJOR={UVERBS_MAJOR}\nMINOR={minor}\nDEVNAME=infiniband/uverbs{number}\nDEVMODE=0666\n"),
    );
}

/// The network device: links to what sysfs has of it. Where sysfs shows another network namespace, what is known otherwise.
fn add_net(directory: &mut DirectoryBuilder<'_>, device: &Arc<Device>) {
    if let Some(interface) = kernel::interface(device) {
        let interface = interface.to_string_lossy();
        let names = kernel::names_in(&interface);
        let ours = ["device", "subsystem"];
        for name in names.iter().filter(|name| !ours.contains(&name.as_str())) {
            directory.link(name, format!("{interface}/{name}"));
        }
        return;
    }
    directory.now("address", device, ethernet_address);
    directory.text("ifindex", format!("{}\n", device.interface_index));
    directory.text("mtu", format!("{}\n", device.interface_mtu));
    directory.text("dev_port", "0\n");
    directory.text("dev_id", "0x0\n");
    directory.text("uevent", format!("INTERFACE={}\nIFINDEX={}\n", device.interface, device.interface_index));
}

/// Empty for a network device that is gone.
fn ethernet_address(device: &Device) -> String {
    let found = network_devices().unwrap_or_default();
    let own = found.iter().find(|interface| interface.index == device.interface_index);
    own.map_or_else(String::new, |interface| interface.mac.map(|byte| format!("{byte:02x}")).join(":") + "\n")
}
