//! Registration by a structure of attributes, and buffers that the library allocates (rdma-core 59 and 64; their manual pages are
//! `ibv_reg_mr(3)` and `ibv_alloc_buf(3)` of rdma-core 65). The header of rdma-core 44 knows none of this.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, nothing, pointer, unobserved_number};
use crate::calls::Call;
use crate::objects::object::{Object, not_null, put};
use crate::objects::protection::{ProtectionDomainObject, register};
use libc::{ENODATA, EOPNOTSUPP, c_int, c_void};
use pagewire_failures::Verb;
use std::ptr::null_mut;

/// `struct ibv_mr_init_attr`.
#[repr(C)]
pub struct MemoryRegionAttributes {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
    buf: *mut OpaqueBuffer,
}

/// `IBV_REG_MR_MASK_IOVA`
const IOVA: u64 = 1;
/// `IBV_REG_MR_MASK_ADDR`
const ADDRESS: u64 = 1 << 1;
/// `IBV_REG_MR_MASK_FD`
const DESCRIPTOR: u64 = 1 << 2;
/// `IBV_REG_MR_MASK_FD_OFFSET`
const DESCRIPTOR_OFFSET: u64 = 1 << 3;
/// `IBV_REG_MR_MASK_BUF`
const BUFFER: u64 = 1 << 5;

/// `struct ibv_buf`, which programs do not look into: ordinary memory.
pub struct OpaqueBuffer {
    memory: *mut c_void,
    size: usize,
    domain: *mut ibv_pd,
}

impl OpaqueBuffer {
    /// # Safety
    /// `buffer` is NULL or allocated.
    unsafe fn of<'a>(buffer: *const OpaqueBuffer) -> Result<&'a OpaqueBuffer> {
        // SAFETY: the caller promises that `buffer` is NULL or allocated.
        unsafe { buffer.as_ref() }.ok_or(Errno(libc::EINVAL))
    }

    /// Whether bytes lie in it.
    fn has(&self, address: usize, length: usize) -> bool {
        let offset = address.checked_sub(self.memory as usize);
        offset.is_some_and(|offset| offset <= self.size && length <= self.size - offset)
    }
}

/// Where a region begins, as the program sees it and as accesses name it.
///
/// # Safety
/// The buffer that the attributes name, if they name one, is allocated.
unsafe fn address_of(pd: *mut ibv_pd, attributes: &MemoryRegionAttributes) -> Result<(*mut c_void, u64)> {
    let given = |flag| attributes.comp_mask & flag != 0;
    if given(BUFFER) {
        // SAFETY: the caller promises that the buffer that the attributes name is allocated.
        let buffer = unsafe { OpaqueBuffer::of(attributes.buf) }?;
        if !given(ADDRESS) || !buffer.has(attributes.addr as usize, attributes.length) || buffer.domain != pd
        {
            return invalid("the region is not within the buffer, or of another protection domain");
        }
        if given(DESCRIPTOR) || given(DESCRIPTOR_OFFSET) {
            return invalid("a buffer and a descriptor");
        }
    }
    // Descriptors of DMA buffers, DMA handles, and what newer headers know.
    if attributes.comp_mask & !(IOVA | ADDRESS | BUFFER) != 0 {
        return Err(Errno(EOPNOTSUPP));
    }
    if !given(ADDRESS) {
        return invalid("no address");
    }
    Ok((attributes.addr, if given(IOVA) { attributes.iova } else { attributes.addr as u64 }))
}

/// `ibv_reg_mr_ex`: of memory, or of a buffer. DMA buffers, which are given by a descriptor, and DMA handles are EOPNOTSUPP.
///
/// # Safety
/// `pd` is NULL or allocated; `attributes` is NULL or valid, and the buffer that it names is allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    attributes: *mut MemoryRegionAttributes,
) -> *mut ibv_mr {
    pointer(Call::on(Verb::RegMrEx, pd), || {
        // SAFETY: the caller promises that `attributes` is NULL or valid, and the buffer that it names is allocated.
        let attributes = unsafe { &*not_null(attributes)? };
        // SAFETY: the caller promises that the buffer that the attributes name, if they name one, is allocated.
        let (address, iova) = unsafe { address_of(pd, attributes) }?;
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        unsafe { register(pd, address, attributes.length, iova, attributes.access as u32) }
    })
}

/// `ibv_reg_buf_mr`: of a part of a buffer.
///
/// # Safety
/// `pd` and `buffer` are NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut OpaqueBuffer,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    let comp_mask = BUFFER | ADDRESS;
    let (iova, fd, fd_offset, dmah) = (0, -1, 0, null_mut());
    let mut attributes =
        MemoryRegionAttributes { length, access, comp_mask, iova, addr, fd, fd_offset, dmah, buf };
    // SAFETY: the caller promises that `pd` and the buffer are NULL or allocated; the attributes are local.
    unsafe { ibv_reg_mr_ex(pd, &mut attributes) }
}

/// `ibv_alloc_buf`: a buffer of so many bytes, which begins with a page; its address.
///
/// # Safety
/// `pd` is NULL or allocated; `buffer` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buffer: *mut *mut OpaqueBuffer,
) -> *mut c_void {
    pointer(Call::on(Verb::AllocBuf, pd), || {
        let place = not_null(buffer)?;
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        unsafe { ProtectionDomainObject::of(pd) }?;
        let mut memory = null_mut();
        // SAFETY: sysconf(3) has no preconditions; posix_memalign(3) fills a local place.
        let error =
            unsafe { libc::posix_memalign(&mut memory, libc::sysconf(libc::_SC_PAGESIZE) as usize, size) };
        if error != 0 {
            return Err(Errno(error));
        }
        let made = Box::new(OpaqueBuffer { memory, size, domain: pd });
        // SAFETY: not NULL, hence valid for a write.
        unsafe { put(place, Box::into_raw(made)) };
        Ok(memory)
    })
}

/// `ibv_free_buf`.
///
/// # Safety
/// `buffer` is NULL or allocated, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buffer: *mut OpaqueBuffer) {
    if buffer.is_null() {
        return;
    }
    // SAFETY: both come from `ibv_alloc_buf`, and the caller promises that nobody uses them any more. A forked child
    // frees its own copy.
    nothing(Call::on(Verb::FreeBuf, buffer), || unsafe {
        libc::free((*buffer).memory);
        drop(Box::from_raw(buffer));
    });
}

/// `ibv_export_buf_dmabuf_fd`: ENODATA, as no buffer is a DMA buffer.
///
/// # Safety
/// `buffer` is NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buffer: *mut OpaqueBuffer) -> c_int {
    unobserved_number(|| {
        // SAFETY: the caller promises that `buffer` is NULL or allocated.
        unsafe { OpaqueBuffer::of(buffer) }?;
        Err(Errno(ENODATA))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    /// Facts of the header of rdma-core 65 (x86-64).
    #[test]
    fn layout_is_that_of_the_newer_header() {
        assert_eq!(size_of::<MemoryRegionAttributes>(), 72);
        assert_eq!(offset_of!(MemoryRegionAttributes, access), 8);
        assert_eq!(offset_of!(MemoryRegionAttributes, comp_mask), 16);
        assert_eq!(offset_of!(MemoryRegionAttributes, addr), 32);
        assert_eq!(offset_of!(MemoryRegionAttributes, fd_offset), 48);
        assert_eq!(offset_of!(MemoryRegionAttributes, buf), 64);
    }
}
