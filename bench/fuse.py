#!/usr/bin/env python3
"""A volume as a block device by FUSE and a loop device: Bimetal's own file against nbdfuse in front of `nbdkit file`,
and against a file in a FUSE mount that is only memory.

Four loop devices with direct I/O, each over a FUSE file of the same size: `bimetal attach --via fuse` of a group whose
members lie in the folder; nbdfuse over `nbdkit file` on a file in the same folder; and the example `fuse_memory` of
crates/export, once over memory and once over nothing. These two are Bimetal's own FUSE front end with the engine and
its devices taken away: the limit of what it can do (`cargo build --release -p bimetal-export --example fuse_memory`,
or $FUSE_MEMORY). The group's members and nbdkit's file lie in memory ($BENCH_DIR, here /dev/shm), so that the path
counts and not the disk. All are filled first, then loaded one at a time in short rounds that take turns; compared are
medians of the ratios within a round.
"""

import argparse
import json
import os
import subprocess
import sys
import time

from common import (CPU_CGROUP, MIB, Scratch, Verdicts, binary, example, machine, make_cgroup, median, need, save, skip,
                    words)

CASES = (("randread", "4k", 32), ("randwrite", "4k", 32), ("read", "1m", 8), ("write", "1m", 8))


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=3, help="of each load")
    p.add_argument("--area-mib", type=int, default=512, help="size of what is loaded")
    p.add_argument("--name", default="fuse", help="of the result file")
    return p.parse_args()


def run(*args):
    done = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, args))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def wait_for(path):
    for _ in range(1000):
        if os.path.exists(path):
            return
        time.sleep(0.01)
    raise RuntimeError(f"{path} does not appear")


class Device:
    """A loop device, the processes whose CPU time it costs, and how it goes away."""

    def __init__(self, name, path, pids, undo):
        self.name, self.path, self.pids, self.undo = name, path, pids, undo
        # Where it is allowed: a busy machine gives each contestant the same share, however many processes it has.
        self.share = make_cgroup((CPU_CGROUP,), name)
        for pid in pids if self.share else ():
            with open(f"{self.share}/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(pid))

    def remove(self):
        self.undo()
        if self.share:
            time.sleep(0.1)
            os.rmdir(self.share)

    def cpu(self):
        """Seconds of user and system time of these processes, threads included."""
        total = 0
        for pid in self.pids:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")


def loop_over(file):
    return run("losetup", "--find", "--show", "--direct-io=on", "--sector-size", "4096", file)


def bimetal(s, size):
    fast, slow = s.sparse("fast.img", size + size // 2), s.sparse("slow.img", size)
    s.bimetal("create", "bench", "--fast", fast, "--slow", slow, "--volume", f"main:{size}", "--yes")

    def undo():
        s.bimetal("stop", "bench", check=False)
        s.bimetal("detach", "bench", check=False)
    try:
        device = s.bimetal("attach", "bench/main", "--via", "fuse").strip()
        return Device("bimetal", device, [s.status("bench")["pid"]], undo)
    except BaseException:
        undo()
        raise


def nbdfuse(s, size):
    file, sock, folder = s.sparse("peer.img", size), s.file("peer.sock"), s.file("peer")
    os.mkdir(folder)
    kit = subprocess.Popen(["nbdkit", "-f", "-U", sock, "file", file])
    wait_for(sock)
    fuse = subprocess.Popen(["nbdfuse", f"{folder}/main", f"nbd+unix:///?socket={sock}"])
    wait_for(f"{folder}/main")
    device = loop_over(f"{folder}/main")

    def undo():
        run("losetup", "-d", device)
        unmount(folder)
        fuse.wait(30)
        kit.terminate()
        kit.wait(30)
    return Device("nbdfuse", device, [kit.pid, fuse.pid], undo)


def memory(s, size, kind):
    program = example("FUSE_MEMORY", "fuse_memory", "bimetal-export")
    folder = s.file(kind)
    process = subprocess.Popen([program, folder, str(size // MIB), kind], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE)
    process.stdout.readline()
    device = loop_over(f"{folder}/main")

    def undo():
        run("losetup", "-d", device)
        process.stdin.close()
        process.wait(30)
    return Device(kind, device, [process.pid], undo)


def unmount(folder):
    for _ in range(100):
        if subprocess.run(["umount", folder], stderr=subprocess.DEVNULL).returncode == 0:
            return
        time.sleep(0.05)


def fio(device, rw, bs, depth, area, **more):
    args = ["fio", "--name=x", f"--filename={device}", "--ioengine=io_uring", "--direct=1", f"--rw={rw}", f"--bs={bs}",
            f"--iodepth={depth}", f"--size={area}", "--randrepeat=0", "--norandommap", "--output-format=json"]
    args += [f"--{k}" if v is True else f"--{k}={v}" for k, v in more.items()]
    text = run(*args)
    return json.loads(text[text.index("{"):])["jobs"][0]


def load(device, case, o):
    rw, bs, depth = case
    before = device.cpu()
    job = fio(device.path, rw, bs, depth, o.area_mib * MIB, time_based=True, runtime=o.seconds)
    side = job["read" if "read" in rw else "write"]
    cpu = device.cpu() - before
    return {"iops": side["iops"], "cpu_us": cpu * 1e6 / max(side["total_ios"], 1),
            "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1e3}


def summarise(case, rounds, verdicts):
    kind = f"{case[0]} {case[1]} QD{case[2]}"
    row = {"case": kind, "devices": {}, "ratios": {}}
    for n in rounds[0]:
        row["devices"][n] = {k: round(median(r[n][k] for r in rounds), 2) for k in ("iops", "cpu_us", "p99_us")}
    figures = [f"{n} {v['iops']:7.0f} IOPS {v['cpu_us']:6.1f} us" for n, v in row["devices"].items()]
    print(f"{kind:20}" + "  ".join(figures), flush=True)
    for n in list(rounds[0])[1:]:
        row["ratios"][n] = {k: round(median(r["bimetal"][k] / max(r[n][k], 1e-9) for r in rounds), 3)
                            for k in ("iops", "cpu_us", "p99_us")}
    for n, least in (("nbdfuse", 1.5), ("memory", 0.9)):
        ratio = row["ratios"][n]["iops"]
        verdicts.bar(f"{kind}: {ratio:.2f} times {n} (at least {least})", ratio >= least)
    return row


def main():
    if os.geteuid() != 0:
        skip("block devices need root")
    need("fio", "nbdkit", "nbdfuse", "losetup")
    os.environ.setdefault("BENCH_DIR", "/dev/shm")
    o = options()
    verdicts, notes = Verdicts(), machine()
    binary()
    print(words(notes), flush=True)
    size, devices = o.area_mib * MIB, []
    with Scratch("fuse") as s:
        try:
            devices.append(bimetal(s, size))
            devices.append(nbdfuse(s, size))
            devices += [memory(s, size, kind) for kind in ("memory", "null")]
            for device in devices:
                fio(device.path, "write", "1m", 4, size, end_fsync=1)
            samples = {}
            for _ in range(o.rounds):
                for case in CASES:
                    samples.setdefault(case, []).append({d.name: load(d, case, o) for d in devices})
            rows = [summarise(case, rounds, verdicts) for case, rounds in samples.items()]
        finally:
            for device in reversed(devices):
                device.remove()
        verdict = s.bimetal("check", "bench")
        verdicts.bar("the group is sound afterwards", "Everything is in order" in verdict)
    save(o.name, {"machine": notes, "rounds": o.rounds, "seconds": o.seconds, "area_mib": o.area_mib, "rows": rows,
                  "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
