"""Damage to the metadata of a member: blocks of one zone or label become zeros, garbage, or have a bit that is wrong."""

import os
import struct

from kit import MIB

BLOCK = 4096
LABEL_A, LABEL_SIZE, LABEL_B_FROM_END = 64 << 10, 64 << 10, 2 * MIB
# The zone table of a label, and the kinds of zones that hold metadata a start depends on: crates/format/FORMAT.md. Headers of
# families are left out: they have no second copy on the same member.
TABLE, ROW, ROWS, JOURNAL, METADATA = LABEL_A + 4096, struct.Struct("<HHIQQ"), 64, 1, (1, 2, 3, 4, 5)


def areas(path, journal):
    """Name, offset and length of each area of a member that may rot."""
    with open(path, "rb") as f:
        f.seek(TABLE)
        rows = [ROW.unpack(f.read(ROW.size)) for _ in range(ROWS)]
    found = {f"zone {kind}": (offset, length) for kind, _, _, offset, length in rows if kind in METADATA and (journal or kind != JOURNAL)}
    found["first label"] = (LABEL_A, LABEL_SIZE)
    found["second label"] = (os.path.getsize(path) - LABEL_B_FROM_END, LABEL_SIZE)
    return found


def damage(path, rng, journal):
    """Damages some blocks, those of the journal too if it is to be; says what, and gives a function that undoes it."""
    name, (offset, length) = rng.choice(sorted(areas(path, journal).items()))
    before = {}
    with open(path, "r+b") as f:
        for block in chosen(f, offset, length // BLOCK, rng):
            f.seek(offset + block * BLOCK)
            before[block] = f.read(BLOCK)
            f.seek(offset + block * BLOCK)
            f.write(damaged(before[block], rng))

    def undo():
        with open(path, "r+b") as f:
            for block, was in before.items():
                f.seek(offset + block * BLOCK)
                f.write(was)
    return f"{os.path.basename(path)}: {len(before)} blocks of its {name} from {min(before)} on", undo


def chosen(f, offset, blocks, rng):
    """A few blocks of an area, half of the time of those in use, or all."""
    count = rng.choice([1, 1, 2, 8, blocks])
    if count >= blocks:
        return range(blocks)
    candidates = range(blocks)
    if rng.random() < 0.5:
        candidates = [b for b in range(min(blocks, 4096)) if is_used(f, offset + b * BLOCK)] or candidates
    return sorted({rng.choice(candidates) for _ in range(count)})


def is_used(f, at):
    f.seek(at)
    return any(f.read(64))


def damaged(block, rng):
    kind = rng.choice(["zeros", "garbage", "bit"])
    if kind == "bit":
        flipped = bytearray(block)
        flipped[rng.randrange(BLOCK)] ^= 1 << rng.randrange(8)
        return bytes(flipped)
    return bytes(BLOCK) if kind == "zeros" else rng.randbytes(BLOCK)
