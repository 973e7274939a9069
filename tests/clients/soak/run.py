"""A run: the group with its daemon, clients that write to every volume, and commands that may be killed."""

import collections
import json
import os
import signal
import subprocess
import time

import content
import kit
from content import BLOCK
from kit import MIB, nbd
from load import Load, verify
from soak.model import Model

NAME, PATIENCE = "t", 240
# A command is killed after up to so many seconds.
KILL_AFTER = [0.01, 0.04, 0.1, 0.2, 0.6, 2.0]
# Fates that a read-only start tells of a range which is not served.
NOT_SERVED = ("lost", "perhaps-lost", "kept-copy")

Now = collections.namedtuple("Now", "volumes families")


class Run:
    def __init__(self, world, rng):
        self.world, self.rng, self.model = world, rng, Model()
        self.group, self.names, self.log, self.kills, self.verified = None, 0, [], 0, 0
        self.began, self.passphrase = time.monotonic(), world.path("passphrase")
        with open(self.passphrase, "w") as f:
            f.write("correct horse")

    def say(self, *words):
        self.log.append(f"{time.monotonic() - self.began:6.1f} " + " ".join(str(w) for w in words))

    def words(self):
        return self.group.words() if self.group else ""

    def new_name(self, of):
        self.names += 1
        return f"{of}{self.names}"

    def new_file(self, tier):
        sizes = {"fast": [48, 64, 80], "slow": [160, 200, 256]}
        return self.world.file(self.new_name(tier) + ".img", self.rng.choice(sizes[tier]) * MIB)

    def create(self):
        """A group of one or two members in each tier."""
        members = [(tier, self.new_file(tier)) for tier in ("fast", "slow") for _ in range(self.rng.choice([1, 2]))]
        of_tiers = [word for tier, path in members for word in (f"--{tier}", path)]
        self.world.bimetal("create", NAME, *of_tiers, "--volume", "first:64MiB", "--reserve", "4MiB", "--yes")
        self.group = kit.Group(self.world, NAME, [path for _, path in members], create=False)
        self.model.created("first", 64 * MIB).apply()

    # The daemon and its clients.

    def up(self, *options):
        self.group.serve(*options)
        for family in self.model.families:
            self.unlock(family)

    def unlock(self, family):
        done = self.world.bimetal("family", "unlock", f"{NAME}/{family}", "--passphrase-file", self.passphrase, ok=False)
        assert done.returncode == 0, f"unlock: {done.stderr}"

    def uri(self, volume):
        return f"nbd+unix:///{volume}?socket={self.group.socket}"

    def work(self):
        """Every volume has clients."""
        self.group.alive()
        for v in self.model.volumes.values():
            if v.load is None:
                v.load = Load(self.uri(v.name), v.ledger, self.rng.randrange(1 << 30), writers=1).start()

    def end_loads(self, *volumes):
        """Ends the clients of some volumes, of all by default; what they found wrong is an error."""
        ending = [v for v in volumes or self.model.volumes.values() if v.load]
        for v in ending:
            v.load.stop.set()
        loads = [v.load for v in ending]
        for v in ending:
            v.load = None
        for load in loads:
            load.join()

    def rest(self):
        """Nobody writes, and all that was written is on its way to being durable: an orderly stop makes it so."""
        self.end_loads()
        for v in self.model.volumes.values():
            v.ledger.flush_done(v.ledger.flush_begins())

    def verify(self):
        """Every block of every volume is what clients were told."""
        for v in self.model.volumes.values():
            handle = nbd.NBD()
            handle.connect_uri(self.uri(v.name))
            v.ledger.restart()
            wrong = verify(handle, v.ledger)
            assert not wrong, f"{v.name}: {len(wrong)} wrong: {wrong[:5]}"
            self.verified += v.size

    def members(self):
        return json.loads(self.world.bimetal("member", "list", NAME, "--json").stdout)["members"]

    def now(self):
        volumes = json.loads(self.world.bimetal("volume", "list", NAME, "--json").stdout)["volumes"]
        families = json.loads(self.world.bimetal("family", "list", NAME, "--json").stdout)["families"]
        return Now({v["name"]: v["size_bytes"] for v in volumes}, [f["name"] for f in families])

    def settle(self, change):
        self.model.settle(change, self.now())

    def check(self, when):
        """`check` of a group that nobody serves finds nothing but what a kill leaves."""
        done = self.world.bimetal("check", NAME, "--json", ok=False)
        if done.returncode == 0:
            return
        assert done.returncode == 1 and done.stdout, f"check {when}: {done.stdout}{done.stderr}"
        found = json.loads(done.stdout)
        left_by_kills = ("cut off", "a start was interrupted")
        bad = [p for p in found["problems"] if p["serious"] or not any(w in p["what"] for w in left_by_kills)]
        assert found["problems"] and not bad and not found["absent"], f"check {when}: {bad} {found['absent']}"

    def stop(self):
        self.rest()
        self.group.stop()

    def kill(self):
        self.group.kill()
        self.end_loads()

    def again(self, change=None):
        """After the death of the daemon: another one, and everything is compared."""
        self.end_loads()
        self.check("after a kill")
        if self.rng.random() < 0.15:
            self.without_a_member()
        self.up()
        self.settle(change)
        self.verify()

    # Commands.

    def command(self, change, *args, served=True):
        """Runs a command; at times it is killed, or the daemon, or both. Then the model is what there is."""
        killed = self.rng.random() < 0.45
        who = self.rng.choice(["command", "daemon", "both"]) if served else "command"
        after = self.rng.choice(KILL_AFTER) * self.rng.random()
        self.say("bimetal", *args, f"(kill {who} after {after:.3f} s)" if killed else "")
        process = subprocess.Popen([kit.BIN, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, env=self.world.env, start_new_session=True)
        if killed:
            self.kill_soon(process, who, after)
        try:
            out, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"{args} hangs: {process.communicate()}") from None
        code = process.returncode
        assert code in (0, 1, -signal.SIGKILL) and "panicked" not in out + err, f"{args}: {code}: {out}{err}"
        if code == 1:
            self.say("   refused:", err.strip().replace("\n", " ")[-300:])
        self.after_command(change, code, killed and who != "command")

    def kill_soon(self, process, who, after):
        self.kills += 1
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            pass
        if who != "daemon" and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        if who != "command":
            self.group.kill()

    def after_command(self, change, code, daemon_killed):
        if code == 0 and change:
            change.apply()
            change = None
        if daemon_killed:
            self.again(change)
        elif code != 0 and self.group.daemon.poll() is None:
            # The daemon may still be at what was asked of it.
            self.end_loads()
            if code < 0:
                time.sleep(1)
            self.settle(change)
        elif code != 0:
            self.settle(change)

    # A start with a member away.

    def without_a_member(self):
        """What is served then is what was told, and what is not is said to be lost."""
        locators = [m["locator"] for m in self.members()]
        away = self.rng.choice(locators)
        os.rename(away, away + ".away")
        try:
            if self.is_served():
                self.say("served without", os.path.basename(away))
            else:
                assert self.group.daemon.returncode == 1, f"ended with {self.group.daemon.returncode}"
                self.read_without(away)
            self.world.bimetal("stop", NAME)
            self.group.daemon.wait()
        finally:
            os.rename(away + ".away", away)

    def is_served(self):
        """Starts it for writing; a member that is leaving and empty may be away."""
        self.group.spawn()

        def settled():
            if self.group.daemon.poll() is not None:
                return "ended"
            done = self.world.bimetal("status", NAME, "--json", ok=False)
            return "serving" if done.returncode == 0 and json.loads(done.stdout).get("state") == "serving" else None
        return kit.wait_until("a start without a member serves or ends", 30, settled) == "serving"

    def read_without(self, away):
        told = json.loads(self.world.bimetal("rescue", NAME, "--json").stdout)["volumes"]
        self.group.serve("--read-only", "--allow-missing")
        runs = {v["name"]: v["runs"] for v in told}
        counts = [0, 0]
        for v in self.model.volumes.values():
            # One that is encrypted, or is about to be, or was about to be created, deleted or renamed.
            if v.family is None and v.name in runs:
                self.sample(v, runs[v.name], counts)
        self.say("without", os.path.basename(away), f"{counts[0]} blocks right, {counts[1]} not served, as told")

    def sample(self, v, runs, counts):
        handle = nbd.NBD()
        handle.connect_uri(self.uri(v.name))
        blocks = min(handle.get_size() // BLOCK, len(v.ledger.possible))
        for i in self.rng.sample(range(blocks), min(blocks, 300)):
            fate = next(r["fate"] for r in runs if r["offset_bytes"] <= i * BLOCK < r["offset_bytes"] + r["length_bytes"])
            try:
                got = bytes(handle.pread(BLOCK, i * BLOCK))
            except nbd.Error:
                assert fate in NOT_SERVED, f"block {i} of {v.name} cannot be read, and is told to be {fate}"
                counts[1] += 1
                continue
            assert fate not in NOT_SERVED, f"block {i} of {v.name} can be read, and is told to be {fate}"
            right = any(content.block(i, x) == got for x in v.ledger.possible[i]) or v.ledger.is_torn(i, got)
            # An old state of the same block, of one piece.
            number, version = content.struct.unpack("<QQ", got[:16])
            old = got == content.ZERO or (number == i and got == content.block(i, version))
            assert right or (fate == "possibly-stale" and old), f"{fate}: {v.ledger.describe(i, got)}"
            counts[0] += 1
