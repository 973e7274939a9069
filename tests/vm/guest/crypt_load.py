#!/usr/bin/env python3
"""Writes, trims and zeroes a device at random, past the page cache, and keeps beside it what it must hold then.

    crypt_load.py DEVICE SHADOW SEED
"""

import fcntl
import mmap
import os
import random
import struct
import sys

SECTOR, BLOCK, MIB = 512, 4096, 1 << 20
BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F

device, shadow, seed = sys.argv[1:]
rnd = random.Random(int(seed))
fd = os.open(device, os.O_RDWR | os.O_DIRECT)
size = os.lseek(fd, 0, os.SEEK_END)
copy = os.open(shadow, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
os.ftruncate(copy, size)
buffer = mmap.mmap(-1, MIB)
done = {"writes": 0, "unaligned": 0, "trims": 0, "zeroed": 0}


def write(at, length):
    buffer[:length] = rnd.randbytes(length)
    assert os.pwritev(fd, [memoryview(buffer)[:length]], at) == length
    os.pwrite(copy, buffer[:length], at)
    done["writes"] += 1
    done["unaligned"] += bool(at % BLOCK or length % BLOCK)


def clear(request, at, length):
    fcntl.ioctl(fd, request, struct.pack("<QQ", at, length))
    os.pwrite(copy, bytes(length), at)
    done["trims" if request == BLKDISCARD else "zeroed"] += 1


def anywhere(most, unit):
    """A range of at most so many bytes in whole units."""
    length = rnd.randint(1, most // unit) * unit
    return rnd.randrange((size - length) // unit + 1) * unit, length


# Most of the volume, more than the fast tier holds; the rest stays as it is but for some random writes.
for at in range(0, size * 4 // 5 // MIB * MIB, MIB):
    write(at, MIB)
for step in range(3):
    for _ in range(400):
        write(*anywhere(64 << 10, SECTOR))
    for _ in range(20):
        clear(BLKDISCARD, *anywhere(512 << 10, BLOCK))
        clear(BLKZEROOUT, *anywhere(64 << 10, SECTOR))
    os.fsync(fd)
# Whole chunks lose their homes, and some get others.
clear(BLKDISCARD, 8 * MIB, 3 * MIB)
for _ in range(100):
    at, length = anywhere(32 << 10, SECTOR)
    write(8 * MIB + at % (3 * MIB), length)
os.fsync(fd)
print(", ".join(f"{n} {what}" for what, n in done.items()))
