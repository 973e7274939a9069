"""What the programs in the guest share."""

import json
import os
import subprocess
import time


def run(*args, **options):
    done = subprocess.run(args, capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(args)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def write(path, text):
    with open(path, "w", encoding="ascii") as f:
        f.write(text)


def read(path):
    with open(path, encoding="ascii") as f:
        return f.read().strip()


def until(what, seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(f"not within {seconds} s: {what}")
        time.sleep(0.2)


def serve(program, fast, slow, *volume):
    """A new group 'tank' with one volume 'main', served; the daemon's process."""
    os.environ["BIMETAL_RUN_DIR"], os.environ["BIMETAL_CONFIG_DIR"] = "/run/bimetal", "/run/bimetal.etc"
    run(program, "create", "tank", "--fast", fast, "--slow", slow, "--volume", ":".join(["main", *volume]), "--yes")
    with open("/run/serve.log", "ab") as log:
        daemon = subprocess.Popen([program, "serve", "tank"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    until("the daemon", 60, lambda: "serving" in subprocess.run(
        [program, "status", "tank", "--json"], capture_output=True, text=True).stdout)
    return daemon


def busy():
    """Seconds of processor time that the guest has spent, all in all."""
    fields = [int(x) for x in read("/proc/stat").splitlines()[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def fio(*args):
    """A load on a block device; its job in the JSON answer."""
    done = run("fio", "--name=x", "--ioengine=libaio", "--direct=1", "--output-format=json", "--unified_rw_reporting=1",
               "--lat_percentiles=1", "--clat_percentiles=0",
               *args)
    return json.loads(done[done.index("{"):])["jobs"][0]["mixed"]
