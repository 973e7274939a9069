"""kill -9 of the daemon under fsync-heavy work on a mounted ext4: every fsynced file is there afterwards."""

import errno
import hashlib
import os
import random
import threading
import time

import content
import kit
import kill_raw
from kit import MIB

WORKERS = 3
# What a file system says whose device is gone.
GONE = {errno.EIO, errno.EROFS, errno.EUCLEAN, errno.ENODEV, errno.ENXIO, errno.ESHUTDOWN}
# Each worker has a file of numbered blocks that it overwrites in place, some of them hot for a while.
NUMBERED_BLOCKS = 8192
HOT_BLOCKS = 512


class Worker(threading.Thread):
    """Writes, rewrites, renames and removes files, each step fsynced; keeps what was acknowledged."""

    def __init__(self, root, index, seed):
        super().__init__()
        self.folder = f"{root}/w{index}"
        self.rng = random.Random(seed)
        self.stop = threading.Event()
        # name -> the digests that it may have, None for absent; more than one while a step is not acknowledged.
        self.may_be = {}
        self.ledger = content.Ledger(NUMBERED_BLOCKS)
        self.hot = 0
        self.steps = 0
        # What has ended it.
        self.failure = None

    def run(self):
        try:
            while not self.stop.is_set():
                self.step()
                self.steps += 1
        except Exception as e:
            self.failure = e

    def check_end(self):
        """A device that dies with its daemon (kit.attach makes no other) fails what is under way, and ext4 with it: that step
        is in doubt, and may_be says so. Anything else is a fault."""
        gone = isinstance(self.failure, OSError) and self.failure.errno in GONE
        if self.failure and not gone:
            raise AssertionError(f"a worker ended by itself: {self.failure!r}") from self.failure

    def step(self):
        dice = self.rng.random()
        if dice < 0.6:
            return self.overwrite()
        dice = (dice - 0.6) / 0.4
        name = f"f{self.rng.randrange(60)}"
        known = self.may_be.get(name, [None])[0]
        if dice < 0.15 and known:
            self.change(name, [known, None], lambda path: os.remove(path), None)
        elif dice < 0.4:
            data = self.data()
            self.change(name, [known, digest(data)], lambda path: self.replace(path, data), digest(data))
        else:
            fresh = f"g{self.rng.randrange(10 ** 9)}"
            data = self.data()
            self.change(fresh, [None, ANY], lambda path: self.write(path, data), digest(data))
            for old in [n for n in self.may_be if n.startswith("g")][:-40]:
                self.change(old, [self.may_be[old][0], None], lambda path: os.remove(path), None)

    def change(self, name, in_doubt, act, after):
        self.may_be[name] = in_doubt
        act(f"{self.folder}/{name}")
        self.sync_folder()
        if after is None:
            del self.may_be[name]
        else:
            self.may_be[name] = [after]

    def overwrite(self):
        """A few numbered blocks, then fdatasync."""
        if self.steps % 200 == 0:
            self.hot = self.rng.randrange(NUMBERED_BLOCKS - HOT_BLOCKS)
        fd = os.open(f"{self.folder}/numbered", os.O_RDWR | os.O_CREAT)
        try:
            for _ in range(self.rng.randrange(1, 6)):
                count = self.rng.randrange(1, 33)
                first = self.rng.choice((self.hot, self.rng.randrange(NUMBERED_BLOCKS - HOT_BLOCKS)))
                first += self.rng.randrange(HOT_BLOCKS - count)
                version = self.ledger.take(first, count, False)
                data = b"".join(content.block(i, version) for i in range(first, first + count))
                os.pwrite(fd, data, first * content.BLOCK)
                self.ledger.done(first, count, version)
            covered = self.ledger.flush_begins()
            os.fdatasync(fd)
            self.ledger.flush_done(covered)
        finally:
            os.close(fd)

    def data(self):
        return self.rng.randbytes(1 << self.rng.randrange(9, 19))

    def write(self, path, data):
        with open(path, "wb", buffering=0) as f:
            f.write(data)
            os.fsync(f.fileno())

    def replace(self, path, data):
        self.write(path + ".new", data)
        os.rename(path + ".new", path)

    def sync_folder(self):
        fd = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def verify(self):
        """What is missing or wrong; what was in doubt is taken as it is."""
        wrong = []
        self.ledger.restart()
        if os.path.exists(f"{self.folder}/numbered"):
            with open(f"{self.folder}/numbered", "rb") as f:
                data = f.read()
            wrong += self.ledger.read(0, data.ljust(NUMBERED_BLOCKS * content.BLOCK, b"\0"))
        for name, possible in list(self.may_be.items()):
            try:
                with open(f"{self.folder}/{name}", "rb") as f:
                    found = digest(f.read())
            except FileNotFoundError:
                found = None
            if found not in possible and not (ANY in possible and found):
                wrong.append(f"{self.folder}/{name} is {'absent' if found is None else 'not what was fsynced'}")
            if found is None:
                del self.may_be[name]
            else:
                self.may_be[name] = [found]
        return wrong


# A file that was never fsynced may hold anything.
ANY = "any"


def digest(data):
    return hashlib.sha256(data).hexdigest()


def kill_mounted(world, full):
    kit.need_attach()
    kit.need_libnbd()
    kit.need("mkfs.ext4", "fsck.ext4")
    rounds = 50 if full else 2
    group = world.group(48 * MIB, 320 * MIB, "--reserve", "8MiB").serve("--commit-interval", "1")
    mount = world.path("mnt")
    os.mkdir(mount)
    world.mounts.append(mount)
    device = group.attach()
    kit.run("mkfs.ext4", "-q", device)
    rng = random.Random(9)
    workers, worst, files, steps, promoted, demoted = [], 0, 0, 0, 0, 0
    for turn in range(rounds):
        kit.run("mount", device, mount)
        workers = follow_up(mount, workers, turn)
        for worker in workers:
            worker.start()
        time.sleep(rng.uniform(0.3, 2.5))
        mover = group.status()["mover"]
        promoted, demoted = promoted + mover["promoted_chunks"], demoted + mover["demoted_chunks"]
        kit.wait_until("every worker has taken a step", 30, lambda: all(w.steps or w.failure for w in workers))
        failures = [w.failure for w in workers if w.failure]
        assert not failures, f"round {turn}: a worker failed while the daemon lived: {failures}"
        group.kill()
        for worker in workers:
            worker.stop.set()
            worker.join(60)
            assert not worker.is_alive(), "a process on the file system hangs after the death of the daemon"
            worker.check_end()
            assert worker.steps > 0, f"round {turn}: a worker did nothing"
            steps += worker.steps
        kit.run("umount", mount)
        kit.run("losetup", "-d", device, ok=False)
        group.check()
        seconds, handle = kill_raw.first_read(group)
        handle.shutdown()
        worst = max(worst, seconds)
        device = group.attach()
        kit.run("mount", device, mount)
        wrong = [w for worker in workers for w in worker.verify()]
        files += sum(len(worker.may_be) for worker in workers)
        assert not wrong, f"round {turn}: {wrong[:5]}"
        kit.run("umount", mount)
        kit.run("fsck.ext4", "-fn", device)
    group.detach()
    group.stop()
    group.check()
    assert worst < kill_raw.RECOVERY_SECONDS, f"a recovery took {worst:.2f} s"
    return (f"{rounds} kills, {steps} acknowledged steps, {files} files compared, {promoted} chunks promoted, "
            f"{demoted} demoted; worst recovery {worst * 1000:.0f} ms")


def follow_up(mount, before, turn):
    """New workers that know what the earlier ones left."""
    workers = [Worker(mount, i, turn * 10 + i) for i in range(WORKERS)]
    for i, worker in enumerate(workers):
        os.makedirs(worker.folder, exist_ok=True)
        if before:
            worker.may_be, worker.ledger = before[i].may_be, before[i].ledger
    os.sync()
    return workers


TESTS = [("kill-mounted", kill_mounted)]
