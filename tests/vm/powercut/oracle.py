"""What may be found after a power cut: for every block the newest durable operation's data, or that of a later one."""

import json
import os

from stamp import BLOCK, values_in

RAW_BLOCKS, FILE_BLOCKS = 5120, 64  # as in guest.py
ABSENT = -1


class History:
    """One worker's operations, replayed up to what was durable; cuts must come in order."""

    def __init__(self, worker, ops):
        self.worker, self.ops, self.at = worker, ops, 0
        self.state = {}

    @staticmethod
    def load(worker, folder):
        with open("%s/worker%d.json" % (folder, worker)) as f:
            ops = json.load(f)
        return (RawHistory if worker < 2 else FileHistory)(worker, ops)

    def advance(self, durable):
        while self.at < durable:
            self.at += 1
            for key, value in self.effects(self.at, self.ops[self.at - 1]):
                self.state[key] = value

    def later(self, begun):
        """What operations that were begun but not durable may have done: {key: {values}}"""
        found = {}
        for seq in range(self.at + 1, begun + 1):
            for key, value in self.effects(seq, self.ops[seq - 1]):
                found.setdefault(key, set()).add(value)
        return found


class RawHistory(History):
    """Key: block. Value: number of the operation, 0 for zeros."""

    def effects(self, seq, op):
        kind, first, count = op
        return [(b, seq if kind == "w" else 0) for b in range(first, first + count)]

    def check(self, volume, begun):
        """Sentences about what is wrong; and how many blocks were compared."""
        wrong, later = [], self.later(begun)
        base = self.worker * RAW_BLOCKS * BLOCK
        for b in range(RAW_BLOCKS):
            allowed = {self.state.get(b, 0)} | later.get(b, set())
            data = volume[base + b * BLOCK:base + (b + 1) * BLOCK]
            found = values_in(data, self.worker, 0, b)
            if found is None or not found <= allowed:
                wrong.append("raw worker %d, block %d: found %s, allowed %s" % (self.worker, b, found, allowed))
        return wrong, RAW_BLOCKS


class FileHistory(History):
    """Key: (file, block), and (file, None) for its presence. Files have one size."""

    def effects(self, seq, op):
        kind, file = op[0], op[1]
        if kind == "u":
            return [((file, None), ABSENT)]
        blocks = range(op[2], op[2] + op[3]) if kind == "w" else range(FILE_BLOCKS)
        return [((file, b), seq) for b in blocks] + [((file, None), seq)]

    def check(self, folder, begun):
        wrong, later, compared = [], self.later(begun), 0
        files = {key[0] for key in self.state if key[1] is None} | {key[0] for key in later if key[1] is None}
        for file in sorted(files):
            presence = {self.state.get((file, None), ABSENT)} | later.get((file, None), set())
            path = "%s/w%d/f%d" % (folder, self.worker, file)
            name = "file worker %d, file %d" % (self.worker, file)
            if not os.path.exists(path):
                if ABSENT not in presence:
                    wrong.append("%s is missing" % name)
                continue
            if presence == {ABSENT}:
                wrong.append("%s is there again" % name)
                continue
            with open(path, "rb") as f:
                data = f.read()
            # A file that was just being made may be short.
            durable = self.state.get((file, None), ABSENT) != ABSENT
            if durable and len(data) != FILE_BLOCKS * BLOCK:
                wrong.append("%s has %d bytes" % (name, len(data)))
            data = data.ljust(FILE_BLOCKS * BLOCK, b"\0")
            for b in range(FILE_BLOCKS):
                allowed = later.get((file, b), set()) | {self.state.get((file, b), 0) if durable else 0}
                found = values_in(data[b * BLOCK:(b + 1) * BLOCK], self.worker, file + 1, b)
                compared += 1
                if found is None or not found <= allowed:
                    wrong.append("%s, block %d: found %s, allowed %s" % (name, b, found, allowed))
        return wrong, compared
