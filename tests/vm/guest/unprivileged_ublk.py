#!/usr/bin/env python3
"""Another user's ublk device: added without rights of root (UBLK_F_UNPRIVILEGED_DEV), never started, and there until the guest ends.

Needs /dev/ublk-control open to users. Structures as in linux/ublk_cmd.h and linux/io_uring.h.
"""
import ctypes
import mmap
import os
import struct
import sys

SETUP, ENTER, SQE128, GETEVENTS, URING_CMD = 425, 426, 1 << 10, 1, 46
SQ_RING, CQ_RING, SQES = 0, 0x8000000, 0x10000000
ADD_DEV = 3 << 30 | 32 << 16 | ord("u") << 8 | 4  # _IOWR('u', 4, struct ublksrv_ctrl_cmd)
UNPRIVILEGED, IOCTL_ENCODE, ANY = 1 << 5, 1 << 6, 0xffffffff

libc = ctypes.CDLL(None, use_errno=True)
os.setgid(1000)
os.setuid(1000)
control = os.open("/dev/ublk-control", os.O_RDWR)

params = ctypes.create_string_buffer(struct.pack("<IIIIIII", 0, 0, SQE128, 0, 0, 0, 0).ljust(120, b"\0"), 120)
ring = libc.syscall(SETUP, 4, params)
if ring < 0:
    sys.exit(f"no io_uring: {os.strerror(ctypes.get_errno())}")
sq_tail, sq_array = struct.unpack_from("<II", params, 40 + 4)[0], struct.unpack_from("<I", params, 40 + 24)[0]
cqes = struct.unpack_from("<I", params, 80 + 20)[0]
rings = mmap.mmap(ring, 4096, mmap.MAP_SHARED, offset=SQ_RING)
completions = mmap.mmap(ring, 4096, mmap.MAP_SHARED, offset=CQ_RING)
entries = mmap.mmap(ring, 4096, mmap.MAP_SHARED, offset=SQES)

# One queue of 16 requests of 64 KiB at most.
info = ctypes.create_string_buffer(
    struct.pack("<HHHHIIiIQQ", 1, 16, 0, 0, 65536, ANY, os.getpid(), 0, UNPRIVILEGED | IOCTL_ENCODE, 0).ljust(64, b"\0"), 64)
command = struct.pack("<IHHQQHHI", ANY, 0xffff, 64, ctypes.addressof(info), 0, 0, 0, 0)
entry = bytearray(128)
struct.pack_into("<BBHiI", entry, 0, URING_CMD, 0, 0, control, ADD_DEV)
entry[48:48 + len(command)] = command
entries[0:128] = bytes(entry)
struct.pack_into("<I", rings, sq_array, 0)
struct.pack_into("<I", rings, sq_tail, 1)
if libc.syscall(ENTER, ring, 1, 1, GETEVENTS, None, 0) < 0:
    sys.exit(f"no command: {os.strerror(ctypes.get_errno())}")
result = struct.unpack_from("<i", completions, cqes + 8)[0]
print(os.strerror(-result) if result < 0 else "added")
sys.exit(1 if result < 0 else 0)
