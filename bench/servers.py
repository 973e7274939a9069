#!/usr/bin/env python3
"""The fast tier through NBD on a unix socket, cell by cell: 4 KiB random at queue depths 1, 16 and 64 over one and four
connections, and sequential requests of 128 KiB and 1 MiB.

All contestants hold the same bytes of the same file (see iops.py) and take turns, one load at a time; compared are medians
of the ratios within a round. Peers: qemu-nbd and qemu-storage-daemon with direct I/O and io_uring; nbdkit's file plugin,
whose writes go to the page cache and so compare only with a flush after every 32. Limits beside them, without a bar of
their own but one in either: the bare file by io_uring, and a server of this project that stores nothing (--null).

With four connections the queue depth is that of all together.
"""

import argparse
import json
import math
import os
import subprocess
import sys

from common import MIB, Scratch, Verdicts, binary, drop_cache, fio, machine, median, need, save, skip, words
from iops import AREA, prepare, start

DEPTHS, CONNECTIONS = (1, 16, 64), (1, 4)
SEQUENTIAL = (("128k", 8), ("1m", 4))
NULL = os.path.join(os.path.dirname(binary()), "examples", "serve_memory")


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=2, help="of each load")
    p.add_argument("--only", default="", help="cells whose name contains this")
    p.add_argument("--null", default=NULL, help="the example serve_memory of bimetal-export")
    p.add_argument("--name", default="servers", help="of the result file")
    return p.parse_args()


class Cell:
    """One kind of load."""

    def __init__(self, rw, bs, depth, connections=1, flush_every=0):
        self.rw, self.bs, self.depth, self.connections, self.flush_every = rw, bs, depth, connections, flush_every

    @property
    def name(self):
        parts = [f"{self.rw} {self.bs} QD{self.depth}"]
        parts += [f"{self.connections} connections"] if self.connections > 1 else []
        parts += [f"flush every {self.flush_every}"] if self.flush_every else []
        return ", ".join(parts)

    @property
    def is_read(self):
        return self.rw.endswith("read")

    @property
    def is_random(self):
        return self.rw.startswith("rand")

    def peers(self):
        if self.flush_every:
            return ["nbdkit"]
        return ["qemu-nbd", "qemu-storage-daemon"] + (["nbdkit"] if self.is_read else [])

    def limits(self):
        return [] if self.flush_every else ["file", "null"]

    def job(self):
        jobs = self.connections
        job = {"bs": self.bs, "iodepth": max(1, self.depth // jobs), "size": AREA, "time_based": True,
               "randrepeat": 0, "norandommap": True}
        job |= {"numjobs": jobs, "group_reporting": True} if jobs > 1 else {}
        return job | ({"fsync": self.flush_every} if self.flush_every else {})


def cells():
    for rw in ("randread", "randwrite"):
        yield from (Cell(rw, "4k", d, c) for c in CONNECTIONS for d in DEPTHS)
    yield Cell("randwrite", "4k", 64, flush_every=32)
    yield from (Cell(rw, bs, depth) for rw in ("read", "write") for bs, depth in SEQUENTIAL)


class BareFile:
    """The file itself by io_uring, in the client."""

    def __init__(self, path, offset):
        self.path, self.offset = path, offset

    def load(self, cell, seconds):
        args = ["fio", "--name=x", "--ioengine=io_uring", "--direct=1", f"--filename={self.path}", f"--rw={cell.rw}",
                f"--offset={self.offset}", f"--runtime={seconds}", "--output-format=json"]
        args += [f"--{k}" if v is True else f"--{k}={v}" for k, v in cell.job().items()]
        done = subprocess.run(args, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"fio: {done.stderr.strip()}")
        return figures(json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0], cell, 0)


def serve(server, cell, seconds, fast):
    """One load of a server."""
    if server.name == "nbdkit":
        drop_cache(fast)
    before = server.cpu()
    job = fio(server.uri("volume" if server.name in ("null", "qemu-storage-daemon") else ""), cell.rw, runtime=seconds,
              **cell.job())
    return figures(job, cell, server.cpu() - before)


def figures(job, cell, cpu):
    side = job["read" if cell.is_read else "write"]
    tail = side["clat_ns"]["percentile"]
    at = {f"p{name}_us": tail[key] / 1e3 for name, key in
          (("50", "50.000000"), ("99", "99.000000"), ("99_9", "99.900000"))}
    return {"iops": side["iops"], "mib_s": side["bw_bytes"] / MIB, "cpu_s_per_1000": cpu * 1000 / max(side["total_ios"], 1),
            "cpu_s_per_gib": cpu * 1024 * MIB / max(side["io_bytes"], 1)} | at


def more_servers(s, fast, offset, null):
    """qemu-storage-daemon on the same bytes, and a server that stores nothing."""
    sock = s.file("qsd.sock")
    file = f"driver=file,node-name=f,filename={fast},aio=io_uring,cache.direct=on,locking=off"
    raw = f"driver=raw,node-name=volume,file=f,offset={offset},size={AREA}"
    export = "type=nbd,id=e,node-name=volume,name=volume,writable=on"
    # In this order: what is exported needs a server.
    args = ["qemu-storage-daemon", "--nbd-server", f"addr.type=unix,addr.path={sock},max-connections=8",
            "--blockdev", file, "--blockdev", raw, "--export", export]
    found = {"qemu-storage-daemon": s.server("qemu-storage-daemon", args, sock)}
    sock = s.file("null.sock")
    found["null"] = s.server("null", [null, "null", str(AREA), sock], sock)
    return found


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def summarise(cell, rounds, verdicts):
    names = list(rounds[0])
    row = {"cell": cell.name, "contestants": {}, "ratios": {}}
    for n in names:
        row["contestants"][n] = {k: round(median(r[n][k] for r in rounds), 4) for k in rounds[0][n]}
    for n in names[1:]:
        of = {"iops": median(r["bimetal"]["iops"] / r[n]["iops"] for r in rounds)}
        if n != "file":
            of["cpu"] = median(r["bimetal"]["cpu_s_per_1000"] / r[n]["cpu_s_per_1000"] for r in rounds)
        row["ratios"][n] = {k: round(v, 3) for k, v in of.items()}
    told = "  ".join(f"{n} {v['iops']:.2f}" + (f" (CPU {v['cpu']:.2f})" if "cpu" in v else "")
                     for n, v in row["ratios"].items())
    print(f"{cell.name:38} {row['contestants']['bimetal']['iops']:8.0f} IOPS; times {told}", flush=True)
    worst = min(row["ratios"][n]["iops"] for n in cell.peers())
    verdicts.bar(f"{cell.name}: {worst:.2f} of the best peer", worst >= 1)
    at_limit = not cell.is_random or (cell.depth, cell.connections) == (64, 4)
    if cell.limits() and at_limit:
        file, null = row["ratios"]["file"]["iops"], row["ratios"]["null"]["iops"]
        need_file = 0.85 if cell.is_random else 0.95
        verdicts.bar(f"{cell.name}: {file:.2f} of the bare file (bar {need_file}), {null:.2f} of a server that stores nothing "
                     "(bar 0.95)", file >= need_file or null >= 0.95)
    return row, worst, max(row["ratios"][n]["cpu"] for n in cell.peers())


def main():
    need("fio", "qemu-nbd", "qemu-storage-daemon", "nbdkit")
    o = options()
    if not os.access(o.null, os.X_OK):
        skip(f"no program at {o.null}: cargo build --release -p bimetal-export --example serve_memory")
    verdicts, notes = Verdicts(), machine()
    print(words(notes))
    chosen = [c for c in cells() if o.only in c.name]
    if not chosen:
        sys.exit(f"no cell has {o.only!r} in its name; there are: {'; '.join(c.name for c in cells())}")
    samples = {c.name: [] for c in chosen}
    with Scratch("servers") as s:
        fast, offset = prepare(s)
        servers, notes["qemu_aio"] = start(s, fast, offset)
        servers |= more_servers(s, fast, offset, o.null)
        file = BareFile(fast, offset)
        for _ in range(o.rounds):
            for cell in chosen:
                one = {n: serve(servers[n], cell, o.seconds, fast) for n in ["bimetal"] + cell.peers()}
                for n in cell.limits():
                    one[n] = file.load(cell, o.seconds) if n == "file" else serve(servers[n], cell, o.seconds, fast)
                samples[cell.name].append(one)
        rows = [summarise(c, samples[c.name], verdicts) for c in chosen]
        for server in servers.values():
            server.stop()
        verdicts.bar("the group is sound afterwards", "Everything is in order" in s.bimetal("check", "bench"))
    speed, cpu = geometric([r[1] for r in rows]), geometric([r[2] for r in rows])
    verdicts.bar(f"mean over all cells: {speed:.2f} of the best peer (bar 1.2)", speed >= 1.2)
    verdicts.bar(f"mean CPU per request: {cpu:.2f} of the best peer's (bar 1.0)", cpu <= 1)
    save(o.name, {"machine": notes, "rounds": o.rounds, "seconds": o.seconds, "rows": [r[0] for r in rows],
                  "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
