//! One target under libFuzzer; `BIMETAL_FUZZ_TARGET` names it.
#![no_main]
// The macro of libfuzzer-sys exports C functions.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use bimetal_fuzz::Target;

static TARGET: OnceLock<Target> = OnceLock::new();

fn chosen() -> Target {
    let name = std::env::var("BIMETAL_FUZZ_TARGET").unwrap_or_default();
    bimetal_fuzz::target(&name).unwrap_or_else(|| {
        let names = bimetal_fuzz::TARGETS.map(|t| t.name).join(", ");
        panic!("BIMETAL_FUZZ_TARGET is \"{name}\", but must be one of: {names}")
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| (TARGET.get_or_init(chosen).run)(data));
