"""nbdinfo, nbdcopy, qemu-img and qemu-io against a volume; and the way back to a plain file."""

import filecmp
import os
import re

import kit
from attached import mount_new
from kit import GIB, KIB, MIB

CONTEXTS = ("base:allocation", "bimetal:tier", "bimetal:heat")


def pseudo_random(path, size, holes=False):
    """A file of reproducible noise, written once around; with `holes` a tenth of it is left out."""
    noise = bytearray(os.urandom(MIB))
    with open(path, "wb") as f:
        for at in range(0, size, MIB):
            if holes and at // MIB % 10 == 3:
                f.seek(min(MIB, size - at), os.SEEK_CUR)
                continue
            noise[:16] = at.to_bytes(16, "little")
            f.write(noise[:min(MIB, size - at)])
        f.truncate(size)


def same(a, b):
    assert filecmp.cmp(a, b, shallow=False), f"{a} and {b} differ"


def extents(text):
    """(offset, length, type) of each line that `nbdinfo --map` printed."""
    return [tuple(map(int, m)) for m in re.findall(r"^\s*(\d+)\s+(\d+)\s+(\d+)", text, re.M)]


def nbdinfo(world, full):
    kit.need("nbdinfo", "nbdsh")
    kit.need_libnbd()
    group = world.group(64 * MIB, 256 * MIB).serve()
    handle = group.connect()
    size = handle.get_size()
    for at in range(0, 96 * MIB, MIB):
        handle.pwrite(b"x" * MIB, at)
    handle.flush()
    info = kit.run("nbdinfo", group.uri).stdout
    for word in (f"export-size: {size}", "can_flush: true", "can_multi_conn: true", "can_fast_zero: true",
                 "block_size_maximum: 33554432", *CONTEXTS):
        assert word in info, f"{word} is not in\n{info}"
    assert 'export="main"' in kit.run("nbdinfo", "--list", f"nbd+unix:///?socket={group.socket}").stdout
    kit.run("nbdinfo", "--json", group.uri)
    counts = []
    for context in CONTEXTS:
        lines = extents(kit.run("nbdinfo", f"--map={context}", group.uri).stdout)
        at = 0
        for offset, length, kind in lines:
            assert offset == at and length > 0, f"{context}: a gap or overlap at {offset}"
            at += length
            if context == "bimetal:tier" and offset + length <= 96 * MIB:
                assert kind in (1, 2, 3), f"written data at {offset} has tier {kind}"
        assert at == size, f"{context} covers {at} of {size}"
        kinds = {kind for _, _, kind in lines}
        assert context != "bimetal:tier" or kinds >= {0, 1, 2}, f"tiers {kinds}"
        assert context != "base:allocation" or kinds == {0, 3}, f"allocation {kinds}"
        counts.append(f"{context} {len(lines)}")
    handle.shutdown()
    group.stop()
    return "extents: " + ", ".join(counts)


def nbdcopy(world, full):
    kit.need("nbdcopy", "qemu-img")
    size = 2 * GIB if full else 192 * MIB
    group = world.group(size // 4, size).serve()
    source, back, sparse = world.path("source"), world.path("back"), world.path("sparse")
    pseudo_random(source, size)
    kit.run("nbdcopy", "--connections=4", "--flush", source, group.uri)
    kit.run("nbdcopy", "--connections=4", group.uri, back)
    os.truncate(back, size)
    same(source, back)
    os.remove(back)
    # Again with holes: nbdcopy zeroes and trims them; what was there must be gone.
    pseudo_random(sparse, size, holes=True)
    kit.run("nbdcopy", "--connections=4", "--flush", sparse, group.uri)
    group.stop()
    group.check()
    group.serve()
    kit.run("nbdcopy", "--connections=4", group.uri, back)
    os.truncate(back, size)
    same(sparse, back)
    group.stop()
    return f"{size // MIB} MiB in and out, twice"


def qemu_img(world, full):
    kit.need("qemu-img")
    size = 512 * MIB if full else 96 * MIB
    group = world.group(size // 4, size, "--volume", f"main:{size}").serve()
    source, back = world.path("source"), world.path("back.qcow2")
    pseudo_random(source, size, holes=True)
    uri = group.uri
    kit.run("qemu-img", "convert", "-n", "-W", "-m", "8", "-f", "raw", "-O", "raw", source, uri)
    kit.run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri)
    kit.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", uri, back)
    kit.run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", back, source)
    assert '"offset"' in kit.run("qemu-img", "map", "--output=json", "-f", "raw", uri).stdout
    different = kit.run("qemu-io", "-f", "raw", "-c", "write -P 0x7f 1M 512", uri)
    assert "512/512" in different.stdout, different.stdout
    assert kit.run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, uri, ok=False).returncode == 1
    group.stop()
    group.check()
    return f"{size // MIB} MiB"


def qemu_io(world, full):
    """Requests at odd offsets on a volume of 512-byte sectors."""
    kit.need("qemu-io")
    return odd_offsets(world.group(64 * MIB, 128 * MIB, "--sector", "512").serve(), full)


def mixed_sectors(world, full):
    """The same with an SSD of 4096-byte sectors beside a disk of 512-byte ones."""
    kit.need("qemu-io", "losetup")
    if os.geteuid() != 0 or not os.path.exists("/dev/loop-control"):
        raise kit.Skip("making a block device needs root and loop devices")
    backing = world.file("fast.img", 64 * MIB)
    made = kit.run("losetup", "--find", "--show", "--sector-size", "4096", backing, ok=False)
    if made.returncode != 0:
        raise kit.Skip(f"no loop device of 4096-byte sectors here: {made.stderr.strip()}")
    device = made.stdout.strip()
    try:
        assert kit.run("blockdev", "--getss", device).stdout.strip() == "4096"
        members = [device, world.file("slow.img", 128 * MIB)]
        return odd_offsets(kit.Group(world, "t", members, ("--sector", "512")).serve(), full)
    finally:
        kit.run("losetup", "--detach", device)


def odd_offsets(group, full):
    """Patterns at odd offsets and over chunk borders, sub-block zeroing and trims, checked by reading them back."""
    commands, model, pattern = [], bytearray(4 * MIB), 1
    steps = 400 if full else 60
    state = 7
    for _ in range(steps):
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        at = (state >> 20) % (4 * MIB - 300 * KIB)
        length = 1 + (state >> 44) % (200 * KIB if state % 3 else 700)
        if state >> 60 == 0:
            commands.append(f"write -z {at} {length}")
            model[at:at + length] = bytes(length)
        else:
            pattern = pattern % 255 + 1
            flags = "-f " if state >> 60 == 1 else ""
            commands.append(f"write {flags}-P {pattern} {at} {length}")
            model[at:at + length] = bytes([pattern]) * length
        if state >> 58 == 5:
            commands.append("flush")
    # Every run of equal bytes of the model is one read that qemu-io compares.
    reads, start = [], 0
    for i in range(1, len(model) + 1):
        if i == len(model) or model[i] != model[start]:
            reads.append(f"read -P {model[start]} {start} {i - start}")
            start = i
    for batch in (commands, reads):
        out = kit.run("qemu-io", "-f", "raw", *[a for c in batch for a in ("-c", c)], group.uri)
        assert "verification failed" not in out.stdout + out.stderr, out.stdout
    kit.run("qemu-io", "-f", "raw", "-c", "discard 128k 1M", group.uri)
    out = kit.run("qemu-io", "-f", "raw", "-c", "read -P 0 128k 1M", group.uri)
    assert "verification failed" not in out.stdout
    out = kit.run("qemu-io", "-f", "raw", "-c", "read 1P 4k", group.uri, ok=False)
    assert out.returncode != 0 or "failed" in out.stdout + out.stderr or "I/O" in out.stdout + out.stderr
    group.stop()
    group.check()
    return f"{len(commands)} writes, {len(reads)} reads compared"


def go_back(world, full):
    """README's way back: the volume copied to a plain file is an ordinary file system image."""
    kit.need("nbdcopy", "mkfs.ext4", "e2fsck")
    kit.need_attach()
    group = world.group(64 * MIB, 256 * MIB)
    group.serve()
    _, mount = mount_new(world, group)
    for i in range(10):
        pseudo_random(f"{mount}/file{i}", 12 * MIB)
    names = {n: kit.run("sha256sum", f"{mount}/{n}").stdout.split()[0] for n in os.listdir(mount) if n != "lost+found"}
    kit.run("umount", mount)
    group.detach()
    plain = world.path("plain.img")
    kit.run("nbdcopy", group.uri, plain)
    group.stop()
    kit.run("e2fsck", "-fn", plain)
    kit.run("mount", "-o", "loop,ro", plain, mount)
    for name, digest in names.items():
        assert kit.run("sha256sum", f"{mount}/{name}").stdout.split()[0] == digest, f"{name} differs"
    kit.run("umount", mount)
    world.bimetal("destroy", group.name, "--yes")
    return f"{len(names)} files of 12 MiB equal in the plain image"


TESTS = [("nbdinfo", nbdinfo), ("nbdcopy", nbdcopy), ("qemu-img", qemu_img), ("qemu-io", qemu_io),
         ("mixed-sectors", mixed_sectors), ("go-back", go_back)]
