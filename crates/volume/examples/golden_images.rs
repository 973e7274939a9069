//! Writes the stored groups of `tests/engine/golden_images.rs` anew, into the folder that is given: intact ones, damaged ones, and such
//! as a repair leaves that was cut off. Only for a new version of the format, beside the old ones.

#[allow(dead_code)] // the tests use the rest
#[path = "../tests/engine/image/mod.rs"]
mod image;
#[allow(dead_code)] // the tests use the rest
#[path = "../tests/engine/memory/mod.rs"]
mod memory;

use bimetal_format::label::{Label, Repair};
use image::sample::sample;
use image::{repair, repaired_content, Members};
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
    for (name, members) in damaged() {
        let file = members.save();
        std::fs::write(format!("{folder}/{name}"), &file)?;
        repair(&MemoryEnv::new(), &members.0).expect("it can be repaired");
        println!("{name}: {} bytes, content when it is repaired: {:#010x}", file.len(), repaired_content(&members));
    }
    Ok(())
}

/// A journal block of the only fast member is damaged; then a repair was begun on both members, and is done on one.
fn damaged() -> Vec<(&'static str, Members)> {
    let gap = sample(&MemoryEnv::new(), &[8], &[16], false).members;
    let (label, layout) = (gap.0[0].label(), gap.0[0].layout());
    gap.0[0].flip(layout.journal_block(label.journal_tail + 1) + 64, 1);
    let begun = gap.copy();
    begun.0.iter().for_each(|d| d.set_label(&Label { repair: Repair::Begun, repair_id: 7, ..d.label() }));
    let done = begun.copy();
    repair(&MemoryEnv::new(), &done.0).expect("it can be repaired");
    let half = Members(vec![begun.0[0].copy(), done.0[1].copy()]);
    vec![("damaged.img", gap), ("repair-begun.img", begun), ("repair-half.img", half)]
}
