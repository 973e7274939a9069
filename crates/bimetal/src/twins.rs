//! One device by two names, which no name shows: a server may export a disk twice, or one that is named here as well, and so may
//! what the kernel builds. It must not become two members, each of which overwrites the other.
//!
//! What is written to one is looked for on the others, in a block that a label is to overwrite anyway; what stood there is put back.

use anyhow::{bail, Context, Result};
use bimetal_format::layout::LABEL_A;
use bimetal_format::BLOCK;
use bimetal_host::{HostDevice, HostEnv, Locator};
use bimetal_volume::buf::{Buf, BufMut};
use bimetal_volume::env::{Device, DeviceError, Env};

use crate::commands::create::is_empty_file;

/// A device and its name.
pub(crate) type Named<'a> = (&'a Locator, &'a HostDevice);

/// Refuses devices that are to become members, and may lose what they hold, if two of them are one, or one of them is one of
/// the `members`, which are only read.
pub(crate) async fn refuse(env: &HostEnv, new: &[Named<'_>], members: &[Named<'_>]) -> Result<()> {
    for (i, (locator, device)) in new.iter().enumerate() {
        let others: Vec<_> = new[i + 1..].iter().chain(members).copied().collect();
        if others.is_empty() {
            continue;
        }
        let was_empty = is_empty_file(locator);
        let failed = || format!("{locator}: whether it is another device of these cannot be found out");
        let before = read(device).await.with_context(failed)?;
        let mark = mark(env);
        let twin = match write(device, mark.clone()).await {
            Ok(()) => who_shows(&mark, &others).await,
            Err(e) => Err(e.into()),
        };
        write(device, before).await.with_context(|| format!("{locator}: a block cannot be put back"))?;
        if was_empty {
            // A file in which nothing was ever written stays one, where its file system can do that.
            let _ = device.discard(LABEL_A, BLOCK as u64).await;
        }
        if let Some(twin) = twin.with_context(failed)? {
            bail!("{locator} and {twin} lead to the same device; it can be a member only once. Nothing was changed");
        }
    }
    Ok(())
}

/// The first of these that holds the mark.
async fn who_shows<'a>(mark: &Buf, others: &[Named<'a>]) -> Result<Option<&'a Locator>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use bimetal_host::device::Access;
    use bimetal_host::Reactor;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn whatever_shows_what_was_written_to_another_is_that_one() {
        let dir = tempfile::tempdir().expect("a folder");
        let place = |name: &str| Locator::Path(dir.path().join(name));
        let (one, two, other) = (place("one"), place("two"), place("other"));
        for at in [&one, &other] {
            std::fs::File::create(at.path().expect("a path")).and_then(|f| f.set_len(4 << 20)).expect("made");
        }
        std::fs::hard_link(dir.path().join("one"), dir.path().join("two")).expect("a second name");
        let reactor = Reactor::new().expect("a ring");
        let env = reactor.env();
        let blocks = || std::fs::metadata(dir.path().join("one")).expect("there").blocks();
        reactor.block_on(async move {
            let access = Access { write: true, lock: false, ask: false };
            let mut open = Vec::new();
            for at in [&one, &two, &other] {
                open.push(HostDevice::open(&env, at, access).await.expect("opened"));
            }
            let [one, two, other] = [(&one, &open[0]), (&two, &open[1]), (&other, &open[2])];
            refuse(&env, &[one, other], &[]).await.expect("two devices");
            let said = refuse(&env, &[other, one, two], &[]).await.expect_err("one device").to_string();
            assert!(said.contains("lead to the same device"), "{said}");
            refuse(&env, &[other, one], &[two]).await.expect_err("it is a member");
        });
        assert_eq!(blocks(), 0, "nothing is left of it");
    }
}
