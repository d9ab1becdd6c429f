//! Types that every layer speaks in: attributes, errors, choices, limits. They use nothing of this crate.

pub mod attributes;
pub mod channel_layout;
pub mod delay;
pub mod device_names;
pub mod error;
pub mod gid;
pub mod limits;
pub mod options;
pub mod outcome;
pub mod page_fault_choice;
pub mod path_choice;
pub mod qp_role;
pub mod sge;
pub mod window;
