"""Reads what dm-log-writes recorded.

The target writes a log entry for a plain write only when a flush that was sent after it has completed; marks and FUA
writes are entered at once. So what stands before a mark is what the device had promised to keep at that moment, and
everything else was still in its cache.
"""

import struct

MAGIC = 0x6A736677736872
FLUSH, FUA, DISCARD, MARK = 1, 2, 4, 8


class Entry:
    """One entry: where it goes on the device, and where its data lies in the log (bytes)."""

    __slots__ = ("at", "length", "flags", "data_at", "mark")

    def __init__(self, at, length, flags, data_at, mark):
        self.at, self.length, self.flags, self.data_at, self.mark = at, length, flags, data_at, mark


def read_log(path):
    """All entries of a log, in order."""
    entries = []
    with open(path, "rb") as f:
        magic, version, count, sector = struct.unpack("<QQQI", f.read(28))
        if magic != MAGIC or version != 1:
            raise ValueError("%s is not a log of dm-log-writes" % path)
        at = sector
        for _ in range(count):
            f.seek(at)
            block = f.read(sector)
            where, size, flags, data_len = struct.unpack_from("<QQQQ", block)
            at += sector
            mark = None
            data_at = at
            if flags & MARK:
                mark = block[32:32 + data_len].split(b"\0")[0].decode()
            elif not flags & DISCARD:
                at += size * sector
            entries.append(Entry(where * sector, size * sector, flags, data_at, mark))
    return entries
