//! What a device is, before it is taken as a member.

pub mod sysfs;
pub mod usage;
