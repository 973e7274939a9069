//! Everything that reads bytes from outside, as functions that a fuzzer calls. Each panics if something is wrong, and
//! returns otherwise. `run.sh TARGET SECONDS` runs one under libFuzzer; `cargo test` runs all of them for some seconds
//! over their corpus and mutations of it.
//!
//! Metadata is guarded by checksums, which a fuzzer cannot guess. So the targets also run on input whose checksum was
//! made right ([`seal`]): what a decoder accepts must be safe to use, also if it was written by somebody malicious.

pub mod control_api;
pub mod decode;
pub mod image;
mod members;
pub mod seal;

// The engine's own test environment, so that there is one only.
#[allow(dead_code)]
#[path = "../../crates/volume/tests/engine/memory/mod.rs"]
mod memory;

// The control API as the daemon has it, over another `daemon`.
#[allow(dead_code)] // the command line's parts of these modules
#[path = "../../crates/bimetal/src/api/mod.rs"]
mod api;
#[allow(dead_code, reason = "only the daemon ends it")]
#[path = "../../crates/bimetal/src/control/mod.rs"]
mod control;
mod daemon;
mod handover;
#[allow(dead_code)]
#[path = "../../crates/bimetal/src/hex.rs"]
mod hex;
#[allow(dead_code)]
#[path = "../../crates/bimetal/src/log.rs"]
mod log;
#[allow(dead_code)]
#[path = "../../crates/bimetal/src/paths.rs"]
mod paths;

#[path = "../../crates/bimetal/src/plain.rs"]
mod plain;
#[allow(dead_code)]
#[path = "../../crates/bimetal/src/size.rs"]
mod size;
#[allow(dead_code)]
#[path = "../../crates/bimetal/src/uuid.rs"]
mod uuid;
#[allow(dead_code)]
#[path = "../../crates/bimetal/src/words.rs"]
mod words;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name; also that of its folder in `corpus/`.
    pub name: &'static str,
    /// The target.
    pub run: fn(&[u8]),
    /// Longest useful input, in bytes.
    pub max_len: usize,
}

/// All targets.
pub const TARGETS: [Target; 12] = [
    Target { name: "label", run: decode::label, max_len: 64 << 10 },
    Target { name: "page", run: decode::page, max_len: 4096 },
    Target { name: "journal", run: decode::journal, max_len: 4096 },
    Target { name: "directory", run: decode::directory, max_len: 4096 },
    Target { name: "image", run: image::killed, max_len: 256 },
    Target { name: "image-stopped", run: image::stopped, max_len: 256 },
    Target { name: "nbd-server", run: bimetal_export::fuzz::fuzz_server_bytes, max_len: 4096 },
    Target { name: "nbd-client", run: bimetal_export::fuzz::fuzz_client_bytes, max_len: 4096 },
    Target { name: "nbd-wire", run: bimetal_export::fuzz::fuzz_wire, max_len: 4096 },
    Target { name: "fuse", run: bimetal_export::fuzz::fuzz_fuse, max_len: 4096 },
    Target { name: "control", run: control_api::requests, max_len: 4096 },
    Target { name: "control-bodies", run: control_api::bodies, max_len: 4096 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|t| t.name == name)
}
