#!/usr/bin/env python3
"""What a 4 KiB request costs in the engine itself, in process: user time of the group's thread per request.

`engine_cost` (an example of crates/host: `cargo build --release -p bimetal-host --example engine_cost`, or $ENGINE_COST) keeps
requests under way on a group whose map takes 1 GiB of memory and is asked for at random, so that nearly every request waits
for memory. `memory` makes no system call for data; the bar is for that. `ring` is the group as it is served, on io_uring and
sparse files: its user time stands beside, without a bar. The map is made by `full_map` (see scale.py).
"""

import argparse
import subprocess
import sys

from common import GIB, Scratch, Verdicts, example, machine, median, save, words
from scale import builder

TIB = 1024 * GIB
# User microseconds per request.
ALLOWED = 1.5


def options():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=3, help="of each load")
    p.add_argument("--depth", type=int, default=64, help="requests under way")
    p.add_argument("--fast-tib", type=int, default=8, help="size of the fast member; 8 make a map of 1 GiB")
    p.add_argument("--name", default="engine", help="of the result file")
    return p.parse_args()


def program():
    return example("ENGINE_COST", "engine_cost", "bimetal-host")


def measure(kind, files, o):
    """One run: user and system microseconds of each load, by its name."""
    done = subprocess.run([program(), kind, *files, str(o.depth), str(o.seconds)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"engine_cost {kind}: {done.stderr.strip()}")
    found = {}
    for line in done.stdout.splitlines():
        name, figures = line[:24].strip(), line[24:].split()
        found[name] = {"kiops": float(figures[0]), "user_us": float(figures[2]), "system_us": float(figures[5])}
    return found


def main():
    o, verdicts, notes = options(), Verdicts(), machine()
    program()
    builder()
    print(words(notes))
    with Scratch("engine") as s:
        files = [s.sparse("fast.img", o.fast_tib * TIB), s.sparse("slow.img", max(o.fast_tib, 1) * GIB)]
        s.bimetal("create", "engine", "--fast", files[0], "--slow", files[1], "--yes")
        subprocess.run([builder(), "clean", *files], check=True, capture_output=True)
        rounds = [{kind: measure(kind, files, o) for kind in ("memory", "ring")} for _ in range(o.rounds)]
    for kind in ("memory", "ring"):
        for load in rounds[0][kind]:
            user = median(r[kind][load]["user_us"] for r in rounds)
            system = median(r[kind][load]["system_us"] for r in rounds)
            said = f"{kind}, {load}: {user:.2f} us of user time, {system:.2f} us of system time (medians)"
            if kind == "memory" and load.startswith("random"):
                verdicts.bar(f"{said}, allowed {ALLOWED} us", user <= ALLOWED)
            else:
                print(said, flush=True)
    save(o.name, {"machine": notes, "rounds": rounds, "verdicts": verdicts.rows})
    return verdicts.end()


if __name__ == "__main__":
    sys.exit(main())
