"""What the load writes: every 32 bytes of a block name the worker, the object, the block, and the operation."""

import struct

BLOCK = 4096
PIECE = 32
MAGIC = 0x6C6174656D6962
ZERO = bytes(BLOCK)
FORM = struct.Struct("<QIIQQ")


def head(worker, target, block, seq):
    """32 bytes; `target` is 0 on the raw volume, else the number of the file plus one."""
    return FORM.pack(MAGIC, worker, target, block, seq)


def block_of(worker, target, block, seq):
    """The 4096 bytes that operation `seq` puts there."""
    return head(worker, target, block, seq) * (BLOCK // PIECE)


def values_in(data, worker, target, block):
    """The set of operations of which the block holds data, by sector; 0 is zeros. None: it holds anything else."""
    if data == ZERO:
        return {0}
    first = data[:PIECE]
    magic, w, t, b, seq = FORM.unpack(first)
    if (magic, w, t, b) == (MAGIC, worker, target, block) and data == first * (BLOCK // PIECE):
        return {seq}
    found = set()
    for at in range(0, BLOCK, 512):
        sector = data[at:at + 512]
        if sector == ZERO[:512]:
            found.add(0)
            continue
        magic, w, t, b, seq = FORM.unpack(sector[:PIECE])
        if (magic, w, t, b) != (MAGIC, worker, target, block) or sector != sector[:PIECE] * (512 // PIECE):
            return None
        found.add(seq)
    return found
