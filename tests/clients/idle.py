"""An idle group writes nothing to any member: status counters, the files' times and /proc over minutes."""

import os
import time

import kit
from kit import MIB


def observed(group):
    """Everything that would change with a write to a member."""
    counters = [(m["writes"], m["written_bytes"], m["syncs"], m["discarded_bytes"]) for m in group.status()["members"]]
    times = [(os.stat(m).st_mtime_ns, os.stat(m).st_blocks) for m in group.members]
    with open(f"/proc/{group.daemon.pid}/io") as f:
        io = dict(line.split(": ") for line in f.read().splitlines())
    return counters, times, int(io["write_bytes"])


def idle(world, full):
    kit.need_libnbd()
    quiet = 300 if full else 12
    group = world.group(48 * MIB, 192 * MIB).serve()
    handle = group.connect()
    for at in range(0, 96 * MIB, MIB):
        handle.pwrite(os.urandom(MIB), at)
    for _ in range(3):
        for at in range(60 * MIB, 64 * MIB, MIB):
            handle.pread(MIB, at)
    # Not flushed: the daemon has to bring this to rest by itself.
    began = time.monotonic()
    before, since = observed(group), began
    while time.monotonic() - since < 10:
        time.sleep(0.5)
        now = observed(group)
        if now != before:
            before, since = now, time.monotonic()
        assert time.monotonic() - began < 120, "the group does not come to rest"
    rest = since - began
    assert rest <= 30 or not full, f"at rest only {rest:.0f} s after the last change"
    end = time.monotonic() + quiet
    while time.monotonic() < end:
        time.sleep(min(5, quiet))
        assert observed(group) == before, f"written while idle: {before} became {observed(group)}"
    handle.shutdown()
    group.stop()
    group.check()
    return f"at rest {rest:.1f} s after the last request, then nothing was written in {quiet} s"


TESTS = [("idle", idle)]
