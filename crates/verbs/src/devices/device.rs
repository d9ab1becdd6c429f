//! The list of devices.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, nothing, pointer, unobserved_number};
use crate::calls::Call;
use crate::devices::device_files::kernel::uverbs_number;
use crate::devices::device_list::devices;
use crate::objects::held::{HeldOverForks, LockOrder};
use crate::objects::object::put;
use crate::runtime::messages::{tell, tell_no_device};
use crate::runtime::process::check_environment;
use libc::{c_char, c_int};
use pagewire_fabric::Explained;
use pagewire_failures::Verb;
use pagewire_nic::device::Device;
use std::sync::{Arc, Weak};

/// Pointers that the providers' libraries (libmlx5, libefa) look for behind `struct ibv_device`; NULL there tells them that the
/// device is not theirs.
const BEHIND: usize = 16;

/// A device as programs see it.
#[repr(C)]
pub struct DeviceObject {
    public: ibv_device,
    behind: [usize; BEHIND],
    device: Device,
}

// SAFETY: nothing in it changes after it is made; the NULL pointers in `public` and `behind` are never followed.
unsafe impl Send for DeviceObject {}
// SAFETY: shared references only read what never changes after it is made; the NULL pointers are never followed.
unsafe impl Sync for DeviceObject {}

/// The devices that somebody holds, so that the same device is the same pointer in every list.
static KNOWN: HeldOverForks<Vec<Weak<DeviceObject>>> =
    HeldOverForks::new(LockOrder::Devices, Vec::new(), |_| {});

impl DeviceObject {
    fn new(device: Device) -> Self {
        let number = uverbs_number(&device);
        let mut public = ibv_device::zeroed();
        public.node_type = IBV_NODE_CA;
        public.transport_type = IBV_TRANSPORT_IB;
        fill(&mut public.name, &device.name);
        fill(&mut public.dev_name, &format!("uverbs{number}"));
        fill(&mut public.dev_path, &format!("/sys/class/infiniband_verbs/uverbs{number}"));
        fill(&mut public.ibdev_path, &format!("/sys/class/infiniband/{}", device.name));
        DeviceObject { public, behind: [0; BEHIND], device }
    }

    /// The engine's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// What programs hold.
    pub fn public(self: &Arc<Self>) -> *mut ibv_device {
        Arc::as_ptr(self).cast_mut().cast()
    }

    /// The device behind a program's pointer.
    ///
    /// # Safety
    /// `public` is NULL or stands in a device list that is not freed, or is the device of an open context.
    pub unsafe fn of(public: *const ibv_device) -> Result<Arc<Self>> {
        if public.is_null() {
            return invalid("no device");
        }
        let object: *const DeviceObject = public.cast();
        // SAFETY: the caller promises that a list or an open context has the device: whoever holds the pointer holds
        // one count of the `Arc` that it came from.
        unsafe {
            Arc::increment_strong_count(object);
            Ok(Arc::from_raw(object))
        }
    }

    /// Whether a path is that of this device in sysfs (which does not exist, no kernel device being there).
    pub fn is_at(&self, path: &str) -> bool {
        path.trim_end_matches('/').strip_prefix("/sys/class/infiniband/") == Some(&self.device.name)
            || path.trim_end_matches('/').strip_prefix("/sys/class/infiniband_verbs/uverbs")
                == Some(&uverbs_number(&self.device).to_string())
    }
}

/// Copies a text into a C array, cut to fit with its NUL.
fn fill<const N: usize>(array: &mut [c_char; N], text: &str) {
    for (place, byte) in array[..N - 1].iter_mut().zip(text.bytes()) {
        *place = byte as c_char;
    }
}

/// The devices that exist now; those that were seen before keep their identity.
fn present() -> Result<Vec<Arc<DeviceObject>>> {
    let devices = devices()
        .inspect_err(|error| tell(&format!("the network devices cannot be listed: {}", Explained(error))))?;
    let mut known = KNOWN.lock();
    known.retain(|device| device.strong_count() > 0);
    let mut present = Vec::new();
    for device in devices {
        let held = known.iter().filter_map(Weak::upgrade).find(|held| held.device == device);
        present.push(held.unwrap_or_else(|| {
            let new = Arc::new(DeviceObject::new(device));
            known.push(Arc::downgrade(&new));
            new
        }));
    }
    Ok(present)
}

/// A device that somebody holds, by a path in sysfs.
pub fn known_at(path: &str) -> Option<Arc<DeviceObject>> {
    KNOWN.lock().iter().filter_map(Weak::upgrade).find(|device| device.is_at(path))
}

/// `ibv_get_device_list(3)`.
///
/// # Safety
/// `count` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    pointer(Verb::GetDeviceList, || {
        // SAFETY: the caller promises that `count` is NULL or valid for a write.
        unsafe { put(count, 0) };
        check_environment()?;
        let devices = present()?;
        if devices.is_empty() {
            tell_no_device();
        }
        // The list is the C library's, as nobody says how long it is when it is freed.
        // SAFETY: calloc(3) has no preconditions.
        let list = unsafe { libc::calloc(devices.len() + 1, size_of::<*mut ibv_device>()) }
            .cast::<*mut ibv_device>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: the caller promises that `count` is NULL or valid for a write.
        unsafe { put(count, devices.len() as c_int) };
        for (place, device) in devices.into_iter().enumerate() {
            // SAFETY: `place` is below the length allocated above; the list takes over the count of the `Arc`.
            unsafe { list.add(place).write(Arc::into_raw(device).cast_mut().cast()) };
        }
        Ok(list)
    })
}

/// `ibv_free_device_list(3)`.
///
/// # Safety
/// `list` is NULL or came from [`ibv_get_device_list`] and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    if list.is_null() {
        return;
    }
    // SAFETY: the caller promises that the list came from `ibv_get_device_list` and was not freed; it is not NULL here.
    nothing(Call::on(Verb::FreeDeviceList, list), || unsafe { free_list(list) });
}

/// # Safety
/// As for [`ibv_free_device_list`], and not NULL.
unsafe fn free_list(list: *mut *mut ibv_device) {
    let mut place = list;
    // SAFETY: the caller promises that the list came from `ibv_get_device_list`: each entry up to the NULL at the end
    // holds a count of an `Arc` (see `ibv_get_device_list`), and the list is the C library's.
    unsafe {
        while !(*place).is_null() {
            drop(Arc::from_raw((*place).cast::<DeviceObject>().cast_const()));
            place = place.add(1);
        }
        libc::free(list.cast());
    }
}

/// `ibv_get_device_name(3)`.
///
/// # Safety
/// `device` is NULL or a device that the program holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    if device.is_null() {
        return std::ptr::null();
    }
    // SAFETY: the caller promises that `device` is NULL or one that the program holds; it is not NULL here.
    unsafe { (*device).name.as_ptr() }
}

/// `ibv_get_device_guid(3)`: in network byte order; 0 for NULL.
///
/// # Safety
/// `device` is NULL or a device that the program holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> __be64 {
    // SAFETY: the caller promises that `device` is NULL or a device that the program holds.
    unsafe { DeviceObject::of(device) }.map_or(0, |device| device.device.guid.to_be())
}

/// `ibv_get_device_index(3)`: the device's place, from 0, or -1.
///
/// # Safety
/// `device` is NULL or a device that the program holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    // SAFETY: the caller promises that `device` is NULL or a device that the program holds.
    unobserved_number(|| Ok(unsafe { DeviceObject::of(device) }?.device.index as c_int))
}
