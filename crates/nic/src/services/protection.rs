//! Protection domains, parent domains and memory regions.

use crate::services::Services;
use crate::services::context::Context;
use crate::services::interception::Attributes;
use crate::services::thread_domain::ThreadDomain;
use crate::types::error::{Error, Result, busy_if, invalid_if};
use pagewire_fabric::Fabric;
use pagewire_iommu::limits::MAX_REGION_LENGTH;
use pagewire_iommu::{NullMemory, RegisteredRegion, Rights};
use pagewire_memory::{ApplicationMemory, NullPages, Segment};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain: what is created in it may be used together. A parent domain is one, too (`ibv_alloc_parent_domain(3)`): it has
/// the number of the protection domain that it extends, and counts its own users.
pub struct ProtectionDomain<F: Fabric> {
    context: Arc<Context<F>>,
    number: u32,
    pub(crate) users: AtomicU32,
    /// Of a parent domain.
    parts: Option<ParentDomainParts<F>>,
}

/// What a parent domain is made of.
struct ParentDomainParts<F: Fabric> {
    protection_domain: Arc<ProtectionDomain<F>>,
    thread_domain: Option<Arc<ThreadDomain<F>>>,
}

impl<F: Fabric> ProtectionDomain<F> {
    pub(crate) fn new(context: Arc<Context<F>>) -> Result<Arc<Self>> {
        context.services().counts.protection_domains.take("protection domains")?;
        let number = context.services().next_domain.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(ProtectionDomain { context, number, users: AtomicU32::new(0), parts: None }))
    }

    /// Makes a parent domain of this protection domain, or of the one that this parent domain extends, and of a thread domain
    /// (`ibv_alloc_parent_domain(3)`).
    ///
    /// # Errors
    /// `InvalidArgument`: the thread domain is of another context; `NoMemory`: there are too many protection domains.
    pub fn extend(self: &Arc<Self>, thread_domain: Option<Arc<ThreadDomain<F>>>) -> Result<Arc<Self>> {
        let protection_domain = match &self.parts {
            Some(parts) => parts.protection_domain.clone(),
            None => self.clone(),
        };
        let is_foreign = |domain: &Arc<ThreadDomain<F>>| !Arc::ptr_eq(domain.context(), &self.context);
        invalid_if(
            thread_domain.as_ref().is_some_and(is_foreign),
            "the thread domain is of another context",
        )?;
        self.services().counts.protection_domains.take("protection domains")?;
        protection_domain.users.fetch_add(1, Ordering::AcqRel);
        if let Some(domain) = &thread_domain {
            domain.users.fetch_add(1, Ordering::AcqRel);
        }
        Ok(Arc::new(ProtectionDomain {
            context: self.context.clone(),
            number: self.number,
            users: AtomicU32::new(0),
            parts: Some(ParentDomainParts { protection_domain, thread_domain }),
        }))
    }

    /// Whether it is a parent domain.
    pub fn is_parent_domain(&self) -> bool {
        self.parts.is_some()
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Arc<Context<F>> {
        &self.context
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn services(&self) -> &Arc<Services<F>> {
        self.context.services()
    }

    /// Refused while a region, queue pair, shared receive queue, address handle or parent domain lives in it, or a completion queue
    /// in a parent domain (`ibv_dealloc_pd(3)`).
    pub fn dealloc(&self) -> Result<()> {
        busy_if(self.users.load(Ordering::Acquire) != 0, "the protection domain is in use")?;
        if let Some(ParentDomainParts { protection_domain, thread_domain }) = &self.parts {
            protection_domain.users.fetch_sub(1, Ordering::AcqRel);
            if let Some(domain) = thread_domain {
                domain.users.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.services().counts.protection_domains.give_back();
        Ok(())
    }

    /// Registers `length` bytes at `address`, which accesses will name from `iova` on, in constant time and
    /// without touching them (`ibv_reg_mr(3)`, PAPERS JBMT-1).
    pub fn register(
        self: &Arc<Self>,
        address: u64,
        length: u64,
        iova: u64,
        access: Rights,
    ) -> Result<Arc<MemoryRegion<F>>> {
        let key = self.enter(address, length, iova, access)?;
        let domain = self.clone();
        Ok(self.registered(Registered { domain, key, address, length, iova, access, is_null: false }))
    }

    /// Registers a null region (`ibv_alloc_null_mr(3)`): local accesses read zeros and write nothing, at any address. Peers have no access.
    ///
    /// # Errors
    /// `NoMemory`: there are too many regions. Those of the kernel: there is no address space for the memory that stands for it.
    pub fn register_null(self: &Arc<Self>) -> Result<Arc<MemoryRegion<F>>> {
        let services = self.services();
        let NullPages { zeros, sink } = services.fabric.memory().null_pages()?;
        let key =
            services.regions.register_null(self.number, &NullMemory { zeros, sink }, services.random_byte());
        let key = key.ok_or(Error::NoMemory("memory regions"))?;
        Ok(self.registered(Registered {
            domain: self.clone(),
            key,
            address: 0,
            length: 0,
            iova: 0,
            access: Rights::empty(),
            is_null: true,
        }))
    }

    #[inline(always)] // Part of each registration.
    fn registered(self: &Arc<Self>, registered: Registered<F>) -> Arc<MemoryRegion<F>> {
        self.users.fetch_add(1, Ordering::AcqRel);
        Arc::new(MemoryRegion { services: self.services().clone(), registered: Mutex::new(registered) })
    }

    fn enter(&self, address: u64, length: u64, iova: u64, access: Rights) -> Result<u32> {
        self.services().check_rights(access, address, length)?;
        let iova = first_iova(iova, access);
        if length > MAX_REGION_LENGTH || iova.checked_add(length).is_none() {
            check_long(length, iova, access)?;
        }
        let region = RegisteredRegion { domain: self.number, address, length, iova, rights: access };
        let services = self.services();
        services.regions.register(&region, services.random_byte()).ok_or_else(|| why_refused(&region))
    }
}

/// The IOVA of the first byte of a region.
#[inline(always)] // Part of each registration.
fn first_iova(iova: u64, access: Rights) -> u64 {
    if access.contains(Rights::ZERO_BASED) { 0 } else { iova }
}

impl<F: Fabric> Services<F> {
    /// Whether a region of this memory may have these rights.
    #[inline(always)] // Part of each registration.
    fn check_rights(&self, access: Rights, address: u64, length: u64) -> Result<()> {
        invalid_if(!access.consistent(), "remote write and atomic access need local write access")?;
        if access.contains(Rights::FLUSH_PERSISTENT) {
            self.check_persistent(address, length)
        } else {
            Ok(())
        }
    }

    /// Whether FLUSHes of peers can make this memory persistent.
    #[cold]
    fn check_persistent(&self, address: u64, length: u64) -> Result<()> {
        let is_whole = length == RegisteredRegion::WHOLE_ADDRESS_SPACE;
        invalid_if(is_whole, "FLUSHes cannot make the whole address space persistent")?;
        let checked = self.fabric.memory().check_persistent(Segment { address, length });
        invalid_if(checked.is_err(), "only shared mappings of files can be made persistent by FLUSHes")
    }
}

/// Whether a region may be longer than others are, with these rights: the whole address space.
#[cold]
fn check_long(length: u64, iova: u64, access: Rights) -> Result<()> {
    invalid_if(
        length == RegisteredRegion::WHOLE_ADDRESS_SPACE && !access.contains(Rights::ON_DEMAND),
        "only for on-demand paging may a region be the whole address space",
    )?;
    invalid_if(iova.checked_add(length).is_none(), "the region's iova leaves the address space")
}

/// Why the table did not take a region.
#[cold]
fn why_refused(region: &RegisteredRegion) -> Error {
    match region.iova != u64::MAX && RegisteredRegion::may_cover(region.address, region.length) {
        true => Error::NoMemory("memory regions"),
        false => Error::InvalidArgument("the region is too long or leaves the address space"),
    }
}

struct Registered<F: Fabric> {
    domain: Arc<ProtectionDomain<F>>,
    key: u32,
    address: u64,
    length: u64,
    iova: u64,
    access: Rights,
    is_null: bool,
}

impl<F: Fabric> Registered<F> {
    /// What it becomes by a change, but for its key.
    fn changed(&self, change: &Reregistration<F>) -> Result<Self> {
        invalid_if(self.is_null, "a null region stays what it is")?;
        let domain = change.domain.as_ref().unwrap_or(&self.domain).clone();
        let is_foreign = !Arc::ptr_eq(domain.context(), self.domain.context());
        invalid_if(is_foreign, "the protection domain is of another context")?;
        let (address, length) = change.translation.unwrap_or((self.address, self.length));
        let iova = if change.translation.is_some() { address } else { self.iova };
        let access = change.access.unwrap_or(self.access);
        Ok(Registered { domain, key: self.key, address, length, iova, access, is_null: false })
    }
}

/// A memory region.
pub struct MemoryRegion<F: Fabric> {
    services: Arc<Services<F>>,
    registered: Mutex<Registered<F>>,
}

/// What [`MemoryRegion::reregister`] changes (`ibv_rereg_mr(3)`).
pub struct Reregistration<F: Fabric> {
    pub domain: Option<Arc<ProtectionDomain<F>>>,
    /// Address and length.
    pub translation: Option<(u64, u64)>,
    pub access: Option<Rights>,
}

impl<F: Fabric> MemoryRegion<F> {
    /// Attributes for the pages of a range of addresses, all of them ordinary at first.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn make_attributes(&self, range: Range<u64>) -> Result<Arc<Attributes<F>>> {
        self.services().attribute_table(range)
    }

    /// Has accesses of peers obey the attributes of a table, or no more those of any. When this returns, later accesses do, on all paths.
    ///
    /// # Errors
    /// `NotFound`: the region has ended; `Busy`: an access that was under way before does not end, or memory windows are bound to the region.
    pub fn set_attributes(&self, attributes: Option<&Arc<Attributes<F>>>) -> Result<()> {
        let key = self.rkey();
        self.refuse_if_windows_are_bound(key)?;
        self.services().intercept_region(key, attributes)?;
        // One may have been bound meanwhile.
        self.refuse_if_windows_are_bound(key).or_else(|busy| {
            self.services().intercept_region(key, None)?;
            Err(busy)
        })
    }

    /// Waits until accesses that began before a table of its attributes was changed have ended.
    ///
    /// # Errors
    /// `Busy`: one does not end in time.
    pub fn await_accesses(&self) -> Result<()> {
        self.services().await_accesses(self.rkey())
    }

    /// Has READs of the region answered when handlers have handled what was logged of the reading queue pair: all at its first byte, and at
    /// the offset 8 * (user domain + 1) what is in that log. Other accesses are refused.
    ///
    /// # Errors
    /// `NotFound`: the region has ended; `Busy`: an access that was under way before does not end.
    pub fn make_flush_region(&self) -> Result<()> {
        self.services().make_flush_region(self.rkey())
    }

    /// The fabric of its process.
    pub fn fabric(&self) -> &F {
        &self.services.fabric
    }

    pub(crate) fn services(&self) -> &Arc<Services<F>> {
        &self.services
    }

    /// The key for local use.
    pub fn lkey(&self) -> u32 {
        self.registered.lock().key
    }

    /// The key for peers.
    pub fn rkey(&self) -> u32 {
        self.registered.lock().key
    }

    /// Whether it is registered under this key.
    pub fn has_key(&self, key: u32) -> bool {
        self.registered.lock().key == key && self.services.regions.has_key(key)
    }

    /// Whether it is registered in this protection domain.
    pub fn is_in(&self, domain: &ProtectionDomain<F>) -> bool {
        self.registered.lock().domain.number() == domain.number()
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.registered.lock().length
    }

    /// The address by which accesses name its first byte.
    pub fn iova(&self) -> u64 {
        let registered = self.registered.lock();
        first_iova(registered.iova, registered.access)
    }

    /// What it was registered for.
    pub fn rights(&self) -> Rights {
        self.registered.lock().access
    }

    /// Ends the registration. When this returns no access through the key is under way and none will come;
    /// an access that does not end in time gives `Busy`: the key is then dead, and the call may be repeated
    /// (`ibv_dereg_mr(3)`). While memory windows are bound to it, `Busy`, and nothing changes.
    pub fn deregister(&self) -> Result<()> {
        let registered = self.registered.lock();
        self.refuse_if_windows_are_bound(registered.key)?;
        self.services.revoke_region(registered.key)?;
        registered.domain.users.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Refuses what [`reregister`](Self::reregister) would refuse because of what the region is to become. Nothing is changed.
    ///
    /// # Errors
    /// `InvalidArgument`.
    pub fn check_reregistration(&self, change: &Reregistration<F>) -> Result<()> {
        let Registered { address, length, iova, access, .. } = self.registered.lock().changed(change)?;
        self.services.check_rights(access, address, length)?;
        check_long(length, first_iova(iova, access), access)?;
        invalid_if(
            !RegisteredRegion::may_cover(address, length),
            "the region is too long or leaves the address space",
        )
    }

    /// Changes the registration. Other rights alone leave the keys as they are; with another domain or translation the keys
    /// change too.
    pub fn reregister(&self, change: Reregistration<F>) -> Result<()> {
        let mut registered = self.registered.lock();
        let changed = registered.changed(&change)?;
        self.refuse_if_windows_are_bound(registered.key)?;
        let place = self.services.regions.place_of(registered.key);
        let is_flush = self.services.interception.is_flush(place);
        invalid_if(is_flush, "READs of the region wait for handlers: it stays as it is")?;
        if let Reregistration { domain: None, translation: None, access: Some(access) } = change {
            self.services.check_rights(access, registered.address, registered.length)?;
            check_long(registered.length, registered.iova, access)?;
            self.services.suspend_region(registered.key)?;
            // One may have been bound by the rights of before.
            self.services.unbind_from_region(place)?;
            let is_intercepted = self.services.interception.table(place).is_some();
            self.services.regions.restore(registered.key, access.intercepted(is_intercepted));
            registered.access = access;
            return Ok(());
        }
        let has_attributes = self.services.interception.table(place).is_some();
        invalid_if(has_attributes, "the region's pages have attributes: they are to be taken away before")?;
        let Registered { domain, address, length, iova, access, .. } = &changed;
        let key = domain.enter(*address, *length, *iova, *access)?;
        if let Err(error) = self.services.revoke_region(registered.key) {
            self.services.revoke_region(key)?;
            return Err(error);
        }
        domain.users.fetch_add(1, Ordering::AcqRel);
        registered.domain.users.fetch_sub(1, Ordering::AcqRel);
        *registered = Registered { key, ..changed };
        Ok(())
    }
}
