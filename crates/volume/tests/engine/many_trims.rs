//! More requests wait for the same blocks than a commit has room for.

use std::time::Duration;

use bimetal_volume::backend::{Backend, WriteFlags};
use bimetal_volume::buf::BufMut;
use bimetal_volume::env::Env;
use bimetal_volume::options::NewVolume;
use bimetal_volume::units::{Placement, CHUNK};

use crate::beside_flushes::timed;
use crate::image::{self, pass};
use crate::memory::{MemoryEnv, HELD};

/// TRIMs look whether there is room for their change, and wait in line for their blocks after that, with no room kept: however many
/// wait behind writes, all of them come into one commit. If that is more than the ring holds, the daemon dies.
#[test]
fn trims_that_wait_behind_writes_fit_the_journal() {
    const CHUNKS: u64 = 3000;
    let env = MemoryEnv::new();
    let (m, g) = timed(&env, &[16], &[1024]);
    let v = {
        let (g2, env2) = (g.clone(), env.clone());
        let new = NewVolume { name: "large".into(), size: Some(CHUNKS * CHUNK), placement: Placement::Auto };
        env2.block_on(async move { g2.create_volume(&new).await }).expect("made");
        g.volume("large").expect("there")
    };
    let begin = |chunk: u64, byte: Option<u8>| {
        let v = v.clone();
        env.spawn(async move {
            match byte {
                Some(byte) => {
                    let mut b = BufMut::new(4096);
                    b.fill(byte);
                    v.write(chunk * CHUNK, b.freeze(), WriteFlags::default()).await.expect("written");
                }
                None => v.trim(chunk * CHUNK, CHUNK, WriteFlags::default()).await.expect("trimmed"),
            }
        });
    };
    (0..CHUNKS).for_each(|c| image::write(&env, &v, c * CHUNK, &[1; 4096]).expect("written"));
    image::flush(&env, &v).expect("flushed");
    pass(&env, 30);
    // Overwrites in place take no room; they and a sync take their time.
    m.0.iter().for_each(|d| d.hold_until.set(env.now().plus(Duration::from_secs(10))));
    (0..CHUNKS).for_each(|c| begin(c, Some(HELD)));
    pass(&env, 1);
    (0..CHUNKS).for_each(|c| begin(c, None));
    // They have no room, since they overwrite in place for all that can be seen now; each changes a chunk whose TRIM had some.
    (0..CHUNKS).for_each(|c| begin(c, Some(3)));
    pass(&env, 1);
    m.0.iter().for_each(|d| d.sync_takes.set(Duration::from_secs(30)));
    let flushed = v.clone();
    image::write(&env, &g.volume("main").expect("there"), 0, &[2; 4096]).expect("written");
    env.spawn(async move { flushed.flush().await.expect("flushed") });
    pass(&env, 300);
    m.0.iter().for_each(|d| d.sync_takes.set(Duration::ZERO));
    pass(&env, 60);
    image::flush(&env, &v).expect("flushed");
}
