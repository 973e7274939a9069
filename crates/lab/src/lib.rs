//! The lab: workloads and traces, replayed in virtual time on modelled devices, by the production engine and by what
//! others do in its place.

pub mod advise;
pub mod compare;
pub mod policy;
pub mod report;
pub mod reviews;
pub mod system;
pub mod trace;
pub mod workload;
