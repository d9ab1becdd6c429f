//! The querying verbs of a device, its port and its tables. What they say is in [`device_attributes`](crate::devices::device_attributes).

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, number, status, unobserved_number};
use crate::calls::Call;
use crate::devices::device_attributes::{
    DEFAULT_PKEY, PORT, device_attributes, on_demand_paging, port_attributes, rate,
};
use crate::limits::MAX_DEVICE_MEMORY;
use crate::objects::context::ContextObject;
use crate::objects::object::{not_null, put};
use libc::{EINVAL, ENODATA, ENOENT, EOPNOTSUPP, c_int, ssize_t};
use pagewire_failures::Verb;
use pagewire_nic::device::{Device, Gid};
use std::sync::Arc;

/// Bytes of `struct ibv_port_attr` that programs built before `flags` knew.
const COMPATIBLE_PORT_ATTRIBUTES: usize = 48;
/// `hca_core_clock`, in kHz: the raw clock counts nanoseconds.
const CORE_CLOCK: u64 = 1_000_000;
/// The flag of atomic WRITEs among those of `device_cap_flags_ex` (`IB_UVERBS_DEVICE_ATOMIC_WRITE` of Linux).
const DEVICE_ATOMIC_WRITE: u64 = 1 << 40;
/// The flags of FLUSHes, global and persistent (`IB_UVERBS_DEVICE_FLUSH_GLOBAL`, `IB_UVERBS_DEVICE_FLUSH_PERSISTENT`).
const DEVICE_FLUSH: u64 = 1 << 38 | 1 << 39;

/// `ibv_query_device(3)`.
///
/// # Safety
/// `context` is NULL or open; `attributes` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attributes: *mut ibv_device_attr,
) -> c_int {
    status(Call::on(Verb::QueryDevice, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `attributes` is NULL or valid for a write.
        unsafe {
            let place = not_null(attributes)?;
            place.write(device_attributes(ContextObject::of_family(context)?.context().device()));
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
    status(Call::on(Verb::QueryRtValuesEx, context), || {
        // SAFETY: the caller promises that `context` is NULL or open, and that `values` is NULL or valid.
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
    status(Call::on(Verb::QueryDeviceEx, context), || {
        // SAFETY: the caller promises that `input` is NULL or valid.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return invalid("comp_mask");
        }
        if length < size_of::<ibv_device_attr>() {
            return invalid("the structure is shorter than ibv_device_attr");
        }
        let place = not_null(attributes)?;
        let mut all = ibv_device_attr_ex::zeroed();
        // SAFETY: the caller promises that `context` is NULL or open.
        all.orig_attr = device_attributes(unsafe { ContextObject::of_family(context) }?.context().device());
        all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags);
        all.device_cap_flags_ex |= DEVICE_ATOMIC_WRITE | DEVICE_FLUSH;
        all.phys_port_cnt_ex = u32::from(PORT);
        all.odp_caps = on_demand_paging();
        all.xrc_odp_caps = all.odp_caps.per_transport_caps.rc_odp_caps;
        all.hca_core_clock = CORE_CLOCK;
        all.max_dm_size = MAX_DEVICE_MEMORY as u64;
        all.completion_timestamp_mask = u64::MAX;
        all.cq_mod_caps = ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX };
        // SAFETY: the caller promises that `attributes` has room for `length` bytes.
        unsafe { copy_prefix(&all, place, length) };
        Ok(())
    })
}

/// Fills the caller's `length` bytes with as much of the structure, and zeroes behind it.
///
/// # Safety
/// `place` has room for `length` bytes.
pub unsafe fn copy_prefix<T>(from: &T, place: *mut T, length: usize) {
    let known = length.min(size_of::<T>());
    // SAFETY: the caller promises that `place` has room for `length` bytes; the source is `size_of::<T>()` bytes long
    // and does not overlap.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), place.cast::<u8>(), known);
        place.cast::<u8>().add(known).write_bytes(0, length - known);
    }
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
    status(Call::on(Verb::QueryPort, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        let device = unsafe { device_of(context, u32::from(port)) }?;
        // SAFETY: the caller promises that `attributes` is NULL or has room for `length` bytes.
        unsafe { copy_prefix(&port_attributes(&device), not_null(attributes)?, length) };
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
    status(Call::on(Verb::QueryPortSpeed, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        let device = unsafe { device_of(context, port) }?;
        // SAFETY: not NULL, hence valid for a write.
        unsafe { not_null(speed)?.write(u64::from(rate(&device) / 100)) };
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
    // SAFETY: the caller promises that `context` is NULL or open, and that `attributes` is NULL or has room for 48 bytes.
    unsafe { query_port(context, port, attributes.cast(), COMPATIBLE_PORT_ATTRIBUTES) }
}

/// The device of a context, if it has that port.
///
/// # Safety
/// `context` is NULL or open.
unsafe fn device_of(context: *mut ibv_context, port: u32) -> Result<Arc<Device>> {
    // SAFETY: the caller promises that `context` is NULL or open.
    let device = unsafe { ContextObject::of(context) }?.context().port();
    if port != u32::from(PORT) { invalid("port number") } else { Ok(device) }
}

/// # Safety
/// `context` is NULL or open.
unsafe fn gid_at(context: *mut ibv_context, port: u32, index: u32) -> Result<Gid> {
    // SAFETY: the caller promises that `context` is NULL or open.
    unsafe { device_of(context, port) }?.gids.get(index as usize).copied().ok_or(Errno(EINVAL))
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
    number(Call::on(Verb::QueryGid, context), || {
        let index = u32::try_from(index).map_err(|_| Errno(EINVAL))?;
        // SAFETY: the caller promises that `context` is NULL or open, and that `gid` is NULL or valid for a write.
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
    status(Call::on(Verb::QueryGidEx, context), || {
        if flags != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        // SAFETY: the caller promises that `context` is NULL or open, and that `entry` is NULL or has room for `length` bytes.
        unsafe {
            let (device, gid) = (device_of(context, port)?, gid_at(context, port, index)?);
            // As the kernel answers for an entry without an address.
            if gid.is_empty() {
                return Err(Errno(ENODATA));
            }
            let found = entry_of(&device, &gid, index);
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
    let failed = status(Call::on(Verb::QueryGidTable, context), || {
        if flags != 0 {
            return Err(Errno(EOPNOTSUPP));
        }
        // SAFETY: the caller promises that `context` is NULL or open.
        let device = unsafe { device_of(context, u32::from(PORT)) }?;
        let valid = device.gids.iter().enumerate().filter(|(_, gid)| !gid.is_empty());
        if valid.clone().count() > room || length == 0 {
            return invalid("the table is larger than the room for it");
        }
        let place = not_null(entries)?;
        for (row, (index, gid)) in valid.enumerate() {
            let entry = entry_of(&device, gid, index as u32);
            // SAFETY: `row` is below `room`; entries are `length` bytes apart.
            unsafe { copy_prefix(&entry, place.byte_add(row * length), length) };
            count = row as ssize_t + 1;
        }
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
    unobserved_number(|| {
        // SAFETY: the caller promises that `context` is NULL or open, and that `kind` is NULL or valid for a write.
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
    number(Call::on(Verb::QueryPkey, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        unsafe { device_of(context, u32::from(port)) }?;
        if index != 0 {
            return invalid("P_Key index");
        }
        // SAFETY: the caller promises that `pkey` is NULL or valid for a write.
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
    number(Call::on(Verb::GetPkeyIndex, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        unsafe { device_of(context, u32::from(port)) }?;
        if u16::from_be(pkey) == DEFAULT_PKEY { Ok(0) } else { Err(Errno(ENOENT)) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
