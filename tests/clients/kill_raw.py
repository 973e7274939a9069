"""kill -9 of the daemon under an fsync-heavy load on the raw device, again and again: nothing flushed is lost."""

import random
import time

import content
import kit
import load
from kit import MIB

FAST, SLOW = 48 * MIB, 256 * MIB
# The bar for the time from the start of the daemon to its first answered read.
RECOVERY_SECONDS = 2.0


def first_read(group):
    """Starts the daemon; the seconds until a read was answered."""
    began = time.monotonic()
    group.spawn()
    while True:
        group.alive()
        try:
            handle = group.connect()
            handle.pread(4096, 0)
            return time.monotonic() - began, handle
        except kit.nbd.Error:
            assert time.monotonic() - began < 30, f"the daemon does not serve:\n{group.words()}"
            time.sleep(0.005)


def kill_raw(world, full):
    kit.need_libnbd()
    rounds = 50 if full else 2
    group = world.group(FAST, SLOW, "--sector", "512", "--reserve", "8MiB")
    rng = random.Random(20)
    group.serve("--commit-interval", "1")
    size = group.connect().get_size()
    ledger = content.Ledger(size // content.BLOCK)
    worst, promoted, demoted, torn = 0, 0, 0, 0
    for turn in range(rounds):
        # Without the thread that flushes all the time what FUA promised stands alone.
        running = load.Load(group.uri, ledger, turn, flushers=turn % 2).start()
        time.sleep(rng.uniform(0.3, 3.0))
        mover = group.status()["mover"]
        promoted, demoted = promoted + mover["promoted_chunks"], demoted + mover["demoted_chunks"]
        time.sleep(rng.uniform(0, 0.05))
        group.kill()
        running.join()
        group.check()
        ledger.restart()
        seconds, handle = first_read(group)
        worst = max(worst, seconds)
        wrong = load.verify(handle, ledger)
        assert not wrong, f"round {turn}: {len(wrong)} blocks are wrong, the first: {wrong[:5]}"
        torn += len(ledger.torn)
        handle.shutdown()
    group.stop()
    group.check()
    assert worst < RECOVERY_SECONDS, f"a recovery took {worst:.2f} s"
    assert ledger.writes > 0 and ledger.flushes > 0, f"no load: {ledger.writes} writes, {ledger.flushes} flushes"
    if full:
        assert promoted and demoted, f"nothing moved: {promoted} promotions, {demoted} demotions"
    return (f"{rounds} kills, {ledger.writes} writes, {ledger.zeroings} trims and zeroings, {ledger.flushes} flushes, "
            f"{promoted} chunks promoted, {demoted} demoted, {torn} torn in flight; worst recovery {worst * 1000:.0f} ms")


TESTS = [("kill-raw", kill_raw)]
