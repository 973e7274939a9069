//! The lab: workloads and traces, replayed in virtual time on modelled devices, by the production engine and by what
//! others do in its place.

pub mod policy;
pub mod trace;
pub mod workload;
