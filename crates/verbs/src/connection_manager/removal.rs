//! Devices that go while IDs use them.

use super::abi::event;
use super::addresses;
use super::service::{CmId, CmService};
use pagewire_fabric::Fabric;

impl CmService {
    /// IDs of devices that are gone end. Their programs hear of it, and can only destroy them.
    pub fn look_for_removed_devices(&mut self) {
        if !self.links.take(self.nic.fabric().now(), true) {
            return;
        }
        // Where the kernel does not tell, nothing is known to be gone.
        let Ok(interfaces) = addresses::interfaces() else { return };
        let is_gone = |id: &CmId| {
            let local = id.local.as_ref().filter(|_| !id.is_removed);
            local.is_some_and(|local| !interfaces.contains(&local.device.interface_index))
        };
        let gone: Vec<usize> =
            self.ids.iter().filter(|(_, id)| is_gone(id)).map(|(number, _)| number).collect();
        for number in gone {
            let id = &mut self.ids[number];
            id.is_removed = true;
            let (uid, endpoint) = (id.uid, id.endpoint);
            self.by_endpoint.remove(&endpoint);
            let now = self.now();
            // It is destroyed once: `is_removed` says so.
            let _was_there = self.manager.destroy(endpoint, now);
            // A request of which the program has not heard is one that never came.
            if uid == 0 {
                continue;
            }
            self.announce_plain(number as u32, event::DEVICE_REMOVAL);
        }
    }
}
