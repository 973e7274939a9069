#!/usr/bin/env python3
"""The same daemon by ublk and by the kernel's NBD client, 4 KiB requests on the fast disk, in a virtual machine: processor time
of the whole guest and system calls of the daemon for each request. The bar is 0.7 of NBD's; IOPS stand beside without one,
since the machine may be emulated in software (see vm.py).
"""

import argparse
import json
import os
import subprocess
import sys

from common import HERE, Scratch, Verdicts, binary, machine, median, need, save, words
from vm import vm_program

ALLOWED = 0.7


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=8, help="of each load")
    p.add_argument("--name", default="exports", help="of the result file")
    return p.parse_args()


def measure(s, o):
    out = s.file("exports.json")
    args = [vm_program(), "--cpus", "2", "--mem", "2G", "--timeout", "3000", "--rw", s.path, "--modules", "nbd,ublk_drv",
            "--disk", "fast,tmp,size=512M,name=fast,cache=unsafe", "--disk", "slow,tmp,size=512M,name=slow,cache=unsafe",
            "--", "python3", os.path.join(HERE, "vm", "exports.py"), s.file("bimetal"), out, str(o.seconds), str(o.rounds)]
    done = subprocess.run(args, env=dict(s.env, TMPDIR="/dev/shm"), capture_output=True, text=True)
    if not os.path.exists(out):
        raise RuntimeError(f"the guest ended with status {done.returncode}: {done.stderr[-2000:]}")
    with open(out, encoding="ascii") as f:
        return json.load(f)


def main():
    o, verdicts, notes = options(), Verdicts(), machine()
    vm_program()
    need("fio", "nbd-client", "strace")
    print(words(notes), flush=True)
    with Scratch("exports") as s:
        subprocess.run(["cp", binary(), s.file("bimetal")], check=True)
        found = measure(s, o)
    rows = []
    for case, by in found.items():
        row = {"case": case, "devices": {}}
        for via, rounds in by.items():
            row["devices"][f"bimetal {via}"] = {k: round(median(r[k] for r in rounds), 2) for k in ("iops", "cpu_us", "p99_ms")}
        cpu = median(u["cpu_us"] / n["cpu_us"] for u, n in zip(by["ublk"], by["nbd"]))
        iops = median(u["iops"] / n["iops"] for u, n in zip(by["ublk"], by["nbd"]))
        calls = [by[via][0]["system_calls"] for via in ("ublk", "nbd")]
        row["system_calls"] = dict(zip(("ublk", "nbd"), calls))
        print(f"{case}: IOPS {iops:.2f} times NBD's", flush=True)
        verdicts.bar(f"{case}: processor time of a request {cpu:.2f} of NBD's", cpu <= ALLOWED)
        verdicts.bar(f"{case}: {calls[0]:.2f} system calls a request, {calls[1]:.2f} by NBD", calls[0] <= ALLOWED * calls[1])
        rows.append(row)
    save(o.name, {"machine": notes, "rows": rows, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
