//! Protection domains and memory regions.

use crate::address_handle::AddressHandle;
use crate::attributes::AddressVector;
use crate::context::Context;
use crate::engine::Nic;
use crate::error::{Error, Result};
use crate::queue_pair::{QueuePair, QueuePairInit};
use crate::shared_receive::{SharedReceiveInit, SharedReceiveQueue};
use pagewire_fabric::Fabric;
use pagewire_iommu::{Region, Rights};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A protection domain: what is created in it may be used together.
pub struct ProtectionDomain<F: Fabric> {
    context: Arc<Context<F>>,
    number: u32,
    pub(crate) users: AtomicU32,
}

impl<F: Fabric> ProtectionDomain<F> {
    pub(crate) fn new(context: Arc<Context<F>>) -> Result<Arc<Self>> {
        context.nic().counts.protection_domains.take("protection domains")?;
        let number = context.nic().next_protection_domain();
        Ok(Arc::new(ProtectionDomain { context, number, users: AtomicU32::new(0) }))
    }

    /// The device it belongs to.
    pub fn context(&self) -> &Arc<Context<F>> {
        &self.context
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) fn nic(&self) -> &Arc<Nic<F>> {
        self.context.nic()
    }

    /// Refused while a region, queue pair, shared receive queue or address handle lives in it (`ibv_dealloc_pd(3)`).
    pub fn dealloc(&self) -> Result<()> {
        if self.users.load(Ordering::Acquire) != 0 {
            return Err(Error::Busy("the protection domain is in use"));
        }
        self.nic().counts.protection_domains.give_back();
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
        self.users.fetch_add(1, Ordering::AcqRel);
        let registered = Registered { domain: self.clone(), key, address, length, iova, access };
        Ok(Arc::new(MemoryRegion { nic: self.nic().clone(), registered: Mutex::new(registered) }))
    }

    fn enter(&self, address: u64, length: u64, iova: u64, access: Rights) -> Result<u32> {
        check_rights(access, length)?;
        let iova = if access.contains(Rights::ZERO_BASED) { 0 } else { iova };
        if !Region::may_cover(address, length) || iova.checked_add(length).is_none() {
            return Err(Error::InvalidArgument("the region is too long or leaves the address space"));
        }
        let region = Region { domain: self.number, address, length, iova, rights: access };
        let nic = self.nic();
        nic.regions().register(&region, nic.random_byte()).ok_or(Error::NoMemory("memory regions"))
    }

    /// `ibv_create_srq(3)`.
    pub fn create_srq(self: &Arc<Self>, init: &SharedReceiveInit) -> Result<Arc<SharedReceiveQueue<F>>> {
        SharedReceiveQueue::new(self.clone(), init)
    }

    /// `ibv_create_qp(3)`.
    pub fn create_qp(self: &Arc<Self>, init: QueuePairInit<F>) -> Result<Arc<QueuePair<F>>> {
        QueuePair::new(self.clone(), init)
    }

    /// `ibv_create_ah(3)`.
    pub fn create_ah(self: &Arc<Self>, vector: &AddressVector) -> Result<Arc<AddressHandle<F>>> {
        AddressHandle::new(self.clone(), vector)
    }
}

/// Whether a region of so many bytes may have these rights.
fn check_rights(access: Rights, length: u64) -> Result<()> {
    if !access.consistent() {
        return Err(Error::InvalidArgument("remote write and atomic access need local write access"));
    }
    if length == Region::WHOLE_ADDRESS_SPACE && !access.contains(Rights::ON_DEMAND) {
        return Err(Error::InvalidArgument(
            "only for on-demand paging may a region be the whole address space",
        ));
    }
    Ok(())
}

struct Registered<F: Fabric> {
    domain: Arc<ProtectionDomain<F>>,
    key: u32,
    address: u64,
    length: u64,
    iova: u64,
    access: Rights,
}

/// A memory region.
pub struct MemoryRegion<F: Fabric> {
    nic: Arc<Nic<F>>,
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
    /// The key for local use.
    pub fn lkey(&self) -> u32 {
        self.registered.lock().key
    }

    /// The key for peers.
    pub fn rkey(&self) -> u32 {
        self.registered.lock().key
    }

    /// Ends the registration. When this returns no access through the key is under way and none will come;
    /// an access that does not end in time gives `Busy`: the key is then dead, and the call may be repeated
    /// (`ibv_dereg_mr(3)`).
    pub fn deregister(&self) -> Result<()> {
        let registered = self.registered.lock();
        self.nic.revoke_region(registered.key)?;
        registered.domain.users.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }

    /// Changes the registration. Other rights alone leave the keys as they are; with another domain or translation the keys
    /// change too.
    pub fn reregister(&self, change: Reregistration<F>) -> Result<()> {
        let mut registered = self.registered.lock();
        if let Reregistration { domain: None, translation: None, access: Some(access) } = change {
            check_rights(access, registered.length)?;
            self.nic.suspend_region(registered.key)?;
            self.nic.regions().restore(registered.key, access);
            registered.access = access;
            return Ok(());
        }
        let domain = change.domain.unwrap_or_else(|| registered.domain.clone());
        if !Arc::ptr_eq(domain.context(), registered.domain.context()) {
            return Err(Error::InvalidArgument("the protection domain is of another context"));
        }
        let (address, length) = change.translation.unwrap_or((registered.address, registered.length));
        let iova = if change.translation.is_some() { address } else { registered.iova };
        let access = change.access.unwrap_or(registered.access);
        let key = domain.enter(address, length, iova, access)?;
        if let Err(error) = self.nic.revoke_region(registered.key) {
            self.nic.revoke_region(key)?;
            return Err(error);
        }
        domain.users.fetch_add(1, Ordering::AcqRel);
        registered.domain.users.fetch_sub(1, Ordering::AcqRel);
        *registered = Registered { domain, key, address, length, iova, access };
        Ok(())
    }
}
