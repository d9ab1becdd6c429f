//! What a device and its port say of themselves, by verbs and by files.

use crate::abi::*;
use crate::runtime::settings::Settings;
use libc::c_int;
use pagewire_nic::device::{Device, Mtu};
use pagewire_nic::{PathChoice, limits};

/// The one partition key: full membership of the default partition.
pub const DEFAULT_PKEY: u16 = 0xFFFF;
/// Entries of the table of partition keys.
const PARTITION_KEYS: u16 = 1;
/// `phys_state` of a port: LinkUp (InfiniBand specification, volume 1, section 14.2.5.6).
const LINK_UP: u8 = 5;
/// `phys_state` of a port without a link: Disabled.
const DISABLED: u8 = 3;
/// `vendor_id` of who has no number assigned, as the kernel's software devices say it; programs take 0 for a failed query.
const NO_VENDOR: u32 = 0xFF_FFFF;
/// The only port of a device.
pub const PORT: u8 = 1;
/// `local_ca_ack_delay`: 4.096 us * 2^15, about 134 ms, within which a process on a busy machine answers.
const ACKNOWLEDGE_DELAY: u8 = 15;
/// `PORT_SPEED` when the network device does not tell, in megabits a second.
const UNKNOWN_SPEED: u32 = 10_000;
/// Mb/s of the local path: the highest rate of a port that one copying core reaches with messages of 1 MiB (19 GB/s were measured).
const LOCAL_RATE: u32 = 100_000;

fn int(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

/// What a device says of itself.
pub fn device_attributes(device: &Device) -> ibv_device_attr {
    let mut attributes = ibv_device_attr::zeroed();
    for (place, byte) in attributes.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *place = byte as libc::c_char;
    }
    attributes.node_guid = device.guid.to_be();
    attributes.sys_image_guid = device.guid.to_be();
    attributes.vendor_id = NO_VENDOR;
    attributes.max_mr_size = limits::MAX_REGION_LENGTH;
    attributes.page_size_cap = 0xFFFF_FFFF_FFFF_F000;
    attributes.max_qp = int(limits::MAX_QUEUE_PAIRS);
    attributes.max_qp_wr = int(limits::MAX_WORK_REQUESTS);
    attributes.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_XRC
        | IBV_DEVICE_MEM_WINDOW
        | IBV_DEVICE_MEM_WINDOW_TYPE_2B
        | IBV_DEVICE_SYS_IMAGE_GUID;
    attributes.max_sge = int(limits::MAX_SEGMENTS);
    attributes.max_sge_rd = int(limits::MAX_SEGMENTS);
    attributes.max_cq = int(limits::MAX_COMPLETION_QUEUES);
    attributes.max_cqe = int(limits::MAX_COMPLETIONS);
    attributes.max_mr = int(limits::MAX_REGIONS);
    // Both have places in one table.
    attributes.max_mw = int(limits::MAX_REGIONS);
    attributes.max_pd = int(limits::MAX_PROTECTION_DOMAINS);
    attributes.max_qp_rd_atom = c_int::from(limits::MAX_READ_ATOMIC);
    attributes.max_res_rd_atom = int(limits::MAX_QUEUE_PAIRS * u32::from(limits::MAX_READ_ATOMIC));
    attributes.max_qp_init_rd_atom = c_int::from(limits::MAX_READ_ATOMIC);
    // Atomics are the CPU's own: atomic with everything on the host.
    attributes.atomic_cap = IBV_ATOMIC_GLOB;
    attributes.max_mcast_grp = limits::MAX_GROUPS as c_int;
    attributes.max_mcast_qp_attach = limits::MAX_GROUP_MEMBERS as c_int;
    attributes.max_total_mcast_qp_attach = (limits::MAX_GROUPS * limits::MAX_GROUP_MEMBERS) as c_int;
    attributes.max_ah = int(limits::MAX_ADDRESS_HANDLES);
    attributes.max_srq = int(limits::MAX_SHARED_RECEIVE_QUEUES);
    attributes.max_srq_wr = int(limits::MAX_WORK_REQUESTS);
    attributes.max_srq_sge = int(limits::MAX_SEGMENTS);
    attributes.max_pkeys = PARTITION_KEYS;
    attributes.local_ca_ack_delay = ACKNOWLEDGE_DELAY;
    attributes.phys_port_cnt = PORT;
    attributes
}

/// What regions that were registered with `IBV_ACCESS_ON_DEMAND` may be used for: whatever any region may, with all operations that a
/// transport has.
pub fn on_demand_paging() -> ibv_odp_caps {
    let datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let unreliable = datagrams | IBV_ODP_SUPPORT_WRITE;
    ibv_odp_caps {
        general_caps: u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
        per_transport_caps: ibv_odp_caps__bindgen_ty_1 {
            rc_odp_caps: unreliable
                | IBV_ODP_SUPPORT_READ
                | IBV_ODP_SUPPORT_ATOMIC
                | IBV_ODP_SUPPORT_FLUSH
                | IBV_ODP_SUPPORT_ATOMIC_WRITE,
            uc_odp_caps: unreliable,
            ud_odp_caps: datagrams,
        },
    }
}

/// Width and speed of an Ethernet port, in the codes of the InfiniBand specification, as the kernel gives them for RoCE.
fn width_and_speed(megabits: u32) -> (u8, u8) {
    const X1: u8 = 1;
    const X4: u8 = 2;
    const SINGLE: u8 = 1;
    const DOUBLE: u8 = 2;
    const FDR10: u8 = 8;
    const EXTENDED: u8 = 32;
    const HIGH: u8 = 64;
    const NEXT: u8 = 128;
    match megabits {
        0..=1_000 => (X1, SINGLE),
        1_001..=10_000 => (X1, FDR10),
        10_001..=20_000 => (X4, DOUBLE),
        20_001..=25_000 => (X1, EXTENDED),
        25_001..=40_000 => (X4, FDR10),
        40_001..=50_000 => (X1, HIGH),
        50_001..=100_000 => (X4, EXTENDED),
        100_001..=200_000 => (X4, HIGH),
        _ => (X4, NEXT),
    }
}

/// Mb/s that the best path of a port carries: what the user says, else the more of the network interface's speed and, where
/// the path may be local, that path's rate. Programs choose their protocols by it: UCX copies through bounce buffers where it
/// takes the port for slow.
pub fn rate(device: &Device) -> u32 {
    // An environment that is wrong was refused where the program looked for devices.
    let settings = Settings::from_environment().ok();
    if let Some(gigabits) = settings.as_ref().and_then(|settings| settings.rate) {
        return gigabits * 1000;
    }
    let interface = device.speed.unwrap_or(UNKNOWN_SPEED);
    match settings.map(|settings| settings.path) {
        Some(PathChoice::Tcp | PathChoice::Udp) => interface,
        _ => interface.max(LOCAL_RATE),
    }
}

/// What a port says of itself.
pub fn port_attributes(device: &Device) -> ibv_port_attr {
    let mut attributes = ibv_port_attr::zeroed();
    let (width, speed) = width_and_speed(rate(device));
    attributes.state = if device.is_active { IBV_PORT_ACTIVE } else { IBV_PORT_DOWN };
    attributes.max_mtu = Mtu::Mtu4096 as ibv_mtu;
    attributes.active_mtu = device.mtu as ibv_mtu;
    attributes.gid_tbl_len = int(u32::try_from(device.gids.len()).unwrap_or(u32::MAX));
    attributes.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
    attributes.max_msg_sz = limits::MAX_MESSAGE;
    attributes.pkey_tbl_len = PARTITION_KEYS;
    attributes.max_vl_num = 1;
    attributes.active_width = width;
    attributes.active_speed = speed;
    attributes.phys_state = if device.is_active { LINK_UP } else { DISABLED };
    attributes.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    attributes.flags = IBV_QPF_GRH_REQUIRED;
    attributes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_those_of_the_link() {
        assert_eq!(width_and_speed(1_000), (1, 1));
        assert_eq!(width_and_speed(10_000), (1, 8));
        assert_eq!(width_and_speed(25_000), (1, 32));
        assert_eq!(width_and_speed(100_000), (2, 32));
        assert_eq!(width_and_speed(400_000), (2, 128));
    }
}
