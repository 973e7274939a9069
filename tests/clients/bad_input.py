"""Bad members and bad requests, at the level of the program: each gets a clear error and nothing is changed."""

import os
import random
import shutil
import socket
import struct
import time

import kit
from kit import KIB, MIB

FAST, SLOW, DATA = 32 * MIB, 128 * MIB, 64 * MIB
PANIC = ("panicked", "RUST_BACKTRACE", "unwrap()", "overflow")


def words_of(done):
    """What a command said; a panic or a signal is a failure."""
    text = done.stdout + done.stderr
    assert done.returncode in (0, 1, 2), f"ended with {done.returncode}: {text}"
    assert not any(p in text for p in PANIC), text
    if os.environ.get("BIMETAL_SHOW"):
        print(f"    {done.returncode}: {text.strip()}")
    return text


def refused(world, *args, says=()):
    """A command that must fail with words; `says` are what they must contain (any one of each tuple)."""
    done = world.bimetal(*args, ok=False, timeout=30)
    text = words_of(done)
    assert done.returncode in (1, 2), f"{args} was not refused: {text}"
    for choice in says:
        choice = (choice,) if isinstance(choice, str) else choice
        assert any(c in text for c in choice), f"{choice} is not said by {args}: {text}"
    return text


def filled(world, name="t"):
    """A group with data on both tiers, stopped in order."""
    group = world.group(FAST, SLOW, name=name).serve()
    handle = group.connect()
    for at in range(0, DATA, MIB):
        handle.pwrite(pattern(at), at)
    handle.flush()
    handle.shutdown()
    group.stop()
    return group


def pattern(at):
    return struct.pack("<Q", at + 1) * (MIB // 8)


def intact(group):
    """The group serves, and all of its data is there."""
    group.serve()
    handle = group.connect()
    for at in range(0, DATA, MIB):
        assert handle.pread(MIB, at) == pattern(at), f"the data at {at} is not what was written"
    handle.shutdown()
    group.stop()
    group.check()


def variant(world, path, name, change):
    """A copy of a member with a change."""
    copy = world.path(name)
    shutil.copyfile(path, copy)
    change(copy)
    return copy


def wrong_members(world, full):
    kit.need_libnbd()
    group, other = filled(world), filled(world, "other")
    fast, slow = group.members
    serve = ("serve", "t", "--member")
    short = variant(world, slow, "short", lambda p: os.truncate(p, 90 * MIB))
    empty = world.file("empty", 0)
    with open(world.path("noise"), "wb") as f:
        f.write(random.Random(1).randbytes(FAST))
    twin = variant(world, fast, "twin", lambda p: None)
    refused(world, *serve, fast, other.members[1], says=["other"])
    refused(world, *serve, fast, says=["missing"])
    refused(world, *serve, slow, says=["missing"])
    refused(world, *serve, fast, twin, slow, says=[("twice", "same", "both", "copy", "copies")])
    refused(world, *serve, fast, fast, slow, says=[("twice", "same", "once")])
    refused(world, *serve, fast, short, says=[("short", "small", "truncated")])
    refused(world, *serve, fast, empty, says=[("small", "label", "empty")])
    refused(world, *serve, world.path("noise"), slow, says=["label"])
    refused(world, *serve, fast, world.path("absent"), says=["does not exist"])
    refused(world, *serve, fast, world.dir, says=["directory"])
    refused(world, *serve, fast, "nbd+unix:///x?socket=/nonexistent/nbd.sock", says=["nbd.sock"])
    refused(world, *serve, fast, "nbd://", says=["nbd://"])
    refused(world, *serve, fast, "emulated:floppy:" + slow, says=["floppy"])
    refused(world, "check", "--member", fast, other.members[1], says=["other"])
    refused(world, "check", "--member", fast, says=["missing"])
    refused(world, "dump", "--member", world.path("noise"), says=["label"])
    intact(group)
    return "16 refusals"


def stale_member(world, full):
    """A member put back from a copy of earlier, and one used alone: refused or repaired, never silently old."""
    kit.need_libnbd()
    group = filled(world)
    fast, slow = group.members
    old_slow = variant(world, slow, "old-slow", lambda p: None)
    old_fast = variant(world, fast, "old-fast", lambda p: None)
    group.serve()
    handle = group.connect()
    for at in range(0, DATA, MIB):
        handle.pwrite(pattern(at)[::-1], at)
    handle.shutdown()
    group.stop()
    for members in ((fast, old_slow), (old_fast, slow)):
        refused(world, "serve", "t", "--member", *members, says=[("behind", "older", "earlier", "stale", "epoch")])
    group.serve()
    assert group.connect().pread(MIB, 0) == pattern(0)[::-1]
    group.stop()


def flipped_bits(world, full):
    """Bits flipped in metadata, at random: the daemon serves right data, or errors, or refuses; never wrong data."""
    kit.need_libnbd()
    group = filled(world)
    rng = random.Random(5)
    outcomes = {"refused": 0, "served": 0, "with read errors": 0}
    for turn in range(60 if full else 4):
        copies = []
        for member in group.members:
            copies.append(variant(world, member, os.path.basename(member) + ".bad", lambda p: None))
        # Metadata ends at 2 MiB here; the data zone behind has no checksums yet.
        places = [rng.randrange(64 * KIB, 2 * MIB) for _ in range(rng.choice((1, 20, 400, 4000)))]
        # One member, the other, or both in the same places, so that neither can help the other out.
        for hurt in ((0,), (1,), (0, 1))[turn % 3]:
            flip(copies[hurt], places, rng)
        words_of(world.bimetal("check", "--member", *copies, ok=False))
        words_of(world.bimetal("dump", "--member", *copies, ok=False))
        outcomes[serve_damaged(group, copies)] += 1
    intact(group)
    return ", ".join(f"{n} {word}" for word, n in outcomes.items())


def flip(path, places, rng):
    """One bit of each of these bytes."""
    with open(path, "r+b") as f:
        for at in places:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ (1 << rng.randrange(8))]))


def serve_damaged(group, members):
    group.spawn("--member", *members)
    handle = None
    for _ in range(200):
        if group.daemon.poll() is not None:
            assert group.daemon.returncode == 1, f"ended with {group.daemon.returncode}: {group.words()}"
            assert not any(p in group.words() for p in PANIC), group.words()
            return "refused"
        try:
            handle = group.connect()
            break
        except kit.nbd.Error:
            time.sleep(0.02)
    assert handle, f"neither served nor ended: {group.words()}"
    errors = 0
    for at in range(0, DATA, MIB):
        try:
            assert handle.pread(MIB, at) == pattern(at), f"wrong data at {at}, without an error"
        except kit.nbd.Error:
            errors += 1
    handle.shutdown()
    group.stop()
    return "with read errors" if errors else "served"


def create_refusals(world, full):
    fast, slow = world.file("fast", FAST), world.file("slow", SLOW)
    members = ("--fast", fast, "--slow", slow, "--yes")
    for size in (0, 1, 511, 4095, 1 * MIB, 5 * MIB - 1):
        small = world.file("small", size)
        refused(world, "create", "t", "--fast", small, "--slow", slow, "--yes", says=["small"])
    refused(world, "create", "t", "--fast", fast, "--slow", fast, "--yes", says=["same"])
    refused(world, "create", "t", "--fast", fast, "--yes", says=["--slow"])
    refused(world, "create", "T", *members, says=["a-z"])
    refused(world, "create", "../t", *members, says=["a-z"])
    for size in ("0", "-1", "1", "131071", "12XB", "1e9", "99999999PiB", "1PiB", "18446744073709551616"):
        refused(world, "create", "t", *members, "--volume", f"main:{size}")
    refused(world, "create", "t", *members, "--volume", "a:1MiB", "--volume", "a:1MiB", says=["a"])
    refused(world, "create", "t", *members, "--volume", "a:100MiB:fast-only")
    refused(world, "create", "t", *members, "--volume", "a:1MiB:mirrored")
    refused(world, "create", "t", *members, "--sector", "1000")
    refused(world, "create", "t", *members, "--reserve", "0x4")
    used = world.file("used", SLOW)
    with open(used, "r+b") as f:
        f.write(b"precious" * MIB)
    refused(world, "create", "t", "--fast", fast, "--slow", used, says=["--yes"])
    for path in (fast, slow):
        with open(path, "rb") as f:
            assert not any(f.read(MIB)), f"a refused create wrote to {path}"
    # Odd sizes are fine: what does not fill a slot is left out.
    odd = [world.file("odd-fast", FAST + 513), world.file("odd-slow", SLOW + 4097)]
    world.bimetal("create", "odd", "--fast", odd[0], "--slow", odd[1], "--volume", "main:10000001", "--yes")
    world.bimetal("check", "odd")
    refused(world, "create", "t", "--fast", odd[0], "--slow", slow, "--yes", says=["odd"])
    refused(world, "serve", "absent", says=["absent"])
    refused(world, "status", "absent", says=["absent"])
    refused(world, "attach", "odd/absent", says=["absent"])


def rude_sockets(world, full):
    """Clients that vanish in the middle of anything, send noise, or ask for what cannot be."""
    kit.need_libnbd()
    group = filled(world).serve()
    rng = random.Random(3)
    negotiation = [b"", b"\0\0\0\1", struct.pack(">I", 3) + b"IHAVEOPT", struct.pack(">I", 3) + rng.randbytes(300),
                   struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, 0xFFFFFFFF),
                   struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 4) + b"main",
                   b"GET / HTTP/1.1\r\n\r\n"]
    for opening in negotiation * 3:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(group.socket)
            s.recv(64)
            s.sendall(opening)
    request = lambda command, cookie, at, length: struct.pack(">IHHQQI", 0x25609513, 0, command, cookie, at, length)
    go = struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 7, 10) + struct.pack(">I", 4) + b"main" + b"\0\0"
    for turn in range(200 if full else 40):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(group.socket)
            s.recv(64)
            s.sendall(go)
            s.settimeout(2)
            s.recv(4096)
            # The rest of a write never comes; reads are asked for and never taken.
            for i in range(rng.randrange(20)):
                s.sendall(request(0, i, rng.randrange(DATA) & ~4095, 1 * MIB))
            if turn % 3 == 0:
                s.sendall(request(1, 99, DATA + 8 * MIB, 1 * MIB) + b"z" * rng.randrange(MIB))
            elif turn % 3 == 1:
                s.sendall(rng.randbytes(rng.randrange(200)))
            elif turn % 6 == 2:
                s.sendall(request(0, 1, (1 << 64) - 10, 100))
    group.alive()
    wait = kit.wait_until
    wait("the clients that left are forgotten", 20, lambda: len(group.status()["clients"]) == 0)
    group.stop()
    assert not any(p in group.words() for p in PANIC), group.words()
    intact(group)


def idle_sockets(world, full):
    """Clients that ask for all they may and then do nothing: others get on, and volumes can be deleted."""
    kit.need_libnbd()
    group = world.group(FAST, SLOW, "--volume", "main:64MiB", "--volume", "other:32MiB").serve()
    request = lambda command, length: struct.pack(">IHHQQI", 0x25609513, 0, command, 7, 0, length)

    def connect(name, asks):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)
        s.connect(group.socket)
        s.recv(64)
        go = struct.pack(">II", 7, 6 + len(name)) + struct.pack(">I", len(name)) + name + b"\0\0"
        s.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + go)
        s.recv(4096)
        s.sendall(asks)
        return s

    for asks in (request(0, 32 * MIB) * 2, request(1, 32 * MIB)):
        idle = [connect(b"main", asks) for _ in range(9)]
        time.sleep(0.5)
        began = time.monotonic()
        # With a limit of time, which libnbd has not.
        with connect(b"main", request(0, 4096)) as s:
            s.recv(16)
        handle = group.connect()
        for at in range(0, 16 * MIB, MIB):
            handle.pwrite(pattern(at), at)
            assert handle.pread(MIB, at) == pattern(at)
        took = time.monotonic() - began
        assert took < 10, f"{took} s beside clients that do nothing"
        if full:
            assert handle.pread(32 * MIB, 0)[:MIB] == pattern(0)
            assert "was cut off" in group.words(), group.words()
        handle.shutdown()
        idle.append(connect(b"other", request(0, 32 * MIB)))
        if asks[7] == 1:
            world.bimetal("volume", "delete", "t/other", "--yes", "--force", timeout=30)
        for s in idle:
            s.close()
        kit.wait_until("the clients that left are forgotten", 20, lambda: len(group.status()["clients"]) == 0)
    group.stop()
    group.check()


def noise_on_control(world, full):
    group = filled(world).serve()
    control = f"{world.dir}/run/t/control.sock"
    asks = [b"", b"\0" * 1000, b"GET / HTTP/1.1\r\n", b"GET /v1/nothing HTTP/1.1\r\nHost: x\r\n\r\n",
            b"POST /v1/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n",
            b"POST /v1/stop HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n{{{{{",
            b"GET /v1/status HTTP/1.1\r\n" + b"X: y\r\n" * 5000, b"DELETE /v1/status HTTP/1.1\r\nHost: x\r\n\r\n"]
    for ask in asks * 3:
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(control)
            try:
                s.sendall(ask)
                s.settimeout(0.2)
                s.recv(4096)
            except (socket.timeout, ConnectionError):
                pass
    group.alive()
    assert group.status()["state"] == "serving"
    group.stop()


def log_that_nobody_reads(world, _full):
    """Standard error is a pipe that is full: the group is served and stopped all the same."""
    kit.need_libnbd()
    group = world.group(FAST, SLOW)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, bytes(4096))
    except BlockingIOError:
        os.set_blocking(writer, True)
    group.daemon = world.start(kit.BIN, "serve", group.name, env=world.env, stdout=writer, stderr=writer)
    kit.wait_until("the group is served", 30, lambda: group.status()["state"] == "serving")
    handle = group.connect()
    handle.pwrite(pattern(0), 0)
    assert handle.pread(MIB, 0) == pattern(0)
    handle.shutdown()
    world.bimetal("stop", group.name)
    assert group.daemon.wait(30) == 0
    os.close(writer)
    os.close(reader)
    group.check()


TESTS = [("wrong-members", wrong_members), ("stale-member", stale_member), ("flipped-bits", flipped_bits),
         ("create-refusals", create_refusals), ("rude-sockets", rude_sockets), ("idle-sockets", idle_sockets),
         ("noise-on-control", noise_on_control), ("log-that-nobody-reads", log_that_nobody_reads)]
