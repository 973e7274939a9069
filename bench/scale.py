#!/usr/bin/env python3
"""The scale bar: a group of 128 GiB + 2 TiB (sparse files) with every chunk mapped.

`full_map` (an example of crates/format: `cargo build --release -p bimetal-format --example full_map`, or $FULL_MAP) gives
every chunk a home on the members of a group that `bimetal create` made, and leaves them as after an orderly stop or as
after a crash with full journals. Starts are timed from exec to the first accepted connection; the members' metadata is
put out of the page cache before (the program reads around it anyway). Memory is what the process has resident after the
start (locked memory included), at most 20 bytes per chunk + 64 MiB + the buffers that README states.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time

from common import GIB, MIB, Scratch, Verdicts, binary, drop_cache, example, fio, machine, median, save, skip, words

CHUNK = 128 << 10


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--fast-gib", type=int, default=128)
    p.add_argument("--slow-gib", type=int, default=2048)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--buffers-mib", type=int, default=0, help="buffers that README states")
    p.add_argument("--name", default="scale", help="of the result file")
    return p.parse_args()


def builder():
    return example("FULL_MAP", "full_map", "bimetal-format")


def start(s, files, name):
    """Starts the daemon; gives it and the seconds until it takes connections."""
    for f in files:
        drop_cache(f)
    sock = s.file("nbd.sock")
    server = s.server(name, [binary(), "serve", "scale", "--nbd", f"unix:{sock}"], sock)
    return server, server.ready_after


def memory(server):
    return {k: server.memory(k) for k in ("VmRSS", "VmHWM", "RssAnon", "VmLck")}


def one_round(s, files, mode):
    """Builds the image, starts, reads a little from everywhere, stops."""
    subprocess.run([builder(), mode, *files], check=True, capture_output=True)
    server, seconds = start(s, files, mode)
    used, cpu, read = memory(server), server.cpu(), server.bytes_read()
    job = fio(server.uri(), "randread", bs="4k", iodepth=16, number_ios=2000, randrepeat=0, norandommap=True)
    status = s.status("scale")
    mapped = sum(v["fast_bytes"] + v["slow_bytes"] for v in status["volumes"]) // CHUNK
    after = memory(server)
    stop = server.stop(signal.SIGTERM)
    print(f"{mode}: start {seconds:.2f} s ({cpu:.2f} s of CPU, {read / MIB:.0f} MiB read), "
          f"{used['VmRSS'] / MIB:.0f} MiB resident, peak {used['VmHWM'] / MIB:.0f} MiB, "
          f"{mapped} chunks, {job['read']['total_ios']} reads, stop {stop:.2f} s", flush=True)
    return {"start_s": round(seconds, 3), "start_cpu_s": round(cpu, 3), "stop_s": round(stop, 3), "chunks": mapped,
            "volume_chunks": sum(v["size_bytes"] for v in status["volumes"]) // CHUNK,
            "read_at_start": read, "memory": used,
            "memory_after_reads": after, "reads": job["read"]["total_ios"], "read_errors": job["error"]}


def judge(result, o, verdicts):
    typical = {m: median(r["start_s"] for r in rounds) for m, rounds in result["rounds"].items()}
    verdicts.bar(f"create: {result['create_s']:.2f} s, allowed 5 s", result["create_s"] < 5)
    verdicts.bar(f"clean start: {typical['clean']:.2f} s (median), allowed 2 s", typical["clean"] < 2)
    verdicts.bar(f"start after a crash with full journals: {typical['crashed']:.2f} s (median), allowed 5 s",
                 typical["crashed"] < 5)
    every = [r for rounds in result["rounds"].values() for r in rounds]
    verdicts.bar("every chunk of the volume has a home", all(r["chunks"] == r["volume_chunks"] for r in every))
    verdicts.bar("reads succeed", all(r["reads"] >= 2000 and r["read_errors"] == 0 for r in every))
    chunks = every[0]["chunks"]
    allowed = 20 * chunks + 64 * MIB + o.buffers_mib * MIB
    for mode, rounds in result["rounds"].items():
        rss = max(max(r["memory"]["VmRSS"], r["memory_after_reads"]["VmRSS"]) for r in rounds)
        verdicts.bar(f"resident after a {mode} start: {rss / MIB:.0f} MiB = {rss / chunks:.1f} bytes per chunk, "
                     f"allowed {allowed / MIB:.0f} MiB (20 per chunk + 64 MiB + {o.buffers_mib} MiB of buffers)",
                     rss <= allowed)


def main():
    if not shutil.which("fio"):
        skip("fio not found")
    o, verdicts, notes = options(), Verdicts(), machine()
    builder()
    print(words(notes))
    with Scratch("scale") as s:
        files = [s.sparse("fast.img", o.fast_gib * GIB), s.sparse("slow.img", o.slow_gib * GIB)]
        began = time.monotonic()
        s.bimetal("create", "scale", "--fast", files[0], "--slow", files[1], "--yes")
        result = {"create_s": time.monotonic() - began, "rounds": {}}
        print(f"create: {result['create_s']:.2f} s", flush=True)
        for _ in range(o.rounds):
            for mode in ("clean", "crashed"):
                result["rounds"].setdefault(mode, []).append(one_round(s, files, mode))
        began = time.monotonic()
        verdict = s.bimetal("check", "scale")
        result["check_s"] = time.monotonic() - began
        sound = "Everything is in order" in verdict
        verdicts.bar(f"check finds everything in order ({result['check_s']:.1f} s)", sound)
        judge(result, o, verdicts)
    save(o.name, {"machine": notes, **result, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
