"""On the host: builds both members as each power cut left them, starts bimetal on them, and looks for what is missing.

    replay.py BIMETAL OUT FASTLOG SLOWLOG FASTSIZE SLOWSIZE WANTED WORKDIR

BIMETAL_JOBS processes share the work [one per processor]. Four kinds of cuts take turns: everything that was not flushed is gone; each such write is kept with even odds; each
4 KiB of it is; all of it is kept.
"""

import concurrent.futures
import os
import random
import signal
import subprocess
import sys
import time
from itertools import repeat

from dmlog import DISCARD, FLUSH, FUA, MARK, read_log
from oracle import History, RawHistory
from stamp import BLOCK

KINDS = ["all unflushed lost", "each unflushed write kept or lost", "each unflushed 4 KiB kept or lost", "all kept"]
BEACON_END = 65536  # members leave the first 64 KiB alone: writes there are the marks' beacons


class Member:
    """A log, and an image that follows it."""

    def __init__(self, log, size, image):
        self.entries, self.image, self.done = read_log(log), image, 0
        self.log = open(log, "rb")
        with open(image, "wb") as f:
            f.truncate(size)
        self.file = open(image, "r+b", buffering=0)

    def data(self, entry):
        self.log.seek(entry.data_at)
        return self.log.read(entry.length)

    def apply(self, entry, to, rnd):
        if entry.flags & DISCARD:
            # A discarded range may read as zeros or as before.
            if rnd.random() < 0.5:
                os.pwrite(to, bytes(entry.length), entry.at)
        elif not entry.flags & MARK and entry.length:
            os.pwrite(to, self.data(entry), entry.at)

    def advance(self, position, rnd):
        for entry in self.entries[self.done:position]:
            self.apply(entry, self.file.fileno(), rnd)
        self.done = position

    def unflushed(self, position, number):
        """Writes that had completed at the cut but were not durable: those before the beacon of this cut in the log."""
        found = []
        for entry in self.entries[position:]:
            if entry.at < BEACON_END and entry.length == BLOCK and not entry.flags & (MARK | DISCARD):
                beacon = int.from_bytes(self.data(entry)[:8], "little")
                return found if beacon == number else []
            if not entry.flags & (MARK | FUA) and entry.length:
                found.append(entry)
        return []

    def cut(self, kind, number, position, path, rnd):
        """The image as this cut leaves it; how many unflushed writes were kept and lost."""
        subprocess.run(["cp", "--sparse=always", self.image, path], check=True)
        kept = lost = 0
        to = os.open(path, os.O_RDWR)
        for entry in self.unflushed(position, number):
            pieces = [(0, entry.length)]
            if KINDS[kind].startswith("each unflushed 4"):
                pieces = [(at, BLOCK) for at in range(0, entry.length, BLOCK)]
            whole = entry.flags & DISCARD
            data = b"" if whole else self.data(entry)
            for at, length in pieces:
                if kind == 0 or (kind in (1, 2) and rnd.random() < 0.5):
                    lost += 1
                    continue
                kept += 1
                if whole:
                    self.apply(entry, to, rnd)
                else:
                    os.pwrite(to, data[at:at + length], entry.at + at)
        os.close(to)
        return kept, lost


def marks_of(entries):
    """{(kind, number): position in the log}"""
    split = ((i, e.mark.split(",")) for i, e in enumerate(entries) if e.mark and "," in e.mark)
    return {(words[0], int(words[1])): i for i, words in split}


def cut_points(fast, slow, entries, wanted):
    """Moments at which both logs are known: nothing became durable on the fast member around the slow member's mark.
    For each its number, the positions in both logs, and how far the workers were."""
    numbers = lambda position: [int(n) for n in entries[position].mark.split(",")[2].split("/")]
    found = []
    for kind, number in sorted(fast):
        first, second, other = fast[kind, number], fast.get(("end", number)), slow.get(("cut", number))
        if kind != "cut" or second is None or other is None:
            continue
        if all(e.flags & MARK for e in entries[first:second]):
            found.append((number, (first, other), numbers(first), numbers(second)))
    if len(found) > wanted:
        found = [found[i * len(found) // wanted] for i in range(wanted)]
    return found


class Failure(Exception):
    """A sentence about what went wrong with a cut."""


def run(argv, allowed=(0,), why=""):
    r = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
    if r.returncode not in allowed:
        raise Failure("%s (%s: status %d) %s" % (why, " ".join(argv[:2]), r.returncode, r.stdout[-600:].strip()))
    return r.stdout


def export(bimetal, work, members):
    """Starts the daemon on the members and copies both volumes out; the time that recovery took."""
    log = open(work + "/daemon.log", "w+")
    daemon = subprocess.Popen(
        [bimetal, "serve", "cut", "--member", *members], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        env=dict(os.environ, BIMETAL_RUN_DIR=work + "/run", BIMETAL_CONFIG_DIR=work + "/etc"))
    begun = time.monotonic()
    socket = work + "/run/cut/nbd.sock"
    try:
        while not os.path.exists(socket):
            if daemon.poll() is not None or time.monotonic() - begun > 30:
                log.seek(0)
                raise Failure("the daemon does not start: " + log.read()[-600:].strip())
            time.sleep(0.01)
        seconds = time.monotonic() - begun
        for volume in "raw", "fs":
            run(["nbdcopy", "nbd+unix:///%s?socket=%s" % (volume, socket), "%s/%s.img" % (work, volume)],
                why="volume %s cannot be read" % volume)
        daemon.send_signal(signal.SIGTERM)
        if daemon.wait(30):
            log.seek(0)
            raise Failure("the daemon ends with status %d: %s" % (daemon.returncode, log.read()[-600:]))
        return seconds
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()
        log.close()


def look(work, histories, begun):
    """Compares both volumes with what must be there; the number of blocks compared."""
    image = work + "/fs.img"
    run(["e2fsck", "-p", image], (0, 1), "the file system's journal cannot be replayed")
    run(["e2fsck", "-f", "-n", image], (0,), "the file system is damaged")
    files = work + "/files"
    run(["rm", "-rf", files])
    os.mkdir(files)
    run(["debugfs", "-R", "rdump / " + files, image], why="files cannot be read")
    wrong, compared = [], 0
    with open(work + "/raw.img", "rb") as f:
        raw = f.read()
    for history, limit in zip(histories, begun):
        place = raw if isinstance(history, RawHistory) else files
        sentences, blocks = history.check(place, limit)
        wrong += sentences
        compared += blocks
    if wrong:
        raise Failure("%d blocks are wrong, e.g. %s" % (len(wrong), "; ".join(wrong[:3])))
    return compared


class Tally:
    """What one process found."""

    def __init__(self):
        self.failed, self.kept, self.lost, self.compared, self.slowest = 0, 0, 0, 0, 0.0


def replay(bimetal, out, logs, sizes, points, work):
    """Every one of `points`, in order; prints what fails."""
    os.makedirs(work)
    pair = [Member(log, size, "%s/%d.base" % (work, i)) for i, (log, size) in enumerate(zip(logs, sizes))]
    images = [work + "/fast.img", work + "/slow.img"]
    histories = [History.load(worker, out) for worker in range(4)]
    discards, tally = random.Random(11), Tally()
    for number, positions, durable, begun in points:
        kind, rnd = number % len(KINDS), random.Random(number)
        for member, position, path in zip(pair, positions, images):
            member.advance(position, discards)
            kept, lost = member.cut(kind, number, position, path, rnd)
            tally.kept, tally.lost = tally.kept + kept, tally.lost + lost
        for history, count in zip(histories, durable):
            history.advance(count)
        try:
            tally.slowest = max(tally.slowest, export(bimetal, work, images))
            run([bimetal, "check", "--member", *images], why="check finds fault after recovery")
            tally.compared += look(work, histories, begun)
        except Failure as e:
            tally.failed += 1
            print("FAILED cut %d (%s): %s" % (number, KINDS[kind], e), flush=True)
    return tally


def main(bimetal, out, fast_log, slow_log, fast_size, slow_size, wanted, work):
    entries = [read_log(log) for log in (fast_log, slow_log)]
    marks = sum(1 for e in entries[0] if e.mark and e.mark.startswith("cut,"))
    points = cut_points(*map(marks_of, entries), entries[0], int(wanted))
    jobs = int(os.environ.get("BIMETAL_JOBS") or os.cpu_count() or 1)
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        parts = [points[i * len(points) // jobs:(i + 1) * len(points) // jobs] for i in range(jobs)]
        sizes = int(fast_size), int(slow_size)
        tallies = list(pool.map(replay, repeat(bimetal), repeat(out), repeat((fast_log, slow_log)), repeat(sizes),
                                parts, ["%s/%d" % (work, i) for i in range(jobs)]))
    total = lambda name: sum(getattr(t, name) for t in tallies)
    print("cuts: %d of %d marks used, %d failed; %d unflushed writes lost and %d kept, %d flushes in the logs; "
          "%d blocks compared; slowest recovery %.2f s" % (
              len(points), marks, total("failed"), total("lost"), total("kept"),
              sum(1 for log in entries for e in log if e.flags & FLUSH), total("compared"),
              max(t.slowest for t in tallies)))
    # Without beacons that match, every kind of cut would be the same: everything flushed, nothing else.
    idle = not total("lost") or not total("kept")
    if idle:
        print("FAILED: no unflushed write was lost, or none was kept: the cuts do not cut (do the beacons match?)")
    sys.exit(1 if total("failed") or idle or len(points) < int(wanted) else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
