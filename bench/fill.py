#!/usr/bin/env python3
"""The fill bar: 1 GiB fast + 8 GiB slow, both emulated, against the bare members (`bimetal serve --raw`) in the same run.

1. A sequential fill runs at the fast member's speed until the fast tier is full, then at the slow member's: each at
   least 95 % of the same load on the bare member. Full means: free fast space has come down to half the reserve. (A
   stream may take all of it but an eighth; from 64 MiB behind that place on the rate counts as the slow member's.)
2. After the load ends the reserve is back within 2 s + twice the time of writing what is missing to the bare slow member.
3. A 256 MiB range on the slow member, read twice, is read at >= 95 % of the fast member's speed after 30 s of quiet.
4. After a write of twice the fast tier a 256 MiB range that is read again is on the fast tier within 60 s (F9).

The fast member is a file capped at half of what the file system can write here; the slow one a 2012 hard disk.
The bare members are measured before and after the group, with the mean of both taken.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from common import GIB, MIB, Scratch, Verdicts, binary, fio, machine, need, save, words

RANGE = 256 * MIB
LOAD = {"bs": "1m", "iodepth": 4}
SLOW_PART = 1536 * MIB


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fast-rate", type=int, help="MB/s of the fast member, instead of half the file system's")
    p.add_argument("--slow", default="hdd2012", help="model of the slow member")
    p.add_argument("--sparse", action="store_true",
                   help="do not allocate the files before; with $BENCH_DIR on a tmpfs the models alone set the pace, "
                        "however busy the machine's disk is")
    p.add_argument("--name", default="fill", help="of the result file")
    return p.parse_args()


def allocated(s, name, size):
    path = s.file(name)
    with open(path, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, size)
    return path


def file_system_rate(s):
    """Bytes per second of direct sequential writes to an allocated file."""
    path = allocated(s, "probe.img", 768 * MIB)
    args = ["fio", "--name=x", "--ioengine=io_uring", "--direct=1", f"--filename={path}", "--rw=write", "--bs=1m",
            "--iodepth=4", "--size=768m", "--output-format=json"]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    os.remove(path)
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["write"]["bw_bytes"]


def rate(job, side):
    return job[side]["bw_bytes"]


def bare(s, model, path, size):
    """Bytes per second of sequential writes and reads of a bare member."""
    sock = s.file("raw.sock")
    args = [binary(), "serve", "--raw", f"emulated:{model}:{path}", "--force", "--nbd", f"unix:{sock}"]
    server = s.server("raw", args, sock)
    written = rate(fio(server.uri(), "write", size=size, **LOAD), "write")
    read = rate(fio(server.uri(), "read", size=size, **LOAD), "read")
    server.stop()
    return {"write": written, "read": read}


def both_bare(s, models, files):
    # The slow part is as long as that of the group's fill: a disk becomes slower towards its end.
    return {"fast": bare(s, models["fast"], files["fast"], 768 * MIB),
            "slow": bare(s, models["slow"], files["slow"], SLOW_PART)}


def mean_of(a, b):
    return {m: {k: (a[m][k] + b[m][k]) / 2 for k in a[m]} for m in a}


def completions(prefix):
    """(second, offset) of each request, from fio's latency log."""
    rows = []
    for line in open(f"{prefix}_clat.1.log", encoding="ascii"):
        f = [x.strip() for x in line.split(",")]
        rows.append((int(f[0]) / 1e3, int(f[4])))
    return sorted(rows)


def rate_between(rows, low, high):
    """Bytes per second while the offsets went from low to high."""
    times = [t for t, offset in rows if low <= offset < high]
    return (len(times) - 1) * MIB / max(times[-1] - times[0], 1e-3)


def tiers(server, offset, length):
    """Bytes of a range by where they are, from the server's own meta context."""
    done = subprocess.run(["nbdinfo", "--map=bimetal:tier", "--json", server.uri()], capture_output=True, text=True,
                          check=True)
    found = {}
    for e in json.loads(done.stdout):
        begin, end = max(e["offset"], offset), min(e["offset"] + e["length"], offset + length)
        if begin < end:
            # 3: on the fast tier, and the place on the slow tier is kept.
            kind = 1 if e["type"] == 3 else e["type"]
            found[kind] = found.get(kind, 0) + end - begin
    return found


def wait_for(limit, done):
    """Seconds until `done`, or None."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > limit:
            return None
        time.sleep(0.1)
    return time.monotonic() - began


def slow_range(server, end):
    """The last 256 MiB range before `end` that lies on the slow tier wholly."""
    at = end - RANGE
    while at >= 0 and tiers(server, at, RANGE) != {2: RANGE}:
        at -= 32 * MIB
    if at < 0:
        raise RuntimeError("no range lies on the slow tier")
    return at


def step(s, steps, began):
    """Free fast bytes now, noted with the mover's words wherever they change."""
    st = s.status("fill")
    row = {"s": round(time.monotonic() - began, 1), "free_mib": st["fast_free_bytes"] // MIB,
           "doing": st["mover"]["doing"], "in_flight": st["mover"]["in_flight_chunks"]}
    if not steps or any(steps[-1][k] != row[k] for k in ("free_mib", "doing")):
        steps.append(row)
    return st["fast_free_bytes"]


def fill(s, server, verdicts, result):
    st = s.status("fill")
    full = st["fast_free_bytes"] - st["keep_free_bytes"] // 2
    size = full // MIB * MIB + SLOW_PART
    fio(server.uri(), "write", size=size, write_lat_log=s.file("fill"), log_offset=1, **LOAD)
    missing = max(0, st["keep_free_bytes"] - s.status("fill")["fast_free_bytes"])
    steps, began = [], time.monotonic()
    back = wait_for(120, lambda: step(s, steps, began) >= s.status("fill")["keep_free_bytes"])
    print(f"filled; reserve back after {seconds(back)}", flush=True)
    rows = completions(s.file("fill"))
    result["fill_fast"] = rate_between(rows, 16 * MIB, full - 32 * MIB)
    result["fill_slow"] = rate_between(rows, full + 64 * MIB, size)
    result.update(reserve_missing_mib=missing / MIB, reserve_back_s=back, reserve_bytes=st["reserve_bytes"],
                  reserve_steps=steps)
    return size


def read_thrice(server, end, result):
    at = slow_range(server, end)
    result["slow_range_read"] = [rate(fio(server.uri(), "read", offset=at, size=RANGE, **LOAD), "read")
                                 for _ in range(2)]
    time.sleep(30)
    result["range_tiers_after_quiet"] = tiers(server, at, RANGE)
    result["third_read"] = rate(fio(server.uri(), "read", offset=at, size=RANGE, **LOAD), "read")


def write_much(server, start, result):
    size = 2 * GIB
    fio(server.uri(), "write", offset=start, size=size, **LOAD)
    at = slow_range(server, start + size)
    for _ in range(2):
        fio(server.uri(), "read", offset=at, size=RANGE, **LOAD)
    result["on_fast_after_s"] = wait_for(90, lambda: tiers(server, at, RANGE) == {1: RANGE})
    result["tiers_at_last"] = tiers(server, at, RANGE)


def seconds(x):
    return "more than the time waited" if x is None else f"{x:.1f} s"


def judge(result, bare_rates, verdicts):
    fast, slow = bare_rates["fast"], bare_rates["slow"]
    mb = lambda x: f"{x / 1e6:.0f} MB/s"
    a, b = result["fill_fast"] / fast["write"], result["fill_slow"] / slow["write"]
    verdicts.bar(f"fill of the fast tier: {mb(result['fill_fast'])}, {a:.1%} of the bare member's", a >= 0.95)
    verdicts.bar(f"fill beyond it: {mb(result['fill_slow'])}, {b:.1%} of the bare slow member's", b >= 0.95)
    limit = 2 + 2 * result["reserve_missing_mib"] * MIB / slow["write"]
    result["reserve_limit_s"] = limit
    back = result["reserve_back_s"]
    missing = f"{result['reserve_missing_mib']:.0f} MiB missing"
    verdicts.bar(f"reserve ({missing}) back after {seconds(back)}, allowed {limit:.1f} s", back is not None and back <= limit)
    c = result["third_read"] / fast["read"]
    slow_reads = ", ".join(mb(x) for x in result["slow_range_read"])
    verdicts.bar(f"third read: {mb(result['third_read'])} (before: {slow_reads}), {c:.1%} of the fast member's",
                 c >= 0.95)
    on_fast = result["on_fast_after_s"]
    verdicts.bar(f"F9: re-read range on the fast tier after {seconds(on_fast)}", on_fast is not None and on_fast <= 60)


def main():
    need("fio", "nbdinfo")
    o, verdicts, notes = options(), Verdicts(), machine()
    print(words(notes))
    with Scratch("fill") as s:
        fast_rate = (o.fast_rate or int(file_system_rate(s) / 2e6)) * 1_000_000
        models = {"fast": f"rate={fast_rate // 1_000_000}M", "slow": o.slow}
        print(f"fast member capped at {fast_rate / 1e6:.0f} MB/s, slow member is a {o.slow}")
        sizes = {"fast": GIB, "slow": 8 * GIB}
        make = s.sparse if o.sparse else lambda name, size: allocated(s, name, size)
        bare_files = {m: make(f"bare-{m}.img", size) for m, size in sizes.items()}
        files = {m: make(f"{m}.img", size) for m, size in sizes.items()}
        members = {m: f"emulated:{models[m]}:{files[m]}" for m in files}
        before = both_bare(s, models, bare_files)
        print("bare members measured", flush=True)
        s.bimetal("create", "fill", "--fast", members["fast"], "--slow", members["slow"], "--yes")
        sock = s.file("group.sock")
        server = s.server("group", [binary(), "serve", "fill", "--nbd", f"unix:{sock}"], sock)
        result = {"models": models, "sparse": o.sparse}
        end = fill(s, server, verdicts, result)
        read_thrice(server, end, result)
        write_much(server, end, result)
        result["mover"] = s.status("fill")["mover"]
        server.stop()
        after = both_bare(s, models, bare_files)
        result["bare_before"], result["bare_after"] = before, after
        judge(result, mean_of(before, after), verdicts)
    save(o.name, {"machine": notes, **result, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
