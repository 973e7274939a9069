//! The experiments of five published reviews (2012 to 2014), replayed: what was measured, what a model of the reviewed system
//! does on modelled devices, and what Bimetal does on the same ones.

pub mod outcome;
