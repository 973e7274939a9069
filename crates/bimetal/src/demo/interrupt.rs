//! Ctrl-C and TERM: the demo ends at its next step, and takes away what it has made, as after a failure. Its children are in
//! process groups of their own, so that a Ctrl-C does not reach them: what they do is undone by their like.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};

use anyhow::{bail, Context, Result};
use bimetal_host::signals::Signals;
use bimetal_host::Reactor;

use super::disk::Disk;
use super::process::World;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Catches signals from now on.
pub(crate) fn catch() -> Result<()> {
    let (ready, is_ready) = mpsc::channel();
    let told = ready.clone();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        if let Err(why) = listen(&ready) {
            // Once it listens, nobody waits for this.
            let _ = told.send(Err(why));
        }
    })?;
    is_ready.recv().context("nothing listens for signals")?
}

fn listen(ready: &Sender<Result<()>>) -> Result<()> {
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let ready = ready.clone();
    reactor.block_on(async move {
        let signals = Signals::catch(&env).context("cannot catch signals")?;
        let _ = ready.send(Ok(()));
        while signals.next().await.is_ok() {
            let again = INTERRUPTED.swap(true, Ordering::Relaxed);
            let begun = if again { "Still taking away" } else { "\nTaking away" };
            crate::output::tell(&format!("{begun} what the demo has made ..."));
        }
        Ok(())
    })
}

/// An error if the demo is to end.
pub(crate) fn check() -> Result<()> {
    if INTERRUPTED.load(Ordering::Relaxed) {
        bail!("the demo was interrupted");
    }
    Ok(())
}

/// A disk on which nothing is begun any more when the demo is to end, but that it is left.
pub(crate) struct Interruptible(pub(crate) Box<dyn Disk>);

impl Disk for Interruptible {
    fn add(&mut self, size: u64) -> Result<usize> {
        check()?;
        self.0.add(size)
    }

    fn write(&mut self, file: usize, offset: u64, data: &[u8]) -> Result<()> {
        check()?;
        self.0.write(file, offset, data)
    }

    fn sync(&mut self, file: usize) -> Result<()> {
        check()?;
        self.0.sync(file)
    }

    fn read(&mut self, file: usize, offset: u64, len: u64) -> Result<Vec<u8>> {
        check()?;
        self.0.read(file, offset, len)
    }

    fn read_all(&mut self, file: usize, each: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        check()?;
        self.0.read_all(file, each)
    }

    fn tiers(&mut self, file: usize, at: u64, len: u64) -> Result<(u64, u64)> {
        check()?;
        self.0.tiers(file, at, len)
    }

    fn reconnect(&mut self, world: &World) -> Result<()> {
        check()?;
        self.0.reconnect(world)
    }

    fn leave(&mut self, world: &World) -> Result<()> {
        self.0.leave(world)
    }
}
