//! The NBD protocol as bytes, for servers and clients: constants, encoders and decoders. No I/O, no state.
//!
//! Fixed newstyle only: the oldstyle greeting is recognised and refused. All integers on the wire are big-endian.
//! Reading order: [`handshake`] (greeting, option frames), [`option`] (what options and their replies carry),
//! [`request`] and [`reply`] (the transmission phase, with compact and extended headers).
//!
//! No decoder panics, whatever the bytes; every length is checked against a stated limit before it is believed.

pub mod consts;
mod error;
pub mod handshake;
pub mod option;
mod reader;
pub mod reply;
pub mod request;

pub use error::WireError;
