"""Runs the tests of this folder: main.py [quick|full] [name...]. Ends with `N passed, N failed`."""

import signal
import sys
import time
import traceback

import kit
import attached
import bad_input
import change_members
import copies
import dissolve
import hurt_members
import idle
import kill_attached
import kill_raw
import lost_member
import migrate
import soak

# Left out of a quick run unless named: each has a sibling there.
FULL_ONLY = {"xfs", "btrfs", "idle", "eio-read-slow", "eio-read-fast", "eio-some", "gone-slow", "stale-member",
             "lost-slow-killed", "lost-slow-xfs"}
MODULES = [copies, bad_input, hurt_members, migrate, kill_raw, attached, kill_attached, change_members, dissolve,
           lost_member, idle, soak]


def main():
    full, names = False, []
    for argument in sys.argv[1:]:
        if argument in ("quick", "full"):
            full = argument == "full"
        else:
            names.append(argument)
    # An interrupted run cleans up like a failed one.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tests = [(name, test) for module in MODULES for name, test in module.TESTS]
    unknown = [n for n in names if n not in dict(tests)]
    if unknown:
        sys.exit(f"no such test: {', '.join(unknown)}; there are: {', '.join(n for n, _ in tests)}")
    passed = failed = 0
    for name, test in tests:
        if (names and name not in names) or (not names and not full and name in FULL_ONLY):
            continue
        began = time.monotonic()
        try:
            with kit.World(name) as world:
                figures = test(world, full) or ""
            print(f"ok      {name} ({time.monotonic() - began:.1f} s) {figures}", flush=True)
            passed += 1
        except kit.Skip as why:
            print(f"skipped: clients/{name}: {why}", flush=True)
        except Exception:
            print(f"FAILED  {name} ({time.monotonic() - began:.1f} s)", flush=True)
            traceback.print_exc(file=sys.stdout)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


main()
