#!/usr/bin/env python3
"""4 KiB random reads and overwrites through NBD on a unix socket: Bimetal against qemu-nbd and nbdkit.

All three serve the same bytes of the same file: a group is made whose volume begins on the fast member's slots, and the
others serve exactly those slots of the member's file. Data carries no checksum in format 1, so overwriting it from
outside leaves the group sound (the last step checks it). One server is loaded at a time, in short rounds that take turns;
compared are medians of the ratios within a round, so that a noisy machine hurts all alike.

nbdkit goes through the page cache: its file is put out of the cache before each of its read rounds, and it is started
with cache=none. Its writes compare only with a flush after every 32, and so are not compared without.
CPU time is the server's alone: user and system of all its threads, by cgroup where that is allowed.
"""

import argparse
import json
import sys

from common import GIB, MIB, Scratch, Verdicts, binary, drop_cache, fio, machine, median, need, save, words

# The data zone of the fast member starts where the dump says; this much of it is used.
AREA = GIB


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=3, help="of each load")
    p.add_argument("--depths", default="1,16,64")
    p.add_argument("--name", default="iops", help="of the result file")
    return p.parse_args()


def prepare(s):
    """A group whose first GiB lies on the fast member, in order. Gives the member's file and where the data begins."""
    fast, slow = s.sparse("fast.img", 3 * GIB), s.sparse("slow.img", 4 * GIB)
    s.bimetal("create", "bench", "--fast", fast, "--slow", slow, "--yes")
    sock = s.file("fill.sock")
    server = s.server("fill", [binary(), "serve", "bench", "--nbd", f"unix:{sock}"], sock)
    fio(server.uri(), "write", bs="1m", iodepth=1, size=AREA, end_fsync=1)
    server.stop()
    dump = json.loads(s.bimetal("--json", "dump", "bench"))
    entries = [e for e in dump["entries"] if e["chunk"] < AREA // (128 << 10)]
    in_order = all(e["member"] == 0 and e["slot"] - entries[0]["slot"] == e["chunk"] for e in entries)
    if not in_order or len(entries) != AREA // (128 << 10):
        raise RuntimeError("the fill did not lie on the fast member in one run")
    zones = dump["members"][0]["label"]["zones"]
    slots = next(z["offset"] for z in zones if z["kind"] == "slots")
    return fast, slots + entries[0]["slot"] * (128 << 10)


def start(s, fast, offset):
    """The three servers over the same bytes."""
    sock = {n: s.file(f"{n}.sock") for n in ("bimetal", "qemu-nbd", "nbdkit")}
    bimetal = s.server("bimetal", [binary(), "serve", "bench", "--nbd", f"unix:{sock['bimetal']}"], sock["bimetal"])
    aio = "io_uring"
    image = (f"driver=raw,offset={offset},size={AREA},file.driver=file,file.filename={fast},file.locking=off,"
             f"file.aio={{}},file.cache.direct=on,file.cache.no-flush=off")
    def qemu(aio):
        args = ["qemu-nbd", "-t", "-e", "8", "--cache=none", f"--aio={aio}", "--discard=unmap",
                "-k", sock["qemu-nbd"], "--image-opts", image.format(aio)]
        return s.server("qemu-nbd", args, sock["qemu-nbd"])
    try:
        other = qemu(aio)
    except RuntimeError:
        aio = "native"
        other = qemu(aio)
    args = ["nbdkit", "-f", "-U", sock["nbdkit"], "--filter=offset", "file", fast, "cache=none", "fadvise=random",
            f"offset={offset}", f"range={AREA}"]
    return {"bimetal": bimetal, "qemu-nbd": other, "nbdkit": s.server("nbdkit", args, sock["nbdkit"])}, aio


def load(server, fast, rw, depth, seconds, flush_every):
    if server.name == "nbdkit":
        drop_cache(fast)
    more = {"fsync": flush_every} if flush_every else {}
    before = server.cpu()
    job = fio(server.uri(), rw, bs="4k", iodepth=depth, size=AREA, time_based=True, runtime=seconds,
              randrepeat=0, norandommap=True, **more)
    after = server.cpu()
    side = job["read" if rw == "randread" else "write"]
    return {"iops": side["iops"], "cpu_us": (after - before) * 1e6 / max(side["total_ios"], 1),
            "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1e3}


def cases(depths):
    for depth in depths:
        yield "randread", depth, 0, ("bimetal", "qemu-nbd", "nbdkit")
    for depth in depths:
        yield "randwrite", depth, 0, ("bimetal", "qemu-nbd")
    yield "randwrite", depths[-1], 32, ("bimetal", "nbdkit")


def summarise(case, rounds, verdicts):
    rw, depth, flush_every, names = case
    kind = f"{rw} QD{depth}" + (f", flush every {flush_every}" if flush_every else "")
    row = {"case": kind, "servers": {}, "ratios": {}}
    for n in names:
        row["servers"][n] = {k: round(median(r[n][k] for r in rounds), 2) for k in ("iops", "cpu_us", "p99_us")}
    line = "  ".join(f"{n} {v['iops']:8.0f} IOPS {v['cpu_us']:6.2f} us" for n, v in row["servers"].items())
    print(f"{kind:32}{line}", flush=True)
    for n in names[1:]:
        iops = median(r["bimetal"]["iops"] / r[n]["iops"] for r in rounds)
        cpu = median(r["bimetal"]["cpu_us"] / r[n]["cpu_us"] for r in rounds)
        row["ratios"][n] = {"iops": round(iops, 3), "cpu": round(cpu, 3)}
        verdicts.bar(f"{kind}: IOPS {iops:.2f} times those of {n}", iops > 1)
        verdicts.bar(f"{kind}: CPU per request {cpu:.2f} times that of {n}", cpu < 1)
    return row


def main():
    need("fio", "qemu-nbd", "nbdkit")
    o = options()
    depths = [int(d) for d in o.depths.split(",")]
    verdicts, notes = Verdicts(), machine()
    print(words(notes))
    with Scratch("iops") as s:
        fast, offset = prepare(s)
        servers, aio = start(s, fast, offset)
        notes["qemu_aio"] = aio
        notes["cpu_by"] = "cgroup" if servers["bimetal"].cgroup else "/proc/PID/stat"
        print(f"qemu-nbd --cache=none --aio={aio}; CPU time by {notes['cpu_by']}; {o.rounds} rounds of {o.seconds} s")
        samples = {}
        for _ in range(o.rounds):
            for case in cases(depths):
                one = {n: load(servers[n], fast, *case[:2], o.seconds, case[2]) for n in case[3]}
                samples.setdefault(case, []).append(one)
        rows = [summarise(case, rounds, verdicts) for case, rounds in samples.items()]
        for server in servers.values():
            server.stop()
        verdict = s.bimetal("check", "bench")
        verdicts.bar("the group is sound afterwards", "Everything is in order" in verdict)
    save(o.name, {"machine": notes, "rounds": o.rounds, "seconds": o.seconds, "area_mib": AREA // MIB, "rows": rows,
                  "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
