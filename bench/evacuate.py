#!/usr/bin/env python3
"""A member is emptied onto another one: how fast on a group that nobody uses, against the bare devices, and what a load beside it
feels of it.

1. Idle: the data of an emulated hard disk go to another one, and those of an emulated SSD to another one, at no less than 80 %
   of the sequential rate of the slower of the two bare devices (`bimetal serve --raw`), reading the one and writing the other,
   of as many bytes. Written in order once, and once in 128 KiB pieces in random order, which lie on the member as they came.
2. Beside a load of 4 KiB random requests the p99 is at most 1.5 times that of the same load with nothing to move. The hard disk is
   emptied meanwhile. What went within the load stands beside each figure: an evacuation that only waits would disturb nobody.
   Each round measures the load alone first and then beside the evacuation, of the same bytes in the same places: they lie at the
   end of what leaves, and their volumes are bound to their tier, since what came up between would be compared with a disk. The
   bars are medians of the ratios within a round.
3. The same beside single reads with gaps between them, which the evacuation uses: reported without a bar, since a request that
   comes within one waits for what is under way.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

from common import GIB, MIB, Scratch, Verdicts, binary, fio, machine, median, need, save, words
from fill import wait_for

LEAST_RATE, MOST_P99 = 0.8, 1.5
# Name, tier, model, bytes.
PAIRS = (("hard disk", "slow", "hdd2012", 1536 * MIB), ("SSD", "fast", "rate=400M", 2 * GIB))
# Tier, pattern, queue depth, and requests a second if they have gaps: then half as long, since much goes beside them.
CASES = (("fast", "randread", 1, None), ("fast", "randread", 16, None), ("fast", "randwrite", 16, None),
         ("slow", "randread", 1, None), ("slow", "randread", 4, None), ("slow", "randwrite", 4, None), ("slow", "randread", 1, 4))
AREA = 128 * MIB
# Volumes that stay on their tier: name, bytes, and where the loads go.
VOLUMES = {"fast": ("quick", AREA, 0), "slow": ("large", 2 * GIB, 2 * GIB - AREA)}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=4, help="of each load on the fast tier; on the slow tier four times as long")
    p.add_argument("--only", choices=("rate", "load"), help="one half")
    p.add_argument("--tier", choices=("fast", "slow"), help="loads on this one alone")
    p.add_argument("--slow-dir", help="where the files of slow members lie, if not beside that of the fast one: a disk below both "
                   "serves the one later because of the other, which an SSD and hard disks do not; a tmpfs will do")
    p.add_argument("--name", default="evacuate", help="of the result file")
    return p.parse_args()


def bare(s, model, path, size):
    """Bytes per second of sequential writes to a bare device, and of reads of it."""
    sock = s.file("raw.sock")
    args = [binary(), "serve", "--raw", f"emulated:{model}:{path}", "--force", "--nbd", f"unix:{sock}"]
    server = s.server("raw", args, sock)
    rates = [fio(server.uri(), rw, bs="1m", iodepth=4, size=size)[rw]["bw_bytes"] for rw in ("write", "read")]
    server.stop()
    return dict(zip(("write", "read"), rates))


def on_member(s, group, index):
    """Bytes in use on a member."""
    m = next(m for m in s.status(group)["members"] if m["index"] == index)
    return (m["slots"] - m["free_slots"]) * 128 * 1024


def serve(s, group):
    sock = s.file(f"{group}.sock")
    return s.server(group, [binary(), "serve", group, "--nbd", f"unix:{sock}"], sock)


def pair_of(s, group, tier, model, size):
    """A group with a full member on a device of this model, and an empty one beside it; its server, and the full one's index."""
    old, new = (s.sparse(f"{group}-{n}.img", size + size // 4) for n in ("old", "new"))
    other = s.sparse(f"{group}-other.img", 256 * MIB)
    place = f"emulated:{model}:{old}"
    ends = {tier: place, ("fast" if tier == "slow" else "slow"): other}
    s.bimetal("create", group, "--fast", ends["fast"], "--slow", ends["slow"], "--volume", f"main:{size}:{tier}-only", "--yes")
    server = serve(s, group)
    index = 0 if tier == "fast" else 1
    return server, index, f"emulated:{model}:{new}", (old, new)


def idle_rate(s, name, tier, model, size, pattern):
    """Bytes per second of an evacuation, and of the bare devices."""
    group = f"{tier}-{pattern}"
    server, index, new, files = pair_of(s, group, tier, model, size)
    if pattern == "ordered":
        fio(server.uri(), "write", bs="1m", iodepth=4, size=size)
    else:
        fio(server.uri(), "randwrite", bs="128k", iodepth=4, size=size, randrepeat=1)
    s.bimetal("member", "add", group, f"--{tier}", new, "--yes")
    time.sleep(2)
    used, began = on_member(s, group, index), time.monotonic()
    s.bimetal("member", "evacuate", group, str(index), "--no-wait")
    # The last bytes wait for a commit and a discard.
    left = wait_for(600, lambda: on_member(s, group, index) <= used // 50)
    if left is None:
        raise RuntimeError(f"{name}: {on_member(s, group, index) // MIB} MiB are left after 600 s")
    took = time.monotonic() - began
    gone = used - on_member(s, group, index)
    server.stop()
    s.bimetal("destroy", group, "--yes", check=False)
    of = [bare(s, model, path, size) for path in files]
    slower = min(of[0]["read"], of[1]["write"])
    return {"case": f"{name}, written {'in order' if pattern == 'ordered' else 'at random'}", "moved_mib": gone // MIB,
            "mb_s": round(gone / took / 1e6, 1), "slower_mb_s": round(slower / 1e6, 1), "ratio": round(gone / took / slower, 3)}


def rates(s, verdicts):
    rows = []
    for name, tier, model, size in PAIRS:
        for pattern in ("ordered", "random"):
            row = idle_rate(s, name, tier, model, size, pattern)
            verdicts.bar(f"{row['case']}: {row['moved_mib']} MiB at {row['mb_s']} MB/s, {row['ratio']:.2f} of the slower device's "
                         f"{row['slower_mb_s']} (bar {LEAST_RATE})", row["ratio"] >= LEAST_RATE)
            rows.append(row)
    return rows


def read_from(s):
    """Bytes read from each slow member."""
    return [m["read_bytes"] for m in s.status("load")["members"] if m["tier"] == "slow"]


def load(s, server, case, seconds):
    tier, rw, depth, rate = case
    volume, _, at = VOLUMES[tier]
    before = read_from(s)
    job = fio(server.uri(volume), rw, bs="4k", iodepth=depth, offset=at, size=AREA, time_based=True, randrepeat=0, norandommap=True,
              **({"rate_iops": rate} if rate else {}), runtime=seconds * (2 if rate else 4 if tier == "slow" else 1))
    side = job["read" if rw.endswith("read") else "write"]
    own = side["total_ios"] * 4096 if tier == "slow" and rw == "randread" else 0
    went = max(0, sum(read_from(s)) - sum(before) - own)
    p50, p99 = (side["clat_ns"]["percentile"][p] / 1e3 for p in ("50.000000", "99.000000"))
    return {"iops": side["iops"], "p50_us": p50, "p99_us": p99, "moved_mib": went / MIB}


def other_of(s):
    """The slow member that has less on it, and the one that has more."""
    return sorted((1, 2), key=lambda m: on_member(s, "load", m))


def one_case(s, server, case, o):
    """Without an evacuation, and beside one."""
    off = load(s, server, case, o.seconds)
    full = other_of(s)[1]
    s.bimetal("member", "evacuate", "load", str(full), "--no-wait")
    used = on_member(s, "load", full)
    if wait_for(20, lambda: on_member(s, "load", full) < used) is None:
        raise RuntimeError("the evacuation does not begin")
    work = load(s, server, case, o.seconds)
    if on_member(s, "load", full) < AREA:
        raise RuntimeError("the evacuation has come to what the load asks for")
    # What is left goes while nobody looks; then it takes data again.
    if wait_for(300, lambda: on_member(s, "load", full) == 0) is None:
        raise RuntimeError("the evacuation does not end")
    s.bimetal("member", "evacuate", "load", str(full), "--cancel")
    return {"off": off, "work": work}


def loads(s, apart, o, verdicts):
    fast = s.sparse("fast.img", 640 * MIB)
    slow, second = (s.sparse(os.path.join(apart, f"bimetal-slow{n}.img"), 3 * GIB) for n in (1, 2))
    s.bimetal("create", "load", "--fast", fast, "--slow", f"emulated:hdd2012:{slow}", "--yes",
              *(word for tier, (name, size, _) in VOLUMES.items() for word in ("--volume", f"{name}:{size}:{tier}-only")))
    server = serve(s, "load")
    s.bimetal("member", "add", "load", "--slow", f"emulated:hdd2012:{second}", "--yes")
    for name, size, _ in VOLUMES.values():
        fio(server.uri(name), "write", bs="1m", iodepth=4, size=size)
    time.sleep(10)
    # All of it onto one disk.
    full = other_of(s)[0]
    s.bimetal("member", "evacuate", "load", str(full))
    s.bimetal("member", "evacuate", "load", str(full), "--cancel")
    cases = [case for case in CASES if o.tier in (None, case[0])]
    samples = {case: [] for case in cases}
    for number in range(o.rounds):
        for case in cases:
            samples[case].append(one_case(s, server, case, o))
        print(f"round {number + 1} of {o.rounds}", flush=True)
    server.stop()
    rows = []
    for (tier, rw, depth, rate), rounds in samples.items():
        name = f"{tier} tier, {rw} QD{depth}" + (f", {rate} a second" if rate else "")
        p50, p99, iops = (median(r["work"][of] / r["off"][of] for r in rounds) for of in ("p50_us", "p99_us", "iops"))
        moved = statistics.median(r["work"]["moved_mib"] for r in rounds)
        if rate:
            print(f"{name}: median {p50:.2f} times, p99 {p99:.2f} times (no bar), {moved:.0f} MiB went meanwhile", flush=True)
        else:
            verdicts.bar(f"{name}: p99 {p99:.2f} times (allowed {MOST_P99}), IOPS {iops:.2f} times, {moved:.0f} MiB went meanwhile",
                         p99 <= MOST_P99 and moved > 0)
        rows.append({"case": name, "p50_ratio": round(p50, 3), "p99_ratio": round(p99, 3), "iops_ratio": round(iops, 3),
                     "rounds": rounds})
    return rows


def main():
    need("fio", "nbdinfo")
    o, verdicts, notes = options(), Verdicts(), machine()
    print(words(notes), flush=True)
    result = {"machine": notes, "options": vars(o)}
    if o.only != "load":
        with Scratch("evacuate") as s:
            result["rates"] = rates(s, verdicts)
    if o.only != "rate":
        with Scratch("evacuate") as s, tempfile.TemporaryDirectory(dir=o.slow_dir) as apart:
            result["loads"] = loads(s, apart if o.slow_dir else s.path, o, verdicts)
    save(o.name, {**result, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
