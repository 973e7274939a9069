#!/usr/bin/env python3
"""Compares what dm-crypt reads with what Bimetal serves, block by block.

    crypt_compare.py CRYPT SERVED VALID [SHADOW]

Prints numbers of blocks: compared (those that are valid), different, invalid (not valid), and of these nonzero (Bimetal
serves something else than zeros); with SHADOW, wrong: blocks that are not what was written.
"""

import mmap
import os
import sys

BLOCK, PIECE = 4096, 1 << 20


class Source:
    def __init__(self, path):
        # A device is read past the page cache; the shadow, which lies in memory, cannot be.
        self.fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if path.startswith("/dev/") else 0))
        self.size = os.lseek(self.fd, 0, os.SEEK_END)
        self.buffer = mmap.mmap(-1, PIECE)

    def blocks(self):
        for at in range(0, self.size, PIECE):
            count = os.preadv(self.fd, [self.buffer], at)
            assert count == min(PIECE, self.size - at)
            for i in range(0, count, BLOCK):
                yield self.buffer[i:i + BLOCK]


crypt, served = Source(sys.argv[1]), Source(sys.argv[2])
with open(sys.argv[3], "rb") as f:
    valid = f.read()
shadow = Source(sys.argv[4]) if len(sys.argv) > 4 else None
assert crypt.size == served.size == len(valid) * BLOCK, "the sizes differ"
compared = different = invalid = nonzero = wrong = 0
for mine, theirs, ok, written in zip(crypt.blocks(), served.blocks(), valid,
                                     shadow.blocks() if shadow else [None] * len(valid)):
    if ok:
        compared += 1
        different += mine != theirs
    else:
        invalid += 1
        nonzero += any(theirs)
    wrong += written not in (None, theirs)
print(f"compared={compared} different={different} invalid={invalid} nonzero={nonzero} wrong={wrong}")
