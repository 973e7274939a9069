//! The stored groups of the engine's tests as members that can be changed block by block.

use bimetal_format::block::Kind;
use bimetal_format::label::{Label, LABEL_SIZE};
use bimetal_format::layout::{label_b, Layout, LABEL_A};
use bimetal_format::{Salt, BLOCK};

use crate::memory::MemoryDevice;
use crate::seal;

const B: u64 = BLOCK as u64;

/// A piece of metadata that can be changed.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub(crate) member: usize,
    pub(crate) at: u64,
    /// `None` for labels.
    kind: Option<Kind>,
}

impl Place {
    /// Its bytes.
    pub(crate) fn len(&self) -> usize {
        match self.kind {
            None => LABEL_SIZE,
            Some(_) => BLOCK,
        }
    }
}

/// A group whose members lie in memory.
pub(crate) struct Members {
    pub(crate) devices: Vec<MemoryDevice>,
    pub(crate) places: Vec<Place>,
    group: [u8; 16],
}

impl Members {
    /// Reads an image that the tests of the engine have written.
    pub(crate) fn load(file: &[u8]) -> Members {
        let all = miniz_oxide::inflate::decompress_to_vec(file).expect("a whole file");
        let mut rest = &all[..];
        let mut devices = Vec::new();
        while !rest.is_empty() {
            let d = MemoryDevice::new(number(&mut rest));
            for _ in 0..number(&mut rest) {
                let n = number(&mut rest);
                let (block, after) = rest.split_at(BLOCK);
                d.blocks.borrow_mut().insert(n, block.into());
                rest = after;
            }
            devices.push(d);
        }
        let label = |d: &MemoryDevice| Label::decode(&peek(d, LABEL_A, LABEL_SIZE), LABEL_A).expect("a sound label");
        let labels: Vec<Label> = devices.iter().map(label).collect();
        let mut places = Vec::new();
        for (member, (d, l)) in devices.iter().zip(&labels).enumerate() {
            let layout = l.layout();
            places.extend([LABEL_A, label_b(d.size)].map(|at| Place { member, at, kind: None }));
            let blocks = d.blocks.borrow();
            let metadata = blocks.range((1 << 20) / B..layout.slots / B).map(|(n, _)| n * B);
            places.extend(metadata.map(|at| Place { member, at, kind: Some(kind_at(&layout, at)) }));
        }
        Members { devices, places, group: labels[0].group }
    }

    /// Members of their own with the same content.
    pub(crate) fn copy(&self) -> Members {
        let copy = |d: &MemoryDevice| {
            let c = MemoryDevice::new(d.size);
            c.blocks.borrow_mut().clone_from(&d.blocks.borrow());
            c
        };
        Members { devices: self.devices.iter().map(copy).collect(), places: self.places.clone(), group: self.group }
    }

    pub(crate) fn peek(&self, p: Place) -> Vec<u8> {
        peek(&self.devices[p.member], p.at, p.len())
    }

    /// Replaces what is at `p`; with `seal` its checksum is made right.
    pub(crate) fn poke(&self, p: Place, mut bytes: Vec<u8>, seal: bool) {
        bytes.resize(p.len(), 0);
        if seal {
            let salt = Salt { group: self.group, member: p.member as u8, place: p.at };
            match p.kind {
                None => seal::label(&mut bytes, p.at),
                Some(kind) => seal::block(&mut bytes, kind, &salt),
            }
        }
        let mut blocks = self.devices[p.member].blocks.borrow_mut();
        for (i, b) in bytes.chunks_exact(BLOCK).enumerate() {
            blocks.insert(p.at / B + i as u64, b.into());
        }
    }
}

fn number(rest: &mut &[u8]) -> u64 {
    let (head, after) = rest.split_at(8);
    *rest = after;
    u64::from_le_bytes(head.try_into().expect("8 bytes"))
}

fn peek(d: &MemoryDevice, at: u64, len: usize) -> Vec<u8> {
    let blocks = d.blocks.borrow();
    let block = |n| blocks.get(&n).map_or(vec![0xa5; BLOCK], |b| b.to_vec());
    (at / B..(at + len as u64) / B).flat_map(block).collect()
}

/// Which kind of block belongs to this place.
fn kind_at(layout: &Layout, at: u64) -> Kind {
    let zones = [
        (layout.away, Kind::Away),
        (layout.root, Kind::Root),
        (layout.directory, Kind::Directory),
        (layout.map, Kind::Page),
        (layout.journal, Kind::Journal),
    ];
    zones.into_iter().filter(|(start, _)| *start <= at).max_by_key(|(start, _)| *start).expect("in a zone").1
}
