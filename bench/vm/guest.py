"""In the guest: one contestant makes a volume of the fast and the slow disk, is filled, and put under a mixed load.

guest.py CONTESTANT PROGRAM FOLDER CONFIG.json; the figures go to FOLDER/CONTESTANT.json. Needs root, fio, dmsetup,
make-bcache and the modules that `vm.py` loads; the machine is thrown away afterwards.
"""

import json
import os
import sys
import time

from kit import fio, read, run, serve, until, write

# What fio opens, whoever made it: the logs name it.
VOLUME = "/run/volume"
SECTOR = 512
# Blocks of 64 KiB are what lvmcache(7) takes unless told otherwise.
CACHE_BLOCK = 128
META = 16 << 20


def table(name, text):
    run("dmsetup", "create", name, "--table", text)
    return f"/dev/mapper/{name}"


def forget(disk):
    """Nothing recognises what was on it."""
    run("dd", "if=/dev/zero", f"of={disk}", "bs=1M", "count=1", "oflag=direct")


class Plain:
    """A disk as it is."""

    def __init__(self, disk):
        self.disk = disk

    def start(self):
        return self.disk

    def go_cold(self):
        return self.disk

    def say(self):
        return ""


class DmCache:
    """dm-cache, smq, writeback."""

    def __init__(self, fast, slow, size):
        self.fast, self.slow, self.sectors = fast, slow, size // SECTOR
        self.data = int(run("blockdev", "--getsize64", fast)) - META

    def start(self):
        meta = table("meta", f"0 {META // SECTOR} linear {self.fast} 0")
        forget(meta)
        data = table("data", f"0 {self.data // SECTOR} linear {self.fast} {META // SECTOR}")
        return table("volume", f"0 {self.sectors} cache {meta} {data} {self.slow} {CACHE_BLOCK} 1 writeback smq 0")

    def go_cold(self):
        run("dmsetup", "suspend", "volume")
        run("dmsetup", "reload", "volume", "--table",
            f"0 {self.sectors} cache /dev/mapper/meta /dev/mapper/data {self.slow} {CACHE_BLOCK} 0 cleaner 0")
        run("dmsetup", "resume", "volume")
        until("the cache is clean", 600, lambda: self.dirty() == 0)
        for name in ("volume", "data", "meta"):
            run("dmsetup", "remove", "--retry", name)
        return self.start()

    def dirty(self):
        return int(run("dmsetup", "status", "volume").split()[13])

    def say(self):
        return run("dmsetup", "status", "volume")


class DmWritecache:
    """dm-writecache: writes only."""

    def __init__(self, fast, slow, size):
        self.fast, self.slow, self.sectors = fast, slow, size // SECTOR

    def start(self):
        forget(self.fast)
        return table("volume", f"0 {self.sectors} writecache s {self.slow} {self.fast} 4096 0")

    def go_cold(self):
        run("dmsetup", "message", "volume", "0", "flush")
        run("dmsetup", "remove", "--retry", "volume")
        return self.start()

    def say(self):
        return run("dmsetup", "status", "volume")


class Bcache:
    """bcache, writeback, as it is set up by default but for that."""

    def __init__(self, fast, slow):
        self.fast, self.slow = fast, slow
        self.dir = "/sys/block/bcache0/bcache"

    def start(self):
        run("make-bcache", "--wipe-bcache", "-B", self.slow)
        self.register(self.slow)
        until("the device", 30, lambda: os.path.exists("/dev/bcache0"))
        self.attach()
        return "/dev/bcache0"

    @staticmethod
    def register(disk):
        try:
            write("/sys/fs/bcache/register", disk)
        except OSError:
            # It is refused where make-bcache has done so; whoever calls waits for what must come of it.
            pass

    def attach(self):
        forget(self.fast)
        # Buckets of the default size would be too few for it on a small disk.
        made = run("make-bcache", "--wipe-bcache", "--bucket", "128k", "-C", self.fast)
        uuid = next(line.split()[-1] for line in made.splitlines() if line.startswith("Set UUID"))
        self.register(self.fast)
        until("the cache set", 30, lambda: os.path.exists(f"/sys/fs/bcache/{uuid}"))
        write(f"{self.dir}/attach", uuid)
        write(f"{self.dir}/cache_mode", "writeback")
        # A fast disk that is emulated may seem congested to it, and would be passed by.
        for kind in ("read", "write"):
            write(f"/sys/fs/bcache/{uuid}/congested_{kind}_threshold_us", "0")
        self.uuid = uuid

    def go_cold(self):
        write(f"{self.dir}/detach", "1")
        until("the cache is clean", 600, lambda: read(f"{self.dir}/state") == "no cache")
        write(f"/sys/fs/bcache/{self.uuid}/unregister", "1")
        until("the cache set is gone", 60, lambda: not os.path.exists(f"/sys/fs/bcache/{self.uuid}"))
        self.attach()
        return "/dev/bcache0"

    def say(self):
        names = ("state", "dirty_data", "stats_total/cache_hit_ratio", "stats_total/cache_bypass_hits",
                 "stats_total/cache_bypass_misses")
        return ", ".join(f"{n} {read(f'{self.dir}/{n}')}" for n in names)


class Bimetal:
    """Bimetal through one of its exports. It has no cache to drop: what lies on the fast disk after the fill is a part
    of the data."""

    def __init__(self, program, via, fast, slow, size):
        self.program, self.via, self.fast, self.slow, self.size = program, via, fast, slow, size

    def start(self):
        serve(self.program, self.fast, self.slow, str(self.size))
        return run(self.program, "attach", "tank/main", "--via", self.via).strip()

    def go_cold(self):
        return os.path.realpath(VOLUME)

    def say(self):
        return run(self.program, "status", "tank")


def contestant(name, program, size):
    fast, slow = os.environ["DISK_fast"], os.environ["DISK_slow"]
    if name.startswith("bimetal-"):
        return Bimetal(program, name.split("-")[1], fast, slow, size)
    return {
        "slow": lambda: Plain(slow),
        "dm-cache": lambda: DmCache(fast, slow, size),
        "dm-writecache": lambda: DmWritecache(fast, slow, size),
        "bcache": lambda: Bcache(fast, slow),
    }[name]()


def use(device):
    if os.path.lexists(VOLUME):
        os.unlink(VOLUME)
    os.symlink(device, VOLUME)


def fill(size):
    done = fio(f"--filename={VOLUME}", "--rw=write", "--bs=1M", "--iodepth=4", f"--size={size}", "--end_fsync=1",
               "--randrepeat=1", "--refill_buffers")
    return {"mb_per_s": done["bw_bytes"] / 1e6}


def phase(log, seconds, depth):
    """One phase of the load: a log of requests, as far as they get in the time."""
    done = fio(f"--read_iolog={log}", f"--iodepth={depth}", f"--runtime={seconds}", "--replay_no_stall=1")
    if done["runtime"] < seconds * 900:
        raise RuntimeError(f"{log} was used up after {done['runtime']} ms")
    p = done["lat_ns"]["percentile"]
    return {"iops": done["iops"], "requests": done["total_ios"],
            **{f"p{n:g}_ms": p[f"{n:.6f}"] / 1e6 for n in (50, 99, 99.9)}}


def main():
    name, program, folder, config = sys.argv[1:]
    c = json.loads(read(config))
    who = contestant(name, program, c["size"])
    use(who.start())
    result = {"contestant": name, "fill": fill(c["size"])}
    use(who.go_cold())
    time.sleep(c["settle"])
    result["cold"] = phase(c["logs"]["cold"], c["cold"], c["depth"])
    result["warming"] = phase(c["logs"]["warm"], c["warm"], c["depth"])
    time.sleep(c["idle"])
    result["before"] = who.say()
    result["warm"] = phase(c["logs"]["measured"], c["measured"], c["depth"])
    result["after"] = who.say()
    write(os.path.join(folder, name + ".json"), json.dumps(result))


main()
