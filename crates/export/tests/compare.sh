#!/bin/bash
# Compares the NBD servers of Bimetal, nbdkit and qemu over a volume in memory: IOPS and CPU time of the server per
# request, 4 KiB random, medians of interleaved rounds. Needs fio with nbd, nbdkit, qemu-nbd.
#   cargo build --release -p bimetal-export --example serve_memory
#   crates/export/tests/compare.sh target/release/examples/serve_memory [ROUNDS] [SECONDS]
set -euo pipefail
serve=$(realpath "$1") rounds=${2:-3} seconds=${3:-3}
dir=$(mktemp -d) size=$((256 << 20)) tick=$(getconf CLK_TCK)
declare -A pid
cleanup() { for p in "${pid[@]}"; do kill "$p" 2>/dev/null || true; done; rm -rf "$dir" "/dev/shm/bimetal-compare.$$"; }
trap cleanup EXIT

truncate -s "$size" "/dev/shm/bimetal-compare.$$"
"$serve" memory "$size" "$dir/bimetal.sock" >/dev/null & pid[bimetal]=$!
nbdkit -f -U "$dir/nbdkit.sock" memory "$size" & pid[nbdkit]=$!
qemu-nbd -t -k "$dir/qemu.sock" -f raw -e 4 "/dev/shm/bimetal-compare.$$" & pid[qemu]=$!
sleep 1

cpu() { awk -v t="$tick" '{ sub(/.*\) /, ""); print ($12 + $13) * 1e6 / t }' "/proc/$1/stat"; }
load() { # server, kind, depth, seconds: requests per second
  fio --name=x --ioengine=nbd --uri="nbd+unix:///?socket=$dir/$1.sock" --rw="$2" --bs=4k --iodepth="$3" --size=256m \
    --time_based --runtime="$4" --randrepeat=1 --output-format=json |
    python3 -c 'import json,sys; t=sys.stdin.read(); j=json.loads(t[t.index("{"):])["jobs"][0]; print(j["read"]["total_ios"]+j["write"]["total_ios"], j["read"]["iops"]+j["write"]["iops"])'
}
for s in "${!pid[@]}"; do
  fio --name=fill --ioengine=nbd --uri="nbd+unix:///?socket=$dir/$s.sock" --rw=write --bs=1m --size=256m >/dev/null
done
for kind in randread randwrite; do
  for depth in 1 16 64; do
    for _ in $(seq "$rounds"); do
      for s in bimetal nbdkit qemu; do
        before=$(cpu "${pid[$s]}")
        read -r ios iops < <(load "$s" "$kind" "$depth" "$seconds")
        after=$(cpu "${pid[$s]}")
        echo "$kind $depth $s $iops $(awk -v a="$after" -v b="$before" -v n="$ios" 'BEGIN { print (a - b) / n }')"
      done
    done
  done
done | python3 -c '
import statistics, sys
rows = {}
for line in sys.stdin:
    kind, depth, server, iops, cpu = line.split()
    rows.setdefault((kind, int(depth)), {}).setdefault(server, []).append((float(iops), float(cpu)))
print(" " * 14 + "".join(f"{s:>10} IOPS us/IO" for s in ("bimetal", "nbdkit", "qemu")))
for (kind, depth), servers in rows.items():
    cells = [(statistics.median(i for i, _ in servers[s]), statistics.median(c for _, c in servers[s])) for s in ("bimetal", "nbdkit", "qemu")]
    print(f"{kind:10}{depth:4}" + "".join(f"{i:15.0f} {c:6.2f}" for i, c in cells))
'
