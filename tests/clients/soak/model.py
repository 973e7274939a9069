"""What the group should hold: its volumes with their ledgers, its families, and changes of which the outcome is not known."""

from content import BLOCK, Ledger


class Volume:
    def __init__(self, name, size, family=None):
        self.name, self.size, self.family = name, size, family
        self.ledger, self.load = Ledger(size // BLOCK), None

    def resized(self, size):
        ledger, blocks = self.ledger, size // BLOCK
        more = blocks - len(ledger.possible)
        if more > 0:
            ledger.possible += [[0] for _ in range(more)]
            ledger.acknowledged += [0] * more
            ledger.busy += [False] * more
        else:
            ledger.dirty = {i for i in ledger.dirty if i < blocks}
            del ledger.possible[blocks:], ledger.acknowledged[blocks:], ledger.busy[blocks:]
        self.size = size


class Change:
    """A command's change of the model: `apply` does it, `is_done` asks what there is now whether the command did."""

    def __init__(self, apply, is_done):
        self.apply, self.is_done = apply, is_done


class Model:
    def __init__(self):
        self.volumes, self.families = {}, []

    def created(self, name, size, family=None):
        def apply():
            self.volumes[name] = Volume(name, size, family)
        return Change(apply, lambda now: name in now.volumes)

    def deleted(self, name):
        return Change(lambda: self.volumes.pop(name), lambda now: name not in now.volumes)

    def renamed(self, old, new):
        def apply():
            volume = self.volumes.pop(old)
            volume.name, self.volumes[new] = new, volume
        return Change(apply, lambda now: new in now.volumes)

    def resized(self, name, size):
        return Change(lambda: self.volumes[name].resized(size), lambda now: now.volumes[name] == size)

    def family_made(self, name):
        return Change(lambda: self.families.append(name), lambda now: name in now.families)

    def settle(self, change, now):
        """Takes over a change if it was made; then the model is what there is, or it is wrong."""
        if change and change.is_done(now):
            change.apply()
        want = {v.name: v.size for v in self.volumes.values()}
        assert now.volumes == want, f"volumes: {now.volumes}, not {want}"
        assert sorted(now.families) == sorted(self.families), f"families: {now.families}, not {self.families}"
