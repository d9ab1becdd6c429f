//! Address handles: where datagrams go.

use crate::services::protection::ProtectionDomain;
use crate::types::attributes::AddressVector;
use crate::types::error::{Error, Result, invalid_if};
use pagewire_fabric::{Fabric, ROCE_PORT, Route};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A resolved address vector.
pub struct AddressHandle<F: Fabric> {
    domain: Arc<ProtectionDomain<F>>,
    route: Route,
}

impl<F: Fabric> AddressHandle<F> {
    pub(crate) fn new(domain: Arc<ProtectionDomain<F>>, vector: &AddressVector) -> Result<Arc<Self>> {
        let route = vector.route(&domain.context().port())?;
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

impl AddressVector {
    /// The route that packets take from a device to this address.
    pub(crate) fn route(&self, device: &crate::services::device::Device) -> Result<Route> {
        invalid_if(
            !self.is_global,
            "the address vector has no GRH (is_global is 0), which RoCE needs: many programs take a GID index, as in -g 0",
        )?;
        invalid_if(self.port != 1, "port number in the address vector")?;
        let source = device
            .gids
            .get(usize::from(self.source_gid_index))
            .filter(|gid| !gid.is_empty())
            .ok_or(Error::InvalidArgument("source GID index in the address vector"))?;
        let destination = crate::types::gid::address_of_gid(self.destination_gid);
        invalid_if(destination.is_unspecified(), "destination GID in the address vector")?;
        invalid_if(
            destination.is_ipv4() != source.address.is_ipv4(),
            "sgid_index names an address of another IP version than the destination GID",
        )?;
        Ok(Route {
            source: source.address,
            interface: source.interface,
            source_port: ROCE_PORT,
            destination,
            port: ROCE_PORT,
            traffic_class: self.traffic_class,
            hop_limit: if self.hop_limit == 0 { 64 } else { self.hop_limit },
        })
    }
}
