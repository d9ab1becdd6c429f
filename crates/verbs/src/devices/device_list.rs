//! The devices of this process, by the names that the environment gives them.

use crate::runtime::settings::device_names;
use pagewire_nic::device::{Device, devices_with_names};
use std::io;

/// All devices.
///
/// # Errors
/// The kernel's; `InvalidInput`: the names make no sense.
pub fn devices() -> io::Result<Vec<Device>> {
    let names = device_names().map_err(|reason| io::Error::new(io::ErrorKind::InvalidInput, reason))?;
    devices_with_names(&names)
}
