//! Writes the stored groups of `tests/golden_images.rs` anew, into the folder that is given. Only for a new version of
//! the format, beside the old ones.

#[path = "../tests/image/mod.rs"]
mod image;
#[path = "../tests/memory/mod.rs"]
mod memory;

use image::sample::sample;
use memory::MemoryEnv;

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    for (name, clean) in [("killed.img", false), ("stopped.img", true)] {
        let s = sample(&MemoryEnv::new(), &[8], &[16], clean);
        let file = s.members.save();
        std::fs::write(format!("{folder}/{name}"), &file)?;
        let content = bimetal_format::block::crc32c(&s.now);
        println!("{name}: {} bytes, content of {} bytes: {content:#010x}", file.len(), s.now.len());
    }
    Ok(())
}
