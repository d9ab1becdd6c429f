//! Protection domains and memory regions.

use crate::abi::*;
use crate::boundary::{Errno, Result, invalid, pointer, quick_pointer, quick_status, set_errno, status};
use crate::calls::Call;
use crate::objects::context::ContextObject;
use crate::objects::device_memory;
use crate::objects::held::epoch;
use crate::objects::object::Object;
use crate::runtime::engine::Host;
use crate::runtime::leftovers::{Leftover, Leftovers, Membership};
use libc::{EBUSY, EIO, c_int, c_void};
use pagewire_checkpoint::Saved;
use pagewire_failures::Verb;
use pagewire_nic::{MemoryRegion, PageAttributes, ProtectionDomain, Reregistration, Rights};
use pagewire_watching::WatchedAccesses;
use pagewire_watching::checkpoint::{self, RefusedSave};
use pagewire_watching::watch::{self, OwnAttributesError};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// A protection domain as programs see it.
#[repr(C)]
pub struct ProtectionDomainObject {
    public: UnsafeCell<ibv_pd>,
    domain: Arc<ProtectionDomain<Host>>,
    leftovers: Arc<Leftovers>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_pd`.
unsafe impl Object<ibv_pd> for ProtectionDomainObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

impl ProtectionDomainObject {
    /// The engine's protection domain.
    pub fn domain(&self) -> &Arc<ProtectionDomain<Host>> {
        &self.domain
    }

    /// Makes the object that programs see of a protection domain or a parent domain.
    pub fn publish_domain(
        context: *mut ibv_context,
        leftovers: &Arc<Leftovers>,
        domain: Arc<ProtectionDomain<Host>>,
    ) -> *mut ibv_pd {
        let membership = leftovers.add(Leftover::ProtectionDomain(domain.clone()));
        ProtectionDomainObject::publish_again(context, leftovers, domain, membership)
    }

    /// Makes one more object that programs see of a protection domain.
    pub fn publish_again(
        context: *mut ibv_context,
        leftovers: &Arc<Leftovers>,
        domain: Arc<ProtectionDomain<Host>>,
        membership: Membership,
    ) -> *mut ibv_pd {
        let public = ibv_pd { context, handle: membership.handle() };
        Box::new(ProtectionDomainObject {
            public: UnsafeCell::new(public),
            membership,
            domain,
            leftovers: leftovers.clone(),
            epoch: epoch(),
        })
        .publish()
    }

    /// What ends with the context.
    pub fn leftovers(&self) -> &Arc<Leftovers> {
        &self.leftovers
    }

    /// The context that programs find in it.
    pub fn context(&self) -> *mut ibv_context {
        // SAFETY: the field was set at creation and programs do not change it.
        unsafe { (*self.public.get()).context }
    }
}

/// `ibv_alloc_pd(3)`.
///
/// # Safety
/// `context` is NULL or open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    pointer(Call::on(Verb::AllocPd, context), || {
        // SAFETY: the caller promises that `context` is NULL or open.
        let opened = unsafe { ContextObject::of(context) }?;
        let domain = opened.context().alloc_pd()?;
        Ok(ProtectionDomainObject::publish_domain(context, opened.leftovers(), domain))
    })
}

/// `ibv_dealloc_pd(3)`, for parent domains, too.
///
/// # Safety
/// `pd` is NULL or allocated, and nobody uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    status(Call::on(Verb::DeallocPd, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        let object = unsafe { ProtectionDomainObject::of(pd) }?;
        object.membership.end(|| object.domain.dealloc())?;
        // SAFETY: `of` found `pd`, and the caller promises that nobody uses it any more.
        unsafe { ProtectionDomainObject::free(pd) };
        Ok(())
    })
}

/// A memory region as programs see it.
#[repr(C)]
pub(crate) struct MemoryRegionObject {
    public: UnsafeCell<ibv_mr>,
    region: Arc<MemoryRegion<Host>>,
    membership: Membership,
    epoch: u32,
}

// SAFETY: `repr(C)` and begins with `ibv_mr`.
unsafe impl Object<ibv_mr> for MemoryRegionObject {
    fn epoch(&self) -> u32 {
        self.epoch
    }
}

/// Has accesses of peers to a region counted, or no more (`pw_watch_region()`).
///
/// # Errors
/// Why it cannot be.
///
/// # Safety
/// `mr` is NULL or registered, and is not deregistered meanwhile.
pub unsafe fn watch_region(mr: *mut ibv_mr, watched: WatchedAccesses) -> std::result::Result<(), String> {
    // SAFETY: the caller promises that `mr` is NULL or registered, and is not deregistered meanwhile.
    let (region, memory) = unsafe { region_of(mr) }.ok_or("'mr' is no memory region")?;
    watch::watch(region, memory, watched)
}

/// Whether a region is one of the parent of this forked process.
///
/// # Safety
/// NULL, or a region that is not deregistered meanwhile.
pub unsafe fn is_region_of_parent(mr: *const ibv_mr) -> bool {
    // SAFETY: the caller promises that `mr` is NULL, or a region that is not deregistered meanwhile.
    unsafe { MemoryRegionObject::is_of_parent(mr) }
}

/// A region, and where its bytes begin and how many they are.
pub(crate) type RegionAndBytes<'r> = (&'r Arc<MemoryRegion<Host>>, (u64, u64));

/// A region of a program, and its memory.
///
/// # Safety
/// As for [`watch_region`].
pub(crate) unsafe fn region_of<'r>(mr: *mut ibv_mr) -> Option<RegionAndBytes<'r>> {
    // SAFETY: the caller promises that `mr` is NULL or registered, and is not deregistered meanwhile.
    let object = unsafe { MemoryRegionObject::of(mr) }.ok()?;
    // SAFETY: the structure lies in an `UnsafeCell`, and only a reregistration changes it.
    let public = unsafe { &*object.public.get() };
    Some((&object.region, (public.addr as u64, public.length as u64)))
}

/// Saves a region to a file (`pw_checkpoint_region()`).
///
/// # Errors
/// Why it was not saved.
///
/// # Safety
/// As for [`watch_region`].
pub unsafe fn checkpoint_region(
    mr: *mut ibv_mr,
    file: Option<&Path>,
) -> std::result::Result<Saved, RefusedSave> {
    // SAFETY: the caller promises that `mr` is NULL or registered, and is not deregistered meanwhile.
    let (region, memory) = unsafe { region_of(mr) }.ok_or(RefusedSave::NoRegion)?;
    checkpoint::save_region(region, memory, file)
}

/// Restores a region from a file (`pw_restore_region()`): from a checkpoint, or from the last one. Gives its number.
///
/// # Errors
/// Why it was not restored.
///
/// # Safety
/// As for [`watch_region`]; nobody else uses its memory meanwhile.
pub unsafe fn restore_region(
    mr: *mut ibv_mr,
    file: &Path,
    number: Option<u64>,
) -> std::result::Result<u64, RefusedSave> {
    // SAFETY: the caller promises that `mr` is NULL or registered, and is not deregistered meanwhile.
    let (region, memory) = unsafe { region_of(mr) }.ok_or(RefusedSave::NoRegion)?;
    checkpoint::restore_region(region, memory, file, number)
}

/// Bytes of a region whose READs wait for handlers: the word for all logs.
const FLUSH_REGION_LENGTH: u64 = 8;

/// Why a region does not get attributes, or does not become one of flushes.
#[derive(Debug)]
pub enum RegionAttributesError {
    /// There is none.
    NoRegion,
    /// It is not of 8 bytes, or peers may do other things with it than read it.
    NoFlushRegion,
    /// As it says.
    Refused(OwnAttributesError),
}

/// Sets attributes of pages of a region (`pw_set_region_attributes()`).
///
/// # Errors
/// Why they are not set.
///
/// # Safety
/// As for [`watch_region`].
pub unsafe fn set_region_attributes(
    mr: *mut ibv_mr,
    bytes: Range<u64>,
    page: PageAttributes,
) -> std::result::Result<(), RegionAttributesError> {
    // SAFETY: the caller promises that `mr` is NULL or registered, and is not deregistered meanwhile.
    let (region, memory) = unsafe { region_of(mr) }.ok_or(RegionAttributesError::NoRegion)?;
    watch::set_own_attributes(region, memory, bytes, page).map_err(RegionAttributesError::Refused)
}

/// Has READs of a region by peers wait for handlers (`pw_make_flush_region()`): a region of one word.
///
/// # Errors
/// Why they do not wait.
///
/// # Safety
/// As for [`watch_region`].
pub unsafe fn make_flush_region(mr: *mut ibv_mr) -> std::result::Result<(), RegionAttributesError> {
    // SAFETY: the caller promises that `mr` is NULL or registered, and is not deregistered meanwhile.
    let (region, (_, length)) = unsafe { region_of(mr) }.ok_or(RegionAttributesError::NoRegion)?;
    let more = Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC | Rights::MEMORY_WINDOW_BIND;
    let only_reads = region.rights().contains(Rights::REMOTE_READ) && !region.rights().intersects(more);
    if length != FLUSH_REGION_LENGTH || !only_reads {
        return Err(RegionAttributesError::NoFlushRegion);
    }
    watch::make_flush_region(region).map_err(RegionAttributesError::Refused)
}

/// The rights that access flags ask for; flags that a device may ignore are ignored when they are not known.
pub fn rights(access: u32) -> Result<Rights> {
    let required = Rights::from_bits(access & !IBV_ACCESS_OPTIONAL_RANGE);
    let optional = Rights::from_bits_truncate(access & IBV_ACCESS_OPTIONAL_RANGE) & Rights::RELAXED_ORDERING;
    match required {
        Some(required) => Ok(required | optional),
        None => invalid("access flags"),
    }
}

/// Registers memory.
///
/// # Safety
/// `pd` is NULL or allocated.
pub unsafe fn register(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr> {
    // SAFETY: the caller promises that `pd` is NULL or allocated.
    let domain = unsafe { ProtectionDomainObject::of(pd) }?;
    let rights = rights(access)?;
    let region = domain.domain.register(address as u64, length as u64, iova, rights)?;
    if watch::is_used() {
        watch::registered(&region, (address as u64, length as u64), rights);
    }
    Ok(publish_region(pd, domain, (address, length), region))
}

/// Registers a part of device memory.
///
/// # Safety
/// `pd` is NULL or allocated.
pub unsafe fn register_device_memory(
    pd: *mut ibv_pd,
    part: (*mut c_void, usize),
    access: u32,
) -> Result<*mut ibv_mr> {
    // SAFETY: the caller promises that `pd` is NULL or allocated.
    let domain = unsafe { ProtectionDomainObject::of(pd) }?;
    let region = domain.domain.register(part.0 as u64, part.1 as u64, 0, rights(access)?)?;
    Ok(publish_region(pd, domain, part, region))
}

/// Makes the object that programs see of a region, of memory with this address and length.
#[inline(always)] // Part of each registration.
fn publish_region(
    pd: *mut ibv_pd,
    domain: &ProtectionDomainObject,
    (addr, length): (*mut c_void, usize),
    region: Arc<MemoryRegion<Host>>,
) -> *mut ibv_mr {
    let membership = domain.leftovers.add(Leftover::Region(region.clone()));
    publish_region_again(pd, domain, (addr, length), (region, membership))
}

/// Makes one more object that programs see of a region.
#[inline(always)] // Part of each registration.
pub(crate) fn publish_region_again(
    pd: *mut ibv_pd,
    domain: &ProtectionDomainObject,
    (addr, length): (*mut c_void, usize),
    (region, membership): (Arc<MemoryRegion<Host>>, Membership),
) -> *mut ibv_mr {
    let (lkey, rkey, handle) = (region.lkey(), region.rkey(), membership.handle());
    let public = ibv_mr { context: domain.context(), pd, addr, length, handle, lkey, rkey };
    let object = MemoryRegionObject { public: UnsafeCell::new(public), membership, region, epoch: epoch() };
    Box::new(object).publish()
}

/// `ibv_alloc_null_mr(3)`, by way of `verbs_context`. Its key gives peers no access.
///
/// # Safety
/// `pd` is NULL or allocated.
pub unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    pointer(Call::on(Verb::AllocNullMr, pd), || {
        // SAFETY: the caller promises that `pd` is NULL or allocated.
        let domain = unsafe { ProtectionDomainObject::of(pd) }?;
        let region = domain.domain.register_null()?;
        Ok(publish_region(pd, domain, (std::ptr::null_mut(), usize::MAX), region))
    })
}

// `ibv_reg_mr` and `ibv_reg_mr_iova` are what programs call whose access flags are constants without optional
// flags (or that were built before there were any); all others call `ibv_reg_mr_iova2`.

/// `ibv_reg_mr(3)`.
///
/// # Safety
/// `pd` is NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller promises that `pd` is NULL or allocated.
    quick_pointer(Call::on(Verb::RegMr, pd), || unsafe {
        register(pd, address, length, address as u64, access as u32)
    })
}

/// `ibv_reg_mr_iova(3)`.
///
/// # Safety
/// `pd` is NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the caller promises that `pd` is NULL or allocated.
    quick_pointer(Call::on(Verb::RegMrIova, pd), || unsafe {
        register(pd, address, length, iova, access as u32)
    })
}

/// `ibv_reg_mr(3)`, `ibv_reg_mr_iova(3)` with flags that are not constant.
///
/// # Safety
/// `pd` is NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> *mut ibv_mr {
    // SAFETY: the caller promises that `pd` is NULL or allocated.
    quick_pointer(Call::on(Verb::RegMr, pd), || unsafe { register(pd, address, length, iova, access) })
}

/// `ibv_dereg_mr(3)`.
///
/// # Safety
/// `mr` is NULL or registered, and nobody uses the structure any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    quick_status(Call::on(Verb::DeregMr, mr), || {
        // SAFETY: the caller promises that `mr` is NULL or registered.
        let object = unsafe { MemoryRegionObject::of(mr) }?;
        if watch::is_used() || device_memory::is_used() {
            deregister_noted(object)?;
        } else {
            object.membership.end(|| object.region.deregister())?;
        }
        // SAFETY: `of` found `mr`, and the caller promises that nobody uses it any more.
        unsafe { MemoryRegionObject::free(mr) };
        Ok(())
    })
}

/// Ends a region of which others may have noted something.
#[cold]
fn deregister_noted(object: &MemoryRegionObject) -> Result<()> {
    let key = object.region.rkey();
    object.membership.end(|| object.region.deregister())?;
    if device_memory::is_used() {
        device_memory::region_ended(key);
    }
    if watch::is_used() {
        watch::ended(key);
    }
    Ok(())
}

/// `ibv_rereg_mr(3)`: 0 or an `enum ibv_rereg_mr_err_code`, with `errno` set.
///
/// # Safety
/// `mr` is NULL or registered; `pd` is NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let refused = |Errno(value): Errno, code| {
        set_errno(value);
        code
    };
    let mut busy = false;
    let done = status(Call::on(Verb::ReregMr, mr), || {
        let flags = flags as u32;
        let changes = |flag| flags & flag != 0;
        // SAFETY: the caller promises that `mr` is NULL or registered.
        let object = unsafe { MemoryRegionObject::of(mr) }?;
        if flags == 0 || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0 {
            return invalid("flags of a reregistration");
        }
        if access != 0 && !changes(IBV_REREG_MR_CHANGE_ACCESS) {
            return invalid("access flags that are not to be changed");
        }
        if changes(IBV_REREG_MR_CHANGE_TRANSLATION) && (length == 0 || address.is_null()) {
            return invalid("address and length of a reregistration");
        }
        if device_memory::has_region(object.region.rkey()) && flags & !IBV_REREG_MR_CHANGE_ACCESS != 0 {
            return invalid("a region of device memory stays where it is");
        }
        let domain = match changes(IBV_REREG_MR_CHANGE_PD) {
            // SAFETY: the caller promises that `pd` is NULL or allocated.
            true => Some(unsafe { ProtectionDomainObject::of(pd) }?.domain.clone()),
            false => None,
        };
        let change = Reregistration {
            domain,
            translation: changes(IBV_REREG_MR_CHANGE_TRANSLATION).then_some((address as u64, length as u64)),
            access: match changes(IBV_REREG_MR_CHANGE_ACCESS) {
                true => Some(rights(access as u32)?),
                false => None,
            },
        };
        // What is refused leaves the region as it is, with its checkpoints.
        object.region.check_reregistration(&change)?;
        if watch::is_used() {
            watch::suspend(&object.region);
        }
        let outcome = object.region.reregister(change).inspect_err(|error| busy = error.errno() == EBUSY);
        // SAFETY: the structure lies in an `UnsafeCell`, and the caller does not use the region during the call.
        let public = unsafe { &mut *object.public.get() };
        if outcome.is_ok() && changes(IBV_REREG_MR_CHANGE_PD) {
            public.pd = pd;
        }
        if outcome.is_ok() && changes(IBV_REREG_MR_CHANGE_TRANSLATION) {
            (public.addr, public.length) = (address, length);
        }
        (public.lkey, public.rkey) = (object.region.lkey(), object.region.rkey());
        if watch::is_used() {
            let memory = (public.addr as u64, public.length as u64);
            watch::registered(&object.region, memory, object.region.rights());
        }
        outcome?;
        Ok(())
    });
    match done {
        0 => 0,
        // The old keys are dead already: an access under way did not end in time.
        EBUSY if busy => refused(Errno(EBUSY), IBV_REREG_MR_ERR_CMD),
        EIO => refused(Errno(EIO), IBV_REREG_MR_ERR_CMD),
        value => refused(Errno(value), IBV_REREG_MR_ERR_INPUT),
    }
}
