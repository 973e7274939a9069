"""What happens in a run: one step is a command, a stop, a kill or damage, with clients at work before."""

import time

from content import BLOCK
from kit import MIB, nbd
from soak import rot
from soak.run import NAME


def one(run):
    run.work()
    time.sleep(run.rng.random())
    run.rng.choice(STEPS)(run)


def pick(run):
    return run.rng.choice(sorted(run.model.volumes.values(), key=lambda v: v.name))


def member(run):
    return run.rng.choice(run.members())


# Volumes.

def create_volume(run, served=True):
    if len(run.model.volumes) > 4:
        return
    name, size, family = run.new_name("v"), run.rng.choice([8, 16, 32]) * MIB, None
    options = []
    if served and run.model.families and run.rng.random() < 0.5:
        family = run.rng.choice(run.model.families)
        options += ["--family", family]
    if run.rng.random() < 0.2:
        options += ["--placement", run.rng.choice(["slow-only", "fast-only"])]
    run.command(run.model.created(name, size, family), "volume", "create", f"{NAME}/{name}", "--size", size, *options,
                served=served)


def delete_volume(run):
    if len(run.model.volumes) > 1:
        v = pick(run)
        run.end_loads(v)
        run.command(run.model.deleted(v.name), "volume", "delete", f"{NAME}/{v.name}", "--yes")


def rename_volume(run, served=True):
    v, new = pick(run), run.new_name("r")
    run.end_loads(v)
    run.command(run.model.renamed(v.name, new), "volume", "rename", f"{NAME}/{v.name}", new, served=served)


def resize_volume(run):
    v, size = pick(run), run.rng.choice([8, 16, 24, 40, 64, 96]) * MIB
    run.end_loads(v)
    if size < v.size:
        # What is cut off has to be empty.
        trim_durably(run, v, size)
    if size != v.size:
        run.command(run.model.resized(v.name, size), "volume", "resize", f"{NAME}/{v.name}", size)


def trim_durably(run, v, start):
    first, count = start // BLOCK, (v.size - start) // BLOCK
    handle = nbd.NBD()
    handle.connect_uri(run.uri(v.name))
    version = v.ledger.take(first, count, True)
    handle.trim(v.size - start, start, 0)
    v.ledger.done(first, count, version)
    covered = v.ledger.flush_begins()
    handle.flush()
    v.ledger.flush_done(covered)
    handle.shutdown()


# Members.

def add_member(run, served=True):
    if len(run.members()) < 6:
        tier = run.rng.choice(["fast", "slow"])
        run.command(None, "member", "add", NAME, f"--{tier}", run.new_file(tier), "--yes", served=served)


def remove_member(run, served=True):
    run.command(None, "member", "remove", NAME, member(run)["locator"], "--yes", served=served)


def replace_member(run, served=True):
    old = member(run)
    run.command(None, "member", "replace", NAME, old["locator"], run.new_file(old["tier"]), "--yes", served=served)


def evacuate(run, served=True):
    how = [["--dry-run"], ["--no-wait"], ["--cancel"]] + ([[], ["--cancel"]] if served else [])
    run.command(None, "member", "evacuate", NAME, member(run)["locator"], *run.rng.choice(how), served=served)


# Families.

def create_family(run):
    if len(run.model.families) < 2:
        name = run.new_name("f")
        run.command(run.model.family_made(name), "family", "create", f"{NAME}/{name}", "--passphrase-file",
                    run.passphrase, "--cost", "light")


def encrypt(run):
    plain = [v for v in run.model.volumes.values() if v.family is None]
    if run.model.families and plain:
        v, v.family = plain[0], run.rng.choice(run.model.families)
        run.command(None, "volume", "encrypt", f"{NAME}/{v.name}", "--family", v.family, "--yes",
                    *run.rng.choice([[], ["--wait"]]))


def lock(run):
    if run.model.families:
        family = run.rng.choice(run.model.families)
        run.end_loads()
        run.command(None, "family", "lock", f"{NAME}/{family}")
        run.unlock(family)


# The group.

def look(run):
    run.command(None, *run.rng.choice([["check", NAME], ["check", NAME, "--mend"], ["status", NAME, "--json"],
                                       ["rescue", NAME, "--json"]]))


def kill(run):
    run.say("kill")
    run.kill()
    run.again()


def stop(run):
    run.say("stop")
    run.stop()
    run.check("after a stop")
    run.up()
    run.verify()


def change_stopped(run):
    run.say("stop, for changes")
    run.stop()
    for _ in range(run.rng.randrange(1, 4)):
        run.rng.choice([create_volume, rename_volume, add_member, remove_member, replace_member, evacuate])(run, served=False)
        run.check("while it is stopped")
    run.up()
    run.settle(None)
    run.verify()


def damage(run):
    """Metadata of one member rots after a stop or a kill. After a stop the group has to start, and everything is there."""
    orderly = run.rng.random() < 0.7
    run.stop() if orderly else run.kill()
    hit = member(run)
    # After a crash the end of a journal cannot be told from a commit that was cut off.
    what, undo = rot.damage(hit["locator"], run.rng, journal=orderly)
    run.say("damage after a", "stop:" if orderly else "kill:", what)
    for command in [["check", NAME]] + ([["repair", NAME, "--yes"]] if orderly and run.rng.random() < 0.3 else []):
        done = run.world.bimetal(*command, ok=False)
        assert done.returncode in (0, 1) and "panicked" not in done.stderr, f"{command}: {done.stdout}{done.stderr}"
    try:
        run.up()
    except AssertionError as why:
        run.say("   does not start:", str(why).strip()[-300:])
        assert run.group.daemon.poll() == 1, f"it neither serves nor ends with 1: {why}"
        if orderly:
            raise
        undo()
        run.up()
    run.settle(None)
    run.verify()
    mend(run, hit)


def mend(run, hit):
    run.world.bimetal("check", NAME, "--mend")
    # Of one that leaves what it has to know is not what the others have.
    if hit["state"] != "leaving":
        run.world.bimetal("check", NAME)


STEPS = [create_volume, delete_volume, rename_volume, resize_volume, resize_volume, add_member, remove_member, replace_member,
         evacuate, create_family, encrypt, lock, look, look, kill, kill, stop, change_stopped, damage, damage]
