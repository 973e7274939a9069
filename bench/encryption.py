#!/usr/bin/env python3
"""What encryption costs: an encrypted volume against a plain one of the same group, and against qemu-nbd serving LUKS, all
through NBD on a unix socket, on the fast tier: 4 KiB random at queue depths 1, 16 and 64, sequential 128 KiB and 1 MiB.

One daemon serves both volumes, 1 GiB each on the fast member of a group on files; qemu-nbd (direct I/O, io_uring) serves a
LUKS image, a file beside the member's. qemu-img makes it as it does unless told otherwise: AES-256-XTS, plain64, sectors of
512 bytes, where Bimetal has 4096. Before and after the loads they are filled with the same bytes and compared, and the group
is checked. One is loaded at a time, in short rounds whose order changes; compared are medians of the ratios within a round,
in brackets their quartiles. CPU time is the server's alone: user and system of all its threads.

Bars: 0.9 of the plain volume's IOPS at 4 KiB, depth 16, 0.8 with 128 KiB, and no less than qemu-nbd in any cell.
"""

import argparse
import ctypes.util
import itertools
import json
import os
import statistics
import subprocess
import sys

from common import GIB, Scratch, Verdicts, binary, fio, machine, median, need, save, skip, words
from iops import AREA
from servers import DEPTHS, SEQUENTIAL, Cell, figures

PLAIN, ENCRYPTED, PEER = "bimetal plain", "bimetal encrypted", "qemu-nbd LUKS"
# Parts of the plain volume's IOPS.
OF_PLAIN = {("4k", 16): 0.9, ("128k", 8): 0.8}
CHUNK = 128 << 10


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--seconds", type=float, default=1, help="of each load")
    p.add_argument("--only", default="", help="cells whose name contains this")
    p.add_argument("--name", default="encryption", help="of the result file")
    return p.parse_args()


def cells():
    for rw in ("randread", "randwrite"):
        yield from (Cell(rw, "4k", depth) for depth in DEPTHS)
    for bs, depth in SEQUENTIAL:
        yield from (Cell(rw, bs, depth) for rw in ("read", "write"))


class Contestant:
    """An export of a server."""

    def __init__(self, server, export=""):
        self.server, self.uri = server, server.uri(export)

    def fill(self):
        fio(self.uri, "write", bs="1m", iodepth=1, size=AREA, randseed=1, refill_buffers=True, end_fsync=1)

    def load(self, cell, seconds):
        before = self.server.cpu()
        job = fio(self.uri, cell.rw, runtime=seconds, **cell.job())
        return figures(job, cell, self.server.cpu() - before)

    def holds_the_same_as(self, other):
        done = subprocess.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", self.uri, other.uri], capture_output=True,
                              text=True)
        return done.returncode == 0


def all_hold_the_same(by):
    return all(by[PLAIN].holds_the_same_as(by[n]) for n in (ENCRYPTED, PEER))


def secret(s):
    path = s.file("passphrase")
    with open(path, "w", encoding="ascii") as f:
        f.write("correct horse battery staple")
    os.chmod(path, 0o600)
    return path


def serve_group(s, name):
    sock = s.file(f"{name}.sock")
    return s.server(name, [binary(), "serve", "bench", "--nbd", f"unix:{sock}"], sock)


def fill_group(s, passphrase):
    """A group with a plain and an encrypted volume, filled, all of it on the fast member."""
    fast, slow = s.sparse("fast.img", 4 * GIB), s.sparse("slow.img", 4 * GIB)
    s.bimetal("create", "bench", "--fast", fast, "--slow", slow, "--volume", f"plain:{AREA}", "--yes")
    server = serve_group(s, "fill")
    s.bimetal("family", "create", "bench/family", "--cost", "light", "--passphrase-file", passphrase)
    s.bimetal("volume", "create", "bench/encrypted", "--size", str(AREA), "--family", "family")
    for volume in ("plain", "encrypted"):
        Contestant(server, volume).fill()
    server.stop()
    must_lie_on_fast(s)


def must_lie_on_fast(s):
    entries = json.loads(s.bimetal("--json", "dump", "bench"))["entries"]
    if len(entries) != 2 * AREA // CHUNK or any(e["member"] != 0 for e in entries):
        raise RuntimeError("not all of the two volumes lies on the fast member")


def start_peer(s, passphrase):
    """qemu-nbd with a LUKS image."""
    image, sock = s.file("luks.img"), s.file("qemu-nbd.sock")
    key = f"secret,id=key,file={passphrase}"
    # The time is that of trying a passphrase; data is encrypted alike. qemu-img measures what it takes, and at times fails to
    # on a busy machine ("Unable to get accurate CPU usage").
    create = ["qemu-img", "create", "-q", "-f", "luks", "--object", key, "-o", "key-secret=key,iter-time=10", image, str(AREA)]
    for _ in range(10):
        done = subprocess.run(create, capture_output=True, text=True)
        if done.returncode == 0:
            break
    else:
        raise RuntimeError(f"qemu-img: {done.stderr.strip()}")
    file = f"driver=luks,key-secret=key,file.driver=file,file.filename={image},file.aio={{}},file.cache.direct=on"
    def qemu(aio):
        args = ["qemu-nbd", "-t", "-e", "8", "--cache=none", f"--aio={aio}", "--discard=unmap", "-k", sock, "--object", key,
                "--image-opts", file.format(aio)]
        return s.server("qemu-nbd", args, sock)
    try:
        return qemu("io_uring"), "io_uring"
    except RuntimeError:
        return qemu("native"), "native"


def ratio(rounds, of, key="iops"):
    """Median and quartiles of encrypted / `of` within a round."""
    found = [r[ENCRYPTED][key] / r[of][key] for r in rounds]
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive") if len(found) > 1 else found * 3
    return {"median": round(middle, 3), "quartiles": [round(low, 3), round(high, 3)]}


def told(found):
    return f"{found['median']:.2f} ({found['quartiles'][0]:.2f} to {found['quartiles'][1]:.2f})"


def line(name, *columns):
    print(f"{name:20}" + "".join(f"{c:>{width}}" for c, width in zip(columns, (9, 9, 9, 9, 18, 23, 23))), flush=True)


def summarise(cell, rounds):
    """Prints the part of the table for a cell and gives its row of the result."""
    row = {"cell": cell.name, "contestants": {}, "ratios": {}}
    print(cell.name)
    for n in (ENCRYPTED, PLAIN, PEER):
        v = row["contestants"][n] = {k: round(median(r[n][k] for r in rounds), 4) for k in rounds[0][n]}
        cpu = f"{v['cpu_s_per_1000']:.4f} per 1000" if cell.is_random else f"{v['cpu_s_per_gib']:.2f} per GiB"
        ratios = []
        if n != ENCRYPTED:
            found = row["ratios"][n] = {"iops": ratio(rounds, n), "cpu": ratio(rounds, n, "cpu_s_per_1000")}
            ratios = [told(found["iops"]), told(found["cpu"])]
        line(f"  {n}", *(f"{v[k]:.0f}" for k in ("iops", "mib_s", "p50_us", "p99_us")), cpu, *ratios)
    return row


def judge(cell, row, verdicts):
    plain, peer = (row["ratios"][n]["iops"] for n in (PLAIN, PEER))
    bar = OF_PLAIN.get((cell.bs, cell.depth))
    if bar:
        verdicts.bar(f"{cell.name}: {told(plain)} of the plain volume (bar {bar})", plain["median"] >= bar)
    verdicts.bar(f"{cell.name}: {told(peer)} of qemu-nbd with LUKS (bar 1.0)", peer["median"] >= 1)


def main():
    need("fio", "qemu-nbd", "qemu-img")
    if not ctypes.util.find_library("cryptsetup"):
        skip("libcryptsetup not found")
    o, verdicts, notes = options(), Verdicts(), machine()
    print(words(notes), flush=True)
    chosen = [c for c in cells() if o.only in c.name]
    samples = {c.name: [] for c in chosen}
    with Scratch("encryption") as s:
        passphrase = secret(s)
        fill_group(s, passphrase)
        group = serve_group(s, "bimetal")
        s.bimetal("family", "unlock", "bench/family", "--passphrase-file", passphrase)
        qemu, notes["qemu_aio"] = start_peer(s, passphrase)
        notes["cpu_by"] = "cgroup" if group.cgroup else "/proc/PID/stat"
        by = {PLAIN: Contestant(group, "plain"), ENCRYPTED: Contestant(group, "encrypted"), PEER: Contestant(qemu)}
        by[PEER].fill()
        same = [all_hold_the_same(by)]
        orders = list(itertools.permutations(by))
        for number in range(o.rounds):
            for i, cell in enumerate(chosen):
                turn = orders[(number + i) % len(orders)]
                samples[cell.name].append({n: by[n].load(cell, o.seconds) for n in turn})
        notes["load_average_at_end"] = [round(x, 2) for x in os.getloadavg()]
        line("", "IOPS", "MiB/s", "p50 us", "p99 us", "s of CPU", "encrypted: IOPS", "CPU of a request")
        rows = [summarise(c, samples[c.name]) for c in chosen]
        for c, row in zip(chosen, rows):
            judge(c, row, verdicts)
        for c in by.values():
            c.fill()
        same.append(all_hold_the_same(by))
        verdicts.bar("filled with the same before and after, all three hold the same", all(same))
        group.stop()
        qemu.stop()
        must_lie_on_fast(s)
        verdicts.bar("the group is sound afterwards", "Everything is in order" in s.bimetal("check", "bench"))
    save(o.name, {"machine": notes, "rounds": o.rounds, "seconds": o.seconds, "rows": rows, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
