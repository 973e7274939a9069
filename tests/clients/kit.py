"""What all tests here share: groups on files in a temporary folder, the daemon, and running tools."""

import ctypes
import json
import os
import shutil
import subprocess
import tempfile
import time

try:
    import nbd
except ImportError:
    nbd = None

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
BIN = os.environ["BIMETAL_BIN"]


class Skip(Exception):
    """A tool or a right is missing; the text says which."""


def need(*tools):
    """Skips the test if one of the programs is missing."""
    for tool in tools:
        if not shutil.which(tool) and not any(os.access(f"{d}/{tool}", os.X_OK) for d in ("/sbin", "/usr/sbin")):
            raise Skip(f"{tool} is not installed")


def need_libnbd():
    if nbd is None:
        raise Skip("libnbd's Python module (python3-libnbd) is not installed")


def need_library(name):
    """Skips the test without a library that the program loads when it needs it."""
    try:
        ctypes.CDLL(name)
    except OSError:
        raise Skip(f"{name} is not installed")


def need_attach():
    """Skips unless a FUSE file under a loop device can be had."""
    if os.geteuid() != 0:
        raise Skip("attaching and mounting need root")
    need("losetup", "mount")
    for node in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(node):
            raise Skip(f"there is no {node}")


def need_file_system(kind):
    """Skips the test if the kernel does not have it."""
    with open("/proc/filesystems") as f:
        if kind not in f.read().split() and run("modprobe", kind, ok=False).returncode != 0:
            raise Skip(f"this kernel has no {kind}")


def run(*args, ok=True, timeout=300, **more):
    """Runs a program; with `ok` it must end with 0. Returns its CompletedProcess, output as text."""
    args = [str(a) for a in args]
    done = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          stdin=subprocess.DEVNULL, encoding="utf-8", errors="replace", **more)
    if ok and done.returncode != 0:
        raise AssertionError(f"{' '.join(args)} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done


def wait_until(what, seconds, condition, step=0.05):
    """Polls `condition` until it is true; fails with `what` after `seconds`."""
    end = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(step)


class World:
    """A temporary folder with configuration and run state of its own; cleans up what was started in it."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.dir = tempfile.mkdtemp(prefix=f"bimetal-{self.name}-")
        self.env = dict(os.environ, BIMETAL_CONFIG_DIR=f"{self.dir}/config", BIMETAL_RUN_DIR=f"{self.dir}/run")
        self.processes, self.mounts, self.groups = [], [], []
        return self

    def __exit__(self, *_):
        for mount in reversed(self.mounts):
            subprocess.run(["umount", "-l", mount], stderr=subprocess.DEVNULL)
        for group in self.groups:
            if group.attached:
                self.bimetal("detach", group.name, ok=False)
                self.bimetal("stop", group.name, "--force", ok=False)
        # Daemons that `attach` started in the background.
        for name in os.listdir(f"{self.dir}/run") if os.path.isdir(f"{self.dir}/run") else []:
            if not any(g.name == name and g.daemon for g in self.groups):
                self.bimetal("stop", name, "--force", ok=False)
        for process in reversed(self.processes):
            if process.poll() is None:
                process.kill()
                process.wait()
        for group in self.groups:
            if group.attached:
                self.bimetal("detach", group.name, ok=False)
                subprocess.run(["umount", "-l", f"{self.dir}/run/{group.name}/fuse"], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)

    def path(self, name):
        return f"{self.dir}/{name}"

    def file(self, name, size):
        """A sparse file."""
        with open(self.path(name), "wb") as f:
            f.truncate(size)
        return self.path(name)

    def bimetal(self, *args, ok=True, timeout=120):
        return run(BIN, *args, ok=ok, timeout=timeout, env=self.env)

    def start(self, *args, **more):
        """Starts a process that is killed, at the latest, at the end of the test."""
        process = subprocess.Popen([str(a) for a in args], stdin=subprocess.DEVNULL, **more)
        self.processes.append(process)
        return process

    def group(self, fast, slow, *options, name="t"):
        """A group of sparse files with these sizes, created."""
        members = [self.file(f"{name}-fast.img", fast), self.file(f"{name}-slow.img", slow)]
        return Group(self, name, members, options)


class Group:
    """A group with one fast and one slow member, and its daemon."""

    def __init__(self, world, name, members, options=(), create=True):
        self.world, self.name, self.members = world, name, members
        self.attached, self.daemon = False, None
        self.log = world.path(f"{name}.log")
        world.groups.append(self)
        if create:
            world.bimetal("create", name, "--fast", members[0], "--slow", members[1], *options, "--yes")

    @property
    def socket(self):
        return f"{self.world.dir}/run/{self.name}/nbd.sock"

    @property
    def uri(self):
        return f"nbd+unix:///main?socket={self.socket}"

    def spawn(self, *options):
        """Starts the daemon, without waiting."""
        with open(self.log, "ab") as log:
            self.daemon = self.world.start(BIN, "serve", self.name, *options, env=self.world.env,
                                           stdout=log, stderr=log)

    def serve(self, *options):
        """Starts the daemon and waits until it answers."""
        self.spawn(*options)

        def there():
            assert self.daemon.poll() is None, f"the daemon ended:\n{self.words()}"
            done = self.world.bimetal("status", self.name, "--json", ok=False)
            return done.returncode == 0 and json.loads(done.stdout).get("state") == "serving"
        wait_until("the daemon answers", 30, there, 0.02)
        return self

    def words(self):
        """What the daemon said so far."""
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return f.read()

    def status(self):
        return json.loads(self.world.bimetal("status", self.name, "--json").stdout)

    def stop(self):
        """Orderly stop; the daemon must end with 0."""
        self.world.bimetal("stop", self.name)
        if self.daemon:
            code = self.daemon.wait(30)
            assert code == 0, f"the daemon ended with {code}:\n{self.words()}"

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()

    def alive(self):
        assert self.daemon.poll() is None, f"the daemon ended with {self.daemon.returncode}:\n{self.words()}"

    def check(self):
        """`bimetal check` finds everything in order, and leaves the members as they were."""
        before = [os.stat(m).st_mtime_ns for m in self.members]
        done = self.world.bimetal("check", self.name, ok=False)
        assert done.returncode == 0, f"check: {done.stdout}{done.stderr}"
        assert before == [os.stat(m).st_mtime_ns for m in self.members], "check wrote to a member"
        return done.stdout

    def connect(self):
        """A libnbd handle."""
        handle = nbd.NBD()
        handle.add_meta_context("base:allocation")
        handle.connect_uri(self.uri)
        return handle

    def attach(self, *options):
        self.attached = True
        # A device that dies with its daemon is wanted, which a ublk device does not (tests/vm has those).
        via = ["--via", "nbd" if os.path.exists("/sys/module/nbd") else "fuse"]
        options = options or (via if os.path.exists("/dev/ublk-control") else [])
        return self.world.bimetal("attach", f"{self.name}/main", *options).stdout.strip()

    def detach(self):
        # Programs that look at every block device of the machine may hold it open for a moment.
        wait_until(f"{self.name} is detached", 60,
                   lambda: self.world.bimetal("detach", self.name, ok=False).returncode == 0, 0.5)
        self.attached = False
