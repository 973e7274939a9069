"""In the guest: the same daemon and data on the fast disk by ublk and by the kernel's NBD client, in turn.

exports.py PROGRAM OUT.json SECONDS ROUNDS. Processor time is the whole guest's, the load generator's with it; without
requests it is taken off. System calls are the daemon's, counted by strace in runs of their own.
"""

import json
import os
import subprocess
import sys
import time

from kit import busy, fio, run, serve, write

CASES = [(rw, depth) for rw in ("randread", "randwrite") for depth in (1, 16, 64)]
VIAS = ("ublk", "nbd")


def load(device, rw, depth, seconds):
    return fio(f"--filename={device}", f"--rw={rw}", "--bs=4k", f"--iodepth={depth}", f"--runtime={seconds}", "--time_based",
               "--norandommap", "--randrepeat=0")


def measure(device, rw, depth, seconds):
    before, began = busy(), time.monotonic()
    time.sleep(1)
    idle = (busy() - before) / (time.monotonic() - began)
    before, began = busy(), time.monotonic()
    done = load(device, rw, depth, seconds)
    cpu = busy() - before - idle * (time.monotonic() - began)
    return {"iops": done["iops"], "cpu_us": cpu / max(done["total_ios"], 1) * 1e6,
            "p99_ms": done["lat_ns"]["percentile"]["99.000000"] / 1e6}


def system_calls(daemon, device, rw, depth):
    """The daemon's system calls for each request."""
    tracer = subprocess.Popen(["strace", "-f", "-c", "-p", str(daemon.pid)], stderr=subprocess.PIPE, text=True)
    time.sleep(3)
    done = load(device, rw, depth, 10)
    tracer.terminate()
    told = tracer.communicate()[1]
    # Share, seconds, microseconds a call, calls, and errors if there were any.
    totals = [line.split() for line in told.splitlines() if line.endswith(" total")]
    if not totals:
        raise RuntimeError(f"strace: {told[-500:]}")
    return int(totals[0][3]) / max(done["total_ios"], 1)


def main():
    program, out, seconds, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    daemon = serve(program, os.environ["DISK_fast"], os.environ["DISK_slow"], "256MiB", "fast-only")
    found = {}
    for n in range(rounds):
        for via in VIAS:
            device = run(program, "attach", "tank/main", "--via", via).strip()
            if n == 0:
                fio(f"--filename={device}", "--rw=write", "--bs=1M", "--iodepth=4", "--size=256M", "--end_fsync=1")
            for rw, depth in CASES:
                cell = measure(device, rw, depth, seconds)
                if n == 0:
                    cell["system_calls"] = system_calls(daemon, device, rw, depth)
                found.setdefault(f"{rw} QD{depth}", {}).setdefault(via, []).append(cell)
            run(program, "detach", "tank/main")
    write(out, json.dumps(found))


main()
