"""A volume becomes a plain file again: while a file system on it is in use, and killed on the way again and again."""

import hashlib
import json
import os
import random
import subprocess
import time

import kit
from attached import compare, fill, has_files, mount_new, verify
from change_members import Load
from kit import GIB, MIB


def dissolve(world, group, onto, *more):
    done = world.bimetal("dissolve", f"{group.name}/main", "--onto", onto, "--yes", "--json", *more,
                         timeout=1200)
    return json.loads(done.stdout)["dissolving"]


def begin(world, group, onto, *more, output=subprocess.DEVNULL):
    """The same command as a process, once the daemon has heard of it."""
    copy = world.start(kit.BIN, "dissolve", f"{group.name}/main", "--onto", onto, "--yes", *more, env=world.env,
                       stdout=output, stderr=output, text=True)
    kit.wait_until("it has begun", 60, lambda: copy.poll() is not None or group.status().get("dissolving"), 0.01)
    assert copy.poll() in (None, 0), "it is refused"
    return copy


def full_of_files(world, size):
    """A served group with a mounted ext4, half of it files: the group, the mount, the digests."""
    kit.need_attach()
    group = world.group(size // 8, size, "--volume", f"main:{size}").serve()
    _, mount = mount_new(world, group)
    return group, mount, fill(mount, size // 2, 1 * MIB)


def is_all_there_is(group, onto, mount, digests):
    """Without any member the file is a sound file system with the same files."""
    group.stop()
    group.check()
    for member in group.members:
        os.remove(member)
    verify("ext4", onto)
    has_files(onto, mount, digests, "ro,loop")


def in_use(world, full):
    """ext4 on the volume is written to until the copy waits for it; the file is a file system with the same files."""
    kit.need("fio")
    group, mount, digests = full_of_files(world, 20 * GIB if full else 320 * MIB)
    onto = world.path("out.img")
    load = Load(mount)
    try:
        copy = begin(world, group, onto, "--json", output=subprocess.PIPE)

        def waits():
            assert copy.poll() is None, copy.communicate()
            d = group.status()["dissolving"]
            return d and d["phase"] == "waiting"
        kit.wait_until("all but the last is copied", 1200, waits, 0.2)
        # It goes on being used: what is written now is copied, too.
        rounds = load.rounds
        kit.wait_until("the load goes on", 300, lambda: load.rounds > rounds + 1 or load.wrong, 0.2)
    finally:
        load.end()
    digests.update(fill(mount, 8 * MIB, 64 << 10))
    kit.run("umount", mount)
    assert copy.poll() is None, "a device that is attached is in use"
    group.detach()
    out, err = copy.communicate(timeout=1200)
    assert copy.returncode == 0, err
    done = json.loads(out)["dissolving"]
    assert done["phase"] == "done" and done["unsure_bytes"] == 0, done
    is_all_there_is(group, onto, mount, digests)
    return f"{len(digests)} files equal, {load.rounds} rounds of 24 MiB verified meanwhile"


def killed(world, full):
    """The daemon is killed in the middle of it; the same command goes on, and does not write all of it again."""
    kit.need("nbdcopy", "fio", "mkfs.ext4")
    kills, size = (20, 2 * GIB) if full else (4, 256 * MIB)
    group = world.group(size // 4, size, "--volume", f"main:{size}").serve()
    source, onto = world.path("in.raw"), world.path("out.img")
    # What a file system is recognised by does not keep the same command from going on.
    world.file("in.raw", size)
    kit.run("mkfs.ext4", "-q", source)
    kit.run("fio", "--name=f", f"--filename={source}", "--rw=write", "--bs=1m", f"--offset={4 * MIB}",
            f"--size={size - 8 * MIB}", "--refill_buffers", "--overwrite=1")
    kit.run("nbdcopy", "--flush", source, group.uri)
    rng, cut, turns = random.Random(7), 0, 0
    while cut < kills:
        turns += 1
        assert turns < 4 * kills, "it is always done before it is killed"
        copy = begin(world, group, onto)
        time.sleep(rng.uniform(0, 0.02 if cut % 2 else 3.0 if full else 0.2))
        group.kill()
        if copy.wait(60) == 0:
            os.remove(onto)
        else:
            cut += 1
        group.serve()
    done = dissolve(world, group, onto)
    assert done["phase"] == "done", done
    kit.run("cmp", "-n", size, source, onto)
    again = dissolve(world, group, onto, "--force")
    assert again["written_bytes"] <= 4 * MIB, f"what is equal was written: {again}"
    group.stop()
    group.check()
    return f"killed {cut} times in the middle; the last run wrote {done['written_bytes'] // MIB} of {size // MIB} MiB"


def killed_in_use(world, full):
    """ext4 full of files, mounted and written to; the daemon is killed on the way again and again, and with it the device. What
    was synced to the file system before each kill is there in the end."""
    kills, size = (20, 20 * GIB) if full else (3, 320 * MIB)
    group, mount, digests = full_of_files(world, size)
    onto = world.path("out.img")
    kit.run("sync", "-f", mount)
    rng, resumed = random.Random(11), []
    for number in range(kills):
        copy = begin(world, group, onto)
        # Used meanwhile; synced before the kill.
        fresh = f"{mount}/round{number}"
        with open(fresh, "wb") as f:
            content = rng.randbytes(rng.randrange(1, 4 * MIB))
            f.write(content)
            f.flush()
            os.fsync(f.fileno())
        digests[fresh] = hashlib.sha256(content).hexdigest()
        folder = os.open(mount, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
        time.sleep(rng.uniform(0, 30.0 if full else 0.5))
        resumed.append(group.status()["dissolving"]["written_bytes"])
        group.kill()
        assert copy.wait(60) != 0, "it was mounted: it cannot be done"
        kit.run("umount", "-l", mount)
        world.bimetal("detach", "--all", ok=False)
        group.serve()
        # The journal of the file system brings back what was cut off.
        kit.run("mount", group.attach(), mount)
    compare(digests)
    kit.run("umount", mount)
    group.detach()
    done = dissolve(world, group, onto)
    assert done["phase"] == "done" and done["unsure_bytes"] == 0, done
    is_all_there_is(group, onto, mount, digests)
    last = done["written_bytes"] // MIB
    return f"killed {kills} times, {len(digests)} files equal; the runs wrote {[w // MIB for w in resumed] + [last]} MiB"


TESTS = [("dissolve", in_use), ("dissolve-killed", killed), ("dissolve-killed-in-use", killed_in_use)]
