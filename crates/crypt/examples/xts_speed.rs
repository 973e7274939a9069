//! How fast volumes are encrypted and decrypted, on one core.
//!
//! Prints medians over rounds, in GB/s (10^9 bytes). `cargo run --release -p bimetal-crypt --example xts_speed`

use std::hint::black_box;
use std::time::Instant;

use bimetal_crypt::{FamilyKey, BLOCK_SIZE};

const ROUNDS: usize = 41;
const BYTES_PER_ROUND: usize = 16 << 20;

fn measure(size: usize, mut work: impl FnMut(u64)) -> f64 {
    let calls = BYTES_PER_ROUND / size;
    let mut rates: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for call in 0..calls {
                work((call * size / BLOCK_SIZE) as u64);
            }
            (calls * size) as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[ROUNDS / 2]
}

fn main() {
    let key = FamilyKey::fill(|key| key.fill(1)).volume_key(&[2; 16]);
    println!("{:>8} {:>8} {:>8} {:>11} {:>13}", "bytes", "encrypt", "decrypt", "encrypt_to", "copy+encrypt");
    for size in [BLOCK_SIZE, 16 << 10, 128 << 10] {
        let from = vec![1; size];
        let mut to = vec![2; size];
        let encrypt = measure(size, |at| key.encrypt(at, black_box(&mut to)));
        let decrypt = measure(size, |at| key.decrypt(at, black_box(&mut to)));
        let encrypt_to = measure(size, |at| key.encrypt_to(at, black_box(&from), black_box(&mut to)));
        let copy = measure(size, |at| {
            to.copy_from_slice(black_box(&from));
            key.encrypt(at, black_box(&mut to));
        });
        println!("{size:>8} {encrypt:>8.2} {decrypt:>8.2} {encrypt_to:>11.2} {copy:>13.2}");
    }
}
