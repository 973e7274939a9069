#!/usr/bin/env python3
"""A load beside the mover at work, against the same load with nothing to move: 4 KiB requests through NBD on data that lies on
the fast tier, and on data that lies on the slow one.

The fast member is a file, the slow one an emulated hard disk of 2012. The mover gets its work from NBD's CACHE: a range of
the slow tier is asked for, all of which must be promoted, and since the fast tier is full, as much demoted. The load begins
once it has begun. What was moved within the load stands beside each figure: a mover that only waits would disturb nobody. Both
loads take turns; the bars are medians of the ratios within a round.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time

from common import GIB, MIB, Scratch, Verdicts, binary, fio, machine, median, need, save, words
from fill import tiers, wait_for

CHUNK = 128 << 10
AREA = {"fast": 256 * MIB, "slow": 512 * MIB}
# What a load finds there, at least: chunks of an area that were used in a round before may have been promoted.
MOST = 0.97
STEP = 32 * MIB
# Tier, kind of load, queue depth.
CASES = (("fast", "randread", 1), ("fast", "randread", 16), ("fast", "randwrite", 16), ("slow", "randread", 1),
         ("slow", "randread", 4), ("slow", "randwrite", 4))
KINDS = {"fast": 1, "slow": 2}
LEAST_IOPS, MOST_P99 = 0.9, {"fast": 1.1, "slow": 1.5}


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=4, help="of each load on the fast tier; on the slow tier four times as long")
    p.add_argument("--hint-mib", type=int, default=192, help="what the mover is given to do in each load")
    p.add_argument("--slow", default="hdd2012", help="model of the slow member")
    p.add_argument("--slow-dir", help="where the file of the slow member lies, if not beside that of the fast one: a disk below "
                   "both serves the one later because of the other, which an SSD and a hard disk do not; a tmpfs will do")
    p.add_argument("--name", default="mover", help="of the result file")
    return p.parse_args()


def moved(s):
    """Chunks that changed places so far, copied or not."""
    mover = s.status("mover")["mover"]
    return mover["promoted_chunks"] + mover["demoted_chunks"]


def settle(s):
    """Until nothing has been moved for three seconds."""
    state = {"last": moved(s), "since": time.monotonic()}

    def quiet():
        now = moved(s)
        if now != state["last"]:
            state.update(last=now, since=time.monotonic())
        return time.monotonic() - state["since"] > 3

    if wait_for(300, quiet) is None:
        raise RuntimeError("the mover does not come to rest")


def hint(server, offset, length):
    """Asks for a range by NBD's CACHE."""
    code = f"for at in range({offset}, {offset + length}, {MIB}): h.cache({MIB}, at)"
    done = subprocess.run(["nbdsh", "-u", server.uri(), "-c", code], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"nbdsh ended with status {done.returncode}: {done.stderr[-1000:]}")


def begin_moves(s, server, offset, length):
    """Asks until it has an effect: each time counts as much as two reads, and what is on the fast tier may be used more."""
    began = moved(s)
    for _ in range(20):
        hint(server, offset, length)
        if wait_for(1, lambda: moved(s) > began) is not None:
            return
    raise RuntimeError(f"the mover does not begin: {s.status('mover')['mover']}")


class Ranges:
    """Ranges of the volume by where they lie. Each search begins where the last of its kind ended."""

    def __init__(self, server, size):
        self.server, self.size, self.next = server, size, {"fast": 0, "slow": 0, "work": 0}

    def find(self, use, length, but=None):
        """A range for a load on a tier, or one on the slow tier as work for the mover, and not where `but` is."""
        tier = "slow" if use == "work" else use
        for _ in range(0, 2 * self.size, STEP):
            at = self.next[use]
            self.next[use] = (at + STEP) % (self.size - length)
            there = tiers(self.server, at, length).get(KINDS[tier], 0)
            apart = but is None or at + length <= but or at >= but + AREA["slow"]
            if apart and there >= MOST * length:
                return at
        raise RuntimeError(f"no {length // MIB} MiB lie on the {tier} tier")


def load(s, server, case, at, seconds):
    tier, rw, depth = case
    before = moved(s)
    job = fio(server.uri(), rw, bs="4k", iodepth=depth, offset=at, size=AREA[tier], time_based=True, randrepeat=0,
              norandommap=True, runtime=seconds * (4 if tier == "slow" else 1))
    side = job["read" if rw.endswith("read") else "write"]
    return {"iops": side["iops"], "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1e3,
            "moved_mib": (moved(s) - before) * CHUNK / MIB}


def one_case(s, server, ranges, case, o, work_first):
    """Beside the mover, and without it."""
    tier = case[0]
    at = ranges.find(tier, AREA[tier])
    if tier == "fast":
        # Used before, so that it is not what has to make room.
        fio(server.uri(), "read", bs="1m", offset=at, size=AREA["fast"])
    found = {}
    for state in ("work", "off") if work_first else ("off", "work"):
        settle(s)
        if state == "work":
            begin_moves(s, server, ranges.find("work", o.hint_mib * MIB, at), o.hint_mib * MIB)
        found[state] = load(s, server, case, at, o.seconds)
    return found


def name(case):
    return f"{case[0]} tier, {case[1]} QD{case[2]}"


def judge(samples, verdicts):
    rows = []
    for case, rounds in samples.items():
        tier = case[0]
        iops, p99 = (median(r["work"][k] / r["off"][k] for r in rounds) for k in ("iops", "p99_us"))
        row = {"case": name(case), "iops_ratio": round(iops, 3), "p99_ratio": round(p99, 3)}
        for state in ("off", "work"):
            row[state] = {k: round(median(r[state][k] for r in rounds), 1) for k in rounds[0][state]}
        print(f"{row['case']:28} {row['off']['iops']:8.0f} IOPS p99 {row['off']['p99_us']:8.0f} us; beside moves of "
              f"{row['work']['moved_mib']:.0f} MiB {row['work']['iops']:8.0f}, {row['work']['p99_us']:8.0f} us", flush=True)
        limit = MOST_P99[tier]
        verdicts.bar(f"{row['case']}: p99 {p99:.2f} times (allowed {limit})", p99 <= limit)
        if tier == "fast":
            verdicts.bar(f"{row['case']}: IOPS {iops:.2f} times (bar {LEAST_IOPS})", iops >= LEAST_IOPS)
        verdicts.bar(f"{row['case']}: the mover worked meanwhile", row["work"]["moved_mib"] > row["off"]["moved_mib"])
        rows.append(row)
    return rows


def main():
    need("fio", "nbdinfo", "nbdsh")
    o, verdicts, notes = options(), Verdicts(), machine()
    print(words(notes), flush=True)
    with Scratch("mover") as s, tempfile.TemporaryDirectory(dir=o.slow_dir) as apart:
        fast, slow = s.sparse("fast.img", 2 * GIB), os.path.join(apart if o.slow_dir else s.path, "slow.img")
        s.sparse(slow, 7 * GIB)
        s.bimetal("create", "mover", "--fast", fast, "--slow", f"emulated:{o.slow}:{slow}", "--yes")
        sock = s.file("group.sock")
        server = s.server("group", [binary(), "serve", "mover", "--nbd", f"unix:{sock}"], sock)
        size = 6 * GIB
        fio(server.uri(), "write", bs="1m", iodepth=4, size=size)
        settle(s)
        ranges = Ranges(server, size)
        print("filled", flush=True)
        samples = {case: [] for case in CASES}
        for number in range(o.rounds):
            for case in CASES:
                samples[case].append(one_case(s, server, ranges, case, o, number % 2 == 1))
            print(f"round {number + 1} of {o.rounds}", flush=True)
        rows = judge(samples, verdicts)
        server.stop()
        verdicts.bar("the group is sound afterwards", "Everything is in order" in s.bimetal("check", "mover"))
    save(o.name, {"machine": notes, "options": vars(o), "rows": rows, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
