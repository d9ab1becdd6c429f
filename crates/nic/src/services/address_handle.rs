//! Address handles: where datagrams go.

use crate::services::protection::ProtectionDomain;
use crate::types::attributes::AddressVector;
use crate::types::error::Result;
use pagewire_fabric::{Fabric, Route};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A resolved address vector.
pub struct AddressHandle<F: Fabric> {
    domain: Arc<ProtectionDomain<F>>,
    route: Route,
}

impl<F: Fabric> AddressHandle<F> {
    pub(crate) fn new(domain: Arc<ProtectionDomain<F>>, vector: &AddressVector) -> Result<Arc<Self>> {
        let route = domain.context().port().route_to(&vector)?;
        domain.services().counts.address_handles.take("address handles")?;
        domain.users.fetch_add(1, Ordering::AcqRel);
        Ok(Arc::new(AddressHandle { domain, route }))
    }

    pub(crate) fn domain_number(&self) -> u32 {
        self.domain.number()
    }

    pub(crate) fn route(&self) -> &Route {
        &self.route
    }

    /// `ibv_destroy_ah(3)`.
    pub fn destroy(&self) -> Result<()> {
        self.domain.services().counts.address_handles.give_back();
        self.domain.users.fetch_sub(1, Ordering::AcqRel);
        Ok(())
    }
}

impl<F: Fabric> ProtectionDomain<F> {
    /// `ibv_create_ah(3)`.
    pub fn create_ah(self: &Arc<Self>, vector: &AddressVector) -> Result<Arc<AddressHandle<F>>> {
        AddressHandle::new(self.clone(), vector)
    }
}
