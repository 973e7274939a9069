"""fio verifies what it wrote, with trims beside it, while chunks move both ways; proved by the status counters."""

import threading
import time

import content
import kit
import load
from kit import MIB


def fio_verify(world, full):
    kit.need("fio")
    if "nbd" not in kit.run("fio", "--enghelp").stdout.split():
        raise kit.Skip("this fio has no NBD engine")
    seconds = 45 if full else 4
    group = world.group(64 * MIB, 384 * MIB, "--reserve", "8MiB", "--sector", "512").serve("--commit-interval", "1")
    common = ["--ioengine=nbd", f"--uri={group.uri}", "--time_based", f"--runtime={seconds}", "--thread",
              "--verify_state_save=0"]
    verified = ["--rw=randrw", "--bsrange=512-256k", "--blockalign=512", "--verify=crc32c", "--verify_fatal=1",
                "--verify_backlog=256", "--iodepth=8", "--norandommap=0"]
    jobs = []
    # Regions of jobs do not overlap; together they are several times the fast tier.
    for i, distribution in enumerate(("zipf:1.2", "zoned:60/5:40/95", "random")):
        jobs += [f"--name=verify{i}", f"--offset={i * 100 * MIB}", f"--size={100 * MIB}", *verified,
                 f"--random_distribution={distribution}"]
        if distribution.startswith("zipf"):
            # Without a map of what was written a skewed choice may come back to a block: then each write is
            # checked by a verifying read right behind it.
            jobs += ["--norandommap=1", "--verify_backlog=1"]
    jobs += ["--name=trims", f"--offset={310 * MIB}", f"--size={60 * MIB}", "--rw=randtrimwrite", "--bsrange=512-256k",
             "--blockalign=512", "--iodepth=4", "--norandommap=1"]
    # What is hot differs from round to round; a short rest lets the mover begin, and the next round runs beside it.
    for turn in range(6 if full else 1):
        out = kit.run("fio", *common, f"--randseed={turn + 1}", *jobs, timeout=seconds + 400, cwd=world.dir)
        assert "verify:" not in out.stderr and "crc32c" not in out.stderr, out.stderr[-3000:]
        mover = group.status()["mover"]
        if turn > 0 and mover["promoted_chunks"] and mover["demoted_chunks"]:
            break
        time.sleep(1)
    return finish(group, full)


def oracle_load(world, full):
    """The same mix from a client with a ledger of its own: every read is compared, trims and zeroing included."""
    kit.need_libnbd()
    group = world.group(48 * MIB, 256 * MIB, "--reserve", "8MiB").serve("--commit-interval", "1")
    handle = group.connect()
    ledger = content.Ledger(handle.get_size() // content.BLOCK)
    running = load.Load(group.uri, ledger, 77).start()
    threading.Event().wait(60 if full else 3)
    assert all(t.is_alive() for t in running.threads), running.faults[:3]
    running.join()
    wrong = load.verify(handle, ledger)
    assert not wrong, wrong[:5]
    handle.shutdown()
    group.stop()
    group.serve()
    handle = group.connect()
    wrong = load.verify(handle, ledger)
    assert not wrong, f"after an orderly stop: {wrong[:5]}"
    handle.shutdown()
    group.stop()
    group.check()
    return f"{ledger.writes} writes, {ledger.zeroings} trims and zeroings, {ledger.flushes} flushes"


def finish(group, full):
    mover = group.status()["mover"]
    group.alive()
    group.stop()
    group.check()
    if full:
        assert mover["promoted_chunks"] and mover["demoted_chunks"], f"nothing moved: {mover}"
    return (f"chunks promoted {mover['promoted_chunks']}, demoted {mover['demoted_chunks']}, "
            f"moves cancelled by writes {mover['cancelled_chunks']}, failed {mover['failed_chunks']}")


TESTS = [("fio-verify", fio_verify), ("oracle-load", oracle_load)]
