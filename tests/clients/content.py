"""Numbered content of blocks, and the ledger of what each block may hold."""

import struct
import threading

BLOCK, SECTOR = 4096, 512
ZERO = b"\0" * BLOCK


def block(number, version):
    """The 4 KiB that version `version` of block `number` consists of; version 0 and negative ones are zeros."""
    return struct.pack("<QQ", number, version) * (BLOCK // 16) if version > 0 else ZERO


class Ledger:
    """For each block the versions that it may hold: the newest flushed one, and what was issued since.

    A version is counted from 1 for data; zeroing (TRIM, WRITE_ZEROES, never written) is a negative one.
    """

    def __init__(self, blocks):
        self.lock = threading.Lock()
        self.possible = [[0] for _ in range(blocks)]
        self.acknowledged = [0] * blocks
        self.busy = [False] * blocks
        self.dirty = set()
        self.torn = []
        self.counter = 0
        self.flushes = self.writes = self.zeroings = 0

    def take(self, first, count, zero):
        """Issues a change of a range; its version, or None if another one is under way there."""
        with self.lock:
            if any(self.busy[first:first + count]):
                return None
            self.counter += 1
            version = -self.counter if zero else self.counter
            for i in range(first, first + count):
                self.busy[i] = True
                self.possible[i].append(version)
            return version

    def done(self, first, count, version, durable=False):
        """A change was acknowledged, with `durable` by FUA."""
        with self.lock:
            for i in range(first, first + count):
                self.busy[i] = False
                self.acknowledged[i] = version
                if durable:
                    self.possible[i] = [version]
                    self.dirty.discard(i)
                else:
                    self.dirty.add(i)
            if version > 0:
                self.writes += 1
            else:
                self.zeroings += 1

    def flush_begins(self):
        """What a flush that is sent now covers."""
        with self.lock:
            covered = {i: self.acknowledged[i] for i in self.dirty}
            self.dirty = set()
            return covered

    def flush_done(self, covered):
        with self.lock:
            self.flushes += 1
            for i, version in covered.items():
                known = self.possible[i]
                if version in known:
                    self.possible[i] = known[known.index(version):]

    def read(self, first, data):
        """Compares what was read after a crash and takes it as the state from here on; returns the wrong blocks."""
        wrong = []
        for k in range(len(data) // BLOCK):
            i, got = first + k, data[k * BLOCK:(k + 1) * BLOCK]
            found = next((v for v in reversed(self.possible[i]) if block(i, v) == got), None)
            if found is None and self.is_torn(i, got):
                self.torn.append(i)
            elif found is None:
                wrong.append(self.describe(i, got))
            else:
                self.possible[i] = [found]
                self.acknowledged[i] = found
            self.busy[i] = False
        return wrong

    def is_torn(self, i, got):
        """Sectors of several versions, all of them possible: a write in flight that the crash cut."""
        sectors = {block(i, v)[:SECTOR] for v in self.possible[i]}
        return len(sectors) > 1 and all(got[k:k + SECTOR] in sectors for k in range(0, BLOCK, SECTOR))

    def describe(self, i, got):
        n, version = struct.unpack("<QQ", got[:16])
        whole = "" if got == (struct.pack("<QQ", n, version) * (BLOCK // 16)) else ", and it is not of one piece"
        return f"block {i} holds version {version} of block {n}{whole}; possible: {self.possible[i][-5:]}"

    def restart(self):
        """After a crash nothing is under way; what each block holds is decided by reading it."""
        self.dirty = set()
        self.torn = []
