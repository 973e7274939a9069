"""What the benchmarks share: finding the program, a scratch directory, servers whose CPU time is counted, fio."""

import json
import os
import platform
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
GIB = 1 << 30
HERE = os.path.dirname(os.path.abspath(__file__))
CGROUPS = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
# With cgroup v1: a server of many threads gets no more of a busy machine than one of a single thread.
CPU_CGROUP = "/sys/fs/cgroup/cpu"


def program(variable, default, otherwise):
    """A program: what the environment names, else this path in the checkout; without it the script ends with the advice."""
    path = os.path.abspath(os.environ.get(variable) or os.path.join(HERE, "..", default))
    if not os.access(path, os.X_OK):
        skip(f"no program at {path}: {otherwise}, or set {variable}")
    return path


def binary():
    """The program to measure: $BIMETAL_BIN, else the release build of this checkout."""
    return program("BIMETAL_BIN", "target/release/bimetal", "run `make build`")


def example(variable, name, package):
    """An example of the Rust code that a benchmark needs."""
    return program(variable, f"target/release/examples/{name}", f"cargo build --release -p {package} --example {name}")


def skip(reason):
    """Ends a script that cannot run here."""
    print(f"skipped: {reason}")
    print("0 passed, 0 failed")
    sys.exit(0)


def need(*tools):
    """Ends the script unless all tools are there."""
    missing = [t for t in tools if not shutil.which(t)]
    if missing:
        skip(f"{', '.join(missing)} not found")
    # It is Python, and the first one in the path may know nothing of libnbd.
    if "nbdsh" in tools and subprocess.run(["nbdsh", "-c", "pass"], capture_output=True).returncode != 0:
        skip("nbdsh does not work here: put the Python that has libnbd first in PATH (Debian's is in /usr/bin)")


def machine():
    """What a reader must know about the machine to judge a figure."""
    cpu = "unknown CPU"
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    load = os.getloadavg()
    return {
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gib": round(memory, 1),
        "kernel": platform.release(),
        "load_average_at_start": [round(x, 2) for x in load],
    }


def words(notes):
    """The machine in one line."""
    return (f"{notes['date']}, {notes['cores']} cores of {notes['cpu']}, {notes['memory_gib']} GiB, "
            f"Linux {notes['kernel']}, load average {notes['load_average_at_start'][0]} at the start")


class Scratch:
    """A directory on a real disk ($BENCH_DIR names its parent) with its own configuration and run state. It and all
    servers end with the `with` block."""

    def __init__(self, name):
        self.servers = []
        parent = os.environ.get("BENCH_DIR") or tempfile.gettempdir()
        self.path = tempfile.mkdtemp(prefix=f"bimetal-{name}-", dir=parent)
        self.env = dict(os.environ, BIMETAL_CONFIG_DIR=self.file("config"), BIMETAL_RUN_DIR=self.file("run"))

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, lambda *_: sys.exit(1))
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.kill()
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.path, name)

    def sparse(self, name, size):
        path = self.file(name)
        with open(path, "wb") as f:
            f.truncate(size)
        return path

    def bimetal(self, *args, check=True):
        """Runs the program to its end; gives what it printed."""
        done = subprocess.run([binary(), *args], env=self.env, capture_output=True, text=True)
        if check and done.returncode != 0:
            raise RuntimeError(f"bimetal {' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def status(self, group):
        """The daemon's own account, straight from its control socket."""
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(os.path.join(self.path, "run", group, "control.sock"))
            s.sendall(b"GET /v1/status HTTP/1.0\r\nHost: x\r\n\r\n")
            answer = b"".join(iter(lambda: s.recv(65536), b""))
        return json.loads(answer.split(b"\r\n\r\n", 1)[1])

    def server(self, name, args, sock):
        server = Server(name, args, sock, self)
        self.servers.append(server)
        return server


class Server:
    """A process that serves a unix socket, in a cgroup of its own where that is allowed."""

    def __init__(self, name, args, sock, scratch):
        self.name, self.socket = name, sock
        self.cgroup = make_cgroup(CGROUPS, name)
        self.share = make_cgroup((CPU_CGROUP,), name)
        self.log = open(scratch.file(f"{name}.log"), "ab")
        self.began = time.monotonic()
        self.process = subprocess.Popen(args, env=scratch.env, stdout=self.log, stderr=self.log,
                                        preexec_fn=self.join_cgroup)
        self.ready_after = self.wait_ready()

    def join_cgroup(self):
        for group in filter(None, (self.cgroup, self.share)):
            with open(os.path.join(group, "cgroup.procs"), "w", encoding="ascii") as f:
                f.write("0")

    def wait_ready(self):
        """Seconds until the socket takes a connection."""
        while True:
            if self.process.poll() is not None:
                self.log.flush()
                raise RuntimeError(f"{self.name} ended: {open(self.log.name, encoding='utf-8').read()[-2000:]}")
            with socket.socket(socket.AF_UNIX) as s:
                try:
                    s.connect(self.socket)
                    return time.monotonic() - self.began
                except OSError:
                    if time.monotonic() - self.began > 60:
                        raise
            time.sleep(0.002)

    def cpu(self):
        """Seconds of user and system time so far, of all its threads; io_uring's workers are threads of the process."""
        if self.cgroup:
            for line in open(os.path.join(self.cgroup, "cpu.stat"), encoding="ascii"):
                if line.startswith("usage_usec"):
                    return int(line.split()[1]) / 1e6
        fields = open(f"/proc/{self.process.pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def uri(self, export=""):
        return f"nbd+unix:///{export}?socket={self.socket}"

    def memory(self, key):
        """A line of /proc/PID/status in bytes."""
        for line in open(f"/proc/{self.process.pid}/status", encoding="ascii"):
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
        return 0

    def bytes_read(self):
        """Bytes it has had read from storage."""
        for line in open(f"/proc/{self.process.pid}/io", encoding="ascii"):
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
        return 0

    def stop(self, number=signal.SIGTERM):
        """Asks it to end; gives the seconds that took."""
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(60)
        self.remove_cgroup()
        return time.monotonic() - began

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.remove_cgroup()

    def remove_cgroup(self):
        for group in filter(None, (self.cgroup, self.share)):
            for _ in range(50):
                try:
                    os.rmdir(group)
                    break
                except OSError:
                    time.sleep(0.02)
        self.cgroup = self.share = None


def make_cgroup(roots, name):
    """A cgroup below the first of `roots` that allows it and accounts for CPU time or shares it out."""
    for root in roots:
        if os.path.exists(os.path.join(root, "cgroup.procs")):
            path = os.path.join(root, f"bimetal-bench-{os.getpid()}-{name}")
            try:
                os.mkdir(path)
                if os.path.exists(os.path.join(path, "cpu.stat")):
                    return path
                os.rmdir(path)
            except OSError:
                pass
    return None


def fio(uri, rw, **options):
    """Runs fio against an NBD server; gives the job of its JSON answer. An option that is True is a bare switch."""
    args = ["fio", "--name=x", "--ioengine=nbd", f"--uri={uri}", f"--rw={rw}", "--output-format=json"]
    args += [f"--{k}" if v is True else f"--{k}={v}" for k, v in options.items()]
    done = subprocess.run(args, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"fio: {done.stderr.strip()} {done.stdout[-500:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]


def drop_cache(path):
    """Puts a file out of the page cache."""
    fd = os.open(path, os.O_RDWR)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


class Verdicts:
    """Bars, each met or not."""

    def __init__(self):
        self.rows = []

    def bar(self, text, ok):
        self.rows.append({"bar": text, "met": bool(ok)})
        print(f"{'pass' if ok else 'FAIL'}: {text}", flush=True)

    def end(self):
        passed = sum(r["met"] for r in self.rows)
        print(f"{passed} passed, {len(self.rows) - passed} failed")
        return 0 if passed == len(self.rows) else 1


def save(name, result):
    """Keeps a result as bench/results/NAME.json ($BENCH_RESULTS names another folder)."""
    folder = os.environ.get("BENCH_RESULTS") or os.path.join(HERE, "results")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    print(f"kept in {os.path.relpath(path)}")


median = statistics.median
