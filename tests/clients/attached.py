"""File systems and fsx on the attached block device."""

import hashlib
import os
import shutil

import kit
from kit import GIB, MIB

FSX_CONFIG = """
blockmode = true
nosizechecks = true
flen = {size}
[opsize]
max = 262144
min = {align}
align = {align}
[weights]
read = 10
write = 10
mapread = 5
mapwrite = 5
invalidate = 2
truncate = 0
close_open = 0
fsync = 2
fdatasync = 2
posix_fallocate = 0
punch_hole = {punch}
"""


def fsx_program(world):
    """fsx from PATH or $FSX; `cargo install fsx` makes it."""
    program = os.environ.get("FSX") or shutil.which("fsx")
    if not program:
        raise kit.Skip("fsx is not installed (cargo install fsx, or set FSX)")
    return program


def fsx(world, full):
    kit.need_attach()
    program = fsx_program(world)
    group = world.group(24 * MIB, 96 * MIB, "--reserve", "4MiB", "--sector", "512").serve()
    device = group.attach()
    operations = 30000 if full else 500
    moved = []
    for seed, size, align, punch in ((1, 48 * MIB, 512, 3), (2, 1 * MIB, 4096, 3), (3, 96 * MIB, 1, 0)):
        config = world.path("fsx.toml")
        with open(config, "w") as f:
            f.write(FSX_CONFIG.format(size=size, align=align, punch=punch))
        kit.run(program, "-q", "-f", config, "-S", seed, "-N", operations, "-P", world.dir, device, timeout=900)
        mover = group.status()["mover"]
        moved.append(f"{mover['promoted_chunks']}/{mover['demoted_chunks']}")
    group.detach()
    group.stop()
    group.check()
    return f"3 x {operations} operations; chunks promoted/demoted so far: {', '.join(moved)}"


def fuse_file(world, full):
    """fio verifies what it wrote through the volume's file, past the page cache and in many places at once."""
    kit.need("fio")
    if not os.path.exists("/dev/fuse"):
        raise kit.Skip("there is no /dev/fuse")
    if os.geteuid() != 0:
        kit.need("fusermount3")
    folder = world.path("files")
    os.mkdir(folder)
    world.mounts.append(folder)
    group = world.group(64 * MIB, 256 * MIB, "--reserve", "8MiB", "--sector", "512").serve("--fuse", folder)
    size = 200 * MIB if full else 80 * MIB
    job = ("--name=v", f"--filename={folder}/main", f"--size={size}", "--direct=1", "--ioengine=io_uring", "--iodepth=16",
           "--verify=crc32c", "--verify_fatal=1", "--randrepeat=0", "--fsync=64")
    kit.run("fio", *job, "--rw=randrw", "--bsrange=4k-1m", "--blockalign=4k", timeout=600)
    kit.run("fio", *job, "--rw=randwrite", "--bsrange=512-64k", "--blockalign=512", f"--io_size={size // 4}", timeout=600)
    status = group.status()
    group.stop()
    assert not os.path.ismount(folder), "the mount stays behind"
    group.check()
    return f"{size // MIB} MiB, {status['files']['requests']} requests"


FILE_SYSTEMS = {
    "ext4": (("mkfs.ext4", "-q"), (("fsck.ext4", "-fn"),)),
    "xfs": (("mkfs.xfs", "-q", "-f"), (("xfs_repair", "-n"),)),
    "btrfs": (("mkfs.btrfs", "-q", "-f"), (("btrfs", "check", "--readonly"),)),
}


def fill(folder, total, file_size):
    """Files of noise until `total` bytes; name -> digest. Every fourth one is removed and written anew."""
    digests = {}
    for i in range(total // file_size):
        path = f"{folder}/{i % 7}/file-{i}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        digests[path] = write_noise(path, file_size)
        if i % 4 == 3:
            old = list(digests)[i // 2]
            os.remove(old)
            digests[old] = write_noise(old, file_size)
    return digests


def write_noise(path, size):
    digest = hashlib.sha256()
    with open(path, "wb") as f:
        for _ in range(0, size, MIB):
            data = os.urandom(min(size, MIB))
            digest.update(data)
            f.write(data)
        f.flush()
        os.fsync(f.fileno())
    return digest.hexdigest()


def compare(digests):
    for path, digest in digests.items():
        with open(path, "rb") as f:
            assert hashlib.file_digest(f, "sha256").hexdigest() == digest, f"{path} differs"


def mount_new(world, group, make=FILE_SYSTEMS["ext4"][0], at="mnt"):
    """A new file system on the attached volume of a served group: the device, and the folder it is mounted at."""
    device, mount = group.attach(), world.path(at)
    os.mkdir(mount)
    world.mounts.append(mount)
    kit.run(*make, device)
    kit.run("mount", device, mount)
    return device, mount


def verify(kind, place):
    """The file system that is not mounted, on a device or in a file, is sound."""
    for check in FILE_SYSTEMS[kind][1]:
        kit.run(*check, place)


def has_files(place, mount, digests, options="ro"):
    """The files are what they were, mounted from a device or a file; it is unmounted again."""
    kit.run("mount", "-o", options, place, mount)
    compare(digests)
    kit.run("umount", mount)


def file_system(kind):
    def test(world, full):
        make, checks = FILE_SYSTEMS[kind]
        kit.need_attach()
        kit.need(make[0], checks[0][0])
        kit.need_file_system(kind)
        fast, slow, load = (256 * MIB, 2 * GIB, 1 * GIB) if full else (48 * MIB, 512 * MIB, 80 * MIB)
        group = world.group(fast, slow).serve()
        device, mount = mount_new(world, group, make)
        digests = fill(mount, load, 3 * MIB)
        compare(digests)
        kit.run("fstrim", mount, ok=False)
        refused = world.bimetal("detach", group.name, ok=False)
        assert refused.returncode == 1 and mount in refused.stderr, refused.stderr
        kit.run("umount", mount)
        verify(kind, device)
        group.detach()
        volume = group.status()["volumes"][0]
        assert volume["slow_bytes"] > 0, "nothing spilled to the slow tier"
        group.stop()
        group.check()
        group.serve()
        has_files(group.attach(), mount, digests)
        group.detach()
        group.stop()
        return (f"{len(digests)} files, {load // MIB} MiB over a fast tier of {fast // MIB} MiB; "
                f"{volume['fast_bytes'] // MIB} MiB on fast, {volume['slow_bytes'] // MIB} MiB on slow at the end")
    return test


TESTS = [("fuse-file", fuse_file), ("fsx", fsx)] + [(kind, file_system(kind)) for kind in FILE_SYSTEMS]
