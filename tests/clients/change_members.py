"""Every member of a group is another one in the end, while a file system on it is in use."""

import hashlib
import os
import threading

import kit
from attached import compare, fill, has_files, mount_new, verify
from kit import MIB


class Load:
    """fio writes to a file of the file system and verifies it, over and over, beside the test."""

    def __init__(self, folder):
        self.folder, self.rounds, self.wrong, self.over = folder, 0, None, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over and self.wrong is None:
            try:
                kit.run("fio", "--name=v", f"--filename={self.folder}/verified", "--size=24m", "--rw=randwrite",
                        "--bsrange=4k-256k", "--direct=1", "--ioengine=psync", "--fsync=32", "--verify=crc32c",
                        "--verify_fatal=1", f"--randseed={self.rounds + 1}", timeout=300)
                self.rounds += 1
            except Exception as e:
                self.wrong = e

    def end(self):
        self.over = True
        self.thread.join()
        if self.wrong is not None:
            raise self.wrong
        assert self.rounds > 0, "the load has done nothing"


def members(group):
    return {m["locator"]: m for m in group.status()["members"]}


def in_use(world, full):
    """A served group with a mounted ext4 full of files: the group, its device, the mount, digests, size of the slow member."""
    kit.need_attach()
    kit.need("fio")
    size = 512 * MIB if full else 160 * MIB
    group = world.group(64 * MIB, size, "--volume", f"main:{size // 2}").serve()
    device, mount = mount_new(world, group)
    return group, device, mount, fill(mount, size // 4, 1 * MIB), size


def put_away(group, device, mount):
    """Unmounts it, checks the file system, and stops the group."""
    kit.run("umount", mount)
    verify("ext4", device)
    group.detach()
    group.stop()


def without(group, old, new):
    """From here on these members alone are there; the group is sound and served."""
    for left in old:
        os.remove(left)
    group.members = new
    group.check()
    group.serve()


def is_there_still(group, mount, digests):
    """The files are what they were."""
    has_files(group.attach(), mount, digests)
    group.detach()
    group.stop()


def all_of_them(world, full):
    """A slow member is added, the old one removed, the fast one replaced; then the same is there without them."""
    group, device, mount, digests, size = in_use(world, full)
    old_fast, old_slow = group.members
    new_fast, new_slow = world.file("fast2.img", 80 * MIB), world.file("slow2.img", size + 32 * MIB)
    load = Load(mount)
    try:
        world.bimetal("member", "add", group.name, "--slow", new_slow, "--yes")
        world.bimetal("member", "remove", group.name, old_slow, "--yes", timeout=300)
        world.bimetal("check", group.name)
        world.bimetal("member", "replace", group.name, old_fast, new_fast, "--yes", timeout=300)
        world.bimetal("check", group.name)
    finally:
        load.end()
    assert set(members(group)) == {new_fast, new_slow}, members(group)
    compare(digests)
    put_away(group, device, mount)
    without(group, [old_fast, old_slow], [new_fast, new_slow])
    is_there_still(group, mount, digests)
    return f"{len(digests)} files equal, {load.rounds} rounds of 24 MiB verified meanwhile"


MARKER = b"this must not be found on any member " * 200


def holding(*paths):
    """Which of these files have the marker in them."""
    def has(path):
        with open(path, "rb") as f:
            rest = b""
            while piece := f.read(16 * MIB):
                if MARKER[:1000] in rest + piece:
                    return True
                rest = piece[-1000:]
        return False
    return [p for p in paths if has(p)]


def encrypted_too(world, full):
    """The same, and meanwhile the volume is encrypted: in the end no member holds any of its plaintext, nor do those that
    have left."""
    kit.need_library("libcryptsetup.so.12")
    group, device, mount, digests, size = in_use(world, full)
    secret, marked = world.path("passphrase"), f"{mount}/marked"
    with open(secret, "w") as f:
        f.write("correct horse")
    with open(marked, "wb") as f:
        f.write(MARKER * 100)
        f.flush()
        os.fsync(f.fileno())
    digests[marked] = hashlib.sha256(MARKER * 100).hexdigest()
    old_fast, old_slow = group.members
    assert holding(old_fast, old_slow), "the marker is found where it is"
    new_fast, new_slow = world.file("fast2.img", 80 * MIB), world.file("slow2.img", size + 32 * MIB)
    load = Load(mount)
    try:
        world.bimetal("member", "add", group.name, "--slow", new_slow, "--yes")
        world.bimetal("family", "create", f"{group.name}/home", "--passphrase-file", secret, "--cost", "light")
        world.bimetal("member", "evacuate", group.name, old_slow, "--no-wait")
        world.bimetal("check", group.name)
        world.bimetal("volume", "encrypt", f"{group.name}/main", "--family", "home", "--wait", "--yes", timeout=900)
        world.bimetal("check", group.name)
        world.bimetal("member", "remove", group.name, old_slow, "--yes", timeout=300)
        world.bimetal("member", "replace", group.name, old_fast, new_fast, "--yes", timeout=300)
    finally:
        load.end()
    assert set(members(group)) == {new_fast, new_slow}, members(group)
    compare(digests)
    put_away(group, device, mount)
    found = holding(old_fast, old_slow, new_fast, new_slow)
    assert not found, f"plaintext is left in {found}"
    without(group, [old_fast, old_slow], [new_fast, new_slow])
    world.bimetal("family", "unlock", f"{group.name}/home", "--passphrase-file", secret)
    is_there_still(group, mount, digests)
    return f"{len(digests)} files equal, {load.rounds} rounds of 24 MiB verified meanwhile, no plaintext left"


TESTS = [("change-members", all_of_them), ("change-members-encrypted", encrypted_too)]
