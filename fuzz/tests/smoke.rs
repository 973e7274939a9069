//! Runs every target over its corpus and over mutations of it: a few seconds, always the same.
//! `BIMETAL_FUZZ_SEEDS=n` runs n mutations per target instead.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use bimetal_fuzz::TARGETS;

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).expect("each target has a corpus").map(|e| e.expect("readable").path()).collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).expect("readable")).collect()
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }
}

/// Bytes changed, cut out, put in, or taken from another input.
fn mutate(data: &mut Vec<u8>, other: &[u8], max: usize, r: &mut Random) {
    for _ in 0..1 + r.below(4) {
        let at = r.below(data.len());
        match r.below(6) {
            0 | 1 if !data.is_empty() => data[at] ^= 1 << r.below(8),
            2 if !data.is_empty() => data[at] = [0, 1, 0x7f, 0x80, 0xff][r.below(5)],
            3 => data.truncate(at),
            4 => data.insert(at, r.below(256) as u8),
            _ => {
                let from = r.below(other.len());
                let n = r.below(64).min(other.len() - from);
                let end = (at + n).min(data.len());
                data.splice(at..end, other[from..from + n].iter().copied());
            }
        }
    }
    data.truncate(max);
}

#[test]
fn every_target_takes_its_corpus_and_mutations_of_it() {
    // A panic on a thread of the control API's server would go unnoticed.
    static PANICKED: AtomicBool = AtomicBool::new(false);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICKED.store(true, Ordering::SeqCst);
        usual(info);
    }));
    let wanted = std::env::var("BIMETAL_FUZZ_SEEDS").ok().and_then(|n| n.parse().ok());
    for target in TARGETS {
        let corpus = corpus(target.name);
        assert!(!corpus.is_empty(), "{}: no corpus", target.name);
        corpus.iter().for_each(|input| (target.run)(input));
        let mut r = Random(1);
        for _ in 0..wanted.unwrap_or(if target.name.starts_with("image") { 150 } else { 1000 }) {
            let mut input = corpus[r.below(corpus.len())].clone();
            let other = &corpus[r.below(corpus.len())];
            mutate(&mut input, other, target.max_len, &mut r);
            (target.run)(&input);
        }
        assert!(!PANICKED.load(Ordering::SeqCst), "{}: a thread panicked", target.name);
    }
}
