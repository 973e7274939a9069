"""One member of a filled group dies: what is left is mounted read-only, and `rescue` must name every file that is hit."""

import errno
import hashlib
import json
import mmap
import os
import random
import time

import kit
from attached import mount_new
from kit import KIB, MIB

FAST, SLOW = 96 * MIB, 384 * MIB
# Shares of the whole group that the files fill.
LEVELS = {"low": 0.12, "half": 0.45, "high": 0.85}


def write_files(folder, count, total):
    """`count` files of `total` bytes together, most of them small; name -> digest."""
    rng = random.Random(count)
    weights = [rng.paretovariate(1.2) for _ in range(count)]
    scale = total / sum(weights)
    digests = {}
    for i, weight in enumerate(weights):
        name = f"{i % 40}/{i % 7}/file-{i}"
        os.makedirs(os.path.dirname(f"{folder}/{name}"), exist_ok=True)
        data = os.urandom(max(1, min(int(weight * scale), 8 * MIB)))
        with open(f"{folder}/{name}", "wb") as f:
            f.write(data)
        digests[name] = hashlib.sha256(data).hexdigest()
    return digests


def use(folder, names):
    """Reads some files again and again, so that they go up, and writes some anew."""
    chosen = random.Random(1).sample(sorted(names), min(60, len(names)))
    for _ in range(3):
        for name in chosen[:40]:
            with open(f"{folder}/{name}", "rb") as f:
                os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                f.read()
    renewed = {}
    for name in chosen[30:]:
        data = os.urandom(os.path.getsize(f"{folder}/{name}"))
        with open(f"{folder}/{name}", "r+b") as f:
            f.write(data)
            os.fsync(f.fileno())
        renewed[name] = hashlib.sha256(data).hexdigest()
    return renewed


def press_out(device, rounds):
    """Reads all over a part of the volume that would fill the fast tier, again and again, with pauses for the mover: then
    the file system's own structures, which nobody uses meanwhile, make room. Else nothing could be mounted without the
    fast member."""
    size, piece = int(kit.run("blockdev", "--getsize64", device).stdout), 128 * KIB
    first = size // 2 // piece
    places = list(range(first, first + (FAST + 16 * MIB) // piece))
    rng, page = random.Random(2), mmap.mmap(-1, 16384)
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    for _ in range(rounds):
        rng.shuffle(places)
        for place in places:
            os.preadv(fd, [page], place * piece)
        time.sleep(2.2)
    os.close(fd)


# How a file system is made, and mounted so that nothing is written to it.
# With more groups, what XFS keeps in each is used so seldom that it makes room, and a mount reads all of it.
ONE_GROUP = ("mkfs.xfs", "-q", "-f", "-d", "agcount=1", "--unsupported")
KINDS = {"ext4": (("mkfs.ext4", "-q", "-N", "24000"), "ro,noload"), "xfs": (ONE_GROUP, "ro,norecovery")}


def filled(world, full, level, name, press, kind):
    """A group with a file system full of files, not served any more; and what the files hold."""
    group = world.group(FAST, SLOW, "--reserve", "8MiB", name=name).serve()
    device, mount = mount_new(world, group, KINDS[kind][0], f"{name}-mnt")
    digests = write_files(mount, 10000 if full else 600, int((FAST + SLOW) * LEVELS[level]))
    kit.run("sync", "-f", mount)
    digests.update(use(mount, digests))
    kit.run("umount", mount)
    if press:
        press_out(device, 15)
    return group, device, mount, digests


def digest_of(path):
    """None if it cannot be read."""
    try:
        with open(path, "rb") as f:
            return hashlib.file_digest(f, "sha256").hexdigest()
    except OSError as e:
        assert e.errno in (errno.EIO, errno.ENOENT, errno.EUCLEAN, errno.EBADMSG), f"{path}: {e}"
        return None


def judge(mount, digests, listed):
    """Compares every file; what differs must be listed, or lie below a folder that is. Returns what was found."""
    paths = {h["path"] for h in listed}
    unreadable = {h["path"] for h in listed if h["unreadable"] or h["folder"]}

    def is_listed(name):
        parents = ["."] + ["/".join(name.split("/")[:i]) for i in range(1, name.count("/") + 1)]
        return name in paths or any(p in unreadable for p in parents)
    whole = hit = 0
    for name, digest in digests.items():
        same = digest_of(f"{mount}/{name}") == digest
        if not is_listed(name):
            assert same, f"{name} differs and is not listed"
            whole += 1
        elif not same:
            hit += 1
    return whole, hit


def check_map(path, size):
    """The map covers the volume without gaps; bytes by status."""
    sums, at = {}, 0
    with open(path, encoding="ascii") as f:
        lines = [line.split() for line in f if not line.startswith("#")]
    for offset, length, status in lines[1:]:
        assert int(offset, 0) == at, f"the map has a gap at {at}"
        at += int(length, 0)
        sums[status] = sums.get(status, 0) + int(length, 0)
    assert at == size, f"the map ends at {at} of {size}"
    return sums


def reads_kept_copies(group, runs):
    """What has only an old copy is an error as long as nobody asked for it, and readable with `--kept-copies`. Returns how
    many runs were tried."""
    tried = [r["offset_bytes"] for r in runs if r["fate"] == "kept-copy"][:8]
    for options in ([], ["--kept-copies"]) if tried else ():
        group.serve("--read-only", "--allow-missing", *options)
        fd = os.open(group.attach(), os.O_RDONLY | os.O_DIRECT)
        page = mmap.mmap(-1, 4096)
        for at in tried:
            try:
                read = os.preadv(fd, [page], at) == 4096
            except OSError as e:
                assert e.errno == errno.EIO, f"{at}: {e}"
                read = False
            assert read == bool(options), f"an old copy at {at} {'is' if read else 'cannot be'} read with {options}"
        os.close(fd)
        group.detach()
        group.stop()
    return len(tried)


def mounted(group, mount, kind, must, runs):
    """Serves what is left and mounts it; False if what a mount reads first is lost, which a filled fast tier gives away."""
    group.serve("--read-only", "--allow-missing")
    done = kit.run("mount", "-o", KINDS[kind][1], group.attach(), mount, ok=False)
    if done.returncode == 0:
        return True
    assert not must, f"cannot be mounted: {done.stderr}"
    hurt = [r for r in runs if r["fate"] in ("lost", "perhaps-lost", "kept-copy") and r["offset_bytes"] < 16 * MIB]
    assert hurt, f"cannot be mounted, though all that a mount needs is there: {done.stderr}"
    return False


def judged(mount, digests, files):
    """Holds what `rescue` says of the files against the files; then unmounts them."""
    listed = files["hit"]
    assert len({h["path"] for h in listed}) == len(listed) <= files["seen"], "something is counted twice"
    untold = [h for h in listed if "not supported" in (h["unreadable"] or "")]
    assert not untold, f"listed though nothing is wrong with it: {untold[:3]}"
    whole, hit = judge(mount, digests, listed)
    words = f", {whole} files whole, {hit} of {len(listed)} listed differ"
    kit.run("umount", mount)
    return words


def rescued(world, group, mount, digests, offline, kind, must):
    """Everything that is asked of a group with a member missing; if it `must`, the file system can still be mounted."""
    assert offline["missing"], "nobody misses the member"
    could = mounted(group, mount, kind, must, offline["volumes"][0]["runs"])
    volume = group.status()["volumes"][0]
    map_file = world.path(f"{group.name}.map")
    command = ["rescue", f"{group.name}/main", "--map", map_file, "--json"]
    found = json.loads(world.bimetal(*command, *(("--files", mount) if could else ())).stdout)
    assert found["served"] and found["volumes"] == offline["volumes"], "the daemon and the members say different things"
    sums, state = check_map(map_file, volume["size_bytes"]), found["volumes"][0]
    assert sums.get("-", 0) == state["lost_bytes"] + state["perhaps_lost_bytes"] + state["kept_copy_bytes"]
    assert sums.get("?", 0) == state["possibly_stale_bytes"]
    words = ", ".join(f"{state[key] // MIB} MiB {told}" for key, told in (
        ("lost_bytes", "lost"), ("perhaps_lost_bytes", "perhaps"), ("kept_copy_bytes", "old copies"),
        ("possibly_stale_bytes", "may be old")))
    if could:
        words += judged(mount, digests, found["files"])
    else:
        words += ", not to be mounted"
    again = world.bimetal(*command[:2], "--map", world.path("other.map"), "--files", world.dir, ok=False)
    assert again.returncode == 1 and not os.path.exists(world.path("other.map")), "a map of what was refused"
    group.detach()
    group.stop()
    return f"{words}, {reads_kept_copies(group, state['runs'])} old copies read", state["kept_copy_bytes"]


def repaired(world, group, tier, mount, digests):
    """The member is gone for good, and the group goes on with a new one: what `rescue` calls whole is whole, on a file system
    that was checked and is written to."""
    at = 0 if tier == "fast" else 1
    size = os.path.getsize(group.members[at])
    os.remove(group.members[at])
    # Chunks have moved since it was asked the first time.
    runs = json.loads(world.bimetal("rescue", group.name, "--json").stdout)["volumes"][0]["runs"]
    listed = None
    if mounted(group, mount, "ext4", False, runs):
        found = world.bimetal("rescue", f"{group.name}/main", "--files", mount, "--json")
        listed = json.loads(found.stdout)["files"]["hit"]
        kit.run("umount", mount)
    group.detach()
    group.stop()
    group.members[at] = world.file(f"{group.name}-new.img", size)
    saved = world.path(f"{group.name}.saved")
    world.bimetal("repair", group.name, f"--{tier}", group.members[at], "--yes", "--save", saved)
    group.check()
    group.serve()
    device = group.attach()
    if listed is None:
        group.detach()
        group.stop()
        return ", repaired"
    checked = kit.run("e2fsck", "-f", "-y", device, ok=False)
    assert checked.returncode < 4, f"e2fsck gives up: {checked.stdout}{checked.stderr}"
    kit.run("mount", device, mount)
    whole, _ = judge(mount, digests, listed)
    with open(f"{mount}/new", "wb") as f:
        f.write(os.urandom(MIB))
    kit.run("umount", mount)
    kit.run("e2fsck", "-f", "-n", device)
    group.detach()
    group.stop()
    group.check()
    return f", {whole} whole after a repair"


def lost(tier, orderly, kind="ext4"):
    def test(world, full):
        kit.need_attach()
        kit.need(KINDS[kind][0][0])
        kit.need_file_system(kind)
        told, kept = [], 0
        for level in LEVELS if full and kind == "ext4" else ["low" if kind == "xfs" else "half"]:
            name = f"{tier}-{level}"
            group, _, mount, digests = filled(world, full, level, name, tier == "fast", kind)
            group.detach()
            if orderly:
                group.stop()
            else:
                group.kill()
            member = group.members[0 if tier == "fast" else 1]
            whole = json.loads(world.bimetal("rescue", name, "--json").stdout)["volumes"][0]
            assert whole["lost_bytes"] == whole["possibly_stale_bytes"] == 0, "nothing is missing yet"
            os.rename(member, member + ".dead")
            refused = world.bimetal("serve", name, ok=False)
            assert refused.returncode == 1 and "rescue" in refused.stderr, refused.stderr
            offline = json.loads(world.bimetal("rescue", name, "--json").stdout)
            # Where nothing was pressed out of the fast tier, the file system's own is on it, and nowhere else.
            must = tier == "slow" and level == "low"
            words, copies = rescued(world, group, mount, digests, offline, kind, must)
            kept += copies
            # Both together again: nothing was changed.
            os.rename(member + ".dead", member)
            group.serve()
            kit.run("mount", "-o", "ro", group.attach(), mount)
            assert judge(mount, digests, []) == (len(digests), 0)
            kit.run("umount", mount)
            group.detach()
            group.stop()
            if kind == "ext4":
                words += repaired(world, group, tier, mount, digests)
            told.append(f"{level}: {words}")
        # What was read again and again went up, and its place below was kept.
        assert kept or tier == "slow" or orderly, "no old copy was there to be read"
        return "; ".join(told)
    return test


TESTS = [
    ("lost-fast", lost("fast", True)),
    ("lost-slow", lost("slow", True)),
    ("lost-fast-killed", lost("fast", False)),
    ("lost-slow-killed", lost("slow", False)),
    ("lost-slow-xfs", lost("slow", True, "xfs")),
]
