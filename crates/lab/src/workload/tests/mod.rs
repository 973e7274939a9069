//! Tests of the workloads: what holds for all, and what each promises.

mod all;
mod files;
mod hot;
mod streams;

use std::collections::BTreeMap;

use super::*;
use crate::trace::{Access, Op};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn take(workload: &dyn Workload, volume_bytes: u64, seed: u64, n: usize) -> Vec<Access> {
    workload.accesses(volume_bytes, seed).unwrap().take(n).collect()
}

/// Whether a count of `n` trials is what the probability says, within five standard deviations.
fn plausible(count: usize, n: usize, p: f64) -> bool {
    let sigma = (n as f64 * p * (1.0 - p)).sqrt();
    (count as f64 - n as f64 * p).abs() <= 5.0 * sigma.max(1.0)
}

/// Live files of a file system, first byte and length.
#[derive(Default)]
struct Live(BTreeMap<u64, u64>);

impl Live {
    /// A write of a new file, or of more of the one written last. No other file may lie there.
    fn write(&mut self, access: &Access, last_end: Option<u64>) {
        let end = access.offset + access.len;
        let hit = self.0.range(..end).next_back().filter(|(start, len)| *start + **len > access.offset);
        assert!(hit.is_none(), "{access:?} hits {hit:?}");
        match self.0.range_mut(..access.offset).next_back() {
            Some((start, len)) if last_end == Some(access.offset) && start + *len == access.offset => {
                *len += access.len
            }
            _ => assert!(self.0.insert(access.offset, access.len).is_none()),
        }
    }

    /// The file that holds all of an access.
    fn holding(&self, access: &Access) -> Option<(u64, u64)> {
        let (&start, &len) = self.0.range(..=access.offset).next_back()?;
        (access.offset + access.len <= start + len).then_some((start, len))
    }

    fn bytes(&self) -> u64 {
        self.0.values().sum()
    }
}
