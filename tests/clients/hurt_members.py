"""Members that fail while they are in use: a full disk, EIO, a failing flush, a server that is gone.

Each time: clients get errors, not hangs; the daemon goes on or latches and says why; nothing flushed is lost.
"""

import os
import random
import subprocess
import time

import content
import kit
import load
from bad_input import PANIC
from content import BLOCK
from kit import MIB

FAST, SLOW = 32 * MIB, 128 * MIB
VOLUME = 96 * MIB


class Abuse:
    """Random requests one after the other, some of which may fail; a ledger of what must hold all the same."""

    def __init__(self, group, seed=1):
        self.group, self.rng = group, random.Random(seed)
        self.ledger = content.Ledger(VOLUME // BLOCK)
        self.handle = group.connect()
        self.failed = {}

    def fill(self, first, last):
        for at in range(first, last, 256):
            self.change(at, 256)
        self.flush()

    def requests(self, count):
        for _ in range(count):
            dice, length = self.rng.random(), 1 << self.rng.randrange(7)
            first = self.rng.randrange(len(self.ledger.possible) - length)
            if dice < 0.6:
                self.change(first, length)
            elif dice < 0.9:
                self.read(first, length)
            else:
                self.flush()

    def attempt(self, what, act):
        """True if it succeeded; an error is counted, and the daemon must have lived through it."""
        try:
            act()
            return True
        except kit.nbd.Error as error:
            key = f"{what}: {error.errnum and os.strerror(error.errnum)}"
            self.failed[key] = self.failed.get(key, 0) + 1
            self.group.alive()
            assert not self.handle.aio_is_dead(), f"the connection was lost: {error}"
            return False

    def change(self, first, count):
        version = self.ledger.take(first, count, False)
        data = b"".join(content.block(i, version) for i in range(first, first + count))
        if self.attempt("write", lambda: self.handle.pwrite(data, first * BLOCK)):
            self.ledger.done(first, count, version)
        else:
            self.ledger.busy[first:first + count] = [False] * count

    def read(self, first, count):
        got = []
        if not self.attempt("read", lambda: got.append(self.handle.pread(count * BLOCK, first * BLOCK))):
            return
        for k in range(count):
            i, data = first + k, got[0][k * BLOCK:(k + 1) * BLOCK]
            known = self.ledger.possible[i]
            # What was acknowledged, or a version that failed later; nothing older.
            allowed = known[known.index(self.ledger.acknowledged[i]):] if self.ledger.acknowledged[i] in known else known
            assert any(data == content.block(i, v) for v in allowed) or self.torn(i, data), self.ledger.describe(i, data)

    def torn(self, i, data):
        """Several possible versions in one block: a failed write may have been done in part."""
        return self.ledger.is_torn(i, data)

    def flush(self):
        covered = self.ledger.flush_begins()
        if self.attempt("flush", self.handle.flush):
            self.ledger.flush_done(covered)
            return True
        self.ledger.dirty |= covered.keys()
        return False

    def after_recovery(self):
        """Restarts the daemon; all that was flushed must be there. Returns how a user was told of the trouble."""
        words = self.words()
        stopped = self.group.world.bimetal("stop", "t", "--force", "--timeout", "20", ok=False)
        try:
            self.group.daemon.wait(30)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the daemon does not stop: {stopped.stdout}{stopped.stderr}") from None
        assert not any(p in self.group.words() for p in PANIC), self.group.words()
        self.ledger.restart()
        self.group.serve()
        self.handle = self.group.connect()
        wrong = load.verify(self.handle, self.ledger)
        assert not wrong, f"{len(wrong)} blocks are wrong, the first: {wrong[:3]}"
        errors = sum(self.failed.values())
        self.requests(100)
        assert self.flush() and sum(self.failed.values()) == errors, f"not healthy after recovery: {self.failed}"
        self.handle.shutdown()
        self.group.stop()
        self.group.check()
        return words

    def words(self):
        """The state in words, for a user."""
        status = self.group.status()
        if os.environ.get("BIMETAL_SHOW"):
            print(self.group.world.bimetal("status", "t").stdout)
            print(self.group.words()[-1500:])
        errors = "/".join(str(m["errors"]) for m in status["members"])
        return f"latched: {status['latched'] or 'no'}; member errors {errors}; requests failed: {self.failed}"


def full_disk(tier):
    def test(world, full):
        kit.need_libnbd()
        if os.geteuid() != 0:
            raise kit.Skip("mounting a small tmpfs needs root")
        folder = world.path("small")
        os.mkdir(folder)
        kit.run("mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", folder)
        world.mounts.append(folder)
        members = [world.file("fast.img", FAST), world.file("slow.img", SLOW)]
        here = 0 if tier == "fast" else 1
        members[here] = world.file("small/member.img", (FAST, SLOW)[here])
        group = kit.Group(world, "t", members, ("--volume", f"main:{VOLUME}", "--reserve", "2MiB")).serve()
        abuse = Abuse(group)
        abuse.fill(0, 3072)
        abuse.fill(3072, len(abuse.ledger.possible))
        abuse.requests(300)
        assert abuse.failed, "the disk never filled up"
        abuse.words()
        kit.run("mount", "-o", "remount,size=256m", folder)
        return abuse.after_recovery()
    return test


def nbd_member(world, hurt, tier):
    """A group one of whose members is behind nbdkit, which fails as the file `trouble` exists."""
    kit.need_libnbd()
    kit.need("nbdkit")
    size = FAST if tier == "fast" else SLOW
    file, socket, trouble = world.file("remote.img", size), world.path("remote.sock"), world.path("trouble")
    command = ["nbdkit", "-f", "-U", socket, "--filter=error", "file", file, f"error-file={trouble}", *hurt]
    server = world.start(*command, stderr=subprocess.DEVNULL)
    kit.wait_until("nbdkit listens", 10, lambda: os.path.exists(socket))
    remote = f"nbd+unix:///?socket={socket}"
    members = [remote, world.file("slow.img", SLOW)] if tier == "fast" else [world.file("fast.img", FAST), remote]
    group = kit.Group(world, "t", members, ("--volume", f"main:{VOLUME}", "--reserve", "2MiB"))
    group.members = [m for m in members if m != remote] + [file]
    group.serve()
    return group, trouble, server, command


def failing(tier, *hurt):
    """Requests to one member fail with EIO for a while, some of them or all."""
    def test(world, full):
        group, trouble, _, _ = nbd_member(world, hurt, tier)
        abuse = Abuse(group)
        abuse.fill(0, len(abuse.ledger.possible))
        with open(trouble, "w"):
            abuse.requests(400)
            time.sleep(2)
            abuse.requests(100)
        os.remove(trouble)
        assert sum(m["errors"] for m in group.status()["members"]), "no error was ever counted"
        return abuse.after_recovery()
    return test


def gone_server(tier):
    """The server of a member is killed under load and comes back later."""
    def test(world, full):
        group, _, server, command = nbd_member(world, (), tier)
        abuse = Abuse(group)
        abuse.fill(0, len(abuse.ledger.possible))
        abuse.requests(100)
        server.kill()
        server.wait()
        began = time.monotonic()
        abuse.requests(100)
        assert time.monotonic() - began < 60, "requests hang when a member's server is gone"
        words = abuse.words()
        os.remove(world.path("remote.sock"))
        world.start(*command, stderr=subprocess.DEVNULL)
        kit.wait_until("nbdkit listens", 10, lambda: os.path.exists(world.path("remote.sock")))
        time.sleep(2)
        abuse.requests(100)
        abuse.after_recovery()
        return words
    return test


TESTS = [
    ("full-disk-slow", full_disk("slow")),
    ("full-disk-fast", full_disk("fast")),
    ("eio-write-slow", failing("slow", "error-pwrite-rate=100%")),
    ("eio-write-fast", failing("fast", "error-pwrite-rate=100%")),
    ("eio-read-slow", failing("slow", "error-pread-rate=100%")),
    ("eio-read-fast", failing("fast", "error-pread-rate=100%")),
    ("eio-some", failing("slow", "error-rate=5%")),
    ("gone-slow", gone_server("slow")),
    ("gone-fast", gone_server("fast")),
]
