//! What no client flushes is made durable all the same when the commit interval is over (DESIGN D6), beside writes as well.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use bimetal_volume::env::Env;
use bimetal_volume::Group;

use super::client::Client;
use super::{Run, Wrong, STEP_LIMIT};
use crate::counters::Seen;
use crate::env::{Ended, SimEnv};
use crate::oracle::Crash;
use crate::prng::Prng;
use crate::scenario::{Act, Step};

const BLOCK: u64 = 4096;
/// What a client overwrites: few blocks, so that soon nothing of the map changes.
const BLOCKS: u64 = 8;
/// Clients at once, and the writes of each.
const CLIENTS: u64 = 2;
const WRITES: u32 = 60;
/// In which the writes come, in intervals.
const INTERVALS: u32 = 4;
/// How long a commit may take beside the interval.
const COMMIT: Duration = Duration::from_secs(20);

impl Run<'_> {
    /// Clients overwrite in place for some intervals and flush nothing. An interval later the power goes: all of it is there.
    pub(super) fn overwrite_without_a_flush(&mut self, env: &SimEnv, group: Group<SimEnv>) -> Result<(), Wrong> {
        let client = self.client(env, &group)?;
        let interval = Duration::from_millis(self.scenario.commit_ms);
        let mut seeds = Prng::new(self.scenario.seed);
        let ended = env.run(STEP_LIMIT + interval * 16, async move {
            let Some(&volume) = client.numbers().first() else { return };
            let writing = Rc::new(Cell::new(CLIENTS));
            for n in 0..CLIENTS {
                let (client, writing, seed) = (client.clone(), writing.clone(), seeds.fork(n));
                client.env.clone().spawn(async move {
                    overwrite(&client, volume, n * BLOCKS * BLOCK, interval, seed).await;
                    writing.set(writing.get() - 1);
                });
            }
            while writing.get() > 0 {
                client.sleep(interval / 10).await;
            }
            let written = client.shared.world.sequence();
            client.sleep(interval + COMMIT).await;
            client.shared.oracle.borrow_mut().flushed(volume, written, client.shared.world.sequence());
            client.shared.marks.borrow_mut().mark(Seen::KeptInTime);
        });
        drop(group);
        self.check_wrong()?;
        env.kill();
        match ended {
            Ended::Done(()) => {}
            Ended::Crashed => return Err("crashed without a crash point".into()),
            Ended::Hung(why) => return Err(format!("overwrites hung: {why}")),
        }
        self.die(Crash::Power);
        Ok(())
    }
}

/// Blocks from `start` on, one after the other, with pauses.
async fn overwrite(client: &Client, volume: usize, start: u64, interval: Duration, mut seed: Prng) {
    let pause = (interval * INTERVALS / WRITES).as_micros() as u64;
    for _ in 0..WRITES {
        let offset = start + seed.below(BLOCKS) * BLOCK;
        client.step(Step { client: 0, volume, act: Act::Write { fua: false }, offset, len: BLOCK }).await;
        client.sleep(Duration::from_micros(seed.below(2 * pause + 1))).await;
    }
}
