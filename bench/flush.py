#!/usr/bin/env python3
"""How long a flush takes while the map is saved: new chunks all over a large volume, so that nearly every page of the map has changed
when the journal is half full, and hundreds of megabytes of pages are written.

300 GiB + 4 TiB of sparse files. Each round writes 4 KiB to 168 random chunks, as many as a block of the journal holds, and flushes; the
journal is half full after 4096 of them. With --than PATH another program has the same load, before the program under test.
The bar: no flush takes longer than a tenth of a second.
"""

import argparse
import os
import random
import sys
import time

from common import GIB, Scratch, Verdicts, binary, machine, need, save, words

CHUNK = 128 << 10
WRITES = 168


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=6000)
    p.add_argument("--than", default="", help="another program, for instance an older one")
    p.add_argument("--name", default="flush", help="of the result file")
    return p.parse_args()


def flushes(program, rounds):
    """What each flush took, in seconds."""
    import nbd
    with Scratch("flush") as s:
        files = [s.sparse("fast.img", 300 * GIB), s.sparse("slow.img", 4096 * GIB)]
        s.bimetal("create", "flush", "--fast", files[0], "--slow", files[1], "--yes")
        sock = s.file("nbd.sock")
        server = s.server("flush", [program, "serve", "flush", "--nbd", f"unix:{sock}"], sock)
        h = nbd.NBD()
        h.connect_uri(server.uri("main"))
        data, chance, took = nbd.Buffer.from_bytearray(bytearray(os.urandom(4096))), random.Random(5), []
        for _ in range(rounds):
            sent = [h.aio_pwrite(data, chance.randrange(h.get_size() // CHUNK) * CHUNK) for _ in range(WRITES)]
            for c in sent:
                while not h.aio_command_completed(c):
                    h.poll(-1)
            begun = time.monotonic()
            h.flush()
            took.append(time.monotonic() - begun)
        h.shutdown()
        server.stop()
    return sorted(took)


def main():
    need("nbdsh")
    o, verdicts, notes, rows = options(), Verdicts(), machine(), {}
    print(words(notes), flush=True)
    for name, program in ([("than", o.than)] if o.than else []) + [("bimetal", binary())]:
        took = flushes(program, o.rounds)
        parts = {"median": took[len(took) // 2], "p99": took[len(took) * 99 // 100], "slowest": took[-1]}
        rows[name] = {k: round(v * 1000, 2) for k, v in parts.items()}
        print(f"{name:8}  flush, ms: {rows[name]}", flush=True)
    slowest = rows["bimetal"]["slowest"]
    verdicts.bar(f"the slowest flush took {slowest:.1f} ms (bar 100)", slowest <= 100)
    save(o.name, {"machine": notes, "options": vars(o), "ms": rows, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
