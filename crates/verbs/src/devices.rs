//! Devices as programs see them: lists, files, attributes, ports.

pub mod device;
pub mod device_attributes;
pub mod device_files;
pub mod device_list;
pub mod kernel_structures;
pub mod names;
pub mod neighbour;
pub mod open_device;
pub mod port_counters;
pub mod query;
pub mod rates;
pub mod sysfs;
