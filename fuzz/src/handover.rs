//! Stands for the FIFOs through which keys come: a request that names one well gets the same key always.

use anyhow::{bail, Result};
use bimetal_crypt::FamilyKey;

pub(crate) async fn receive(_group: &str, name: &str, _peer: u32) -> Result<FamilyKey> {
    if !name.starts_with("key-") {
        bail!("no key came through {name}");
    }
    Ok(FamilyKey::from_bytes(&[7; 32]))
}
