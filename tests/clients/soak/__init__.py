"""Random commands of the whole command line beside load, with SIGKILL of the command, the daemon or both at random moments, members
that are away, and metadata that rots. After each of them everything is read and compared with what clients were told.

The seed is that of all dice; what comes of them depends on how fast the machine is, too. BIMETAL_SOAK_SEED chooses another one."""

import os
import random
import time

import kit
from soak import steps
from soak.run import Run

QUICK_SEED, QUICK_STEPS, FULL_SECONDS = 30, 24, 180


def soak(world, full):
    kit.need_libnbd()
    kit.need_library("libcryptsetup.so.12")
    given = os.environ.get("BIMETAL_SOAK_SEED")
    seed = int(given) if given else random.randrange(1 << 30) if full else QUICK_SEED
    run, end, count = Run(world, random.Random(seed)), time.monotonic() + FULL_SECONDS, 0
    try:
        run.create()
        run.up()
        while time.monotonic() < end if full else count < QUICK_STEPS:
            steps.one(run)
            count += 1
        run.rest()
        run.verify()
        run.group.stop()
        run.check("at the end")
    except Exception as why:
        told = "\n".join(run.log[-30:])
        raise AssertionError(f"seed {seed}, step {count}, after\n{told}\nthe daemon: {run.words()[-2000:]}") from why
    finally:
        run.end_loads()
    return f"seed {seed}: {count} steps, {run.kills} of them with a kill, {run.verified >> 20} MiB compared"


TESTS = [("soak", soak)]
