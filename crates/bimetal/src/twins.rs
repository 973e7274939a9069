//! One device by two names, which no name shows: a server may export a disk twice, or one that is named here as well. It must not
//! become two members, each of which overwrites the other.
//!
//! What is written to one is looked for on the others, in a block that a label is to overwrite anyway; what stood there is put back.

use anyhow::{bail, Context, Result};
use bimetal_format::layout::LABEL_A;
use bimetal_format::BLOCK;
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Device, DeviceError, Env};

/// Refuses devices that are to become members, and may lose what they hold, if two of them are one.
pub(crate) async fn refuse(env: &HostEnv, new: &[(&Locator, &HostDevice)]) -> Result<()> {
    for (i, (locator, device)) in new.iter().enumerate().filter(|(_, (l, _))| matches!(l, Locator::Nbd(_))) {
        let others = new.iter().enumerate().filter(|(j, (l, _))| *j > i || *j < i && !matches!(l, Locator::Nbd(_)));
        let others: Vec<_> = others.map(|(_, other)| *other).collect();
        if others.is_empty() {
            continue;
        }
        let failed = || format!("{locator}: whether it is another device of these cannot be found out");
        let before = read(device).await.with_context(failed)?;
        let mark = mark(env);
        let twin = match write(device, mark.clone()).await {
            Ok(()) => who_shows(&mark, &others).await,
            Err(e) => Err(e.into()),
        };
        write(device, before).await.with_context(|| format!("{locator}: a block cannot be put back"))?;
        if let Some(twin) = twin.with_context(failed)? {
            bail!("{locator} and {twin} lead to the same device; it can be a member only once. Nothing was changed");
        }
    }
    Ok(())
}

/// The first of these that holds the mark.
async fn who_shows<'a>(mark: &Buf, others: &[(&'a Locator, &HostDevice)]) -> Result<Option<&'a Locator>> {
    for (locator, device) in others {
        if read(device).await.with_context(|| locator.to_string())?[..] == mark[..] {
            return Ok(Some(locator));
        }
    }
    Ok(None)
}

/// A block that is nowhere else.
fn mark(env: &HostEnv) -> Buf {
    let mut block = BufMut::new(BLOCK);
    block.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&env.random().to_le_bytes()));
    block.freeze()
}

async fn read(device: &HostDevice) -> Result<Buf, DeviceError> {
    let (block, result) = device.read(LABEL_A, BufMut::new(BLOCK)).await;
    result.map(|()| block.freeze())
}

/// A server may keep it in a cache that others do not see.
async fn write(device: &HostDevice, block: Buf) -> Result<(), DeviceError> {
    device.write(LABEL_A, block).await?;
    device.sync().await
}
