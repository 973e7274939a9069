"""In the guest: a group on two dm-log-writes devices, an fsync-heavy load on a raw volume and on ext4, and marks.

    guest.py BIMETAL OUT FAST SLOW FASTLOG SLOWLOG SECONDS CUTS

Every worker counts the operations that it has begun and those that are acknowledged as durable. A mark in both logs says
how far each was, so the host can put a power cut there and knows what must have survived.
"""

import fcntl
import json
import mmap
import os
import random
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from stamp import BLOCK, block_of

RAW_BLOCKS = 5120          # per raw worker: 20 MiB
FILES, FILE_BLOCKS = 72, 64  # per file worker: 18 MiB in files of 256 KiB
BLKDISCARD = 0x1277
BURST, REST = 0.8, 0.5     # the mover promotes in quiet moments
PHASE = 7.0                # a set of hot data stays hot for so long


class Counters:
    """Two numbers per worker, and whether it is time to end; shared by all processes."""

    OVER = 4088

    def __init__(self, workers):
        self.map = mmap.mmap(-1, 4096)
        # Stored in one piece, which struct.pack_into does not do.
        self.numbers = memoryview(self.map).cast("Q")
        self.workers = workers

    def set(self, worker, which, value):
        self.numbers[worker * 2 + which] = value

    def get(self, which):
        return [self.numbers[w * 2 + which] for w in range(self.workers)]


    def end(self):
        self.map[self.OVER] = 1

    def ended(self):
        return self.map[self.OVER] != 0


BEGUN, DURABLE = 0, 1


class Worker:
    """Operations of one process, with a record of each."""

    def __init__(self, number, counters):
        self.number, self.counters = number, counters
        self.random = random.Random(1000 + number)
        self.ops = []

    def begin(self, *op):
        self.ops.append(op)
        self.counters.set(self.number, BEGUN, len(self.ops))
        return len(self.ops)

    def durable(self):
        self.counters.set(self.number, DURABLE, len(self.ops))

    def hot(self, count):
        """An index: mostly within an eighth of all, which moves on from phase to phase."""
        if self.random.random() < 0.1:
            return self.random.randrange(count)
        part = int(time.monotonic() / PHASE) * 5 + self.number * 3
        return (part * count // 8 + self.random.randrange(count // 8)) % count

    def run(self, out):
        self.prepare()
        while not self.counters.ended():
            now = time.monotonic() % (BURST + REST)
            if now > BURST:
                time.sleep(BURST + REST - now)
            self.step()
        with open("%s/worker%d.json" % (out, self.number), "w") as f:
            json.dump(self.ops, f)


class Raw(Worker):
    """Direct I/O on its part of the raw volume: batches of writes and trims, then a flush; or one FUA write."""

    def __init__(self, number, counters, device, first):
        Worker.__init__(self, number, counters)
        self.first = first
        self.fd = os.open(device, os.O_RDWR | os.O_DIRECT)
        self.dsync = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.buffer = mmap.mmap(-1, 64 * BLOCK)

    def write(self, fd, block, count):
        seq = self.begin("w", block, count)
        for i in range(count):
            self.buffer[i * BLOCK:(i + 1) * BLOCK] = block_of(self.number, 0, block + i, seq)
        os.pwritev(fd, [memoryview(self.buffer)[:count * BLOCK]], (self.first + block) * BLOCK)

    def trim(self, block, count):
        self.begin("t", block, count)
        fcntl.ioctl(self.fd, BLKDISCARD, struct.pack("<QQ", (self.first + block) * BLOCK, count * BLOCK))

    def flush(self):
        os.fsync(self.fd)
        self.durable()

    def prepare(self):
        for block in range(0, RAW_BLOCKS, 64):
            self.write(self.fd, block, 64)
        self.flush()

    def step(self):
        r = self.random
        kind = r.random()
        if kind < 0.2:
            self.write(self.dsync, self.hot(RAW_BLOCKS - 4), r.randint(1, 4))
            self.durable()
            return
        if kind < 0.3:  # use without change
            at = (self.first + self.hot(RAW_BLOCKS - 32)) * BLOCK
            os.preadv(self.fd, [memoryview(self.buffer)[:32 * BLOCK]], at)
            return
        for _ in range(r.randint(1, 4)):
            what = r.random()
            if what < 0.08:
                self.trim(self.hot(RAW_BLOCKS // 32 - 2) * 32 + r.choice([0, 0, 5]), r.choice([32, 64, 7]))
            elif what < 0.2:
                self.write(self.fd, self.hot(RAW_BLOCKS - 64), r.randint(20, 64))
            else:
                self.write(self.fd, self.hot(RAW_BLOCKS - 8), r.randint(1, 8))
        self.flush()


class Files(Worker):
    """Files on ext4: each operation is made durable before the next one begins."""

    def __init__(self, number, counters, folder):
        Worker.__init__(self, number, counters)
        self.folder = "%s/w%d" % (folder, number)
        os.mkdir(self.folder)
        self.dir = os.open(self.folder, os.O_RDONLY)
        os.fsync(os.open(folder, os.O_RDONLY))
        self.there = [False] * FILES

    def name(self, file):
        return "%s/f%d" % (self.folder, file)

    def put(self, path, flags, file, first, count, seq):
        fd = os.open(path, os.O_WRONLY | flags, 0o644)
        data = b"".join(block_of(self.number, file + 1, first + i, seq) for i in range(count))
        os.pwrite(fd, data, first * BLOCK)
        os.fsync(fd)
        os.close(fd)

    def create(self, file):
        seq = self.begin("c", file)
        self.put(self.name(file), os.O_CREAT | os.O_EXCL, file, 0, FILE_BLOCKS, seq)
        os.fsync(self.dir)
        self.there[file] = True
        self.durable()

    def replace(self, file):
        seq = self.begin("r", file)
        self.put(self.folder + "/new", os.O_CREAT | os.O_TRUNC, file, 0, FILE_BLOCKS, seq)
        os.rename(self.folder + "/new", self.name(file))
        os.fsync(self.dir)
        self.durable()

    def remove(self, file):
        self.begin("u", file)
        os.unlink(self.name(file))
        os.fsync(self.dir)
        self.there[file] = False
        self.durable()

    def change(self, file):
        count = self.random.randint(1, 6)
        first = self.random.randrange(FILE_BLOCKS - count + 1)
        seq = self.begin("w", file, first, count)
        self.put(self.name(file), 0, file, first, count, seq)
        self.durable()

    def prepare(self):
        for file in range(FILES):
            self.create(file)

    def step(self):
        file = self.hot(FILES)
        kind = self.random.random()
        if not self.there[file]:
            self.create(file)
        elif kind < 0.04:
            self.remove(file)
        elif kind < 0.1:
            self.replace(file)
        else:
            self.change(file)


class Log:
    """One dm-log-writes device: marks by ioctl, and beacons, which are plain writes to bytes that members leave alone."""

    TARGET_MSG = 0xC138FD0E

    def __init__(self, name):
        self.name = name.encode()
        self.control = os.open("/dev/mapper/control", os.O_RDWR)
        self.fd = os.open("/dev/mapper/" + name, os.O_RDWR | os.O_DIRECT)
        self.buffer = mmap.mmap(-1, BLOCK)

    def mark(self, text):
        message = struct.pack("<Q", 0) + b"mark " + text.encode() + b"\0"
        size = 312 + len(message)
        header = struct.pack("<3I5I2IQ128s129s7x", 4, 0, 0, size, 312, 0, 0, 0, 0, 0, 0, self.name, b"")[:312]
        fcntl.ioctl(self.control, self.TARGET_MSG, bytearray(header + message))

    def beacon(self, number):
        self.buffer[:8] = struct.pack("<Q", number)
        os.pwritev(self.fd, [self.buffer], 0)

    def close(self):
        os.close(self.fd)
        os.close(self.control)


def run(*argv):
    """Runs a program to its end; its output is ours."""
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def set_up(bimetal, fast, slow, fast_log, slow_log):
    for name, device, log in (("fast", fast, fast_log), ("slow", slow, slow_log)):
        sectors = run("blockdev", "--getsz", device)
        run("dmsetup", "create", name, "--table", "0 %s log-writes %s %s" % (sectors, device, log))
    run(bimetal, "create", "cut", "--fast", "/dev/mapper/fast", "--slow", "/dev/mapper/slow", "--volume", "raw:48MiB",
        "--volume", "fs", "--reserve", "4MiB", "--yes")
    raw = run(bimetal, "attach", "cut/raw", "--via", "nbd")
    fs = run(bimetal, "attach", "cut/fs", "--via", "nbd")
    run("mkfs.ext4", "-q", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0", fs)
    os.makedirs("/run/mnt", exist_ok=True)
    run("mount", "-o", "discard", fs, "/run/mnt")
    return raw


def await_durable(counters, seconds=0.05):
    """Until a worker has been told that something is durable; without that, for so long."""
    before, end = counters.get(DURABLE), time.monotonic() + seconds
    while counters.get(DURABLE) == before and time.monotonic() < end:
        pass


def cuts(logs, count, seconds, counters, workers):
    """The marks. The second one on the fast member shows that nothing was made durable there between the first and the
    slow member's, so that all three stand for one moment.

    Every other one comes right behind an acknowledgement: what was promised too early is made good by the next flush,
    a moment later. The beacons, which take a while, come behind the marks there."""
    fast, slow = logs
    rnd = random.Random(7)
    text = lambda numbers: "/".join(map(str, numbers))
    for number in range(count):
        time.sleep(rnd.random() * 2 * seconds / count)
        prompt = number % 2 == 1
        beacons = lambda: [log.beacon(number) for log in logs]
        await_durable(counters) if prompt else beacons()
        name = "cut,%d,%s" % (number, text(counters.get(DURABLE)))
        fast.mark(name)
        slow.mark(name)
        if prompt:
            beacons()
        fast.mark("end,%d,%s" % (number, text(counters.get(BEGUN))))
        if any(os.waitpid(pid, os.WNOHANG)[0] for pid in workers):
            sys.exit("a worker ended too early")


def main(bimetal, out, fast, slow, fast_log, slow_log, seconds, count):
    seconds, count = float(seconds), int(count)
    raw = set_up(bimetal, fast, slow, fast_log, slow_log)
    counters = Counters(4)
    make = [
        lambda: Raw(0, counters, raw, 0),
        lambda: Raw(1, counters, raw, RAW_BLOCKS),
        lambda: Files(2, counters, "/run/mnt"),
        lambda: Files(3, counters, "/run/mnt"),
    ]
    running = []
    for worker in make:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                worker().run(out)
                code = 0
            finally:
                os._exit(code)
        running.append(pid)
    logs = Log("fast"), Log("slow")
    cuts(logs, count, seconds, counters, running)
    counters.end()
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in running]
    status = json.loads(run(bimetal, "status", "cut", "--json"))
    with open(out + "/status.json", "w") as f:
        json.dump(status, f)
    for log in logs:
        log.mark("over")
        log.close()
    if status["latched"] or any(codes):
        sys.exit("the load failed: workers %s, latched: %s" % (codes, status["latched"]))
    mover = status["mover"]
    print("load: %d cut marks, %s operations; %d chunks promoted, %d demoted, %d moves cancelled, %d commits" % (
        count, "+".join(map(str, counters.get(BEGUN))), mover["promoted_chunks"], mover["demoted_chunks"],
        mover["cancelled_chunks"], status["commits"]), flush=True)
    if min(mover["promoted_chunks"], mover["demoted_chunks"]) < count // 4:
        sys.exit("too few moves: the cuts would not see them")
    run("umount", "/run/mnt")
    run(bimetal, "stop", "cut", "--timeout", "60")
    for name in "fast", "slow":
        run("dmsetup", "remove", name)


if __name__ == "__main__":
    main(*sys.argv[1:])
