//! Opening and closing devices.

use crate::abi::*;
use crate::boundary::{Result, number, pointer};
use crate::calls::Call;
use crate::devices::device::DeviceObject;
use crate::objects::context::ContextObject;
use crate::operations;
use crate::runtime::engine::Engine;
use crate::runtime::process::engine;
use libc::c_int;
use pagewire_failures::Verb;
use std::sync::Arc;

/// `ibv_open_device(3)`.
///
/// # Safety
/// `device` is NULL or a device that the program holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer(Call::on(Verb::OpenDevice, device), || {
        // SAFETY: the caller promises that `device` is NULL or a device that the program holds.
        let device = unsafe { DeviceObject::of(device) }?;
        // The start of the engine takes much of a small stack: the operations are not on it then.
        open(engine()?, device)
    })
}

#[inline(never)]
fn open(engine: Arc<Engine>, device: Arc<DeviceObject>) -> Result<*mut ibv_context> {
    let mut operations = operations::verbs_operations();
    operations.context.ops = operations::context_operations();
    ContextObject::open(engine, device, operations)
}

/// `ibv_close_device(3)`: ends everything that is left of what was made from the context, as a kernel does. The structures are not
/// freed, as the program holds them. While an access to one of them is under way that does not end this is EBUSY; the context then is
/// still open, and may be closed again.
///
/// # Safety
/// `context` is NULL or open, and nobody uses it or anything made from it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    number(Call::on(Verb::CloseDevice, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        unsafe { ContextObject::close(context) }?;
        Ok(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::device::{ibv_free_device_list, ibv_get_device_list};
    use crate::runtime::leftovers::Leftover;
    use pagewire_nic::Rights;

    #[test]
    fn what_does_not_end_keeps_its_context_open() {
        let memory = [0u8; 8];
        // SAFETY: the list is freed once, after its first device was opened; the context is used until it is closed.
        unsafe {
            let list = ibv_get_device_list(std::ptr::null_mut());
            assert!(!list.is_null() && !(*list).is_null(), "no device");
            let context = ibv_open_device(*list);
            ibv_free_device_list(list);
            let object = ContextObject::of(context).unwrap();
            let domain = object.context().alloc_pd().unwrap();
            let _membership = object.leftovers().add(Leftover::ProtectionDomain(domain.clone()));
            // One that the context does not know of stands for an access.
            let region = domain.register(memory.as_ptr() as u64, 8, 0, Rights::empty()).unwrap();
            for _ in 0..2 {
                assert_eq!(ibv_close_device(context), -1);
                assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
            }
            assert_eq!(ContextObject::of(context).unwrap().context().device().index, 0);
            region.deregister().unwrap();
            assert_eq!(ibv_close_device(context), 0);
        }
    }
}
