//! What a group serves before a repair and after it, block by block.

use bimetal_format::block::crc32c;
use bimetal_volume::backend::{Backend, Piece};
use bimetal_volume::options::OpenOptions;
use bimetal_volume::units::CHUNK;

use super::given::Given;
use super::BLOCK;
use crate::disk::SimDisk;
use crate::env::Ended;
use crate::run::{table, Run, Wrong, STEP_LIMIT};

/// By volume, its name and, block by block, what is read: the checksum of it, or nothing where that is an error.
pub(in crate::run) type Content = Vec<(String, Vec<Option<u32>>)>;

impl Run<'_> {
    /// What was served is served, and is the same; what was not is zeros, or not served as long as the repair is not `done`.
    pub(in crate::run) fn holds(&self, given: &Given, before: &Content, done: bool, when: &str) -> Result<(), Wrong> {
        if given.loose.get() {
            return self.is_its_own(given).map_err(|e| format!("{when}, once without a member: {e}"));
        }
        let Some(now) = self.content(given.split().0, given.kept_copies)? else {
            return Err(format!("{when} a read-only start was refused"));
        };
        let zeros = crc32c(&[0; BLOCK as usize]);
        let names = |c: &Content| c.iter().map(|(name, blocks)| (name.clone(), blocks.len())).collect::<Vec<_>>();
        if names(before) != names(&now) {
            return Err(format!("{when} there are other volumes"));
        }
        for ((name, was), (_, is)) in before.iter().zip(&now) {
            let wrong = |(was, is): (&Option<u32>, &Option<u32>)| match was {
                Some(_) if given.unlabelled && !done => is.is_some() && is != was,
                Some(_) => is != was,
                None => *is != Some(zeros) && (done || is.is_some()),
            };
            if let Some(block) = was.iter().zip(is).position(wrong) {
                let (was, is) = (was[block], is[block]);
                return Err(format!(
                    "{when} block {block} of volume {name} was {was:08x?} and is {is:08x?} ({zeros:08x}: zeros)"
                ));
            }
        }
        Ok(())
    }

    /// What is read of a block was once written there, or is zeros.
    fn is_its_own(&self, given: &Given) -> Result<(), Wrong> {
        let options = OpenOptions { writable: false, allow_missing: true, ..self.open_options() };
        let Some((env, group)) = self.try_start(given.split().0, options)? else {
            return Err("a read-only start was refused".into());
        };
        let (shared, volumes) = (self.shared.clone(), table::listed(&self.shared, &group)?);
        let ended = env.run(STEP_LIMIT, async move {
            for (index, volume) in volumes.iter().enumerate() {
                let Some(v) = volume else { continue };
                for at in (0..v.size()).step_by(BLOCK as usize) {
                    let issued = shared.world.sequence();
                    let Ok(pieces) = v.read(at, BLOCK).await else { continue };
                    let zeros = pieces.iter().all(|p| matches!(p, Piece::Zero(_)));
                    let judged = shared.oracle.borrow_mut().peek(index, at, &pieces, issued, crate::oracle::Older::Any);
                    judged
                        .or_else(|e| if zeros { Ok(()) } else { Err(e) })
                        .map_err(|e| format!("{at} of volume {index}: {e}"))?;
                }
            }
            Ok(())
        });
        env.kill();
        match ended {
            Ended::Done(result) => result,
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("read hung: {why}")),
        }
    }

    /// What a read-only start of these serves; nothing if it is refused.
    pub(in crate::run) fn content(&self, devices: Vec<SimDisk>, kept_copies: bool) -> Result<Option<Content>, Wrong> {
        let options = OpenOptions { writable: false, allow_missing: true, kept_copies, ..self.open_options() };
        let Some((env, group)) = self.try_start(devices, options)? else { return Ok(None) };
        let volumes: Vec<_> = group.volume_names().into_iter().filter_map(|n| Some((group.volume(&n)?, n))).collect();
        let ended = env.run(STEP_LIMIT, async move {
            let mut all = Content::new();
            for (v, name) in volumes {
                let mut blocks = Vec::new();
                for at in (0..v.size()).step_by(CHUNK as usize) {
                    blocks.extend(read_chunk(&v, at).await);
                }
                all.push((name, blocks));
            }
            all
        });
        env.kill();
        match ended {
            Ended::Done(all) => Ok(Some(all)),
            Ended::Crashed => Err("crashed without a crash point".into()),
            Ended::Hung(why) => Err(format!("read hung: {why}")),
        }
    }
}

/// The blocks of a chunk, together if that is possible.
async fn read_chunk(v: &impl Backend, at: u64) -> Vec<Option<u32>> {
    let sums = |bytes: Vec<u8>| bytes.chunks(BLOCK as usize).map(|b| Some(crc32c(b))).collect::<Vec<_>>();
    if let Ok(pieces) = v.read(at, CHUNK).await {
        return sums(bimetal_volume::gather(&pieces));
    }
    let mut out = Vec::new();
    for block in (at..at + CHUNK).step_by(BLOCK as usize) {
        match v.read(block, BLOCK).await {
            Ok(pieces) => out.extend(sums(bimetal_volume::gather(&pieces))),
            Err(_) => out.push(None),
        }
    }
    out
}
