//! A volume without an engine as a FUSE file: `fuse_memory FOLDER SIZE_MIB [memory|null]`. It serves until its standard
//! input ends, and unmounts. Benchmarks take it as the limit of what the same files can do over an engine.

use std::path::PathBuf;

use bimetal_export::backends::{Memory, Null};
use bimetal_export::{fuse, Export};
use bimetal_host::fuse::{mount, page_size, unmount, Device, Fashion};
use bimetal_host::{HostEnv, Reactor};
use bimetal_volume::backend::Backend;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: fuse_memory FOLDER SIZE_MIB [memory|null]";
    let folder = PathBuf::from(args.next().ok_or(usage)?);
    let size = args.next().ok_or(usage)?.parse::<u64>()? << 20;
    let reactor = Reactor::new()?;
    let env = reactor.env();
    let file = mount(&folder, "fuse_memory")?;
    let device = Device::new(&env, file);
    match args.next().as_deref() {
        Some("null") => reactor.block_on(serve(env, device, Null::new(size))),
        Some("memory") | None => reactor.block_on(serve(env, device, Memory::new(size))),
        Some(_) => return Err(usage.into()),
    }
    unmount(&folder, Fashion::Lazily)?;
    Ok(())
}

async fn serve(env: HostEnv, device: Device, backend: impl Backend) {
    let file = Export { uuid: [1; 16], name: "main".into(), description: String::new(), backend, read_only: false };
    let (uid, gid) = bimetal_host::fuse::owner();
    let terms = fuse::Terms { page_size: page_size(), uid, gid, since: 0 };
    let server = fuse::Server::start(env.clone(), device, vec![file], terms, fuse::Limits::default());
    println!("serving");
    let until_told = env.blocking(|| std::io::stdin().lines().count());
    let _ = until_told.await;
    server.finish(std::time::Duration::from_secs(10)).await;
    server.close();
}
