#!/usr/bin/env python3
"""Mixed hot and cold load on a fast disk in memory and an emulated hard disk, in a virtual machine: Bimetal by ublk, by the
kernel's NBD client and by FUSE, against dm-cache (smq), bcache and dm-writecache, and the bare hard disk.

Each contestant has the machine to itself: it makes a volume eight times as large as the fast disk, which is written in full,
then drops its cache; then a load of 4 KiB requests, 70 % reads, Zipf 1.1 over blocks in no order (as fio's own distribution
has them): from cold, for the same time to get warm, a pause, and measured. All get the same requests, and none in the
measured part is a repetition of the part before. Rounds take turns; the bars are medians of the ratios within a round.

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

from common import HERE, MIB, Scratch, Verdicts, binary, machine, median, need, save, skip, words

CONTESTANTS = ("bimetal-ublk", "bimetal-nbd", "bimetal-fuse", "dm-cache", "bcache", "dm-writecache", "slow")
THETA, READS, BLOCK = 1.1, 0.7, 4096
PEER = "dm-cache"


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
    default = os.path.join(HERE, "..", "..", "shared", "rig", "vm-run")
    path = os.path.abspath(os.environ.get("BIMETAL_VM", default))
    if not os.access(path, os.X_OK):
        skip("no virtual machine: set BIMETAL_VM to a program with vm-run's interface")
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
    done = subprocess.run(args, env=dict(s.env, TMPDIR="/dev/shm"), capture_output=True, text=True)
    try:
        with open(s.file(name + ".json"), encoding="ascii") as f:
            return json.load(f)
    except OSError:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr[-2000:]}") from None


def show(name, r):
    cells = [f"{phase} {r[phase]['iops']:6.0f} IOPS p99 {r[phase]['p99_ms']:7.1f} ms" for phase in ("cold", "warm")]
    print(f"{name:14} fill {r['fill']['mb_per_s']:4.0f} MB/s  {'  '.join(cells)}  {r['warm']['cpu_us']:5.0f} us", flush=True)


def judge(rounds, verdicts):
    """Bimetal's better export against dm-cache."""
    ours = [n for n in rounds[0] if n.startswith("bimetal-")]
    if PEER not in rounds[0] or not ours:
        return
    for phase in ("cold", "warm"):
        for what, better in (("iops", max), ("p99_ms", min)):
            ratios = [better(r[n][phase][what] for n in ours) / r[PEER][phase][what] for r in rounds]
            ratio = median(ratios)
            met = ratio > 1 if better is max else ratio < 1
            verdicts.bar(f"{phase}: {what} {ratio:.2f} times that of dm-cache", met)
    if {"bimetal-ublk", "bimetal-nbd"} <= set(ours):
        cpu = median(r["bimetal-ublk"]["warm"]["cpu_us"] / r["bimetal-nbd"]["warm"]["cpu_us"] for r in rounds)
        print(f"the machine's processor time for each request: ublk {cpu:.2f} times NBD")


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
            for name in names:
                found[name] = contest(s, o, name, size, config)
                show(name, found[name])
            rounds.append(found)
    judge(rounds, verdicts)
    save(o.name, {"machine": notes, "options": vars(o), "rounds": rounds, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
