//! Serves a volume in memory (or none at all) by NBD, for measurements of the export alone:
//! `serve_memory memory|null BYTES SOCKET`. Ends on SIGTERM or SIGINT.

use std::path::Path;

use bimetal_export::backends::{Memory, Null};
use bimetal_export::stats::Kind;
use bimetal_export::{Export, Limits, Server};
use bimetal_host::net::Listener;
use bimetal_host::signals::Signals;
use bimetal_host::{HostEnv, Reactor};
use bimetal_volume::backend::Backend;
use bimetal_volume::env::Env;

async fn serve<B: Backend>(env: HostEnv, backend: B, path: String) -> Result<(), String> {
    let export = Export {
        uuid: [1; 16],
        name: "volume".into(),
        description: "a volume in memory".into(),
        backend,
        read_only: false,
    };
    let server = Server::new(env.clone(), vec![export], Limits::default());
    let listener = Listener::bind_unix(&env, Path::new(&path), 0o600).map_err(|e| format!("{path}: {e}"))?;
    let accepting = server.clone();
    env.spawn(async move {
        while let Ok(stream) = listener.accept().await {
            let peer = stream.peer().to_owned();
            accepting.serve(stream, peer);
        }
    });
    let signals = Signals::catch(&env).map_err(|e| e.to_string())?;
    signals.next().await.map_err(|e| e.to_string())?;
    server.stop().await;
    let status = server.status();
    for kind in Kind::ALL {
        let r = &status.requests[kind as usize];
        let (p50, p99) = (r.latency.quantile(0.5), r.latency.quantile(0.99));
        println!("{:12} {:9} requests, {:6} failed, median {p50:?}, 99 % {p99:?}", kind.name(), r.answered, r.failed);
    }
    Ok(())
}

fn main() -> Result<(), String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, size, path] = args.as_slice() else { return Err("usage: serve_memory memory|null BYTES SOCKET".into()) };
    let size: u64 = size.parse().map_err(|_| format!("{size} is no number of bytes"))?;
    let reactor = Reactor::new().map_err(|e| e.to_string())?;
    let (env, path) = (reactor.env(), path.clone());
    match kind.as_str() {
        "memory" => reactor.block_on(serve(env, Memory::new(size), path)),
        "null" => reactor.block_on(serve(env, Null::new(size), path)),
        other => Err(format!("{other} is neither memory nor null")),
    }
}
