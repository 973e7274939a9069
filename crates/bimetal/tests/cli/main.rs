//! The real program on files in temporary folders.

mod attach;
mod check;
mod common;
mod control;
mod demo;
mod dissolve;
mod family;
mod family_headers;
mod family_keys;
mod files;
mod flow;
mod force;
mod former;
mod hung;
mod known;
mod lab;
mod leased;
mod leave;
mod loss;
mod member;
mod refusals;
mod repair;
mod saved;
mod server;
mod volume;
mod words;
