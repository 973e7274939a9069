#!/bin/sh
# Runs one fuzz target under libFuzzer, on stable Rust: fuzz/run.sh TARGET SECONDS [libFuzzer options]
# `fuzz/run.sh TARGET 0 FILE...` runs these inputs only. New inputs are collected outside of the repository; `fuzz/run.sh TARGET merge` adds what is worth keeping to the corpus.
set -eu
target=${1:?usage: fuzz/run.sh TARGET SECONDS}
seconds=${2:?usage: fuzz/run.sh TARGET SECONDS}
shift 2
from=$PWD
cd "$(dirname "$0")"
[ -d "corpus/$target" ] || { echo "no target $target; there are: $(ls corpus | tr '\n' ' ')" >&2; exit 2; }

# The coverage that cargo-fuzz would ask for; a folder of its own, so that other builds are not thrown away.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/../target}/fuzz"
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
export CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS=true
host=$(rustc -vV | sed -n 's/^host: //p')
# With --target the flags do not reach build scripts, which could not be linked with them.
cargo build --release --quiet --package bimetal-fuzz --features libfuzzer --bin fuzz --target "$host"

export BIMETAL_FUZZ_TARGET="$target"
fuzz="$CARGO_TARGET_DIR/$host/release/fuzz"
found="$CARGO_TARGET_DIR/found/$target"
mkdir -p "$found" "artifacts/$target"
if [ "$seconds" = merge ]; then
    exec "$fuzz" -merge=1 "$@" "corpus/$target" "$found"
fi
if [ "$seconds" = 0 ]; then
    cd "$from"
    exec "$fuzz" "$@"
fi
case $target in
label) options="-max_len=65536" ;;
image*) options="-max_len=256 -len_control=0" ;;
*) options="-max_len=4096" ;;
esac
# shellcheck disable=SC2086 # options are several words
exec "$fuzz" -max_total_time="$seconds" $options -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="artifacts/$target/" "$@" "$found" "corpus/$target"
