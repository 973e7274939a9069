"""An fsync-heavy load over NBD whose every acknowledgement is kept in a ledger."""

import errno
import random
import threading

import content
import kit
from content import BLOCK

if kit.nbd:
    from kit import nbd

# Blocks that one thread rewrites again and again before it moves on: this is what is promoted.
HOT_BLOCKS = 2048
HOT_STEPS = 1500


class Load:
    """Threads with a connection each that write, zero, trim, flush and read back until the daemon is gone."""

    def __init__(self, uri, ledger, seed, writers=4, flushers=1, max_blocks=64):
        self.uri, self.ledger, self.max_blocks = uri, ledger, max_blocks
        self.stop = threading.Event()
        self.faults = []
        self.threads = [threading.Thread(target=self.guard, args=(self.write, seed * 100 + i)) for i in range(writers)]
        self.threads += [threading.Thread(target=self.guard, args=(self.flush, 0)) for _ in range(flushers)]

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def join(self):
        """Ends the load; what it found wrong is an error."""
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive(), "a client hangs"
        assert not self.faults, self.faults[:5]

    def guard(self, body, seed):
        handle = nbd.NBD()
        try:
            handle.connect_uri(self.uri)
            body(handle, random.Random(seed))
        except nbd.Error as error:
            # A daemon that is killed loses its connections; any answer that is an error is a fault.
            gone = error.errnum in (None, 0, errno.ENOTCONN, errno.ECONNRESET, errno.EPIPE, errno.EINVAL, errno.ESHUTDOWN)
            if not gone or not (handle.aio_is_dead() or handle.aio_is_closed() or handle.aio_is_created()):
                self.faults.append(f"{error} (errno {error.errnum})")
        except AssertionError as error:
            self.faults.append(str(error))

    def write(self, handle, rng):
        blocks, step, hot = len(self.ledger.possible), 0, 0
        while not self.stop.is_set():
            if step % HOT_STEPS == 0:
                hot = rng.randrange(max(1, blocks - HOT_BLOCKS))
            step += 1
            count = min(self.max_blocks, 1 << rng.randrange(7))
            if rng.random() < 0.8:
                first = hot + rng.randrange(HOT_BLOCKS - count)
            else:
                first = rng.randrange(blocks - count)
            self.one(handle, rng, min(first, blocks - count), count)

    def one(self, handle, rng, first, count):
        """One request on a range where nothing else is under way."""
        ledger, dice = self.ledger, rng.random()
        if dice < 0.15:
            return self.read(handle, first, count)
        zero = dice < 0.22
        version = ledger.take(first, count, zero)
        if version is None:
            return
        fua = nbd.CMD_FLAG_FUA if rng.random() < 0.1 else 0
        if dice < 0.18:
            handle.trim(count * BLOCK, first * BLOCK, fua)
        elif zero:
            handle.zero(count * BLOCK, first * BLOCK, fua)
        else:
            handle.pwrite(b"".join(content.block(i, version) for i in range(first, first + count)), first * BLOCK, fua)
        ledger.done(first, count, version, fua != 0)

    def read(self, handle, first, count):
        ledger = self.ledger
        with ledger.lock:
            if any(ledger.busy[first:first + count]):
                return
            for i in range(first, first + count):
                ledger.busy[i] = True
            expected = b"".join(content.block(i, ledger.acknowledged[i]) for i in range(first, first + count))
        try:
            data = handle.pread(count * BLOCK, first * BLOCK)
            assert data == expected, f"read of blocks {first}+{count} is not what was acknowledged"
        finally:
            with ledger.lock:
                ledger.busy[first:first + count] = [False] * count

    def flush(self, handle, rng):
        while not self.stop.is_set():
            covered = self.ledger.flush_begins()
            handle.flush()
            self.ledger.flush_done(covered)


def verify(handle, ledger):
    """Reads every block, and writes again those that a write in flight left torn; returns what is wrong."""
    wrong, step = [], 256
    for first in range(0, len(ledger.possible), step):
        count = min(step, len(ledger.possible) - first)
        wrong += ledger.read(first, handle.pread(count * BLOCK, first * BLOCK))
    for i in ledger.torn:
        handle.pwrite(content.ZERO, i * BLOCK, nbd.CMD_FLAG_FUA)
        ledger.possible[i], ledger.acknowledged[i] = [0], 0
    return wrong
