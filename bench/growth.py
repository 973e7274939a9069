#!/usr/bin/env python3
"""How it grows: start time, memory, IOPS and CPU per request with the size of the volume (100 GiB to 64 TiB), with the queue
depth, the connections, and the number of volumes. Members are sparse files, so that the engine is measured, not a disk.

Sizes: with every chunk mapped up to 4 TiB, and one chunk in a hundred, in runs of 512 MiB, up to 64 TiB (see full_map in
scale.py). A sixteenth of the size is fast. The bars: a group of 64 TiB with 1 % of its chunks mapped and one of 4 TiB with all
of them start in under 10 s; memory is at most 20 bytes per mapped chunk + 64 MiB + the buffers that README states. Requests are
4 KiB random reads over the whole volume at depth 16.
"""

import argparse
import subprocess
import sys

from common import GIB, MIB, Scratch, Verdicts, binary, drop_cache, fio, machine, median, need, save, words
from scale import builder

CHUNK = 128 << 10
# A file of ext4 is no larger than 16 TiB.
LARGEST_FILE = 8192
SIZES = ((100, 1), (1024, 1), (4096, 1), (16384, 1), (65536, 1), (100, 100), (1024, 100), (4096, 100))
DEPTHS, CONNECTIONS, VOLUMES = (1, 4, 16, 64, 256), (1, 2, 4, 8), (1, 16, 128)
# GiB, percent of chunks mapped: seconds.
BARS = {(65536, 1): 10, (4096, 100): 10}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=2, help="of each load")
    p.add_argument("--buffers-mib", type=int, default=32,
                   help="of the free buffers that README says are kept, those of requests and of checkpoints")
    p.add_argument("--name", default="growth", help="of the result file")
    return p.parse_args()


def create(s, gib, *volumes):
    """A group of so many GiB; its members' files, the fast one first."""
    slow = [min(LARGEST_FILE, gib - at) for at in range(0, gib, LARGEST_FILE)]
    files = [s.sparse("fast.img", max(gib // 16, 4) * GIB)]
    files += [s.sparse(f"slow{n}.img", size * GIB) for n, size in enumerate(slow)]
    args = [word for f in files[1:] for word in ("--slow", f)]
    args += [word for v in volumes for word in ("--volume", v)]
    s.bimetal("create", "growth", "--fast", files[0], *args, "--yes")
    return files


def serve(s, files):
    for f in files:
        drop_cache(f)
    sock = s.file("nbd.sock")
    return s.server("growth", [binary(), "serve", "growth", "--nbd", f"unix:{sock}"], sock)


def load(server, seconds, depth=16, connections=1, export=""):
    before = server.cpu()
    more = {"numjobs": connections, "group_reporting": True} if connections > 1 else {}
    job = fio(server.uri(export), "randread", bs="4k", iodepth=max(1, depth // connections), time_based=True,
              runtime=seconds, randrepeat=0, norandommap=True, **more)["read"]
    return {"iops": round(job["iops"]), "cpu_us": round((server.cpu() - before) / max(job["total_ios"], 1) * 1e6, 2),
            "p99_us": round(job["clat_ns"]["percentile"]["99.000000"] / 1e3)}


def middle(rounds):
    return {k: median(r[k] for r in rounds) for k in rounds[0]}


def one_start(s, files, mode, percent, seconds):
    subprocess.run([builder(), mode, f"{percent}%", *files], check=True, capture_output=True)
    server = serve(s, files)
    found = {"start_s": round(server.ready_after, 3), "start_cpu_s": round(server.cpu(), 3)}
    found |= load(server, seconds)
    found["rss"] = server.memory("VmRSS")
    status = s.status("growth")
    found["chunks"] = sum(v["fast_bytes"] + v["slow_bytes"] for v in status["volumes"]) // CHUNK
    found["stop_s"] = round(server.stop(), 3)
    return found


def by_size(o, verdicts):
    rows = []
    for gib, percent in SIZES:
        with Scratch("growth") as s:
            files = create(s, gib)
            row = {"gib": gib, "percent_mapped": percent, "members": len(files)}
            for mode in ("clean", "crashed"):
                row[mode] = middle([one_start(s, files, mode, percent, o.seconds) for _ in range(o.rounds)])
        clean, crashed, chunks = row["clean"], row["crashed"], row["clean"]["chunks"]
        allowed = 20 * chunks + (64 + o.buffers_mib) * MIB
        print(f"{gib:6} GiB, {percent:3} % mapped, {row['members']} members: start {clean['start_s']:.2f} s, after a crash "
              f"{crashed['start_s']:.2f} s, stop {clean['stop_s']:.2f} s, {clean['rss'] / MIB:.0f} MiB, {clean['iops']:.0f} "
              f"IOPS at {clean['cpu_us']:.1f} us", flush=True)
        if (gib, percent) in BARS:
            slowest, limit = max(clean["start_s"], crashed["start_s"]), BARS[gib, percent]
            verdicts.bar(f"{gib} GiB, {percent} % mapped: starts in {slowest:.2f} s (bar {limit} s)", slowest < limit)
        rss = max(clean["rss"], crashed["rss"])
        verdicts.bar(f"{gib} GiB, {percent} % mapped: {rss / MIB:.0f} MiB resident, allowed {allowed / MIB:.0f}", rss <= allowed)
        rows.append(row)
    return rows


def by_load(o):
    """Depths and connections."""
    with Scratch("growth") as s:
        files = create(s, 100)
        subprocess.run([builder(), "clean", *files], check=True, capture_output=True)
        server = serve(s, files)
        cells = [(d, 1) for d in DEPTHS] + [(64, c) for c in CONNECTIONS[1:]]
        samples = {cell: [] for cell in cells}
        for _ in range(o.rounds):
            for cell in cells:
                samples[cell].append(load(server, o.seconds, *cell))
        server.stop()
    return [show(f"depth {d}, {c} connections", samples[d, c]) for d, c in cells]


def by_volumes(o):
    rows = []
    for count in VOLUMES:
        with Scratch("growth") as s:
            files = create(s, 512, *(f"v{n}:1GiB" for n in range(count)))
            subprocess.run([builder(), "clean", *files], check=True, capture_output=True)
            server = serve(s, files)
            export = f"v{count - 1}"
            rows.append(show(f"{count} volumes", [load(server, o.seconds, export=export) for _ in range(o.rounds)]))
            server.stop()
    return rows


def show(name, rounds):
    row = {"case": name} | middle(rounds)
    print(f"{name}: {row['iops']:.0f} IOPS at {row['cpu_us']:.1f} us of CPU, p99 {row['p99_us']:.0f} us", flush=True)
    return row


def main():
    need("fio")
    o, verdicts, notes = options(), Verdicts(), machine()
    builder()
    print(words(notes), flush=True)
    result = {"size": by_size(o, verdicts), "load": by_load(o), "volumes": by_volumes(o)}
    save(o.name, {"machine": notes, "options": vars(o), **result, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
