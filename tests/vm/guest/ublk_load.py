#!/usr/bin/env python3
"""A load that notices every lost or wrong write, until the file STOP appears.

usage: ublk_load.py FOLDER STOP

Rounds of fio: random writes with fsync, each block with its own checksum and number, and then, with the cache dropped,
all of them read and compared. Beside it, a writer of its own that appends numbered records with fsync and reads them all.
"""
import os
import subprocess
import sys
import threading

folder, stop = sys.argv[1:]
os.makedirs(folder)
errors = []


def fio(number):
    job = ["--name=load", f"--filename={folder}/fio{number % 3}", "--size=12M", "--rw=randwrite", "--bsrange=4k-64k",
           "--ioengine=psync", "--fsync=8", "--verify=crc32c", "--verify_fatal=1",
           "--do_verify=1", "--invalidate=1", f"--randseed={number}", "--minimal"]
    job += ["--direct=1"] if number % 2 else ["--fallocate=none"]
    done = subprocess.run(["fio", *job], capture_output=True, text=True)
    if done.returncode or "error" in done.stderr.lower():
        errors.append(f"fio, round {number}: status {done.returncode}: {done.stderr[-1500:]}")


def appender():
    record, count = 512, 0
    path = f"{folder}/records"
    while not os.path.exists(stop) and not errors:
        with open(path, "ab") as out:
            for _ in range(64):
                out.write(b"%016d" % count * (record // 16))
                count += 1
            out.flush()
            os.fsync(out.fileno())
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        with open(fd, "rb") as back:
            for i in range(count):
                if back.read(record) != b"%016d" % i * (record // 16):
                    errors.append(f"record {i} of {count} is not what was written")
                    return
        if count > 20000:
            os.unlink(path)
            count = 0


thread = threading.Thread(target=appender)
thread.start()
rounds = 0
while not os.path.exists(stop) and not errors:
    fio(rounds)
    rounds += 1
thread.join()
print(f"{rounds} rounds of fio", *errors, sep="\n")
sys.exit(bool(errors))
