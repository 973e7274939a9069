//! Fuzz targets as plain functions, and a generator of streams that are valid but for a few bits, so that they also run
//! without a fuzzer. Each target panics if something is wrong, and returns otherwise.

mod session;
mod wire;

pub use crate::fuse::{broken_kernel_stream, fuzz_fuse};
pub use session::{broken_client_stream, broken_server_stream};
pub use wire::fuzz_wire;

use bimetal_volume::buf::BufMut;

use crate::backends::Memory;
use crate::client::Client;
use crate::conn::{Conn, Part};
use crate::nbd::{Export, Limits, Server};
use crate::runtime::Runtime;
use crate::testing::{pipe, PipeConn, TestRuntime};

/// Size of the volume under the fuzzer, in bytes.
const SIZE: u64 = 4 << 20;

fn server(runtime: &TestRuntime, exports: usize) -> Server<TestRuntime, Memory> {
    let memory = Memory::new(SIZE);
    let export = |i: usize| Export {
        uuid: [i as u8; 16],
        name: format!("volume{i}"),
        description: String::new(),
        backend: memory.clone(),
        read_only: i == 2,
    };
    // Small limits, so that waiting for room is reached.
    let limits = Limits {
        requests_per_connection: 8,
        bytes_per_connection: 1 << 20,
        own_requests: 2,
        own_bytes: 64 << 10,
        requests: 10,
        bytes: 1 << 20,
        ..Limits::default()
    };
    Server::new(runtime.clone(), (0..exports).map(export).collect(), limits)
}

/// How a stream is torn, from one byte of the input.
fn receive_max(choice: u8) -> usize {
    match choice % 4 {
        0 => 1,
        1 => 5,
        2 => 100,
        _ => 1 << 20,
    }
}

async fn drain(conn: PipeConn) {
    let mut buf = BufMut::new(4096);
    loop {
        let result;
        (buf, result) = conn.recv(buf, 0..4096).await;
        if !matches!(result, Ok(n) if n > 0) {
            return;
        }
    }
}

/// Sends `data` as a client to a server; the first byte says how it is torn and how many exports there are. Whatever it
/// is, the server ends the connection, gives back what it took, and still serves the next client.
pub fn fuzz_server_bytes(data: &[u8]) {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let runtime = TestRuntime::new();
    let server = server(&runtime, 1 + usize::from(choice >> 4) % 3);
    let (ours, theirs) = pipe(64 << 10, receive_max(choice));
    server.serve(theirs, "fuzzer".into());
    runtime.spawn(drain(ours.clone()));
    let (world, bytes, server_again) = (runtime.clone(), bytes.to_vec(), server.clone());
    let finished = runtime.block_on(async move {
        // The server may close before it has taken all.
        let _ = ours.send(vec![Part::Bytes(bytes)]).await;
        ours.end_sending();
        while server.connections() > 0 {
            world.sleep(std::time::Duration::from_secs(1)).await;
        }
        let (ours, theirs) = pipe(64 << 10, 1 << 20);
        server.serve(theirs, "next".into());
        let mut client = Client::greet(ours).await.expect("the server still greets");
        assert!(!client.list().await.expect("the server still lists").is_empty());
        server.stop().await;
    });
    assert!(finished.is_some(), "the server hangs");
    assert_eq!(server_again.in_flight(), (0, 0), "the server lost count");
    runtime.drop_tasks();
}

/// Sends `data` as a server to a client that runs one of 256 scripts, which the first byte selects. Whatever it is, the
/// client ends with a result or an error.
pub fn fuzz_client_bytes(data: &[u8]) {
    let Some((&script, bytes)) = data.split_first() else { return };
    let runtime = TestRuntime::new();
    let (ours, theirs) = pipe(64 << 10, receive_max(script));
    runtime.spawn(drain(theirs.clone()));
    let bytes = bytes.to_vec();
    runtime.spawn(async move {
        // The client may leave before it has taken all.
        let _ = theirs.send(vec![Part::Bytes(bytes)]).await;
        theirs.end_sending();
    });
    let finished = runtime.block_on(async move {
        // Any error is a fine answer to nonsense.
        let _ = session::run_script(ours.clone(), script).await;
        ours.close();
    });
    assert!(finished.is_some(), "the client hangs");
    runtime.drop_tasks();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeds per target: a short run always, a long one with `BIMETAL_FUZZ_SEEDS`.
    fn seeds() -> std::ops::Range<u64> {
        let count = std::env::var("BIMETAL_FUZZ_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(300);
        let first = std::env::var("BIMETAL_FUZZ_FIRST").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
        first..first + count
    }

    #[test]
    fn unbroken_scripts_succeed() {
        for script in 0..=255 {
            session::record(script).expect("a valid session");
        }
    }

    #[test]
    fn the_server_survives_broken_clients() {
        for seed in seeds() {
            let data = broken_client_stream(seed);
            if let Err(panic) = std::panic::catch_unwind(|| fuzz_server_bytes(&data)) {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }

    #[test]
    fn the_client_survives_broken_servers() {
        for seed in seeds() {
            let data = broken_server_stream(seed);
            if let Err(panic) = std::panic::catch_unwind(|| fuzz_client_bytes(&data)) {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }

    #[test]
    fn the_files_survive_broken_kernels() {
        for seed in seeds() {
            let data = broken_kernel_stream(seed);
            if let Err(panic) = std::panic::catch_unwind(|| fuzz_fuse(&data)) {
                eprintln!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }

    #[test]
    fn the_decoders_survive_anything() {
        for seed in seeds() {
            fuzz_wire(&broken_client_stream(seed));
            fuzz_wire(&broken_server_stream(seed));
        }
    }
}
