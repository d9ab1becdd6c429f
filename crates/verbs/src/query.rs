//! What a device, its port and its tables are: the querying verbs.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, number, status};
use crate::context::ContextObject;
use crate::object::{not_null, put};
use crate::settings::Settings;
use libc::{EINVAL, ENOENT, EOPNOTSUPP, c_int, ssize_t};
use pagewire_nic::PathChoice;
use pagewire_nic::device::{Device, Gid, LIMITS, Mtu};

/// The one partition key: full membership of the default partition.
pub const DEFAULT_PKEY: u16 = 0xFFFF;
/// `phys_state` of a port: LinkUp (InfiniBand specification, volume 1, section 14.2.5.6).
const LINK_UP: u8 = 5;
/// `vendor_id` of who has no number assigned, as the kernel's software devices say it; programs take 0 for a failed query.
const NO_VENDOR: u32 = 0xFF_FFFF;
/// The only port of a device.
const PORT: u8 = 1;
/// Bytes of `struct ibv_port_attr` that programs built before `flags` knew.
const COMPATIBLE_PORT_ATTRIBUTES: usize = 48;
/// `local_ca_ack_delay`: 4.096 us * 2^15, about 134 ms, within which a process on a busy machine answers.
const ACKNOWLEDGE_DELAY: u8 = 15;
/// `hca_core_clock`, in kHz: the raw clock counts nanoseconds.
const CORE_CLOCK: u64 = 1_000_000;
/// `PORT_SPEED` when the network device does not tell, in megabits a second.
const UNKNOWN_SPEED: u32 = 10_000;
/// Mb/s of the local path: the highest rate of a port that one copying core reaches with messages of 1 MiB (19 GB/s were measured).
const LOCAL_RATE: u32 = 100_000;

fn int(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

fn device_attributes(device: &Device) -> ibv_device_attr {
    let mut attributes = ibv_device_attr::zeroed();
    for (place, byte) in attributes.fw_ver.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *place = byte as libc::c_char;
    }
    attributes.node_guid = device.guid.to_be();
    attributes.sys_image_guid = device.guid.to_be();
    attributes.vendor_id = NO_VENDOR;
    attributes.max_mr_size = LIMITS.max_mr_size;
    attributes.page_size_cap = 0xFFFF_FFFF_FFFF_F000;
    attributes.max_qp = int(LIMITS.max_qp);
    attributes.max_qp_wr = int(LIMITS.max_qp_wr);
    attributes.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN
        | IBV_DEVICE_CURR_QP_STATE_MOD
        | IBV_DEVICE_SRQ_RESIZE
        | IBV_DEVICE_SYS_IMAGE_GUID;
    attributes.max_sge = int(LIMITS.max_sge);
    attributes.max_sge_rd = int(LIMITS.max_sge_rd);
    attributes.max_cq = int(LIMITS.max_cq);
    attributes.max_cqe = int(LIMITS.max_cqe);
    attributes.max_mr = int(LIMITS.max_mr);
    attributes.max_pd = int(LIMITS.max_pd);
    attributes.max_qp_rd_atom = c_int::from(LIMITS.max_qp_rd_atom);
    attributes.max_res_rd_atom = int(LIMITS.max_res_rd_atom);
    attributes.max_qp_init_rd_atom = c_int::from(LIMITS.max_qp_init_rd_atom);
    // Atomics are the CPU's own: atomic with everything on the host.
    attributes.atomic_cap = IBV_ATOMIC_GLOB;
    attributes.max_ah = int(LIMITS.max_ah);
    attributes.max_srq = int(LIMITS.max_srq);
    attributes.max_srq_wr = int(LIMITS.max_srq_wr);
    attributes.max_srq_sge = int(LIMITS.max_srq_sge);
    attributes.max_pkeys = LIMITS.max_pkeys;
    attributes.local_ca_ack_delay = ACKNOWLEDGE_DELAY;
    attributes.phys_port_cnt = PORT;
    attributes
}

/// `ibv_query_device(3)`.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        unsafe {
            let place = not_null(attributes)?;
            place.write(device_attributes(ContextObject::of(context)?.context().device()));
        }
        Ok(())
    })
}

/// `ibv_query_rt_values_ex(3)`, by way of `verbs_context`: the raw clock is the machine's, which counts nanoseconds and is never set
/// (`CLOCK_MONOTONIC_RAW`).
///
/// # Safety
/// `context` is NULL or open; `values` is NULL or valid.
pub unsafe extern "C" fn query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let values = unsafe {
            ContextObject::of(context)?;
            &mut *not_null(values)?
        };
        if values.comp_mask & !IBV_VALUES_MASK_RAW_CLOCK != 0 {
            return invalid("comp_mask");
        }
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0 {
            // SAFETY: clock_gettime(2) fills a local structure; this clock is there on every Linux.
            if unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut values.raw_clock) } != 0 {
                return Err(std::io::Error::last_os_error().into());
            }
        }
        Ok(())
    })
}

/// What regions that were registered with `IBV_ACCESS_ON_DEMAND` may be used for: whatever any region may, with all operations that a
/// transport has.
fn on_demand_paging() -> ibv_odp_caps {
    let datagrams = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
    let unreliable = datagrams | IBV_ODP_SUPPORT_WRITE;
    ibv_odp_caps {
        general_caps: u64::from(IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT),
        per_transport_caps: ibv_odp_caps__bindgen_ty_1 {
            rc_odp_caps: unreliable | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC,
            uc_odp_caps: unreliable,
            ud_odp_caps: datagrams,
        },
    }
}

/// `ibv_query_device_ex(3)`, by way of `verbs_context`: fills as much as the caller's structure has.
///
/// # Safety
/// `context` is NULL or open; `input` is NULL or valid; `attributes` has room for `length` bytes.
pub unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attributes: *mut ibv_device_attr_ex,
    length: usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return invalid("comp_mask");
        }
        if length < size_of::<ibv_device_attr>() {
            return invalid("the structure is shorter than ibv_device_attr");
        }
        let place = not_null(attributes)?;
        let mut all = ibv_device_attr_ex::zeroed();
        // SAFETY: the caller's promise.
        all.orig_attr = device_attributes(unsafe { ContextObject::of(context) }?.context().device());
        all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags);
        all.phys_port_cnt_ex = u32::from(PORT);
        all.odp_caps = on_demand_paging();
        all.hca_core_clock = CORE_CLOCK;
        all.cq_mod_caps = ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX };
        // SAFETY: the caller's promise of `length` bytes.
        unsafe { copy_prefix(&all, place, length) };
        Ok(())
    })
}

/// Fills the caller's `length` bytes with as much of the structure, and zeroes behind it.
///
/// # Safety
/// `place` has room for `length` bytes.
unsafe fn copy_prefix<T>(from: &T, place: *mut T, length: usize) {
    let known = length.min(size_of::<T>());
    // SAFETY: the caller's promise; the source is `size_of::<T>()` bytes long and does not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), place.cast::<u8>(), known);
        place.cast::<u8>().add(known).write_bytes(0, length - known);
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
fn rate(device: &Device) -> u32 {
    // An environment that is wrong was refused where the program looked for devices.
    let settings = Settings::from_environment().ok();
    if let Some(gigabits) = settings.as_ref().and_then(|settings| settings.rate) {
        return gigabits * 1000;
    }
    let interface = device.speed.unwrap_or(UNKNOWN_SPEED);
    match settings.map(|settings| settings.path) {
        Some(PathChoice::Udp) => interface,
        _ => interface.max(LOCAL_RATE),
    }
}

/// What a port says of itself.
pub fn port_attributes(device: &Device) -> ibv_port_attr {
    let mut attributes = ibv_port_attr::zeroed();
    let (width, speed) = width_and_speed(rate(device));
    attributes.state = IBV_PORT_ACTIVE;
    attributes.max_mtu = Mtu::Mtu4096 as ibv_mtu;
    attributes.active_mtu = device.mtu as ibv_mtu;
    attributes.gid_tbl_len = int(u32::try_from(device.gids.len()).unwrap_or(u32::MAX));
    attributes.port_cap_flags = IBV_PORT_IP_BASED_GIDS;
    attributes.max_msg_sz = LIMITS.max_message;
    attributes.pkey_tbl_len = LIMITS.max_pkeys;
    attributes.max_vl_num = 1;
    attributes.active_width = width;
    attributes.active_speed = speed;
    attributes.phys_state = LINK_UP;
    attributes.link_layer = IBV_LINK_LAYER_ETHERNET as u8;
    attributes.flags = IBV_QPF_GRH_REQUIRED;
    attributes
}

/// `ibv_query_port(3)`, by way of `verbs_context`.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or has room for `length` bytes.
pub unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { device_of(context, u32::from(port)) }?;
        // SAFETY: as above.
        unsafe { copy_prefix(&port_attributes(device), not_null(attributes)?, length) };
        Ok(())
    })
}

/// `ibv_query_port_speed(3)`: the port's rate in units of 100 megabits a second.
///
/// # Safety
/// `context` is NULL or open; `speed` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    status(|| {
        // SAFETY: the caller's promise.
        let device = unsafe { device_of(context, port) }?;
        // SAFETY: not NULL, hence valid for a write.
        unsafe { not_null(speed)?.write(u64::from(rate(device) / 100)) };
        Ok(())
    })
}

/// `ibv_query_port(3)` for programs built against old headers, which have only the first 48 bytes of the structure.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or has room for 48 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attributes: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { query_port(context, port, attributes.cast(), COMPATIBLE_PORT_ATTRIBUTES) }
}

/// The device of a context, if it has that port.
///
/// # Safety
/// `context` is NULL or open.
unsafe fn device_of<'a>(context: *mut ibv_context, port: u32) -> Result<&'a Device> {
    // SAFETY: the caller's promise.
    let device = unsafe { ContextObject::of(context) }?.context().device();
    if port != u32::from(PORT) { invalid("port number") } else { Ok(device) }
}

/// # Safety
/// `context` is NULL or open.
unsafe fn gid_at<'a>(context: *mut ibv_context, port: u32, index: u32) -> Result<&'a Gid> {
    // SAFETY: the caller's promise.
    unsafe { device_of(context, port) }?.gids.get(index as usize).ok_or(Errno(EINVAL))
}

/// `ibv_query_gid(3)`.
///
/// # Safety
/// `context` is NULL or open; `gid` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    number(|| {
        let index = u32::try_from(index).map_err(|_| Errno(EINVAL))?;
        // SAFETY: the caller's promise.
        unsafe {
            let found = gid_at(context, u32::from(port), index)?;
            not_null(gid)?.write(ibv_gid { raw: found.raw() });
        }
        Ok(0)
    })
}

fn entry_of(device: &Device, gid: &Gid, index: u32) -> ibv_gid_entry {
    ibv_gid_entry {
        gid: ibv_gid { raw: gid.raw() },
        gid_index: index,
        port_num: u32::from(PORT),
        gid_type: IBV_GID_TYPE_ROCE_V2,
        ndev_ifindex: device.interface_index,
    }
}

/// `ibv_query_gid_ex(3)`: 0 or an `errno` value.
///
/// # Safety
/// `context` is NULL or open; `entry` is NULL or has room for `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    length: usize,
) -> c_int {
    status(|| {
        if flags != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        // SAFETY: the caller's promise.
        unsafe {
            let device = device_of(context, port)?;
            let found = entry_of(device, gid_at(context, port, index)?, index);
            copy_prefix(&found, not_null(entry)?, length);
        }
        Ok(())
    })
}

/// `ibv_query_gid_table(3)`: the number of entries, or a negative `errno` value.
///
/// # Safety
/// `context` is NULL or open; `entries` has room for `room` entries of `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    room: usize,
    flags: u32,
    length: usize,
) -> ssize_t {
    let mut count = 0;
    let failed = status(|| {
        if flags != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        // SAFETY: the caller's promise.
        let device = unsafe { device_of(context, u32::from(PORT)) }?;
        if device.gids.len() > room || length == 0 {
            return invalid("the table is larger than the room for it");
        }
        let place = not_null(entries)?;
        for (index, gid) in device.gids.iter().enumerate() {
            let entry = entry_of(device, gid, index as u32);
            // SAFETY: `index` is below `room`; entries are `length` bytes apart.
            unsafe { copy_prefix(&entry, place.byte_add(index * length), length) };
        }
        count = device.gids.len() as ssize_t;
        Ok(())
    });
    if failed == 0 { count } else { -(failed as ssize_t) }
}

/// Kind of a GID table entry as sysfs tells it (`IBV_GID_TYPE_SYSFS_ROCE_V2`).
const SYSFS_ROCE_V2: u32 = 1;

/// `ibv_query_gid_type`, private, by way of `c/private.c`: the type of a GID table entry.
///
/// # Safety
/// `context` is NULL or open; `kind` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pagewire_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: libc::c_uint,
    kind: *mut u32,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        unsafe {
            gid_at(context, u32::from(port), index)?;
            put(kind, SYSFS_ROCE_V2);
        }
        Ok(0)
    })
}

/// `ibv_query_pkey(3)`.
///
/// # Safety
/// `context` is NULL or open; `pkey` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut __be16,
) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        unsafe { device_of(context, u32::from(port)) }?;
        if index != 0 {
            return invalid("P_Key index");
        }
        // SAFETY: as above.
        unsafe { not_null(pkey)?.write(DEFAULT_PKEY.to_be()) };
        Ok(0)
    })
}

/// `ibv_get_pkey_index(3)`: the index of a key given in network byte order.
///
/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: __be16) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        unsafe { device_of(context, u32::from(port)) }?;
        if u16::from_be(pkey) == DEFAULT_PKEY { Ok(0) } else { Err(Errno(ENOENT)) }
    })
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

    #[test]
    fn longer_and_shorter_structures_are_filled() {
        let from = [7u32; 4];
        let mut place = [[1u32; 4]; 2];
        // SAFETY: eight integers of room.
        unsafe { copy_prefix(&from, &raw mut place[0], 24) };
        assert_eq!(place, [[7; 4], [0, 0, 1, 1]]);
        let mut place = [1u32; 4];
        // SAFETY: four integers of room.
        unsafe { copy_prefix(&from, &raw mut place, 8) };
        assert_eq!(place, [7, 7, 1, 1]);
    }
}
