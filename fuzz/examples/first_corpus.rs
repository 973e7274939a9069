//! Writes the first corpus of the NBD and FUSE targets: `cargo run -p bimetal-fuzz --example first_corpus`. Later
//! inputs come from the fuzzer.

use std::path::PathBuf;

use bimetal_export::fuzz::{broken_client_stream, broken_kernel_stream, broken_server_stream};

type Make = fn(u64) -> Vec<u8>;

fn main() -> std::io::Result<()> {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let make: [(&str, Make); 4] = [
        ("nbd-server", broken_client_stream),
        ("nbd-client", broken_server_stream),
        ("nbd-wire", broken_server_stream),
        ("fuse", broken_kernel_stream),
    ];
    for (target, make) in make {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder)?;
        let streams = (0..200).map(make).filter(|s| s.len() < 1500).take(12);
        for (i, stream) in streams.enumerate() {
            std::fs::write(folder.join(format!("script{i}")), stream)?;
        }
    }
    Ok(())
}
