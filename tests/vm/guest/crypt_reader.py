#!/usr/bin/env python3
"""A reader of groups that were stopped in order, after crates/format/FORMAT.md alone; it shares no code with Bimetal.

    crypt_reader.py header FAMILY OUT MEMBER...                 the family's LUKS2 header, from the keys zone
    crypt_reader.py volume VOLUME FAMILY-KEY OUT MEMBER...      a volume as it lies on the members

`volume` writes three files: OUT, the blocks of the volume in its order as they are stored, with zeros where a block is
not valid; OUT.valid, a byte for each block, 1 if it is valid; OUT.key, the volume's key in hexadecimal. What it says
about them goes to standard output as JSON. FAMILY-KEY is a file with the 32 bytes of the family's key.
"""

import hashlib
import hmac
import json
import os
import struct
import sys

BLOCK, CHUNK, HEAD, LABEL = 4096, 131072, 64, 65536
ENTRIES_PER_PAGE, PAGES_PER_DIRECTORY, DIRECTORIES_PER_ROOT = 252, 504, 252
MAPPED, KEPT_COPY, ENCRYPTED = 1, 2, 8
ZONES = {1: "journal", 2: "map", 3: "directory", 4: "root", 5: "away", 6: "slots"}
KEYS = 7

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(*parts):
    c = 0xFFFFFFFF
    for part in parts:
        for byte in part:
            c = c >> 8 ^ TABLE[(c ^ byte) & 255]
    return c ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


def hkdf(key, info, length):
    """RFC 5869 with SHA-256 and without salt."""
    secret = hmac.new(bytes(32), key, hashlib.sha256).digest()
    out, last, i = b"", b"", 0
    while len(out) < length:
        i += 1
        last = hmac.new(secret, last + info + bytes([i]), hashlib.sha256).digest()
        out += last
    return out[:length]


# RFC 5869, test case 3.
assert hkdf(b"\x0b" * 22, b"", 42).hex().startswith("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d")


def number(data, at, size):
    return int.from_bytes(data[at:at + size], "little")


def text(data):
    return data.split(b"\0", 1)[0].decode()


class Member:
    """A device, its label, and its zones."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        os.fsync(self.fd)
        size = os.lseek(self.fd, 0, os.SEEK_END) // BLOCK * BLOCK
        labels = [x for x in map(self.label_at, (LABEL, size - (2 << 20))) if x]
        assert labels, f"{path}: no sound label"
        self.label = label = max(labels, key=lambda x: number(x, 16, 8))
        self.tier, self.index, self.group = label[14], label[15], label[48:64]
        self.zones, self.keys = {}, []
        for i in range(number(label, 176, 2)):
            kind, version, _, offset, length = struct.unpack_from("<HHIQQ", label, 4096 + i * 24)
            assert version == 1, f"version {version} of zone {kind}"
            if kind == KEYS:
                self.keys.append((offset, length))
            else:
                self.zones[ZONES[kind]] = (offset, length)

    def label_at(self, place):
        data = os.pread(self.fd, LABEL, place)
        sound = data[:8] == b"BIMETAL\x01" and number(data, 12, 2) == 1
        if sound and crc32c(data[:8], bytes(4), data[12:], place.to_bytes(8, "little")) == number(data, 8, 4):
            return data
        return None

    def block(self, magic, zone, index):
        """A block of metadata by its number within its zone; it must be sound."""
        place = self.zones[zone][0] + index * BLOCK
        data = os.pread(self.fd, BLOCK, place)
        crc = crc32c(magic, self.group, bytes([self.index]), place.to_bytes(8, "little"), data[:4], bytes(4), data[8:])
        assert data[:4] == magic and crc == number(data, 4, 4), f"block {index} of the {zone} zone is damaged"
        assert number(data, 8, 2) == 1
        return data

    def pages(self):
        """The map as this member has it: entries, 16 bytes each, by page and index."""
        generation, side = number(self.label, 776, 8), self.label[784]
        roots = self.zones["root"][1] // BLOCK // 2
        count = self.zones["map"][1] // BLOCK // 2
        expected = {}
        for r in range(roots if generation else 0):
            root = self.block(b"BMrt", "root", side * roots + r)
            assert number(root, 32, 8) == generation and number(root, 56, 8) == r
            for i in range(number(root, 10, 2)):
                wanted = number(root, HEAD + i * 16, 8)
                if wanted:
                    self.directory(r * DIRECTORIES_PER_ROOT + i, wanted, expected)
        pages, generations = {}, {}
        for p, wanted in expected.items():
            page = self.block(b"BMmp", "map", wanted % 2 * count + p)
            assert number(page, 32, 8) >= wanted // 2 and number(page, 10, 2) == ENTRIES_PER_PAGE
            generations[p] = number(page, 32, 8)
            pages[p] = [page[HEAD + i * 16:HEAD + (i + 1) * 16] for i in range(ENTRIES_PER_PAGE)]
        return self.replay(pages, generations)

    def directory(self, d, wanted, expected):
        block = self.block(b"BMdr", "directory", d * 2 + wanted % 2)
        assert number(block, 32, 8) == wanted // 2 and number(block, 56, 8) == d
        for i in range(number(block, 10, 2)):
            page = number(block, HEAD + i * 8, 8)
            if page:
                expected[d * PAGES_PER_DIRECTORY + i] = page

    def replay(self, pages, generations):
        """The journal, whose end is known after an orderly stop."""
        ring = self.zones["journal"][1] // BLOCK
        for sequence in range(number(self.label, 744, 8), number(self.label, 760, 8)):
            block = self.block(b"BMjr", "journal", sequence % ring)
            assert number(block, 24, 8) == sequence
            for i in range(number(block, 10, 2)):
                p, index, kind, _, entry = struct.unpack_from("<IBBH16s", block, HEAD + i * 24)
                if kind == 1 and number(block, 32, 8) > generations.get(p, 0):
                    pages.setdefault(p, [bytes(16)] * ENTRIES_PER_PAGE)[index] = entry
        return pages


class Group:
    def __init__(self, paths):
        members = [Member(p) for p in paths]
        self.members = {m.index: m for m in members}
        assert len(self.members) == len(paths)
        for what, same in (("group", slice(48, 64)), ("epoch", slice(184, 192)), ("tables", slice(816, 824))):
            assert len({m.label[same] for m in members}) == 1, f"the members differ in '{what}'"
        assert all(m.label[178] == 1 for m in members), "the group was not stopped in order"
        self.source = next(m for m in members if m.tier == 1)
        self.label = self.source.label

    def family(self, name):
        label = self.label
        rows = [label[53248 + i * 128:53248 + (i + 1) * 128] for i in range(number(label, 824, 2))]
        return next(r for r in rows if text(r[16:80]) == name or number(r, 96, 4) == name)

    def header(self, name):
        """The header of a family; all members must have the same one, and the other side must be zeros."""
        row, side = self.family(name), self.label[826]
        at, stored, whole, crc = struct.unpack_from("<4I", row, 100)
        found = set()
        for m in self.members.values():
            offset, length = m.keys[side]
            assert at + stored <= length // BLOCK
            found.add(os.pread(m.fd, stored * BLOCK, offset + at * BLOCK))
            offset, length = m.keys[1 - side]
            assert not any(os.pread(m.fd, length, offset)), "the side of the keys zone before is not zeros"
        assert len(found) == 1, "the members have different headers"
        data = found.pop()
        assert crc32c(self.source.group, row[:16], data) == crc, "the header is damaged"
        return data + bytes((whole - stored) * BLOCK)

    def volume(self, name):
        """The first row of a volume, and the pages of all its rows, end to end."""
        rows = [self.label[24576 + i * 128:24576 + (i + 1) * 128] for i in range(number(self.label, 174, 2))]
        rows = [r for r in rows if text(r[16:80]) == name and r[105] != 1]
        assert [number(r, 106, 2) for r in rows] == list(range(len(rows))) and rows, f"no volume {name}"
        pages = [p for r in rows for p in range(number(r, 92, 4), number(r, 92, 4) + number(r, 96, 4))]
        return rows[0], pages


def read_volume(group, name, family_key, out):
    row, own = group.volume(name)
    family = group.family(number(row, 100, 4))
    check = hkdf(family_key, b"bimetal family check v1" + family[:16], 16)
    assert check == family[80:96], "this is not the key of the family"
    key = hkdf(family_key, b"bimetal volume key v1" + row[:16], 64)
    assert row[105] == 0, "the volume may still have plaintext"
    size, pages = number(row, 80, 8), group.source.pages()
    blocks = CHUNK // BLOCK
    valid, said = bytearray(size // BLOCK), {"fast": 0, "slow": 0, "copies": 0, "partial": 0, "entries": []}
    with open(out, "wb") as flat:
        flat.truncate(size)
        for c in range(size // CHUNK):
            page = pages.get(own[c // ENTRIES_PER_PAGE])
            slot, second_slot, mask, member, second, flags, _ = \
                struct.unpack("<IIIBBBB", page[c % ENTRIES_PER_PAGE] if page else bytes(16))
            if not flags & MAPPED:
                continue
            assert flags & ENCRYPTED, f"chunk {c} is plaintext"
            homes = [(member, slot)] + [(second, second_slot)] * bool(flags & KEPT_COPY)
            contents = []
            for m, s in homes:
                m = group.members[m]
                contents.append(os.pread(m.fd, CHUNK, m.zones["slots"][0] + s * CHUNK))
            for n in range(blocks):
                if mask >> n & 1:
                    block = contents[0][n * BLOCK:(n + 1) * BLOCK]
                    assert all(x[n * BLOCK:(n + 1) * BLOCK] == block for x in contents), f"chunk {c}: the copy differs"
                    os.pwrite(flat.fileno(), block, c * CHUNK + n * BLOCK)
                    valid[c * blocks + n] = 1
            said["fast" if group.members[member].tier == 1 else "slow"] += 1
            said["copies"] += len(homes) - 1
            said["partial"] += mask != 0xFFFFFFFF
            said["entries"].append([c, member, slot, mask])
    with open(out + ".valid", "wb") as f:
        f.write(valid)
    with open(out + ".key", "w") as f:
        f.write(key.hex())
    return dict(said, blocks=len(valid), valid=sum(valid))


def main(what, name, *rest):
    if what == "header":
        out, *members = rest
        with open(out, "wb") as f:
            f.write(Group(members).header(name))
    else:
        key, out, *members = rest
        with open(key, "rb") as f:
            print(json.dumps(read_volume(Group(members), name, f.read(), out)))


main(*sys.argv[1:])
