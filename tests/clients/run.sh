#!/bin/sh
# Real clients against the real daemon: `run.sh quick` (about a minute) or `run.sh full` (the bars), then names of
# single tests if not all are wanted. The binary is $BIMETAL_BIN, by default the release build of this checkout.
set -u
here=$(cd "$(dirname "$0")" && pwd)
BIMETAL_BIN=${BIMETAL_BIN:-${CARGO_TARGET_DIR:-$here/../../target}/release/bimetal}
export BIMETAL_BIN

if [ ! -x "$BIMETAL_BIN" ]; then
    echo "skipped: clients: no program at $BIMETAL_BIN (make build, or set BIMETAL_BIN)"
    echo "0 passed, 0 failed"
    exit 0
fi
# libnbd's Python module belongs to the system's Python, which need not be the first one on PATH.
python=
for candidate in python3 /usr/bin/python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    python=${python:-$candidate}
    if "$candidate" -c 'import nbd' 2>/dev/null; then python=$candidate && break; fi
done
if [ -z "$python" ]; then
    echo "skipped: clients: there is no python3"
    echo "0 passed, 0 failed"
    exit 0
fi
PYTHONDONTWRITEBYTECODE=1 exec "$python" "$here/main.py" "$@"
