#!/usr/bin/env python3
"""Mixed hot and cold load on a fast disk in memory and an emulated hard disk, in a virtual machine: Bimetal by ublk, by the
kernel's NBD client and by FUSE, against dm-cache (smq), bcache and dm-writecache, and the bare hard disk.

Each contestant has the machine to itself: it makes a volume eight times as large as the fast disk, which is written in full,
then drops its cache. Bimetal has none: what the fill has put on its fast disk, a ninth of the data or so, chosen without regard
to what comes, is part of the volume and stays. Then a load of 4 KiB requests, 70 % reads, Zipf 1.1 over blocks in no order (as fio's own distribution
has them): from cold, for the same time to get warm, a pause, and measured. All get the same requests, and none in the
measured part is a repetition of the part before. Each round begins with another contestant; the bars are medians of the ratios
within a round. A contestant takes minutes, so that the machine should do nothing else.

The machine ($BIMETAL_VM, a program with vm-run's interface) may be emulated in software: what the hard disk decides (misses)
is near the truth then, what the processor decides is not.
"""

import argparse
import bisect
import itertools
import json
import os
import random
import subprocess
import sys

from common import HERE, MIB, Scratch, Verdicts, binary, machine, median, need, program, save, skip, words

CONTESTANTS = ("bimetal-ublk", "bimetal-nbd", "bimetal-fuse", "dm-cache", "bcache", "dm-writecache", "slow")
THETA, READS, BLOCK = 1.1, 0.7, 4096
# The bar is for it; the others absorb small writes, and stand beside.
PEER = "dm-cache"
COUNT = ("bimetal-ublk", "bimetal-nbd")
# The machine ended before the command did.
DIED, TRIES = 123, 3


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--fast-mib", type=int, default=512)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--cold", type=int, default=30, help="seconds of the cold load")
    p.add_argument("--warm", type=int, default=180, help="seconds of warm-up")
    p.add_argument("--idle", type=int, default=30, help="seconds of the pause")
    p.add_argument("--measured", type=int, default=60, help="seconds that count")
    p.add_argument("--only", default=",".join(CONTESTANTS), help="contestants, separated by commas")
    p.add_argument("--name", default="vm", help="of the result file")
    return p.parse_args()


def vm_program():
    path = program("BIMETAL_VM", "../shared/rig/vm-run", "install one with vm-run's interface")
    if os.geteuid() != 0:
        skip("a virtual machine with disks needs root")
    return path


class Load:
    """Requests of a Zipf distribution: the n-th most used block has a place of its own, in no order."""

    def __init__(self, size, seed):
        self.blocks = size // BLOCK
        self.random = random.Random(seed)
        self.places = list(range(self.blocks))
        self.random.shuffle(self.places)
        self.sums = list(itertools.accumulate((n + 1) ** -THETA for n in range(self.blocks)))

    def log(self, path, requests):
        """An I/O log (version 2 of fio's) of so many."""
        with open(path, "w", encoding="ascii") as f:
            f.write("fio version 2 iolog\n/run/volume add\n/run/volume open\n")
            for _ in range(requests):
                rank = bisect.bisect(self.sums, self.random.random() * self.sums[-1])
                at = self.places[min(rank, self.blocks - 1)] * BLOCK
                kind = "read" if self.random.random() < READS else "write"
                f.write(f"/run/volume {kind} {at} {BLOCK}\n")
            f.write("/run/volume close\n")


def prepare(s, o, size, number):
    """The same requests for all contestants of a round."""
    load, logs = Load(size, number), {}
    # More than an emulated machine can do in the time: the clock ends each phase.
    for name, seconds in (("cold", o.cold), ("warm", o.warm), ("measured", o.measured)):
        logs[name] = s.file(f"{name}.log")
        load.log(logs[name], seconds * 6000)
    config = s.file("config.json")
    with open(config, "w", encoding="ascii") as f:
        json.dump({"size": size, "settle": 10, "cold": o.cold, "warm": o.warm, "idle": o.idle, "measured": o.measured,
                   "depth": o.depth, "logs": logs}, f)
    return config


def contest(s, o, name, size, config):
    """One contestant in a machine of its own."""
    seconds = 900 + size // (20 * MIB) + o.cold + o.warm + o.idle + o.measured
    args = [vm_program(), "--cpus", "2", "--mem", "2G", "--timeout", str(seconds), "--rw", s.path,
            "--modules", "nbd,ublk_drv,fuse,loop,dm-cache-smq,dm-writecache,bcache",
            "--disk", f"fast,tmp,size={o.fast_mib}M,name=fast,cache=unsafe",
            "--disk", f"slow,tmp,size={size // MIB + 128}M,name=slow,hdd", "--",
            "python3", os.path.join(HERE, "vm", "guest.py"), name, s.file("bimetal"), s.path, config]
    for _ in range(TRIES):
        done = subprocess.run(args, env=dict(s.env, TMPDIR="/dev/shm"), capture_output=True, text=True)
        # Under emulation a kernel sometimes dies while it boots.
        if done.returncode != DIED:
            break
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr[-2000:]}")
    with open(s.file(name + ".json"), encoding="ascii") as f:
        return json.load(f)


def show(name, r):
    cells = [f"{phase} {r[phase]['iops']:6.0f} IOPS p99 {r[phase]['p99_ms']:7.1f} ms" for phase in ("cold", "warm")]
    print(f"{name:14} fill {r['fill']['mb_per_s']:4.0f} MB/s  {'  '.join(cells)}", flush=True)


def judge(rounds, verdicts):
    """Bimetal against the others. Of ublk and NBD the one with more IOPS when warm counts, in everything."""
    warm = {n: median(r[n]["warm"]["iops"] for r in rounds) for n in rounds[0]}
    ours = max((n for n in warm if n in COUNT), key=warm.get, default=None)
    for peer in (n for n in warm if ours and not n.startswith("bimetal-")):
        for phase in ("cold", "warm"):
            iops, p99 = (median(r[ours][phase][what] / r[peer][phase][what] for r in rounds) for what in ("iops", "p99_ms"))
            told = f"{phase}: {ours} has {iops:.2f} times the IOPS of {peer} and {p99:.2f} times its p99"
            if peer == PEER:
                verdicts.bar(told, iops > 1 and p99 < 1)
            else:
                print(told, flush=True)


def main():
    o, verdicts, notes = options(), Verdicts(), machine()
    vm_program()
    need("fio", "dmsetup", "make-bcache", "nbd-client")
    names = o.only.split(",")
    print(words(notes), flush=True)
    size = o.fast_mib * 8 * MIB
    rounds = []
    with Scratch("vm") as s:
        subprocess.run(["cp", binary(), s.file("bimetal")], check=True)
        for number in range(o.rounds):
            config = prepare(s, o, size, number)
            found = {}
            for name in names[number % len(names):] + names[:number % len(names)]:
                found[name] = contest(s, o, name, size, config)
                show(name, found[name])
            rounds.append({name: found[name] for name in names})
            save(o.name, {"machine": notes, "options": vars(o), "rounds": rounds, "verdicts": []})
    judge(rounds, verdicts)
    save(o.name, {"machine": notes, "options": vars(o), "rounds": rounds, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
