//! The real program on files in temporary folders.

mod attach;
mod common;
mod control;
mod flow;
mod lab;
mod refusals;
mod volume;
